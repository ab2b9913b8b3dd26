"""atc.md §5.4: every code with its title and arguments, and every record that the emulator raises against them."""

import ast
import string
from pathlib import Path

import workbench.cann_emulator.atc as atc
from tests.reference_pages import atc_codes
from workbench.cann_emulator.atc.failure import catalogue, entry_of, is_inner


def arguments_of(message: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(message) if name}


def test_the_catalogue_has_the_codes_of_the_reference_and_nothing_that_is_in_none() -> None:
    """Beyond the table: what --singleop, AIPP and the runtime report, and a wrong input (error_code.json of both). Of
    the range E40001-E40024 some do not exist, and E11010 only appears in the log."""
    beyond = {"E10023", "E10024", "E10025", "E10034", "E13025", "EE1001"}
    gaps = {f"E{number}" for number in range(40004, 40020)}

    assert set(catalogue()) - atc_codes() == beyond
    assert atc_codes() - set(catalogue()) == {"E11010", *gaps}


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
