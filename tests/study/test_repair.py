"""Faults planted in a model on the emulated device: `workbench repair` finds what mends them, at the least cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.ascend_workspace import QUIET
from tests.commands.running import run
from tests.emulated_cann import emulated_environment, switched_on
from tests.evaluation.overflowing import CLASSES, PLANTED, SPACE, Part, built, workspace, write_workspace
from workbench.api.opening import opened
from workbench.evaluation.overflow import overflow_of
from workbench.inputs.experiment import read_experiment
from workbench.space.reader import read_space
from workbench.space.space import build, complete
from workbench.study.compared import Limits
from workbench.study.repair import repair, write_repair
from workbench.testing.encoder import Array
from workbench.values.candidate import Precision
from workbench.values.errors import ConfigError, MeasureError

COLUMNS, SOUND = 768, 8
"""Wide and deep enough that float32 costs more in what is sound than the casts around what is not."""
LARGE_PRODUCT: tuple[Part, ...] = (
    ("large", "Mul", (f"h_{SOUND}", "thousand"), "a1"),
    ("product", "MatMul", ("a1", "w_large"), "a2"),
    ("back", "MatMul", ("a2", "w_back"), "a"),
)
"""Beyond 65504, and small again behind it."""
EXP_SUM: tuple[Part, ...] = (
    ("steep", "Mul", (f"h_{SOUND}", "eight"), "b1"),
    ("exp", "Exp", ("b1",), "b2"),
    ("sum", "ReduceSum", ("b2", "last_axis"), "b3"),
    ("log", "Log", ("b3",), "b"),
)
ROUNDED_AWAY: tuple[Part, ...] = (
    ("up", "Add", (f"h_{SOUND}", "offset"), "c1"),
    ("identity", "MatMul", ("c1", "one"), "c2"),
    ("down", "Sub", ("c2", "offset"), "c"),
)
"""float16 has steps of 4 where `up` gives its result."""
PRESETS = "presets: [{name: whole, precision.mode: must_keep_origin_dtype}]\n"
BRANCHES = {"a": LARGE_PRODUCT, "b": EXP_SUM, "c": ROUNDED_AWAY}


def planted(*faults: str, broken: bool = False) -> onnx.ModelProto:
    """`x` → `logits`, the sum of a sound branch and of one for each fault.

    Args:
        broken: the float model itself divides by zero.
    """
    random = np.random.default_rng(0)
    known: dict[str, Array] = {
        **{
            f"w_{i}": (random.standard_normal((COLUMNS, COLUMNS)) / COLUMNS**0.5).astype(np.float32)
            for i in range(1 + SOUND)
        },
        "w2": random.standard_normal((COLUMNS, CLASSES)).astype(np.float32),
        "w_large": (random.standard_normal((COLUMNS, COLUMNS)) * 100).astype(np.float32),
        "thousand": np.array(1e3, np.float32),
        "w_back": (random.standard_normal((COLUMNS, COLUMNS)) * 1.6e-5 / COLUMNS).astype(np.float32),
        "one": np.eye(COLUMNS, dtype=np.float32),
        "eight": np.array(8.0, np.float32),
        "offset": np.array(6000.0, np.float32),
        "last_axis": np.array([1], np.int64),
        "nought": np.array(0.0, np.float32),
    }
    parts = [
        ("first", "MatMul", ("x", "w_0"), "h_0"),
        *((f"sound_{i}", "MatMul", (f"h_{i}", f"w_{i + 1}"), f"h_{i + 1}") for i in range(SOUND)),
    ]
    last = f"h_{SOUND}"
    for fault in faults:
        parts += [*BRANCHES[fault], (f"join_{fault}", "Add", (last, fault), f"j_{fault}")]
        last = f"j_{fault}"
    if broken:
        parts, last = [*parts, ("over", "Div", (last, "nought"), "over_y")], "over_y"
    return built([*parts, ("last", "MatMul", (last, "w2"), "logits")], known, COLUMNS)


@pytest.fixture(scope="module", autouse=True)
def _cann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)):
        yield


def test_planted_faults_are_mended_one_after_the_other_at_the_least_cost(tmp_path: Path) -> None:
    file = write_workspace(tmp_path / "w", planted("a", "b", "c"), space=SPACE + PRESETS)
    said: list[str] = []
    with opened(file, scratch=True) as (question, bench):
        asked = question.baseline
        found = repair(question, bench, asked, samples=4, report=said.append)
        written = "\n".join(write_repair(found, asked, question, tmp_path / "to"))
        assert overflow_of(question, found.candidate, bench) == ""
        reference = replace(asked, precision=Precision(mode="must_keep_origin_dtype"))

    assert [step.setting for step in found.steps] == ["compile.keep_dtype"] * 2
    assert [step.fault.partition(":")[0] for step in found.steps] == ["range", "rounding"]
    kept = set(found.candidate.compile.keep_dtype)
    assert kept > {"product", "back", "exp", "sum", "identity", "down"}
    assert not kept & {"first", "last"}, "what is sound stays in half precision"
    whole = next(float(s.rpartition(": ")[2].split()[0]) for s in said if "must_keep_origin_dtype" in s)
    assert found.before_us < found.call_us < whole, "cheaper than the whole model in float32"
    assert found.candidate.id != reference.id

    space = read_space(next((tmp_path / "w").glob("space-repaired-*.yaml")))
    assert build(space, space.presets[0].assignment).id == found.candidate.id
    assert [preset.name for preset in space.presets] == [f"repaired-{found.candidate.short_id}", "whole"]
    again = read_experiment(next((tmp_path / "w").glob("experiment-repaired-*.yaml")))
    assert again.baseline.id == found.candidate.id, "nothing is measured beside a baseline that overflows"
    assert f"workbench sweep {again.path}" in written
    stored = json.loads((tmp_path / "to" / "repair.json").read_text(encoding="utf-8"))
    assert (stored["asked"], stored["level"]) == (asked.id, "modelled")


def test_an_int8_layer_that_loses_its_values_stays_in_float_and_the_preset_has_its_configuration(
    tmp_path: Path,
) -> None:
    file = workspace(tmp_path / "w", PLANTED["of a sum of INT8 products"])
    with opened(file, scratch=True) as (question, bench):
        asked = build(question.space, complete(question.space, {"quantization.scheme": "static"}))
        found = repair(question, bench, asked, samples=4)
        write_repair(found, asked, question, tmp_path / "to")
        assert overflow_of(question, found.candidate, bench) == ""

    assert found.steps[0].setting == "quantization.cfg"
    assert 'skip_layers: "first"' in (found.candidate.quantization.cfg or "")
    space = read_space(next((tmp_path / "w").glob("space-repaired-*.yaml")))
    assert build(space, space.presets[0].assignment).id == found.candidate.id


def test_what_only_held_out_data_overflow_is_found_by_the_check_of_all_samples(tmp_path: Path) -> None:
    file = workspace(tmp_path / "w", PLANTED["with what is held out alone"])

    done = run("repair", file, "--to", tmp_path / "to")

    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "EMULATED" in said
    assert "1. grow" in said
    assert "overflow: output 0, float16: " in said
    assert "nothing overflows in any sample" in said
    assert "modelled" in said
    again = run("repair", file, "--candidate", tmp_path / "to" / "candidate.json")
    assert again.exit_code == 0, again.output
    assert "nothing to repair" in again.output


def test_what_no_change_mends_leads_on(tmp_path: Path) -> None:
    stays = r"\w+ \(\w+; \w+\) stays, .*--most"
    for name, proto, limits, kind, message in (
        ("limit", planted("c"), Limits(error=1e-9), MeasureError, stays),
        ("nan", planted("c", broken=True), None, ConfigError, r"'logits' are not finite in float32 already"),
    ):
        file = write_workspace(tmp_path / name, proto, space=SPACE + PRESETS)
        with opened(file, scratch=True) as (question, bench), pytest.raises(kind, match=message):
            repair(question, bench, question.baseline, samples=4, limits=limits, most=2)
