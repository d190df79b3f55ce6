"""What the documents say is what the code says."""

from pathlib import Path

from harness import schema, shipped

ROOT = Path(__file__).parents[2]


def test_the_field_table_is_the_schema() -> None:
    said = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
    assert said.endswith(schema.markdown()), "docs/fields.md: put schema.markdown() there again"


def test_the_readme_is_short_and_names_every_shipped_scenario() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 200
    for name in shipped.scenario_names():
        assert f"`{name}`" in readme


def test_the_readme_names_every_dependency_with_its_reason() -> None:
    import tomllib

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    reasons = readme.partition("## Why these packages")[2]
    for needed in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]:
        assert needed.split(">")[0] in reasons, needed


def test_lock_files_name_no_address() -> None:
    """They hold versions and hashes: from where they come is each machine's own affair."""
    for path in ROOT.glob("*.lock"):
        assert "://" not in path.read_text(encoding="utf-8"), path
