"""What tests of recording share: one real InfluxDB 1.x with a fresh database for each test, and its special kinds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from servers import Influxd, Server
from stub_influx import Stub, stub


@pytest.fixture(scope="session")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """As Debian ships it."""
    with servers.influxd(tmp_path_factory.mktemp("influxd")) as server:
        yield server


@pytest.fixture
def fresh(influxd: Influxd, request: pytest.FixtureRequest) -> str:
    """URL of a database that this test has for itself."""
    name = request.node.name
    influxd.ask(f'CREATE DATABASE "{name}"')
    return f"{influxd.url}/{name}"


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Influxd]:
    """One that a test may kill."""
    with servers.influxd(tmp_path / "influxd") as server:
        yield server


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """Takes small bodies, one at a time, and keeps no more than one waiting."""
    limits = "max-body-size = 100000\nmax-concurrent-write-limit = 1\nmax-enqueued-write-limit = 1"
    with servers.influxd(tmp_path_factory.mktemp("narrow"), f'{limits}\nenqueued-write-timeout = "50ms"') as server:
        yield server


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """Asks who one is: admin/a-long-secret may all, writer/w-long-secret may write to `open`, reader/r-long-secret
    may only read there."""
    with servers.influxd(tmp_path_factory.mktemp("locked"), "auth-enabled = true") as server:
        server.ask("CREATE USER admin WITH PASSWORD 'a-long-secret' WITH ALL PRIVILEGES")
        for statement in (
            "CREATE DATABASE open",
            "CREATE USER writer WITH PASSWORD 'w-long-secret'",
            "GRANT ALL ON open TO writer",
            "CREATE USER reader WITH PASSWORD 'r-long-secret'",
            "GRANT READ ON open TO reader",
        ):
            server.ask(statement, login="admin:a-long-secret")
        yield server


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.victoria(tmp_path_factory.mktemp("victoria")) as server:
        yield server


@pytest.fixture
def second() -> Iterator[Stub]:
    """Answers as InfluxDB 2.x does."""
    with stub("2") as server:
        yield server


@pytest.fixture
def third() -> Iterator[Stub]:
    """Answers as InfluxDB 3 Core does."""
    with stub("3") as server:
        yield server
