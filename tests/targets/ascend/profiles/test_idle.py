"""Idle time of a device, its causes."""

from pathlib import Path

import pytest

from tests.targets.ascend.profiles.tables_of import operator, put, task
from workbench.targets.ascend.profiles.read import read_profile
from workbench.values.device_profile import Bubble, DeviceProfile


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
