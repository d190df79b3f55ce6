"""Processes beside a run: one asks the server for its metrics, one takes the log to a database. I/O, under gevent.

Neither can disturb the measurement or fail the run: they share nothing with it but the run directory.
"""

import os
import subprocess
from pathlib import Path

from harness import scrape
from harness.export import command as export
from harness.model import RunHeader

SAID = "companions.log"
NICE = 19
"""Whoever measures goes first, from the very start: loading a companion takes a second of CPU."""
END_S = 3.0
"""How long one may take to end once it is told to."""


class Companions:
    """Of one run. Start them once the header is written."""

    def __init__(self, header: RunHeader, directory: Path) -> None:
        self._directory = directory
        self._log = directory / SAID
        scenario = header.scenario
        self._influx = scenario.influx
        self._scraper = self._started(_scraping(header, directory)) if scenario.target.metrics else None
        self._exporter = self._started(export.command(directory)) if self._influx else None

    def _started(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=lambda: os.nice(NICE)
            )

    def behind(self) -> str:
        """How far the exporter is behind, where that is worth a word."""
        return export.behind(self._directory, self._influx) if self._influx else ""

    def end_scraping(self) -> None:
        """Nothing is left to measure: what was scraped is on disk when this returns."""
        if self._scraper is not None:
            _end(self._scraper)

    def end_exporting(self) -> None:
        """The report is written, which tells the exporter that the run is over: give it the time that was granted."""
        if self._exporter is not None and self._influx is not None:
            try:
                self._exporter.wait(self._influx.wait_s)
            except subprocess.TimeoutExpired:
                _end(self._exporter)

    def said(self) -> str:
        """What they had to say; "" when nothing."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        if not text:
            self._log.unlink(missing_ok=True)
        return text


def _scraping(header: RunHeader, directory: Path) -> list[str]:
    target = header.scenario.target
    url = target.metrics if "://" in target.metrics else header.host.rstrip("/") + target.metrics
    return scrape.command(url, directory, scrape.Options(ca_file=target.ca_file, verify_tls=target.verify_tls))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
