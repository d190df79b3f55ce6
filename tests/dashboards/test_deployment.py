"""docker-compose.yml as the real Compose reads it, and what it, the Dockerfile and provisioning say of each other."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import main

ROOT = Path(__file__).parents[2]
COMPOSE = Path(sys.executable).parent / "docker-compose"
SECRETS = {"INFLUX_TOKEN": "a token", "INFLUX_PASSWORD": "a long password", "GRAFANA_PASSWORD": "another one"}
OURS = {"engine", "master", "worker"}
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")

# Names that the images know; a misspelt one would be silently ignored by them.
KNOWN = {
    "influxdb": {
        f"DOCKER_INFLUXDB_INIT_{name}" for name in ("MODE", "USERNAME", "PASSWORD", "ORG", "BUCKET", "ADMIN_TOKEN")
    },
    "influxdb3": set(),
    "grafana": {
        *("GF_SECURITY_ADMIN_USER", "GF_SECURITY_ADMIN_PASSWORD", "GF_USERS_ALLOW_SIGN_UP"),
        *("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH", "GF_ANALYTICS_REPORTING_ENABLED"),
        *("GF_ANALYTICS_CHECK_FOR_UPDATES", "GF_PLUGINS_PREINSTALL_DISABLED"),
        *("INFLUX_URL", "INFLUX_BUCKET", "INFLUX_TOKEN"),
    },
    "engine": set(),
    "master": {*(f"TOKENSWARM_INFLUX_{name}" for name in ("URL", "ORG", "TOKEN")), "TARGET_API_KEY"},
    "worker": {"TARGET_API_KEY"},
}


def config(*profiles: str, env_file: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The real Compose's reading of the file; no engine is needed for that."""
    if not COMPOSE.exists():
        pytest.skip("docker-compose is not installed; it comes with requirements-dev.lock")
    command = [str(COMPOSE), "--env-file", str(env_file or os.devnull), *(f"--profile={name}" for name in profiles)]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")} | environment
    return subprocess.run(
        [*command, "config", "--format", "json"], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """All services, with secrets given and everything else left as it is."""
    done = config("influx2", "influx3", **SECRETS)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["services"])


def seconds(duration: str) -> float:
    """Of `1m30s`."""
    return sum(float(number) * {"m": 60, "s": 1}[unit] for number, unit in re.findall(r"([\d.]+)([ms])", duration))


def test_the_example_lacks_nothing_but_the_secrets(tmp_path: Path) -> None:
    refused = config(env_file=ROOT / ".env.example")
    assert refused.returncode != 0
    assert set(re.findall(r"variable (\w+) is missing", refused.stderr)) == set(SECRETS)
    filled = EXAMPLE
    for name in SECRETS:
        filled = re.sub(rf"^{name}=$", f"{name}=filled-in", filled, flags=re.MULTILINE)
    (tmp_path / ".env").write_text(filled, encoding="utf-8")
    done = config(env_file=tmp_path / ".env")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == OURS | {"grafana", "influxdb"}


def test_a_profile_swaps_the_database_and_nothing_else() -> None:
    two, three = (json.loads(config(profile, **SECRETS).stdout)["services"] for profile in ("influx2", "influx3"))
    assert two.keys() - three.keys() == {"influxdb"}
    assert three.keys() - two.keys() == {"influxdb3"}
    assert "influxdb" in three["influxdb3"]["networks"]["default"]["aliases"]
    for name in two.keys() & three.keys():
        assert {**two[name], "depends_on": None} == {**three[name], "depends_on": None}


def test_every_variable_is_documented_and_its_default_is_true() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    used = dict(re.findall(r"\$\{(\w+)(?::-([^}]*))?", text))
    documented = dict(re.findall(r"^(?:# )?([A-Z][A-Z_]+)=(.*)$", EXAMPLE, flags=re.MULTILINE))
    assert documented.keys() - {"COMPOSE_PROFILES"} == used.keys()
    assert {name: documented[name] for name in used} == used
    assert re.findall(r"^([A-Z_]+)=", EXAMPLE, flags=re.MULTILINE) == ["COMPOSE_PROFILES", *SECRETS]


def test_no_secret_stands_in_the_file(services: dict[str, Any]) -> None:
    secret = re.compile("_(TOKEN|PASSWORD|KEY)$")
    for name, service in services.items():
        for key, value in (service.get("environment") or {}).items():
            assert not secret.search(key) or value in {*SECRETS.values(), ""}, (name, key)
    assert not set(SECRETS.values()) & set((services["influxdb3"].get("environment") or {}).values())


