"""Imports go down only. `FLOORS` is the architecture; ARCHITECTURE.md points here."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "workbench"

FLOORS = (
    ("__main__",),
    ("commands",),
    ("api",),
    ("tracking",),
    ("report",),
    ("study",),
    ("search",),
    ("prediction", "shipping"),
    ("load", "serve"),
    ("evaluation",),
    ("bundle", "inputs"),
    ("space", "user_code", "cann_emulator", "testing"),
    ("targets",),
    ("quantization",),
    ("graph",),
    ("values",),
)
"""A room imports rooms on lower floors only; rooms on one floor do not see each other."""
ABSENT = {
    "cann_emulator": ({"targets"}, "it is a second reading of the vendor's contract, so it sees nothing of the first"),
    "serve": ({"evaluation", "inputs", "space", "quantization", "graph"}, "a service holds no code of searching"),
    "report": ({"targets", "space", "quantization", "graph", "bundle", "inputs"}, "it says what others found"),
    "tracking": ({"targets", "space", "quantization", "graph"}, "it is a view of the journal"),
}
"""Rooms below that a room does not see all the same, and why."""
ASIDE = "cann_emulator"
"""Switched on by its environment, as the vendor's kit is: no room imports it."""

EVALUATION = (
    ("batch_invariance", "float_run", "layer_prices", "metric_check", "overflow"),
    ("stage_data",),
    ("accuracy_pass", "pipeline_pass"),
    ("build",),
    ("record", "reuse"),
    ("bench",),
    ("modelled_latency", "run_notes", "sweep_folders"),
    ("journal", "measure"),
    ("data_check", "noise", "replay", "store"),
    ("carried", "shared_store"),
)
"""The same inside `evaluation`."""
VALUES = (
    (
        *("candidate", "device_profile", "evidence", "artifact", "interface", "measurement", "metrics"),
        *("model", "objectives", "preprocess", "normalizer", "results", "device_use", "reuse", "agreement"),
        *("finding", "service", "setting_groups", "significance", "sequential", "paired_scores"),
        *("bins", "modelled_times", "compile_settings", "dimension", "installed_targets", "pipeline"),
    ),
    ("documents", "system", "exit_codes"),
    ("errors",),
)
"""Inside `values` modules on one floor see each other; they are values of each other."""
OWNERS = {
    "mlflow": {"tracking"},
    "ray": {"search/executors"},
    "fsspec": {"evaluation/shared_store"},
    "torch": {"graph/export.py", "commands/example", "quantization/llm", "targets/ascend_llm"},
    "transformers": {"graph/export.py", "commands/example", "quantization/llm/forward.py"},
    "ruamel": {"values/documents"},
    "numba": {"quantization/histogram.py", "prediction/simulation"},
    "plotly": {"report"},
    "matplotlib": {"report/written/drawing.py"},
    "docx": {"report/written"},
    "sklearn": {"report", "inputs/library_metrics"},
    "jiwer": {"inputs/library_metrics"},
    "typer": {"commands"},
    "rich": {"commands", "report", "study/inspection.py"},
    "prometheus_client": {"serve", "load"},
    "openvino": {"targets/openvino"},
    "cryptography": {"bundle/signing.py"},
    "jinja2": {"values/documents/templates.py"},
}
"""External packages with one home."""


VENDOR = re.compile(
    r"[Aa]scend(?=[_\d]|[A-Z])|\bAscend\b|ASCEND|\b(?:atc|ATC|cann|CANN|acl|pyacl|pyACL)(?![a-z])|\bnpu|\bNPU|910[bB]"
    r"|[Aa]mct|AMCT|[Oo]pen[Vv]ino|OpenVINO|OnnxRuntimeCompile"
)
"""Names of vendors, of their tools and chips, and of compile settings; the verb 'ascend' is none."""
NAMED = {
    "commands/around.py": ({"cann", "910b"}, "it starts the emulated kit as a program"),
    "commands/llm.py": ({"ascend"}, "`workbench calibrate-llm` writes what that vendor's serving engines read"),
    "api/llm.py": ({"ascend"}, "its commands take and write what that vendor's quantizer does"),
    "commands/study.py": ({"amct", "atc"}, "`workbench calibrate` does what AMCT's own command does"),
    "study/__init__.py": ({"amct"}, "it names that command"),
    "study/amct_command.py": ({"amct", "atc"}, "that command"),
    "study/layers.py": ({"amct"}, "it writes what it found as AMCT's configuration too"),
    "evaluation/record.py": ({"amct"}, "a candidate may follow AMCT's configuration, a text of quantization/amct"),
    "space/reader.py": ({"amct"}, "the same text"),
    "values/candidate.py": ({"amct"}, "the same text"),
    "values/modelled_times": ({"ascend", "910b", "cann", "atc"}, "the chips whose kernels were timed"),
    "graph": ({"amct", "ascend"}, "layers and names of nodes are AMCT's, so that records fit both"),
    "quantization": (
        {"amct", "ascend", "atc", "910b", "npu", "cann", "openvino"},
        "algorithms, texts and the two lowered forms",
    ),
}
"""Where a vendor is named outside of `targets` all the same, by which names, and why."""
ONNXRUNTIME = {
    "bundle/requirements.py": "a package of pip's",
    "evaluation/carried.py": "the version of the float reference engine, part of a key",
    "evaluation/record.py": "the version of the float reference engine, part of a key",
    "graph/door.py": "the version of the float reference engine, part of a key",
}
"""Where the text 'onnxruntime' stands although it is no target's name there."""


