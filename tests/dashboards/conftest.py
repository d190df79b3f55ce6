"""One seeded database for all tests of the dashboards."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # dashboards/ is no installed package

import local_influx  # noqa: E402  (after the path is known)
from seed import Seeded, measured, seeded  # noqa: E402  (likewise)


@pytest.fixture(scope="session", params=["made up", "measured"])
def origin(request: pytest.FixtureRequest) -> str:
    """Where the runs come from: made up with awkward names and every kind of value, or really measured."""
    return str(request.param)


@pytest.fixture(scope="session")
def influx(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real, empty InfluxDB 1.x."""
    if not local_influx.available():
        pytest.skip("influxd is not installed; on Debian: apt-get install influxdb")
    with local_influx.running(tmp_path_factory.mktemp("influxd")) as url:
        yield url


@pytest.fixture(scope="session")
def two_runs(origin: str, influx: str, tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    """What stands in that database."""
    return seeded(influx) if origin == "made up" else measured(influx, tmp_path_factory.mktemp("runs"))