def test_environment_names_are_ones_that_the_images_know(services: dict[str, Any]) -> None:
    assert {name: set(service.get("environment") or ()) for name, service in services.items()} == KNOWN


def test_images_are_pinned(services: dict[str, Any]) -> None:
    for name in services.keys() - OURS:
        assert re.search(r":\d+\.\d+(\.\d+)?(-core)?$", services[name]["image"]), name
    types = json.loads((ROOT / "tests" / "dashboards" / "package.json").read_text(encoding="utf-8"))
    assert services["grafana"]["image"].split(":")[1] == types["devDependencies"]["@grafana/schema"]


def test_what_is_mounted_exists(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    bound = [mount for mount in mounts if mount["type"] == "bind"]
    assert bound
    assert all(Path(mount["source"]).is_dir() and mount["read_only"] for mount in bound)


def test_names_agree_between_services(services: dict[str, Any]) -> None:
    database, grafana, master = (services[name]["environment"] for name in ("influxdb", "grafana", "master"))
    assert master["TOKENSWARM_INFLUX_URL"] == f"{grafana['INFLUX_URL']}/{grafana['INFLUX_BUCKET']}"
    assert database["DOCKER_INFLUXDB_INIT_BUCKET"] == grafana["INFLUX_BUCKET"]
    assert database["DOCKER_INFLUXDB_INIT_ORG"] == master["TOKENSWARM_INFLUX_ORG"]
    tokens = {database["DOCKER_INFLUXDB_INIT_ADMIN_TOKEN"], grafana["INFLUX_TOKEN"], master["TOKENSWARM_INFLUX_TOKEN"]}
    assert tokens == {SECRETS["INFLUX_TOKEN"]}


def test_provisioning_is_found_where_grafana_looks(services: dict[str, Any]) -> None:
    mounted = {mount["target"]: Path(mount["source"]) for mount in services["grafana"]["volumes"]}
    provisioning = mounted["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "tokenswarm.yaml").read_text())["providers"]
    assert list(mounted[provider["options"]["path"]].glob("*.json"))
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).is_file()
    source = (provisioning / "datasources" / "influxdb.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)\}", source)) <= KNOWN["grafana"]


def test_services_wait_for_what_they_need(services: dict[str, Any]) -> None:
    waits = {name: set(service.get("depends_on", {})) for name, service in services.items()}
    assert waits["grafana"] == {"influxdb", "influxdb3"}
    assert waits["master"] == {"engine", "influxdb", "influxdb3"}
    assert waits["worker"] == {"master"}
    for service in services.values():
        for needed, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            assert services[needed]["healthcheck"]["test"]


def test_every_service_may_finish_what_it_holds(services: dict[str, Any]) -> None:
    grace_s = {name: seconds(service.get("stop_grace_period", "10s")) for name, service in services.items()}
    assert grace_s["master"] > grace_s["worker"] > 30, "the master takes what workers still hold"
    assert min(grace_s[name] for name in ("influxdb", "influxdb3", "grafana")) >= 30


def test_ports_are_for_this_machine_alone(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert {port["target"] for port in ports} == {3000, 8086, 8089}
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert "ports" not in services["influxdb3"], "it has no password"


def test_commands_use_options_that_exist(services: dict[str, Any]) -> None:
    program, verb, *rest = services["engine"]["command"]
    assert program == "tokenswarm"
    known = {name for parameter in main.commands[verb].params for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known
    locustfile = (ROOT / "locustfile.py").read_text(encoding="utf-8")
    own = {"-f", "--master", "--worker", "--master-host", "--host"} | set(re.findall(r'"(--[\w-]+)"', locustfile))
    for name in ("master", "worker"):
        program, *words = services[name]["command"]
        assert program == "locust"
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= own


# --- the image --------------------------------------------------------------------------------------------------------


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COPIED = [
    word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, flags=re.MULTILINE) for word in line.split()[:-1]
]


def test_the_build_context_is_what_the_dockerfile_copies() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    assert sorted(line[1:] for line in lines if line.startswith("!")) == sorted(COPIED)


def test_what_the_dockerfile_copies_makes_the_wheel(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for name in COPIED:
        (context / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=context, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"harness/starter/{name}" for name in ("locustfile.py", "dashboards/saturation.json")} <= inside
    assert "harness/cli.py" in inside


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases[0])
    last = DOCKERFILE.rpartition("FROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", last, flags=re.MULTILINE)
    assert user
    assert int(user[1]) >= 1000
    assert "--require-hashes" in DOCKERFILE
    assert "pip install" not in last
