"""What the kernel lets this process have: limits of its control groups, and memory without swapping."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60  # control groups of version 1 write 2**63 less a page for "no limit"
_KIB = 1024


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that can be had before the machine swaps; None where the system does not say.

    A control group's limit counts as it is: what the group holds by now is mostly this process.
    """
    found: int | None = None
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) * _KIB
    limit = control_group_limits()[1]
    known = [value for value in (found, limit) if value is not None]
    return min(known, default=None)


def control_group_limits(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> tuple[float | None, int | None]:
    """(CPUs, bytes of memory) this process may use by its control groups, version 1 or 2; None without a limit."""
    cpus: list[float] = []
    memory: list[int] = []
    for folder in _control_groups(root, membership):
        quota = _words(folder / "cpu.max")
        if len(quota) < 2:
            quota = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
            cpus.append(int(quota[0]) / int(quota[1]))
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _words(folder / name)
            if words and words[0].isdigit() and int(words[0]) < _UNLIMITED_BYTES:
                memory.append(int(words[0]))
    return min(cpus, default=None), min(memory, default=None)


def _control_groups(root: Path, membership: Path) -> Iterator[Path]:
    """Folders of this process's groups and of all their parents; each of them may set a limit."""
    for line in _lines(membership):  # none where the system has no control groups
        _, controllers, path = line.split(":", 2)
        # Controllers mounted together (`cpu,cpuacct`) are found under that name, or in some containers under their own
        for mounted in dict.fromkeys((controllers, *controllers.split(","))):
            base = root / mounted
            folder = base / path.strip("/")
            yield from (f for f in (folder, *folder.parents) if f.is_relative_to(base))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
