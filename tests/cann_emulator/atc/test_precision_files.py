"""Forms and codes of the precision files (atc.md §3.2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.precision import BLACK, WHITE
from workbench.cann_emulator.atc.precision_files import (
    read_customize_dtypes,
    read_mixlist,
)


def file(folder: Path, text: str) -> str:
    (folder / "f").write_text(text)
    return str(folder / "f")


def code(call: Any, *arguments: Any) -> str:
    with pytest.raises(AtcFailure) as caught:
        call(*arguments)
    return caught.value.records[0].code


def lists(**changes: list[str]) -> str:
    """add_black=["Pow"] → the JSON."""
    content: dict[str, dict[str, list[str]]] = {}
    for key, kinds in changes.items():
        action, which = key.split("_")
        content.setdefault(f"{which}-list", {})[f"to-{action}"] = kinds
    return json.dumps(content)


def test_allowed_changes_of_the_lists(tmp_path: Path) -> None:
    for changes, expected in (
        ({"remove_black": ["Pow"]}, [False, False]),
        ({"add_white": ["Pow"], "remove_black": ["Pow"]}, [True, False]),
        ({"add_black": ["Pow"], "remove_gray": ["Pow"]}, [False, True]),
    ):
        found = read_mixlist(file(tmp_path, lists(**changes)))
        assert [("Pow" in one) for one in found] == expected
        assert (found[0] ^ WHITE) | (found[1] ^ BLACK) <= {"Pow"}


def test_other_combinations_and_mixlists_of_another_form_are_refused(tmp_path: Path) -> None:
    changes: list[dict[str, list[str]]] = [
        {"add_black": ["Pow"], "add_white": ["Pow"]},
        {"add_gray": ["Pow"], "add_white": ["Pow"]},
        {"remove_gray": ["Pow"]},
        {"remove_white": ["Pow"], "remove_black": ["Pow"]},
        {"add_black": ["Pow"], "remove_black": ["Pow"]},
    ]
    for change in changes:
        assert code(read_mixlist, file(tmp_path, lists(**change))) == "E20003"
    for text in (
        '{"black-list": {"to-add": ["Pow"]} // as the manual prints it\n}',
        '{"grey-list": {"to-add": ["Pow"]}}',
        '{"black-list": {"add": ["Pow"]}}',
        '{"black-list": {"to-add": "Pow"}}',
        "[]",
    ):
        assert code(read_mixlist, file(tmp_path, text)) == "E21002"
    assert code(read_mixlist, file(tmp_path, "")) == "E19999"
    assert code(read_mixlist, str(tmp_path / "nowhere")) == "E21001"


def test_customize_dtypes_of_another_form_are_refused(tmp_path: Path) -> None:
    for text in ("a::InputDtype:float17", "a::OutputDtype:float16,InputDtype:float16"):
        assert code(read_customize_dtypes, file(tmp_path, text)) == "E20003"
    for text in ("a InputDtype:float16", "a::Dtype:float16"):
        assert code(read_customize_dtypes, file(tmp_path, text)) == "E20101"
