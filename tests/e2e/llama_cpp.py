"""A real llama.cpp server for the tests: built once, cached outside the repository. Starts and ends processes.

`python tests/e2e/llama_cpp.py` builds it and says where it lies. The first build takes minutes, the next call none.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp_build as build
from llama_cpp_build import Unavailable

START_LIMIT_S = 30.0
CONTEXT_TOKENS_PER_SLOT = 4096


def binary() -> Path:
    """The `llama-server` of this version, these flags and this CPU; built when the cache lacks it.

    Raises Unavailable.
    """
    out = build.home() / "llama-server"
    with build.locked(build.home()):
        if not out.exists():
            build.build(build.home())
    return out


def model() -> Path:
    """A random-weight GGUF, made when the cache lacks it. Raises Unavailable."""
    binary()
    try:
        import tiny_gguf
    except ImportError as error:
        raise Unavailable(f"the model maker needs numpy and gguf, install the dev dependencies ({error})") from error
    shape = tiny_gguf.Shape()
    out = build.home() / f"tiny-{build.digest(repr(shape), Path(tiny_gguf.__file__).read_text())}.gguf"
    with build.locked(build.home()):
        if not out.exists():
            part = out.with_suffix(".part")
            tiny_gguf.write(part, vocab=build.home() / build.VOCAB, shape=shape)
            part.rename(out)
    return out


@contextmanager
def server(*, parallel: int = 2) -> Iterator[str]:
    """Base URL of a running server with so many slots and one compute thread; it is gone when the block ends.

    Raises Unavailable when it cannot be built, RuntimeError with the end of its log when it does not start.
    """
    port = _free_port()
    command = [*_command(parallel), "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), start_new_session=True
        )
        try:
            if not _healthy(process, port):
                log.seek(0)
                raise RuntimeError(f"llama-server did not start:\n{build.tail(log.read())}")
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


def _command(parallel: int) -> list[str]:
    """One compute thread: with more, threads spin at barriers and any neighbour on the CPU ruins the pace. No prompt
    cache: the same prompt must cost the same twice. More HTTP threads than slots, or they would be the queue."""
    options = f"--host 127.0.0.1 -np {parallel} -t 1 -c {parallel * CONTEXT_TOKENS_PER_SLOT} --alias tiny"
    switches = "--metrics --offline --no-cache-prompt --cache-ram 0 --threads-http 64"
    return [str(binary()), "-m", str(model()), *options.split(), *switches.split()]


def _environment() -> dict[str, str]:
    """Ours without llama.cpp's own settings, which would win where the command line is silent."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _healthy(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether /health says 200 in time, while the process lives."""
    until_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until_s and process.poll() is None:
        if _health(port) == 200:
            return True
        time.sleep(0.02)
    return False


def _health(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:  # not listening yet
        return None
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for the whole group: there is nothing to save, and a polite end waits for open streams."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Build, and say where. 0, or 2 with the reason."""
    try:
        sys.stdout.write(f"{binary()}\n{model()}\n")
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
