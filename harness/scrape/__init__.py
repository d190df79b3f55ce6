"""What the server under test says of itself: its Prometheus page, read once a second into the log kind `server`.

A process of its own, so that nothing here can delay a token: `command` is what starts it. In the order in which a look
passes through: `fetch` gets the page, `vocabulary` says which of its names mean what, `fold` makes `Vitals` of them,
`look` tells what came instead, `watch` keeps it all. `vocabulary`, `fold` and `look` are pure.
"""

import sys
from pathlib import Path

from msgspec import Struct

from harness.model import Positive


class Options(Struct, frozen=True, kw_only=True):
    """How to look at a server."""

    every_s: Positive = 1.0
    api_key_env: str | None = None
    """Name of the environment variable that holds the key for the page; None: none is sent."""
    ca_file: str | None = None
    verify_tls: bool = True


def command(url: str, directory: Path, options: Options | None = None) -> list[str]:
    """The process that watches the server at `url` for the run in `directory` until SIGTERM, SIGINT or the death of
    its parent. A URL without a path means `/metrics` there."""
    options = options or Options()
    words = [sys.executable, "-m", "harness.scrape", "--url", url, "--out", str(directory)]
    words += ["--every", str(options.every_s)]
    if options.api_key_env:
        words += ["--api-key-env", options.api_key_env]
    if options.ca_file:
        words += ["--ca-file", options.ca_file]
    return words if options.verify_tls else [*words, "--no-verify-tls"]
