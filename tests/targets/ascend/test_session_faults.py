"""Every call into pyACL fails once, in each way that matters: nothing stays behind, and the message says what to do."""

from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.targets.ascend.offline_files import artifact_of, expected, gear_model, grid, texts
from workbench.cann_emulator.acl import errors, handles, memory
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.acl.calls import describe
from workbench.targets.ascend.acl.session import open_session
from workbench.values.artifact import Artifact
from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError

FEEDS = texts(2, 8)
NULL_IS_A_VALUE = {"acl.mdl.get_input_data_type", "acl.mdl.get_output_data_type", "acl.get_recent_err_msg"}
"""What the emulator gives for them on request is a value of theirs (float32, no text), so that nobody can see it."""
RELEASES = {
    "acl.destroy_data_buffer": "data buffers",
    "acl.mdl.destroy_dataset": "datasets",
    "acl.mdl.destroy_desc": "model descriptions",
    "acl.mdl.unload": "loaded models",
    "acl.rt.destroy_context": "contexts",
    "acl.rt.destroy_event": "events",
    "acl.rt.destroy_stream": "streams",
    "acl.rt.free": "blocks of device memory",
    "acl.rt.free_host": "blocks of page-locked host memory",
}
"""A release that fails leaves its one object behind, and nothing else."""
ONCE_A_PROCESS = {"acl.init", "acl.rt.set_device"}
AFTER_THE_SESSION = {"acl.rt.reset_device", "acl.finalize"}


@pytest.fixture(scope="module", params=["static", "gears"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("files")
    if request.param == "static":
        return directory, grid((2,), (8,), directory)
    return directory, artifact_of({(None, None): gear_model([(1, 8), (2, 8)])}, directory)


def open_run_close(files: tuple[Path, Artifact]) -> None:
    session = open_session(*files)
    try:
        assert np.array_equal(session.run(FEEDS)["logits"], expected(FEEDS)["logits"])
        session.times()
    finally:
        session.close()


def calls_made(files: tuple[Path, Artifact]) -> dict[str, int]:
    errors.arm("acl.nothing:1=1")
    open_run_close(files)
    counted = dict(errors._COUNTED)  # what the emulator counts while anything is armed
    acl_process.shut_down()
    return counted


def clean_up() -> None:
    """As a new process would find it."""
    errors.arm("")
    acl_process.shut_down()
    acl_calls.clear_doubt()
    for thing in handles.alive(object):
        handles.drop(thing.handle)  # type: ignore[attr-defined]  # every object of the emulator has one
    for block in list(memory.PINNED.values()):
        memory.unpin(block)


def attempt(files: tuple[Path, Artifact], fault: str) -> tuple[WorkbenchError | None, Counter[str]]:
    """What was raised with this fault, and what is left after the session."""
    clean_up()
    if fault.partition(":")[0] not in ONCE_A_PROCESS:
        open_run_close(files)
    before = Counter(kind for kind, _ in handles.left_behind())
    errors.arm(fault)
    error = None
    try:
        open_run_close(files)
    except WorkbenchError as caught:
        error = caught
    return error, Counter(kind for kind, _ in handles.left_behind()) - before


@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        (107000, MeasureError, False),
        (207001, MeasureError, True),
        (507014, MeasureError, True),
        (507010, ToolchainError, None),
    ],
    ids=["caller", "memory", "time-out", "heartbeat"],
)
def test_each_call_may_fail_once_and_nothing_stays_behind(
    acl: ModuleType, files: tuple[Path, Artifact], code: int, kind: type[WorkbenchError], transient: bool | None
) -> None:
    places = [(name, i + 1) for name, count in calls_made(files).items() for i in range(count)]
    places = [(name, i) for name, i in places if name not in NULL_IS_A_VALUE | AFTER_THE_SESSION]
    assert len(places) > 50

    for name, number in places:
        error, left = attempt(files, f"{name}:{number}={code}")

        where = f"{name}, call {number}: {error}, left: {dict(left)}"
        if name in RELEASES:
            assert sum(left.values()) <= 1, where
            assert set(left) <= {RELEASES[name]}, where
        else:
            assert not left, where
        assert error is not None, where
        assert str(error).endswith("."), where
        if f"{name} failed with {code} ({describe(code).name})" in str(error):
            assert isinstance(error, ToolchainError if name in ONCE_A_PROCESS else kind), where
            assert "CANN says:" in str(error), where
            if isinstance(error, MeasureError):
                assert error.transient is transient, where
        else:  # a call that gives no code
            assert f"{name} gave" in str(error) or "interface says" in str(error), where
    clean_up()


def test_out_of_device_memory_is_this_candidates_trouble_and_may_pass(
    acl: ModuleType, files: tuple[Path, Artifact]
) -> None:
    errors.arm("acl.mdl.load_from_file:1=245000")

    with pytest.raises(MeasureError, match=r"\.om: pyACL cannot load it: .*245000 .*smaller batches") as caught:
        open_session(*files)
    assert caught.value.transient
    open_run_close(files)


def test_after_a_time_out_the_runtime_is_built_anew(acl: ModuleType, files: tuple[Path, Artifact]) -> None:
    """pyacl.md §2.6: mark the trial failed and rebuild the process; within it, [inferred] that finalize is enough."""
    candidate, baseline = open_session(*files), open_session(*files)
    errors.arm("acl.rt.synchronize_stream_with_timeout:1=507046;acl.nothing:1=1")

    with pytest.raises(MeasureError, match=r"507046 \(STREAM_SYNC_TIMEOUT\)") as caught:
        candidate.run(FEEDS)
    assert caught.value.transient
    with pytest.raises(MeasureError, match="no times"):
        candidate.times()
    with pytest.raises(MeasureError, match=r"in doubt \(507046 STREAM_SYNC_TIMEOUT\) and 2 sessions"):
        open_session(*files)
    candidate.close()
    baseline.close()
    assert {name: errors._COUNTED.get(name) for name in ("acl.finalize", "acl.init")} == {
        "acl.finalize": 1,
        "acl.init": None,
    }

    open_run_close(files)

    assert errors._COUNTED["acl.init"] == 1
