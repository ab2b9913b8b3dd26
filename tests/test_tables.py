"""The tables that ship as JSON beside their modules: each row fits its schema, and nothing is written twice."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "workbench"


def test_every_table_ships_and_is_named_by_a_module_beside_it() -> None:
    declared = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '"**/*.json"' in declared
    for file in PACKAGE.rglob("*.json"):
        assert any(f'"{file.name}"' in module.read_text(encoding="utf-8") for module in file.parent.glob("*.py")), file
