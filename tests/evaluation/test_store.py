"""The store under what really happens to it: killed builders, racing processes, damaged files, a full disk."""

import contextlib
import errno
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.evaluation.shared_places import Builder, child, on_its_own_mount
from workbench.evaluation.store import Store
from workbench.values.candidate import Precision
from workbench.values.documents.sealed_json import write_sealed

KEY = {"model": "abc", "bins": [16, 32], "scale": 0.5}


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, reports: list[str]) -> Iterator[Store]:
    opened = Store(tmp_path / "store", report=reports.append)
    yield opened
    opened.close()


def write(content: str = "content") -> Builder:
    return Builder(content.encode(), at="deep/model.bin")


def opening(root: Path, body: str) -> "subprocess.Popen[str]":
    """A process that opens the store at `root` and runs `body`."""
    store = "from workbench.evaluation.store import Store\nstore = Store(pathlib.Path(sys.argv[1]))\n"
    return child(f"import os, pathlib, sys, time\n{store}{textwrap.dedent(body)}", root)


def leftovers(root: Path) -> list[str]:
    return sorted(p.name for folder in (".building", ".locks") for p in (root / folder).iterdir())


def test_an_entry_is_built_once_and_then_found(store: Store) -> None:
    build = write()

    first, second = store.get_or_build("artifact", KEY, build), store.get_or_build("artifact", KEY, build)

    assert (first.cached, second.cached, build.calls) == (False, True, 1)
    assert first.path == second.path
    assert sorted(p.relative_to(first.path).as_posix() for p in first.path.rglob("*") if p.is_file()) == [
        "deep/model.bin",
        "empty",
    ]
    assert leftovers(store.root) == []
    # the key is its content, whatever the order or the type, and a kind a plain name
    assert store.find("artifact", dict(reversed(KEY.items()))) is not None
    assert store.find("artifact", {**KEY, "scale": 0.25}) is None
    assert store.find("statistics", KEY) is None
    store.get_or_build("artifact", Precision(mode="fp32"), write())
    assert store.find("artifact", {"mode": "fp32"}) is not None
    for kind in ("", "../up", "Upper", ".building", "a/b"):
        with pytest.raises(ValueError, match="is not a kind"):
            store.find(kind, KEY)


def test_an_exception_of_the_builder_goes_through_and_leaves_nothing(store: Store) -> None:
    for error in (KeyError("mine"), PermissionError(errno.EACCES, "Permission denied", "/somewhere/else")):

        def broken(to: Path, error: Exception = error) -> None:
            (to / "half").write_text("half")
            raise error

        with pytest.raises(type(error), match=r"mine|somewhere"):
            store.get_or_build("artifact", KEY, broken)

        assert store.find("artifact", KEY) is None
        assert leftovers(store.root) == []
    assert store.get_or_build("artifact", KEY, write()).cached is False


# --- damage --------------------------------------------------------------------------------------------------------


DAMAGE: dict[str, Callable[[Path], object]] = {
    "4 bytes instead of 7": lambda e: (e / "deep/model.bin").write_text("cont"),
    "another sha256": lambda e: (e / "deep/model.bin").write_text("kontent"),
    "empty is missing": lambda e: (e / "empty").unlink(),
    "entry.json is missing": lambda e: (e.parent / "entry.json").unlink(),
    "is not JSON any more": lambda e: (e.parent / "entry.json").write_text('{"vers'),
    "something else": lambda e: (e.parent / "entry.json").write_text("[]"),
    "does not match the sha256 in it": lambda e: (e.parent / "entry.json").write_text(
        (e.parent / "entry.json").read_text().replace('"abc"', '"abd"')
    ),
    "does not match its name": lambda e: write_sealed(
        e.parent / "entry.json", {"version": 2, "key": {"of": "another"}, "files": {}}
    ),
}


def test_a_damaged_entry_is_reported_set_aside_and_built_again(tmp_path: Path) -> None:
    for number, (words, damage) in enumerate(DAMAGE.items()):
        root, build, reports = tmp_path / str(number), write(), list[str]()
        with contextlib.closing(Store(root)) as first:
            damage(first.get_or_build("artifact", KEY, write()).path)
        with contextlib.closing(Store(root, report=reports.append)) as store:
            again = store.get_or_build("artifact", KEY, build)

            assert (again.cached, build.calls, len(reports)) == (False, 1, 1), words
            assert (again.path / "deep/model.bin").read_text() == "content"
            assert words in reports[0]
            assert list(store.usage()) == [".damaged", "artifact"], words


# --- processes -----------------------------------------------------------------------------------------------------


