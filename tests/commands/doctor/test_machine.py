from pathlib import Path

import pytest

from workbench.commands.doctor.machine import (
    control_group_limits,
    cores_finding,
    int8_finding,
    memory_finding,
    quiet_finding,
)
from workbench.evaluation.noise import Steadiness
from workbench.values.system.cpu import cpu_of

GB = 1_000_000_000


# --- processor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        ("avx2 avx512f avx512_vnni amx_int8", "ok", "AMX"),
        ("avx2 avx_vnni", "ok", "without overflow"),
        ("avx2", "warn", "AVX2 without VNNI"),
        ("sse2", "warn", "of no known class"),
    ],
)
def test_the_instructions_are_explained_for_int8(flags: str, status: str, says: str) -> None:
    finding = int8_finding(cpu_of(flags.split(), "Test"))

    assert finding.status == status
    assert says in finding.value


def test_a_limit_on_cpu_time_is_a_warning_with_the_number_of_threads_to_use() -> None:
    free, bound, throttled = cores_finding(8, 8, None), cores_finding(8, 4, None), cores_finding(8, 8, 2.0)

    assert (free.status, free.value) == ("ok", "8 of 8 usable")
    assert (bound.status, bound.value) == ("ok", "4 of 8 usable (this process may run on 4)")
    assert throttled.status == "warn"
    assert "serving.intra_op_threads up to 2" in throttled.remedy
    assert "--cpuset-cpus" in throttled.remedy


@pytest.mark.parametrize(
    ("affinity", "quota", "usable"), [(8, None, 8), (8, 2.9, 2), (2, 64.0, 2), (4, 0.5, 1), (4, 4.0, 4)]
)
def test_usable_cores_are_whole_and_at_least_one(affinity: int, quota: float | None, usable: int) -> None:
    assert cores_finding(8, affinity, quota).value.startswith(f"{usable} of 8 usable")


# --- control groups ------------------------------------------------------------------------------------------------


def write(files: dict[str, str], root: Path) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_limits_of_version_2_come_from_the_tightest_group(tmp_path: Path) -> None:
    root = write(
        {
            "pod/cpu.max": "150000 100000\n",
            "pod/memory.max": "8000000000\n",
            "pod/app/cpu.max": "max 100000\n",
            "pod/app/memory.max": "4000000000\n",
        },
        tmp_path / "cgroup",
    )
    (tmp_path / "self").write_text("0::/pod/app\n")

    assert control_group_limits(root, tmp_path / "self") == (1.5, 4_000_000_000)


@pytest.mark.parametrize("mounted", ["cpu,cpuacct", "cpu"])
def test_limits_of_version_1_are_read_and_its_no_limit_is_none(tmp_path: Path, mounted: str) -> None:
    root = write(
        {
            f"{mounted}/cpu.cfs_quota_us": "200000\n",
            f"{mounted}/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
        tmp_path / "cgroup",
    )
    (tmp_path / "self").write_text("5:cpu,cpuacct:/\n4:memory:/\n")

    assert control_group_limits(root, tmp_path / "self") == (2.0, None)
    write({f"{mounted}/cpu.cfs_quota_us": "-1\n"}, root)
    assert control_group_limits(root, tmp_path / "self") == (None, None)


def test_limits_outside_a_container_s_view_are_looked_for_at_the_root(tmp_path: Path) -> None:
    root = write({"cpu.max": "400000 100000\n", "memory.max": "max\n"}, tmp_path / "cgroup")
    (tmp_path / "self").write_text("0::/kubepods/pod1/app\n")

    assert control_group_limits(root, tmp_path / "self") == (4.0, None)


@pytest.mark.parametrize("text", ["rubbish", "", "100000", "100000 0", "max 100000"])
def test_a_limit_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    root = write({"cpu.max": text, "memory.max": text and "rubbish"}, tmp_path / "cgroup")
    (tmp_path / "self").write_text("0::/\n")

    assert control_group_limits(root, tmp_path / "self") == (None, None)


def test_a_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert control_group_limits(tmp_path, tmp_path / "missing") == (None, None)


# --- memory and quiet ----------------------------------------------------------------------------------------------


def test_little_memory_is_warned_about_and_the_container_s_limit_counts() -> None:
    assert memory_finding(16 * GB, 8 * GB, None).status == "ok"
    assert memory_finding(16 * GB, 1 * GB, None).status == "warn"
    assert "limited to 1.0 GB" in memory_finding(16 * GB, 8 * GB, GB).value
    assert memory_finding(16 * GB, 8 * GB, GB).status == "warn"
    assert "limited" not in memory_finding(16 * GB, 8 * GB, 64 * GB).value


@pytest.mark.parametrize(
    ("drift", "spread", "causes", "status"),
    [(0.01, 0.02, [], "ok"), (-0.2, 0.0, [], "warn"), (0.0, 0.1, [], "warn"), (0.0, 0.0, ["steal of 2.0%"], "warn")],
    ids=["quiet", "drifts", "spreads", "suspected"],
)
def test_a_machine_that_is_not_quiet_is_warned_about(
    drift: float, spread: float, causes: list[str], status: str
) -> None:
    finding = quiet_finding(Steadiness(drift=drift, spread=spread), causes, 1.5)

    assert finding.status == status
    assert "load 1.5" in finding.value
    assert all(cause in finding.value for cause in causes)
