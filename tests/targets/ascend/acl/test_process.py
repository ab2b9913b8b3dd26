import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.targets.ascend.offline_files import Array, expected, grid, texts
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.acl.session import open_session
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import MeasureError

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("grid")
    return directory, grid((1, 4), (8,), directory)


def assert_right(outputs: dict[str, Array], feeds: dict[str, Array]) -> None:
    for name, values in expected(feeds).items():
        assert np.array_equal(outputs[name], values), name


# --- one process, many sessions ------------------------------------------------------------------------------------


def test_sessions_open_side_by_side_and_close_in_any_order(acl: ModuleType, files: tuple[Path, Artifact]) -> None:
    """pyacl.md §4, rows 18 and 19: init once, finalize by one owner, each reset_device for its set_device."""
    first, second = open_session(*files), open_session(*files)
    feeds = texts(4, 8)
    assert_right(first.run(feeds), feeds)
    assert_right(second.run(feeds), feeds)

    first.close()
    assert_right(second.run(feeds), feeds)
    third = open_session(*files)
    second.close()

    assert_right(third.run(feeds), feeds)
    third.close()


def test_pyacl_can_be_shut_down_and_used_again(acl: ModuleType, files: tuple[Path, Artifact]) -> None:
    feeds = texts(1, 8)
    for _ in range(2):
        session = open_session(*files)
        assert_right(session.run(feeds), feeds)
        acl_process.shut_down()  # closes what is still open
        with pytest.raises(MeasureError, match="closed"):
            session.run(feeds)


# --- processes -----------------------------------------------------------------------------------------------------


def child(script: str, files: tuple[Path, Artifact], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `script` with `files` (directory, artifact) and the emulated acl in a process of its own."""
    head = f"""
        import sys
        import json
        from pathlib import Path
        import workbench.cann_emulator.acl as acl
        sys.modules["acl"] = acl
        from tests.targets.ascend.offline_files import texts, expected
        from workbench.values.documents.canonical import decode
        from workbench.values.artifact import Artifact
        from workbench.targets.ascend.acl.session import open_session
        directory = Path({str(files[0])!r})
        files = directory, decode(Artifact, json.loads((directory / "artifact.json").read_text()))
    """
    (files[0] / "artifact.json").write_text(canonical_json(files[1]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "CANN_EMULATOR_STRICT": "1", "CANN_EMULATOR_LEAKS": "error", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_what_nobody_closed_is_released_at_exit(files: tuple[Path, Artifact]) -> None:
    done = child("session = open_session(*files); session.run(texts(2, 8)); print('done')", files)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_forked_child_is_refused_and_harms_nobody(files: tuple[Path, Artifact]) -> None:
    """pyacl.md §4, row 26, and §3.5: handles do not survive fork."""
    script = """
        import atexit, os
        session = open_session(*files)
        session.run(texts(1, 8))
        if os.fork() == 0:
            for attempt in (lambda: session.run(texts(1, 8)), lambda: open_session(*files)):
                try:
                    attempt()
                except Exception as error:
                    print(type(error).__name__, str(error)[:60], flush=True)
            session.close()
            atexit._run_exitfuncs()  # ours among them; a whole exit would wait for threads that a fork left behind
            os._exit(0)
        print("child:", os.wait()[1], flush=True)
        session.run(texts(1, 8))
        session.close()
    """

    done = child(script, files)

    refusal = "ToolchainError This process was forked from process"
    lines = done.stdout.splitlines()
    assert [line[: len(refusal)] for line in lines[:2]] == [refusal, refusal], done.stderr
    assert lines[2:] == ["child: 0"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lost_device_stops_the_sweep(files: tuple[Path, Artifact]) -> None:
    script = """
        session, other = open_session(*files), open_session(*files)
        session.run(texts(1, 8))
        for attempt in (lambda: session.run(texts(1, 8)), session.close, lambda: other.run(texts(1, 8)), other.close,
                        lambda: open_session(*files)):
            try:
                attempt()
                print("fine")
            except Exception as error:
                print(type(error).__name__, error)
    """

    done = child(script, files, CANN_EMULATOR_FAULTS="acl.mdl.execute_async:2=lost", CANN_EMULATOR_LEAKS="off")

    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ToolchainError", "fine", "ToolchainError", "fine", "ToolchainError"]
    for line in (lines[0], lines[2], lines[4]):
        assert "507899 (DRV_INTERNAL_ERROR)" in line
        assert "Do not use this device" in line
    assert done.returncode == 0


def test_devices_are_counted_as_the_process_sees_them(files: tuple[Path, Artifact]) -> None:
    """pyacl.md §4, row 37: not by the machine's own numbers."""
    script = """
        try:
            open_session(*files, device_id=2)
        except Exception as error:
            print(type(error).__name__, error)
        open_session(*files).close()
    """

    done = child(script, files, CANN_EMULATOR_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="2")

    assert (done.returncode, done.stderr) == (0, "")
    for words in ("ToolchainError device 2 cannot be used: ", "107001 (INVALID_DEVICEID)", "ASCEND_RT_VISIBLE_DEVICES"):
        assert words in done.stdout
