"""What only real processes and real disks show of a shared store: killed writers, races, a full disk."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.evaluation.shared_places import Team, child, on_its_own_mount
from workbench.values.errors import ToolchainError

PUBLISH = """
    import os, pathlib, sys, time
    from workbench.evaluation.shared_store import SharedStore
    from workbench.evaluation.store import Store
    store = Store(pathlib.Path(sys.argv[1]), shared=SharedStore(sys.argv[2]))
    who = sys.argv[3]
    def build(to):
        for part in range(4):
            (to / str(part)).write_bytes(who.encode() * 300_000)
    """
ONE_ENTRY = """
    print("begins", flush=True)
    store.get_or_build("artifact", {"k": 1}, build)
    store.close()
    """

FULL = """
    said = []
    shared = SharedStore(sys.argv[2], report=said.append)
    store = Store(pathlib.Path(sys.argv[1]), shared=shared, report=said.append)
    store.get_or_build("artifact", {"k": 1}, build)
    store.json_of("structure", {"k": 1}, lambda: 5)
    store.close()
    print(len(said), said[0])
    print(store.unpublished, sorted(p.name for p in pathlib.Path(sys.argv[2]).rglob("*") if p.is_file()))
    """


def writer(root: Path, url: str, who: str) -> "subprocess.Popen[str]":
    return child(PUBLISH + ONE_ENTRY, root, url, who)


def contents(team: Team, name: str) -> bytes | None:
    """What a machine finds: the one letter that all files of the entry consist of; None where there is no entry."""
    store, said, _ = team.machine(name)
    entry = store.find("artifact", {"k": 1})
    assert said == []
    if entry is None:
        return None
    letters = {(entry.path / str(part)).read_bytes() for part in range(4)}
    assert len(letters) == 1
    content = letters.pop()
    assert len(content) == 300_000
    return content[:1]


@pytest.mark.parametrize("url", ["folder", "s3"], indirect=True)
def test_processes_that_race_leave_one_whole_entry(team: Team, tmp_path: Path) -> None:
    racers = [writer(tmp_path / who, team.url, who) for who in "abc"]
    for racer in racers:
        racer.communicate(timeout=200)

    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert contents(team, "reader") in (b"a", b"b", b"c")


@pytest.mark.parametrize("url", ["folder", "s3"], indirect=True)
def test_kill_9_of_writers_at_any_moment_leaves_only_what_nobody_reads(team: Team, tmp_path: Path) -> None:
    found = []
    for number, wait_s in enumerate((0.0, 0.005, 0.02, 0.05)):
        victim = writer(tmp_path / f"victim-{number}", team.url, "v")
        assert victim.stdout.readline() == "begins\n"
        time.sleep(wait_s)  # the moment of the kill, of which there are four
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        found.append(contents(team, f"reader-{number}"))

    assert set(found) <= {None, b"v"}
    # what the victims built and did not publish is published by whoever opens their stores next
    for number in range(4):
        again, said, _ = team.machine(f"victim-{number}")
        again.close()
        assert (said, again.unpublished) == ([], 0)
    writer(tmp_path / "last", team.url, "v").communicate(timeout=200)
    assert contents(team, "reader-last") == b"v"


def test_a_full_disk_below_a_shared_folder_keeps_results_here(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()

    said, state = on_its_own_mount(
        tmp_path / "team", "size=256k", PUBLISH + FULL, tmp_path / "one", tmp_path / "team", "x"
    )

    assert "takes no results now (OSError: [Errno 28] No space left on device" in said
    assert state == "2 []"


@pytest.mark.parametrize("url", ["folder"], indirect=True)
def test_a_full_disk_under_the_cache_is_the_machines_fault_and_no_damage(team: Team, tmp_path: Path) -> None:
    writer(tmp_path / "one", team.url, "a").communicate(timeout=200)
    store, said, _ = team.machine("two")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ToolchainError, match="Nothing more can be written"):
            store.find("artifact", {"k": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert said == []
    assert store.find("artifact", {"k": 1}) is not None
