import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.targets.ascend.offline_files import artifact_of, assert_right, expected, gear_model, grid, texts
from workbench.cann_emulator.acl import errors, handles, memory
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.acl.calls import describe
from workbench.targets.ascend.acl.session import AscendSession
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("grid")
    return directory, grid((1, 4), (8,), directory)


def test_sessions_open_side_by_side_and_close_in_any_order(acl: ModuleType, files: tuple[Path, Artifact]) -> None:
    """pyacl.md §4, rows 18 and 19: init once, finalize by one owner, each reset_device for its set_device."""
    sessions, feeds = [AscendSession(*files), AscendSession(*files)], texts(4, 8)
    for closed in (0, 0, 0):
        for session in sessions:
            assert_right(session.run(feeds), feeds)
        sessions.pop(closed).close()
        if len(sessions) == 1:
            sessions.append(AscendSession(*files))
    for session in sessions:
        session.close()


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
        from workbench.targets.ascend.acl.session import AscendSession
        directory = Path({str(files[0])!r})
        files = directory, decode(Artifact, json.loads((directory / "artifact.json").read_text()))
        def told(*attempts):
            for attempt in attempts:
                try:
                    attempt()
                    print("fine", flush=True)
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
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


def test_a_forked_child_is_refused_and_what_nobody_closed_is_released(files: tuple[Path, Artifact]) -> None:
    """pyacl.md §4, row 26, and §3.5: handles do not survive fork."""
    script = """
        import atexit, os
        session = AscendSession(*files)
        session.run(texts(1, 8))
        if os.fork() == 0:
            told(lambda: session.run(texts(1, 8)), lambda: AscendSession(*files), session.close)
            atexit._run_exitfuncs()  # ours among them; a whole exit would wait for threads that a fork left behind
            os._exit(0)
        print("child:", os.wait()[1], flush=True)
        session.run(texts(1, 8))
    """

    done = child(script, files)

    *refused, fine, ended = done.stdout.splitlines()
    assert [line.startswith("ToolchainError This process was forked from process") for line in refused] == [True, True]
    assert (fine, ended, done.returncode, done.stderr) == ("fine", "child: 0", 0, "")


def test_a_lost_device_stops_the_sweep(files: tuple[Path, Artifact]) -> None:
    script = """
        session, other = AscendSession(*files), AscendSession(*files)
        session.run(texts(1, 8))
        told(lambda: session.run(texts(1, 8)), session.close, lambda: other.run(texts(1, 8)), other.close,
             lambda: AscendSession(*files))
    """

    done = child(script, files, CANN_EMULATOR_FAULTS="acl.mdl.execute_async:2=lost", CANN_EMULATOR_LEAKS="off")

    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ToolchainError", "fine", "ToolchainError", "fine", "ToolchainError"]
    for line in lines[::2]:
        assert "507899 (DRV_INTERNAL_ERROR)" in line
        assert "Do not use this device" in line
    assert done.returncode == 0


FEEDS = texts(2, 8)
NULL_IS_A_VALUE = {"acl.mdl.get_input_data_type", "acl.mdl.get_output_data_type", "acl.get_recent_err_msg"}
"""What the emulator gives for them on request is a value of theirs (float32, no text), so that nobody can see it."""
ONCE_A_PROCESS = {"acl.init", "acl.rt.set_device"}
AFTER_THE_SESSION = {"acl.rt.reset_device", "acl.finalize"}


@pytest.fixture(scope="module", params=["static", "gears"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("compiled")
    if request.param == "static":
        return directory, grid((2,), (8,), directory)
    return directory, artifact_of({(None, None): gear_model([(1, 8), (2, 8)])}, directory)


def open_run_close(compiled: tuple[Path, Artifact]) -> None:
    session = AscendSession(*compiled)
    try:
        assert np.array_equal(session.run(FEEDS)["logits"], expected(FEEDS)["logits"])
        session.times()
    finally:
        session.close()


def clean_up() -> None:
    """As a new process would find it."""
    errors.arm("")
    acl_process.shut_down()
    acl_calls.clear_doubt()
    for thing in handles.alive(object):
        handles.drop(thing.handle)  # type: ignore[attr-defined]  # every object of the emulator has one
    for address in list(memory.PINNED):
        memory.unpin(address)


@pytest.mark.parametrize("code", [107000, 207001, 507014, 507010], ids=["caller", "memory", "time-out", "heartbeat"])
def test_each_call_may_fail_and_nothing_is_left(acl: ModuleType, compiled: tuple[Path, Artifact], code: int) -> None:
    errors.arm("acl.nothing:1=1")
    open_run_close(compiled)
    counted = errors._COUNTED.items()  # what the emulator counts while anything is armed
    unseen = NULL_IS_A_VALUE | AFTER_THE_SESSION
    places = [(name, i + 1) for name, count in counted for i in range(count) if name not in unseen]
    assert len(places) > 50

    for name, number in places:
        clean_up()
        if name not in ONCE_A_PROCESS:
            open_run_close(compiled)
        before, error = Counter(handles.left_behind()), None
        errors.arm(f"{name}:{number}={code}")
        try:
            open_run_close(compiled)
        except WorkbenchError as caught:
            error = caught
        left = Counter(handles.left_behind()) - before

        where = f"{name}, call {number}: {error}, left: {dict(left)}"
        release = re.search(r"destroy|unload|free", name) is not None
        assert sum(left.values()) <= release, where  # one that fails leaves its one object behind, and nothing else
        assert str(error).endswith("."), where
        if f"{name} failed with {code} ({describe(code).name})" in str(error):
            stops = name in ONCE_A_PROCESS or code == 507010
            assert isinstance(error, ToolchainError if stops else MeasureError), where
            assert str(error).endswith(describe(code).remedy), where
            assert "CANN says:" in str(error), where
            assert "\n" not in str(error), where
            assert getattr(error, "transient", True) is (stops or code != 107000), where
        else:  # a call that gives no code
            assert f"{name} gave" in str(error) or "interface says" in str(error), where
    clean_up()


def test_after_a_time_out_the_runtime_is_built_anew(acl: ModuleType, compiled: tuple[Path, Artifact]) -> None:
    """pyacl.md §2.6: mark the trial failed and rebuild the process; within it, [inferred] that finalize is enough."""
    candidate, baseline = AscendSession(*compiled), AscendSession(*compiled)
    errors.arm("acl.rt.synchronize_stream_with_timeout:1=507046;acl.nothing:1=1")

    with pytest.raises(MeasureError, match=r"507046 \(STREAM_SYNC_TIMEOUT\)") as caught:
        candidate.run(FEEDS)
    assert caught.value.transient
    with pytest.raises(MeasureError, match="no times"):
        candidate.times()
    with pytest.raises(MeasureError, match=r"in doubt \(507046 STREAM_SYNC_TIMEOUT\) and 2 sessions"):
        AscendSession(*compiled)
    candidate.close()
    baseline.close()
    assert [errors._COUNTED.get(name) for name in ("acl.finalize", "acl.init")] == [1, None]

    open_run_close(compiled)

    assert errors._COUNTED["acl.init"] == 1