def test_kill_9_of_a_builder_leaves_nothing_that_stays(tmp_path: Path) -> None:
    root = tmp_path / "store"
    victim = opening(
        root,
        """
        def build(to):
            (to / "half").write_text("x" * 1000)
            print("building", flush=True)
            time.sleep(900)
        store.get_or_build("artifact", {"k": 1}, build)
        """,
    )
    assert victim.stdout.readline() == "building\n"
    assert len(list((root / ".building").iterdir())) == 1
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()

    store = Store(root)

    assert leftovers(root) == []
    assert store.find("artifact", {"k": 1}) is None
    assert store.get_or_build("artifact", {"k": 1}, write()).cached is False
    assert len(list((root / ".users").iterdir())) == 1  # its own: the victim's mark went when it was opened
    store.close()


def test_of_two_racing_processes_one_builds_and_the_other_waits_and_shares(tmp_path: Path) -> None:
    root = tmp_path / "store"
    racers = [
        opening(
            root,
            """
            def build(to):
                time.sleep(0.5)  # so that the others come while it is being built
                (to / "who").write_text(str(os.getpid()))
            entry = store.get_or_build("artifact", {"k": 1}, build)
            print(entry.cached, (entry.path / "who").read_text(), flush=True)
            """,
        )
        for _ in range(3)
    ]
    answers = [racer.communicate(timeout=200)[0].split() for racer in racers]

    assert sorted(cached for cached, _ in answers) == ["False", "True", "True"]
    assert len({who for _, who in answers}) == 1
    assert leftovers(root) == []


# --- the disk ------------------------------------------------------------------------------------------------------


def test_a_file_system_without_space_is_the_machines_fault(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    program = f"""
        import pathlib
        from workbench.values.errors import ToolchainError
        from workbench.evaluation.store import Store
        store = Store(pathlib.Path("{disk}") / "store")

        def raw(to):
            (to / "big").write_bytes(bytes(1 << 20))

        def wrapped(to):  # libraries report a full disk as errors of their own
            try:
                raw(to)
            except OSError:
                raise RuntimeError("cannot serialize") from None

        for build in (raw, wrapped):
            try:
                store.get_or_build("artifact", {{"k": 1}}, build)
            except ToolchainError as error:
                print(error)
        store.get_or_build("artifact", {{"k": 1}}, lambda to: (to / "small").write_bytes(bytes(1000)) and None)
        left = [p.name for p in (store.root / ".building").iterdir()]
        print([entries for entries, _ in store.usage().values()], left)
        """

    first, second, state = on_its_own_mount(disk, "size=256k", program)

    assert "No space left on device" in first
    assert "0.0 MB are free at" in first
    assert "workbench cache prune" in first
    assert "cannot serialize" in second
    assert state == "[1] []"


# --- usage and prune -----------------------------------------------------------------------------------------------


def filled(root: Path, ages_s: dict[str, float]) -> Store:
    """A store with one entry of about a kilobyte per name, last used so many seconds ago, by nobody alive."""
    maker = Store(root)
    for name, age_s in ages_s.items():
        entry = maker.get_or_build("artifact", {"name": name}, lambda to: (to / "f").write_bytes(bytes(1000)) and None)
        stamp = time.time() - age_s
        os.utime(entry.path.parent / "entry.json", (stamp, stamp))
    maker.close()
    return Store(root)


def present(store: Store, names: str) -> str:
    return "".join(name for name in names if store.find("artifact", {"name": name}) is not None)


def test_prune_takes_what_was_used_longest_ago_what_is_older_or_of_a_kind(tmp_path: Path) -> None:
    with contextlib.closing(filled(tmp_path / "last", {"a": 300, "b": 200, "c": 100})) as store:
        removed, _, in_use = store.prune(keep_bytes=store.usage()["artifact"][1] // 3 + 10)

        assert (removed, in_use) == (2, 0)
        assert present(store, "abc") == "c"
        assert leftovers(store.root) == []
    with contextlib.closing(filled(tmp_path / "older", {"a": 300, "b": 10})) as store:
        assert store.prune(older_than_s=60)[0] == 1
        assert present(store, "ab") == "b"
        assert store.prune(kinds=["statistics"])[0] == 0


def test_prune_never_takes_an_entry_that_a_running_process_uses(tmp_path: Path) -> None:
    pruner = filled(tmp_path, {"used": 300, "idle": 300})
    user = opening(
        tmp_path,
        """
        print(store.find("artifact", {"name": "used"}).path, flush=True)
        time.sleep(900)
        """,
    )
    path = Path(user.stdout.readline().strip())

    removed, _, in_use = pruner.prune()

    assert (removed, in_use) == (1, 1)
    assert path.is_dir()
    user.kill()
    user.communicate()
    pruner.close()
    later = Store(tmp_path)
    assert later.prune()[0] == 1
    later.close()
