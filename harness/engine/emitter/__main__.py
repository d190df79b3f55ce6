"""`python -m harness.engine.emitter`: the known emitter as a process of its own, until it is told to end. I/O."""

import argparse
import gc
import resource
import signal
import socket
import ssl
import sys

from harness.engine.emitter.beat import MOST_TOKENS, Beat
from harness.engine.emitter.loop import Emitter

MOST_MS = 3_600_000


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """A server's context from PEM files. Raises OSError when they cannot be read or do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def _announce(port: int) -> None:
    sys.stdout.write(f"port {port}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.engine.emitter", description="A known emitter.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; announced on stdout as `port N`")
    parser.add_argument("--truth", required=True, help="file that gets what was truly sent")
    parser.add_argument("--first-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=100, help="for requests without max_tokens")
    parser.add_argument("--tls-cert", help="PEM file; with --tls-key: serve HTTPS")
    parser.add_argument("--tls-key")
    return parser


def _wrong(args: argparse.Namespace) -> str | None:
    """What does not fit in these arguments; None: all is well."""
    if bool(args.tls_cert) != bool(args.tls_key):
        return "--tls-cert and --tls-key go together: got one of them, expected both or neither"
    if not (0 <= args.first_ms <= MOST_MS and 0 <= args.gap_ms <= MOST_MS and 1 <= args.tokens <= MOST_TOKENS):
        got = f"got {args.first_ms:g}, {args.gap_ms:g} and {args.tokens}"
        expected = f"expected 0 to {MOST_MS} ms and 1 to {MOST_TOKENS} tokens"
        return f"--first-ms, --gap-ms and --tokens are out of range: {got}, {expected}"
    return None


def main(argv: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then leaves a whole truth file behind. Wrong arguments: one line, exit 2."""
    parser = _parser()
    args = parser.parse_args(argv)
    if wrong := _wrong(args):
        parser.error(wrong)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        tls = tls_context(args.tls_cert, args.tls_key) if args.tls_cert else None
        listener = socket.create_server((args.host, args.port), backlog=4096)
        truth = open(args.truth, "wb", buffering=65536)  # noqa: SIM115 - closed below, together with the listener
    except OSError as error:
        parser.error(f"cannot start on {args.host}:{args.port} with truth file {args.truth}: {error}")
    cap = max(args.tokens, Beat().tokens_cap)
    beat = Beat(first_ms=args.first_ms, gap_ms=args.gap_ms, tokens=args.tokens, tokens_cap=cap)
    with listener, truth:
        emitter = Emitter(beat, listener, truth, tls)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda _signum, _frame: emitter.stop())
        gc.disable()  # nothing here grows in cycles while streams run, and a collection would make tokens late
        emitter.run(_announce)


if __name__ == "__main__":
    main()
