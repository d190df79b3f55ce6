"""The writer against a real VictoriaMetrics, which influxdb-client's own /api/v2/write reaches unchanged."""

from pathlib import Path

import msgspec
import pytest
from servers import HTTP, Server
from writing import Session, tokens

from harness.export.influx.influxql import NoInfluxQL
from harness.export.influx.writer import Written


def indices(server: Server, database: str) -> set[float]:
    """Distinct values of token_index that it has stored."""
    HTTP.request("GET", f"{server.url}/internal/force_flush")
    match = {"match[]": f'token_index{{run="{database}"}}'}
    lines = HTTP.request("GET", f"{server.url}/api/v1/export", fields=match).data.splitlines()
    return {value for line in lines for value in msgspec.json.decode(line)["values"]}


@pytest.mark.parametrize("version", ["auto", "1", "2", "3"])
def test_every_token_arrives_on_every_path(version: str, victoria: Server, tmp_path: Path) -> None:
    options = {"version": version, "org": "any"}
    with Session(f"{victoria.url}/any", tmp_path, options) as session:  # type: ignore[arg-type]  # a plain dict
        assert session.write(tokens(7000, run=version)) == Written(accepted=7000)
        assert session.database.version == {"auto": "2"}.get(version, version)
    assert indices(victoria, version) == set(range(7000))


def test_it_cannot_be_asked_and_says_so(victoria: Server, tmp_path: Path) -> None:
    with Session(f"{victoria.url}/any", tmp_path) as session:
        session.write(tokens(10))
        assert session.count() is None
        with pytest.raises(NoInfluxQL, match="no InfluxQL"):
            list(session.database.query('SELECT "index" FROM "token"'))
