"""atc.md §1 (table of values) and §2 (the flags of 8.5.0)."""

import ast
import string
from pathlib import Path

import pytest

import workbench.cann_emulator.atc as atc
from tests.reference_pages import atc_flags, atc_values
from workbench.cann_emulator.atc.failure import AtcFailure, entry_of, is_inner
from workbench.cann_emulator.atc.flags import Malformed, known_flags, parse

KNOWN = known_flags((8, 5, 0))

NOT_IN_8_5_0 = """
optimization_switch jit_compile static_model_ops_lower_limit multi_stream_parallel_mode raw_ge_options
raw_ge_options_ignore_unsupported h2d_overlapped_with_compute hccl_sub_comm_config enable_attr_compression
deterministic_level
"""


def test_the_flags_of_8_5_0_are_those_of_the_reference_page() -> None:
    listed, named = atc_flags()

    assert listed - {"help"} <= set(KNOWN) <= named


def test_every_flag_of_8_5_0_takes_a_value() -> None:
    for name, flag in KNOWN.items():
        value = flag.values[-1] if flag.values else "anything at all"
        assert flag.about
        assert parse([f"--{name}={value}"], KNOWN) == {name: value}
        with pytest.raises(Malformed, match="missing its argument"):
            parse([f"--{name}"], KNOWN)


def test_a_newer_flag_is_unknown_and_a_maintenance_release_knows_one_more() -> None:
    for name in NOT_IN_8_5_0.split():
        with pytest.raises(Malformed, match=f"unknown command line flag '{name}'"):
            parse([f"--{name}=1"], KNOWN)
    assert set(known_flags((8, 5, 1))) - set(KNOWN) == {"deterministic_level"}
    assert parse(["--deterministic_level=2"], known_flags((8, 5, 1))) == {"deterministic_level": "2"}


def test_values_of_the_table_are_accepted_and_any_other_is_rejected_with_its_code() -> None:
    """The allowed values are told alphabetically, in brackets."""
    assert {name for name, flag in KNOWN.items() if flag.values} == set(atc_values())
    for name, (values, code) in atc_values().items():
        for value in values:
            assert parse([f"--{name}", value], KNOWN) == {name: value}
        for wrong in ("", "2.0", "7", "nonsense", " 1"):
            with pytest.raises(AtcFailure) as caught:
                parse([f"--{name}={wrong}"], KNOWN)
            (record,) = caught.value.records
            assert record.code == code, name
            if code == "E10001":
                assert record.arguments["parameter"] == f"--{name}"
                assert " ".join(f"[{value}]" for value in sorted(values)) in record.arguments["reason"]


def arguments_of(message: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(message) if name}


def raised_records() -> list[tuple[str, str, set[str]]]:
    """(place, code, names of arguments) of every literal failure("…", …) and Record(code="…", arguments={…})."""
    found = []
    for file in sorted(Path(atc.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = f"{file.name}:{node.lineno}"
            named = {k.arg: k.value for k in node.keywords if k.arg}
            if len(named) != len(node.keywords):
                continue
            if node.func.id == "failure" and node.args and isinstance(node.args[0], ast.Constant):
                found.append((place, str(node.args[0].value), set(named)))
            elif node.func.id == "Record" and isinstance(named.get("code"), ast.Constant):
                given = named.get("arguments")
                if given is None or isinstance(given, ast.Dict):
                    keys = given.keys if isinstance(given, ast.Dict) else []
                    if all(isinstance(key, ast.Constant) for key in keys):
                        found.append((place, str(named["code"].value), {str(key.value) for key in keys}))
    return found


def test_every_record_that_is_raised_has_the_catalogues_arguments() -> None:
    records = raised_records()
    assert len(records) > 60
    for place, code, arguments in records:
        entry = entry_of(code)
        assert entry is not None, f"{place}: {code} is in no catalogue"
        wanted = arguments_of(entry.message)
        allowed = wanted | {"message"} if is_inner(code) else wanted
        assert wanted <= arguments <= allowed, f"{place}: {code} needs {sorted(wanted)}, has {sorted(arguments)}"
