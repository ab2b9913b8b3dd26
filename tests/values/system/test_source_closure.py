"""Which source files a result depends on: found as Python would import them, and no others."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.targets import described, open_target, target_names
from workbench.values.system import source_closure
from workbench.values.system.source_closure import closure, closure_digest

PACKAGE = Path(__file__).parents[3] / "workbench"
MODULES = {name: type(open_target(name)).__module__ for name in target_names()}

EDITS = """
import json, sys
from pathlib import Path
from workbench.values.system import source_closure
from workbench.values.system.source_closure import closure_digest

def digests():
    for cached in (closure_digest, source_closure._needed, source_closure._file, source_closure._content):
        cached.cache_clear()
    return {name: closure_digest(module) for name, module in modules.items()}

root, modules, edits = Path(source_closure.__file__).parents[2], json.loads(sys.argv[1]), json.loads(sys.argv[2])
before, told = digests(), {}
for name, (old, new) in edits.items():
    file = root / name
    text = file.read_text()
    assert old in text, name
    file.write_text(text.replace(old, new, 1))
    told[name] = sorted(target for target, digest in digests().items() if digest != before[target])
    file.write_text(text)
assert digests() == before
print(json.dumps([before, told]))
"""


def imported(tree: ast.AST) -> Iterator[str]:
    """What Python would import of the workbench, by its own parser."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        yield from imported(node)


def test_every_import_is_found_as_pythons_own_parser_finds_it() -> None:
    known = {".".join(("workbench", *f.relative_to(PACKAGE).with_suffix("").parts)): f for f in PACKAGE.rglob("*.py")}
    known = {name.removesuffix(".__init__"): file for name, file in known.items()}
    keyed = (
        *MODULES.values(),
        "workbench.inputs.dataset",
        "workbench.targets.ascend.amct.calibrator",
        "workbench.evaluation.replay",
    )
    for name, file in closure(*keyed, "workbench.cann_emulator.acl").items():
        if file.suffix != ".py":
            continue
        wanted = {m for m in imported(ast.parse(file.read_text(encoding="utf-8"))) if m in known}
        assert wanted <= set(source_closure._needed(name, file)), name


@pytest.mark.parametrize("target", MODULES)
def test_a_target_depends_on_its_own_modules_and_on_no_other_targets(target: str) -> None:
    found = set(closure(MODULES[target]))
    assert f"{MODULES[target].rpartition('.')[0]}.settings" in found
    works = "quantization.llm.walk" if described(target).language else "quantization.lowering.surgery"
    assert f"workbench.{works}" in found
    assert not found & {
        "workbench.evaluation.store",
        "workbench.evaluation.journal",
        "workbench.search.sweep",
        "workbench.commands.cli",
        "workbench.serve",
    }
    assert not [name for name in found if name.startswith("workbench.cann_emulator")]
    borrowed = set() if target == "onnxruntime" else {"onnxruntime"}  # it runs the float models of the others' probes
    assert not found & {module for name, module in MODULES.items() if name not in (target, *borrowed)}


def test_programs_that_are_started_beside_a_module_belong_to_it() -> None:
    assert "workbench.targets.onnxruntime.optimize" in closure(MODULES["onnxruntime"])
    assert "workbench.targets.openvino.convert" in closure(MODULES["openvino"])
    assert {"workbench.targets.apart_child", "workbench.targets.ascend.amct.child"} <= set(
        closure("workbench.targets.ascend.target", "workbench.targets.ascend.amct.calibrator")
    )


def test_a_digest_changes_with_every_file_of_its_closure_and_with_no_other(tmp_path: Path) -> None:
    """On a copy, as an installed package is one."""
    shutil.copytree(PACKAGE, tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__", "serve", "report"))
    edits = {
        "targets/ascend/settings.py": ("FUSION_GROUPS", "FUSION_GROUPS_"),
        "quantization/lowering/deploy.py": ("import", "import  "),
        "quantization/lowering/qdq.py": ("import", "import  "),
        "targets/openvino/convert.py": ("import", "import  "),
        "targets/onnxruntime/optimize.py": ("import", "import  "),
        "targets/ascend/config_files.py": ("_json", "_json_"),
        "evaluation/store.py": ("import", "import  "),
        "cann_emulator/acl/streams.py": ("import", "import  "),
        "prediction/simulation/__init__.py": ("", "\n"),
    }
    done = subprocess.run(
        [sys.executable, "-c", EDITS, json.dumps(MODULES), json.dumps(edits)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, told = json.loads(done.stdout)
    assert len(set(before.values())) == len(MODULES)
    assert before == {name: closure_digest(module) for name, module in MODULES.items()}
    everyone = sorted(MODULES)
    assert told == {
        "targets/ascend/settings.py": ["ascend910b3"],
        "quantization/lowering/deploy.py": ["ascend910b3"],
        "quantization/lowering/qdq.py": [name for name in everyone if not described(name).language],
        "targets/openvino/convert.py": ["openvino"],
        "targets/onnxruntime/optimize.py": ["ascend910b3", "onnxruntime"],
        "targets/ascend/config_files.py": ["ascend910b3"],
        "evaluation/store.py": [],
        "cann_emulator/acl/streams.py": [],
        "prediction/simulation/__init__.py": [],
    }


def test_a_module_may_count_alone_and_one_that_is_not_there_is_told() -> None:
    alone = closure_digest(MODULES["onnxruntime"], alone=("workbench.evaluation.build",))
    assert alone not in (closure_digest(MODULES["onnxruntime"]), closure_digest("workbench.evaluation.build"))
    with pytest.raises(ValueError, match="no module"):
        closure_digest("workbench.nothing")


def test_tables_beside_a_module_count_with_it() -> None:
    ascend = closure("workbench.targets.ascend")
    emulator = closure("workbench.cann_emulator")

    for folder in ("acl", "atc"):
        package = f"workbench.targets.ascend.{folder}"
        assert ascend[f"{package}.codes.json"] == ascend[package].parent / "codes.json"
    assert {"workbench.cann_emulator.atc.catalogue.json", "workbench.values.modelled_times.ascend910b.yaml"} <= set(
        emulator
    )


def test_a_target_of_somebodys_own_counts_with_its_whole_package_and_what_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "somebodys_target"
    (package / "kernels").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "target.py").write_text("from workbench.targets.feeds import check_feeds\n")
    (package / "tables.py").write_text("from workbench.graph import read\n")
    (package / "kernels" / "gelu.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("somebodys_target.target")

    found = closure("somebodys_target.target")

    own = {"target", "tables", "kernels.gelu"}
    assert {name for name in found if name.startswith("somebodys_target")} == {
        "somebodys_target",
        *(f"somebodys_target.{name}" for name in own),
    }
    assert {"workbench.targets.feeds", "workbench.graph.read"} <= set(found)
