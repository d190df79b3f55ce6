"""`python -m harness.scrape`: watches one server's metrics for one run. I/O; says nothing but trouble, on stderr."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from harness.model import Target
from harness.record.log import Vitals
from harness.scrape.fetch import Page, fetched
from harness.scrape.look import Trouble, vitals
from harness.scrape.watch import Ended, Kept, Life, watch
from harness.wire.endpoint import endpoint, tls_context

NICE = 10
"""Whoever measures goes first."""


def main(argv: Sequence[str] | None = None) -> None:
    """Watches until it is told to end, then writes what it has. Wrong arguments: one line, exit 2."""
    args = _parser().parse_args(argv)
    life = Life()
    try:
        page, kept = _page(args), Kept(args.out)
    except (OSError, ValueError) as error:
        _wrong(str(error))
    with contextlib.suppress(OSError):
        os.nice(NICE)
    try:
        watch(_look(page, life), life.ticks(args.every), kept, _say)
    except Ended:
        pass
    finally:
        _write(kept)


def _look(page: Page, life: Life) -> Callable[[], Vitals | Trouble]:
    def look() -> Vitals | Trouble:
        with life.waiting():
            answer = fetched(page)
        return answer if isinstance(answer, Trouble) else vitals(answer)

    return look


def _write(kept: Kept) -> None:
    try:
        kept.flush()
    except OSError as error:
        _say(f"the last server metrics were not written: {error}")


def _page(args: argparse.Namespace) -> Page:
    """ValueError, one line: the URL, the key or the CA file is not what it should be."""
    if not 0.01 <= args.every <= 3600:
        raise ValueError(f"--every: got {args.every:g}, expected seconds, 0.01 to 3600")
    where = endpoint(args.url)
    if not where.base_path:
        where = endpoint(args.url.rstrip("/") + "/metrics")
    tls = tls_context(Target(ca_file=args.ca_file, verify_tls=not args.no_verify_tls)) if where.secure else None
    return Page(endpoint=where, tls=tls, key=_key(args.api_key_env))


def _key(name: str | None) -> str:
    if name is None:
        return ""
    if not os.environ.get(name):
        raise ValueError(f"--api-key-env: the environment variable {name} is not set; set it, or leave the option out")
    return os.environ[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.scrape", description="Watches a server's metrics page.")
    parser.add_argument("--url", required=True, help="of the page; without a path: /metrics there")
    parser.add_argument("--out", required=True, type=Path, help="run directory, which gets server-0.arrows")
    parser.add_argument("--every", type=float, default=1.0, help="seconds from look to look")
    parser.add_argument("--api-key-env", help="environment variable with a key for the page; else none is sent")
    parser.add_argument("--ca-file")
    parser.add_argument("--no-verify-tls", action="store_true")
    return parser


def _wrong(text: str) -> NoReturn:
    _say(text)
    sys.exit(2)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
