"""Files that come with the package: the locustfile, scenarios and dashboards. I/O (looks for files)."""

from pathlib import Path

_HERE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Path of a shipped file or folder: in the wheel below `harness/starter`, in a checkout at the top."""
    inside = _HERE / "starter" / name
    return inside if inside.exists() else _HERE.parent / name


def scenario_names() -> list[str]:
    """Names of the shipped scenarios."""
    return sorted(path.stem for path in shipped("scenarios").glob("*.yaml"))


def scenario_path(name: str) -> Path:
    """A path as given, or the shipped scenario of that name. Raises FileNotFoundError with one clear line."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        if path.is_file():
            return path
        raise FileNotFoundError(f"scenario: no file {name}; shipped ones: {', '.join(scenario_names())}")
    inside = shipped("scenarios") / f"{name}.yaml"
    if not inside.is_file():
        raise FileNotFoundError(
            f"scenario: no file and no shipped scenario {name!r}; shipped ones: {', '.join(scenario_names())}"
        )
    return inside
