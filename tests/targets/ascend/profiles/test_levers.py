"""What a profile speaks for trying on Ascend."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.targets.ascend.profiles.tables_of import operator, put
from workbench.targets.ascend.profiles.levers import levers
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Precision
from workbench.values.device_profile import DeviceProfile, Lever

PLAIN = Candidate(target="ascend910b3", precision=Precision(mode="force_fp16"))


def told(
    tmp_path: Path, rows: list[str], tasks: list[str], candidate: Candidate = PLAIN, **offered: tuple[int, ...]
) -> tuple[Lever, ...]:
    spoken = {name.replace("__", "."): choices for name, choices in offered.items()}
    return levers(profiled(tmp_path, rows, tasks), candidate, spoken)


def profiled(tmp_path: Path, rows: list[str], tasks: list[str]) -> DeviceProfile:
    return read_profile([put(tmp_path, rows, tasks)], chip="Ascend910B3")


GAP = [operator("a", 0, 20, execution=1), operator("b", 100, 20, execution=2)]


def test_time_without_anything_queued_asks_for_a_larger_batch_of_the_space(tmp_path: Path) -> None:
    found = told(tmp_path, GAP, [], serving__batch=(1, 8, 32))

    lever = next(lever for lever in found if "nothing was queued" in lever.finding)
    assert lever.changes == {"serving.batch": 8}
    assert lever.at_most == pytest.approx(1.0, abs=1e-4)  # 80 of 120 µs idle, and the products are far below the peak


def test_an_operator_on_the_ai_cpu_is_named_though_no_setting_helps(tmp_path: Path) -> None:
    rows = [operator("a", 0, 20), operator("where", 25, 60, kind="NonZero", core="AI_CPU"), operator("b", 100, 20)]

    found = told(tmp_path, rows, [])

    lever = next(lever for lever in found if "AI CPU" in lever.finding)
    assert lever.changes == {}
    assert "where (NonZero)" in lever.finding
    assert lever.at_most == pytest.approx(60 / 120)


def test_small_operators_of_a_fusion_that_is_off_ask_for_it(tmp_path: Path) -> None:
    kinds = ("Erf", "Mul", "Add", "Mul", "Tanh")
    rows = [operator(f"g{n}", 3 * n, 2, kind=kind, core="AI_VECTOR_CORE") for n, kind in enumerate(kinds)]
    off = replace(PLAIN, compile=AscendCompile(disabled_fusions=("gelu",)))

    changes = [lever.changes for lever in told(tmp_path, rows, [], off)]

    assert {"compile.fusions.gelu": "on"} in changes
    assert {"compile.fusions.gelu": "on"} not in [lever.changes for lever in told(tmp_path, rows, [])]


def test_products_in_float_ask_for_int8_with_half_their_time_as_the_bound(tmp_path: Path) -> None:
    rows = [operator("mm", 0, 80), operator("soft", 80, 20, kind="SoftmaxV2", core="AI_VECTOR_CORE")]

    lever = next(one for one in told(tmp_path, rows, []) if "quantization.scheme" in one.changes)

    assert lever.changes == {"quantization.scheme": "static"}
    assert lever.at_most == pytest.approx(0.4)


def test_quantization_that_is_not_fused_asks_for_its_fusion_or_for_float(tmp_path: Path) -> None:
    rows = [operator("mm", 0, 50, types="INT8;INT8"), operator("q", 50, 50, kind="AscendQuant", core="AI_VECTOR_CORE")]
    int8 = replace(
        PLAIN,
        quantization=replace(EVERYTHING_INT8, activation_symmetric=True),
        compile=AscendCompile(disabled_fusions=("quant_elementwise",)),
    )

    changes = [lever.changes for lever in told(tmp_path, rows, [], int8)]

    assert {"compile.fusions.quant_elementwise": "on"} in changes
    assert {"quantization.keep_float": 1, "quantization.keep_float_unit": "group"} in changes
    assert not any("quantization.scheme" in change for change in changes)


def test_a_program_that_is_slow_to_ask_hides_nothing_of_the_device(tmp_path: Path) -> None:
    """A hundred times as long between two calls as in them: what is in them is still told, against them."""
    rows = []
    for number in (1, 2):
        rows += [operator("mm", 10_000 * number, 40, execution=number)]
        rows += [operator("c", 10_000 * number + 40, 40, kind="Cast", core="AI_VECTOR_CORE", execution=number)]
    mixed = replace(PLAIN, precision=Precision(mode="allow_mix_precision"))

    found = told(tmp_path, rows, [], mixed, serving__batch=(1, 8))

    host = next(lever for lever in found if "nothing was queued" in lever.finding)
    casts = next(lever for lever in found if "precision.mode" in lever.changes)
    assert host.at_most > 0.9
    assert casts.at_most == pytest.approx(80 / 10_080)
    assert casts.of_device == pytest.approx(0.5)
