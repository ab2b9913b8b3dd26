"""Which source files a result depends on: found as Python would import them, and no others."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.targets import described, open_target, target_names
from workbench.values.system import source_closure
from workbench.values.system.source_closure import closure, closure_digest

PACKAGE = Path(__file__).parents[3] / "workbench"
MODULES = {name: type(open_target(name)).__module__ for name in target_names()}


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
        "workbench.targets.ascend.amct.amct",
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
    assert described(target).settings.__module__ in found
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


def test_programs_that_are_started_and_tables_beside_a_module_belong_to_it() -> None:
    assert "workbench.targets.onnxruntime.optimize" in closure(MODULES["onnxruntime"])
    assert "workbench.targets.openvino.convert" in closure(MODULES["openvino"])
    ascend = closure("workbench.targets.ascend")
    assert {"workbench.targets.apart_child", "workbench.targets.ascend.amct.child"} <= set(ascend)
    codes = "workbench.targets.ascend.acl"
    assert ascend[f"{codes}.codes.json"] == ascend[codes].parent / "codes.json"
    assert "workbench.values.modelled_times.ascend910b.yaml" in closure("workbench.cann_emulator")


def test_a_module_may_count_alone_and_one_that_is_not_there_is_told() -> None:
    alone = closure_digest(MODULES["onnxruntime"], alone=("workbench.evaluation.build",))
    assert alone not in (closure_digest(MODULES["onnxruntime"]), closure_digest("workbench.evaluation.build"))
    with pytest.raises(ValueError, match="no module"):
        closure_digest("workbench.nothing")


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
    before = closure_digest("somebodys_target.target")
    (package / "kernels" / "gelu.py").write_text("SCALE = 2\n")
    for cached in (closure_digest, source_closure._content):
        cached.cache_clear()
    assert closure_digest("somebodys_target.target") != before
