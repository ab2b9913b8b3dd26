"""The tables that ship as JSON beside their modules: each row fits its schema, and nothing is written twice."""

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from workbench.cann_emulator.atc.failure import catalogue
from workbench.targets.ascend.acl import calls as acl
from workbench.targets.ascend.atc import codes as atc
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import loads

PACKAGE = Path(__file__).parent.parent / "workbench"


def test_a_code_of_pyacl_stands_once_and_its_kind_has_a_remedy() -> None:
    rows = [row for rows in acl._table()["codes"].values() for row in rows]

    assert len(acl.meanings()) == len(rows)
    assert set(acl._table()["remedies"]) == set(get_args(acl.Kind))


def test_codes_and_patterns_of_atc_are_such_and_a_row_that_lacks_a_field_is_refused_by_its_place() -> None:
    table = atc.table()
    for family in (*table.cases, *table.ranges):
        re.compile(family.code)
    for case in table.cases:
        re.compile(case.words)
    assert all(re.fullmatch(r"[EW][A-Z0-9]\d{4}", code) for code in (*table.codes, *catalogue()))
    for name in ("problem", "who"):
        whole = loads((PACKAGE / "targets/ascend/atc/codes.json").read_bytes())
        code, row = next(iter(whole["codes"].items()))
        del row[name]
        with pytest.raises(DecodeError, match=code):
            decode(atc.Table, whole, "atc/codes.json")


def test_every_table_ships_and_is_named_by_a_module_beside_it() -> None:
    declared = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '"**/*.json"' in declared
    for file in PACKAGE.rglob("*.json"):
        assert any(f'"{file.name}"' in module.read_text(encoding="utf-8") for module in file.parent.glob("*.py")), file


def test_tables_are_read_when_they_are_asked_for() -> None:
    for module in ("workbench.targets.ascend.acl.calls", "workbench.targets.ascend.atc.codes"):
        assert not re.search(r"^\w.*loads\(", Path(str(importlib.import_module(module).__file__)).read_text(), re.M)