def floor_of(room: str, floors: tuple[tuple[str, ...], ...], where: str) -> int:
    for floor, rooms in enumerate(reversed(floors)):
        if room in rooms:
            return floor
    pytest.fail(f"{where}{room} is on no floor; put it on one, with a reason in docs/decisions.md")


def imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "workbench")
    return found


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("file", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(file: Path) -> None:
    place = file.relative_to(PACKAGE)
    room, module = (part.removesuffix(".py") for part in (*place.parts, "")[:2])
    absent, why = ABSENT.get(room, (set(), ""))
    for name in imports_of(file):
        first, *rest = name.split(".")
        if first == "workbench" and rest and rest[0] not in ("__version__", room):
            assert rest[0] != ASIDE, f"{place} imports {name}; nothing imports {ASIDE}"
            assert floor_of(rest[0], FLOORS, "workbench.") < floor_of(room, FLOORS, "workbench."), f"{place}: {name}"
            assert rest[0] not in absent, f"{place} imports {name}; {why}"
        inside = {"evaluation": EVALUATION, "values": VALUES}.get(room)
        if inside is not None and first == "workbench" and len(rest) > 1 and rest[0] == room:
            down = floor_of(module, inside, f"{room}.") - floor_of(rest[1], inside, f"{room}.")
            assert rest[1] == module or down > 0 or (room == "values" and down == 0), f"{place} imports {name}"
        if first in OWNERS:
            owners = OWNERS[first]
            assert any(place.is_relative_to(owner) for owner in owners), f"{place}: {first} belongs to {sorted(owners)}"


def test_no_room_but_the_targets_names_a_vendor() -> None:
    used = set()
    for file in SOURCES:
        place = file.relative_to(PACKAGE)
        if place.parts[0] in ("targets", ASIDE):
            continue
        text = file.read_text(encoding="utf-8")
        exception = next((name for name in NAMED if place.is_relative_to(name)), None)
        allowed = NAMED[exception][0] if exception is not None else set()
        found = {(match.group().lower(), text.count("\n", 0, match.start()) + 1) for match in VENDOR.finditer(text)}
        assert not [one for one in sorted(found) if one[0] not in allowed], f"{place} names a vendor"
        if found:
            used.add(exception)
        constants = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        if "onnxruntime" in constants:
            assert place.as_posix() in ONNXRUNTIME, f"{place} names the target 'onnxruntime'"
            used.add(place.as_posix())
    assert used == {*NAMED, *ONNXRUNTIME}, "exceptions that nothing needs any more"


def test_the_architecture_names_every_room_in_the_order_of_its_floors() -> None:
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ((?:`\w+/`(?:, )?)+) \|",
        text[text.index("## Rooms") : text.index("## The three waists")],
        flags=re.MULTILINE,
    )
    named = [tuple(re.findall(r"`(\w+)/`", row)) for row in rows]
    rooms = [room for floor in named for room in floor]

    assert sorted(rooms) == sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))
    assert [{*floor} - {ASIDE} for floor in named[:-1]] == [{*f} - {ASIDE} for f in FLOORS if f != ("__main__",)]


def test_every_room_says_what_lives_there_and_what_may_not() -> None:
    for room in sorted({file.relative_to(PACKAGE).parts[0] for file in SOURCES if file.parent != PACKAGE}):
        said = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
        assert len(said.splitlines()) > 1, f"workbench/{room}/__init__.py says too little: {said!r}"


def test_nothing_is_read_or_written_by_pickle() -> None:
    forbidden = re.compile(r"^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle|joblib)\b", re.MULTILINE)
    assert [str(f) for f in SOURCES if forbidden.search(f.read_text(encoding="utf-8"))] == []


def test_scipy_is_loaded_by_what_needs_it_and_by_no_module() -> None:
    """Every process that evaluates would spend a quarter of a second at its start."""
    early = re.compile(r"^(?:from|import) scipy", re.MULTILINE)

    assert [str(file) for file in SOURCES if early.search(file.read_text(encoding="utf-8"))] == []


def test_heavy_libraries_are_imported_only_when_a_command_needs_them() -> None:
    """`workbench --help` must not take the five seconds that mlflow and torch cost."""
    code = (
        "import sys, workbench.commands.cli\n"
        "print([m for m in ('torch', 'mlflow', 'optuna', 'ray', 'openvino', 'plotly') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.strip() == "[]"
