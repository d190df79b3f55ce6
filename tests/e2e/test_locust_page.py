"""Plain Locust with its web page on our locustfile, and the report in a real browser."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from command import LOCUST, balanced, begun, settings, soon, summary

pytestmark = pytest.mark.e2e

CHROMIUM = shutil.which("chromium")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: pages were not looked at in a browser")
SETS = [word if word != "-s" else "--set" for word in settings(load__levels=[2, 3], phases__hold_s=0.7)]


class Page:
    """Locust's page, as its buttons use it."""

    def __init__(self, url: str, cwd: Path) -> None:
        self.url = url
        self._cwd = cwd

    def get(self, path: str) -> Any:
        """JSON of one of its addresses; None while nobody answers."""
        try:
            with urlopen(self.url + path, timeout=5) as answer:
                return json.load(answer)
        except URLError:
            return None

    def press(self, button: str, **form: object) -> Any:
        """Start (swarm) or stop."""
        with urlopen(f"{self.url}/{button}", data=urlencode(form).encode(), timeout=5) as answer:
            return json.load(answer)

    def rows(self) -> dict[str, int]:
        """Requests so far, by kind."""
        return {row["method"]: row["num_requests"] for row in self.get("/stats/requests")["stats"] if row["method"]}

    def is_at_rest(self) -> bool:
        """No run is under way."""
        return self.get("/stats/requests")["state"] in ("stopped", "ready")

    def runs(self) -> list[Path]:
        """Run directories, the oldest first."""
        return sorted((self._cwd / "runs").glob("*"))

    def run(self, number: int) -> Path:
        """The directory of this run, once it is there."""
        found: list[Path] = soon(lambda: self.runs()[number:])
        return found[0]

    def said(self) -> str:
        """What Locust wrote to stderr."""
        return (self._cwd / "stderr.txt").read_text()


@pytest.fixture(scope="module")
def page(host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Locust with its web page on a free port; whatever is pressed, it stays."""
    cwd = tmp_path_factory.mktemp("page")
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
    web = ["--web-host", "127.0.0.1", "--web-port", port]
    with begun([*LOCUST, "--scenario", "demo", "--host", host, *SETS, *web], cwd) as process:
        opened = Page(f"http://127.0.0.1:{port}", cwd)
        soon(lambda: opened.get("/stats/requests"))
        yield opened
        assert process.poll() is None


def browsed(url: str, profile: Path) -> tuple[str, list[str]]:
    """The document after its scripts have run, and what the console complained of, mere warnings aside."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", "--virtual-time-budget=4000", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line and '"WARN' not in line]


def test_start_makes_a_run_and_start_again_makes_another(page: Page) -> None:
    for already in (0, 1):
        assert page.press("swarm", user_count=1, spawn_rate=1)["success"]
        run = page.run(already)
        soon((run / "report.html").exists)
        soon(page.is_at_rest)
        assert len(page.runs()) == already + 1
        assert [level["load"] for level in summary(run)["levels"]] == [2, 3]
        assert page.rows()["POST"] == balanced(run)["due"], "the page saw every request of this run, and of no other"


@needs_chromium
def test_a_browser_shows_the_rows_of_a_run(page: Page, tmp_path: Path) -> None:
    page.press("swarm", user_count=1, spawn_rate=1)
    soon(lambda: not page.is_at_rest())
    soon(lambda: page.rows().get("TTFT", 0) > 10)
    document, complaints = browsed(page.url, tmp_path / "profile")
    assert not complaints
    assert {"POST", "TTFT"} <= set(re.findall(r">(POST|TTFT)<", document))
    soon(page.is_at_rest)


def test_stop_ends_a_run_in_order_and_a_wrong_host_costs_only_a_line(page: Page) -> None:
    before, levels = page.runs(), page.said().count("level 1: 2 users, ")
    page.press("swarm", user_count=1, spawn_rate=1)
    run = page.run(len(before))
    soon(lambda: page.said().count("level 1: 2 users, ") > levels)
    time.sleep(0.4)  # into the hold, where somebody is always under way
    page.press("stop")
    soon((run / "report.html").exists)
    soon(page.is_at_rest)
    assert balanced(run)["outcomes"]["censored"] >= 1
    assert summary(run)["verdict"]["text"].startswith("stopped early")

    page.press("swarm", user_count=1, spawn_rate=1, host="http://127.0.0.1:9")
    soon(lambda: "Connection refused" in page.said())
    soon(page.is_at_rest)
    assert page.runs() == [*before, run]


@needs_chromium
def test_a_browser_draws_the_report_without_complaint(finished: Path, tmp_path: Path) -> None:
    document, complaints = browsed((finished / "report.html").as_uri(), tmp_path / "profile")
    assert not complaints
    plots = json.loads(re.search(r'<script[^>]*id="plots"[^>]*>(.*?)</script>', document, re.DOTALL)[1])  # type: ignore[index]
    assert plots
    for name in plots:
        drawn = re.search(rf'<div[^>]*id="{re.escape(name)}"[^>]*js-plotly-plot', document) or re.search(
            rf'<div[^>]*js-plotly-plot[^>]*id="{re.escape(name)}"', document
        )
        assert drawn, f"{name} was not drawn"
    assert document.count('class="main-svg"') >= len(plots)
    elements = re.sub(r"(<script[^>]*>).*?</script>", r"\1", document, flags=re.DOTALL)
    assert not re.findall(r"<link|src=|url\(http", elements), "nothing is loaded from anywhere"
