"""Idle time of a device, its causes, and what a profile speaks for trying."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.targets.ascend.profiles.tables_of import operator, put, task
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.suggestions import suggestions
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Precision
from workbench.values.device_profile import Bubble, DeviceProfile, Suggestion


def bubble_of(profile: DeviceProfile, before: str, after: str) -> Bubble:
    (found,) = [b for b in profile.bubbles if (b.before, b.after) == (before, after)]
    return found


def test_each_gap_has_its_neighbours_and_what_filled_it(tmp_path: Path) -> None:
    operators = [
        operator("a", 0, 10),
        operator("b", 40, 10),  # 10 … 40: 20 of them a copy on another stream
        operator("host", 52, 30, kind="NonZero", core="AI_CPU"),
        operator("c", 90, 10),  # 50 … 90: 30 of them the operator on the AI CPU
        operator("d", 200, 10, execution=2),  # 100 … 200: nothing at all
        operator("e", 300, 10, execution=2),  # 210 … 300: 60 of them waiting, of which 20 are a copy too
    ]
    tasks = [task("MEMCPY_ASYNC", 15, 20), task("EVENT_WAIT", 220, 60), task("MEMCPY_ASYNC", 230, 20)]

    found = read_profile([put(tmp_path, operators, tasks)])

    assert [(b.cause, b.total_us) for b in found.bubbles] == [
        ("host launch", 100),
        ("synchronization", 90),
        ("host operator", 40),
        ("host copy", 30),
    ]
    assert bubble_of(found, "a", "b").within == {"host copy": 20, "scheduling": 10}
    assert bubble_of(found, "b", "c").within == {"host operator": 30, "scheduling": 10}
    assert bubble_of(found, "c", "d").within == {"host launch": 100}
    assert bubble_of(found, "d", "e").within == {"synchronization": 40, "host copy": 20, "scheduling": 30}
    assert bubble_of(found, "b", "c").tasks == ("host (NonZero)",)
    assert found.causes == {
        "host launch": 100,
        "host operator": 30,
        "synchronization": 40,
        "host copy": 40,
        "scheduling": 50,
    }
    assert found.computing_us == 50
    assert found.idle_us == 260
    assert found.span_us == 310


def test_all_idle_time_is_told_also_what_is_no_bubble(tmp_path: Path) -> None:
    operators = [
        operator("a", 0, 10),
        operator("b", 10.4, 10),  # a gap that is too short
        operator("c", 30.4, 5),  # one of 10
        operator("a", 7, 20, device=1),
    ]
    tasks = [
        task("MEMCPY_ASYNC", -50, 20),  # 50 before the first operator
        task("MEMCPY_ASYNC", 40.4, 3),  # 8 behind the last
        task("MEMCPY_ASYNC", 27, 4, device=1),  # 4 behind the other device's
        task("MEMCPY_ASYNC", 100, 4, device=2),  # a device on which no operator ran
    ]

    found = read_profile([put(tmp_path, operators, tasks)])

    assert (found.edges_us, found.short_gaps_us, found.causes) == (66, 0.4, {"scheduling": 10})
    assert found.idle_us == pytest.approx(76.4)


def test_the_same_gap_of_many_executions_is_one_line(tmp_path: Path) -> None:
    rows = []
    for number, gap in enumerate((10, 12, 50), 1):
        rows += [operator("a", 1000 * number, 20, execution=number)]
        rows += [operator("b", 1000 * number + 20 + gap, 20, execution=number)]

    found = bubble_of(read_profile([put(tmp_path, rows)]), "a", "b")

    assert (found.times, found.total_us, found.median_us, found.longest_us) == (3, 72, 12, 50)
    assert found.longest_start_us == 2020


def test_streams_that_overlap_leave_the_cores_no_gap(tmp_path: Path) -> None:
    rows = [operator("a", 0, 50, stream=1), operator("b", 40, 60, stream=2), operator("c", 100, 10, stream=1)]

    found = read_profile([put(tmp_path, rows)])

    assert found.bubbles == ()
    assert found.idle_us == 0
    assert [(use.stream, use.idle_share) for use in found.streams] == [("1", pytest.approx(50 / 110)), ("2", 0)]


def test_small_operators_in_a_row_are_found_and_long_ones_end_the_row(tmp_path: Path) -> None:
    rows, at = [], 0.0
    for execution in (1, 2):
        for number in range(5):
            rows.append(operator(f"s{number}", at, 2, kind="Add", core="AI_VECTOR_CORE", execution=execution))
            at += 3
        rows.append(operator("long", at, 40, execution=execution))
        at += 40
        rows.append(operator("lonely", at, 2, execution=execution))
        at += 2

    (row,) = read_profile([put(tmp_path, rows)]).small

    assert (row.first, row.last, row.operators, row.times, row.types) == ("s0", "s4", 5, 2, ("Add",))
    assert row.total_us == 28


PLAIN = Candidate(target="ascend910b3", precision=Precision(mode="force_fp16"))


def told(
    tmp_path: Path, rows: list[str], tasks: list[str], candidate: Candidate = PLAIN, **offered: tuple[int, ...]
) -> tuple[Suggestion, ...]:
    spoken = {name.replace("__", "."): choices for name, choices in offered.items()}
    return suggestions(profiled(tmp_path, rows, tasks), candidate, spoken)


def profiled(tmp_path: Path, rows: list[str], tasks: list[str]) -> DeviceProfile:
    return read_profile([put(tmp_path, rows, tasks)], chip="Ascend910B3")


GAP = [operator("a", 0, 20, execution=1), operator("b", 100, 20, execution=2)]


def test_time_without_anything_queued_asks_for_a_larger_batch_of_the_space(tmp_path: Path) -> None:
    found = told(tmp_path, GAP, [], serving__batch=(1, 8, 32))

    suggestion = next(suggestion for suggestion in found if "nothing was queued" in suggestion.finding)
    assert suggestion.changes == {"serving.batch": 8}
    assert suggestion.at_most == pytest.approx(
        1.0, abs=1e-4
    )  # 80 of 120 µs idle, and the products are far below the peak


def test_an_operator_on_the_ai_cpu_is_named_though_no_setting_helps(tmp_path: Path) -> None:
    rows = [operator("a", 0, 20), operator("where", 25, 60, kind="NonZero", core="AI_CPU"), operator("b", 100, 20)]

    found = told(tmp_path, rows, [])

    suggestion = next(suggestion for suggestion in found if "AI CPU" in suggestion.finding)
    assert suggestion.changes == {}
    assert "where (NonZero)" in suggestion.finding
    assert suggestion.at_most == pytest.approx(60 / 120)


def test_small_operators_of_a_fusion_that_is_off_ask_for_it(tmp_path: Path) -> None:
    kinds = ("Erf", "Mul", "Add", "Mul", "Tanh")
    rows = [operator(f"g{n}", 3 * n, 2, kind=kind, core="AI_VECTOR_CORE") for n, kind in enumerate(kinds)]
    off = replace(PLAIN, compile=AscendCompile(disabled_fusions=("gelu",)))

    changes = [suggestion.changes for suggestion in told(tmp_path, rows, [], off)]

    assert {"compile.fusions.gelu": "on"} in changes
    assert {"compile.fusions.gelu": "on"} not in [suggestion.changes for suggestion in told(tmp_path, rows, [])]


def test_products_in_float_ask_for_int8_with_half_their_time_as_the_bound(tmp_path: Path) -> None:
    rows = [operator("mm", 0, 80), operator("soft", 80, 20, kind="SoftmaxV2", core="AI_VECTOR_CORE")]

    suggestion = next(one for one in told(tmp_path, rows, []) if "quantization.scheme" in one.changes)

    assert suggestion.changes == {"quantization.scheme": "static"}
    assert suggestion.at_most == pytest.approx(0.4)


def test_quantization_that_is_not_fused_asks_for_its_fusion_or_for_float(tmp_path: Path) -> None:
    rows = [operator("mm", 0, 50, types="INT8;INT8"), operator("q", 50, 50, kind="AscendQuant", core="AI_VECTOR_CORE")]
    int8 = replace(
        PLAIN,
        quantization=replace(EVERYTHING_INT8, activation_symmetric=True),
        compile=AscendCompile(disabled_fusions=("quant_elementwise",)),
    )

    changes = [suggestion.changes for suggestion in told(tmp_path, rows, [], int8)]

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

    host = next(suggestion for suggestion in found if "nothing was queued" in suggestion.finding)
    casts = next(suggestion for suggestion in found if "precision.mode" in suggestion.changes)
    assert host.at_most > 0.9
    assert casts.at_most == pytest.approx(80 / 10_080)
    assert casts.of_device == pytest.approx(0.5)
