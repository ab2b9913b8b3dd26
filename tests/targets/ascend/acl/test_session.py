import itertools
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.targets.ascend.offline_files import (
    TEXT,
    Array,
    artifact_of,
    expected,
    gear_model,
    grid,
    static_model,
    texts,
)
from workbench.targets.ascend.acl.session import AscendSession, open_session
from workbench.targets.ascend.fitting import Shape, turns
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.base import DeviceSession
from workbench.values.artifact import Artifact
from workbench.values.errors import MeasureError, ToolchainError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("grid")
    return directory, grid((1, 4), (8, 16), directory)


@pytest.fixture
def session(acl: ModuleType, files: tuple[Path, Artifact]) -> Iterator[AscendSession]:
    session = open_session(*files)
    yield session
    session.close()


def assert_right(outputs: dict[str, Array], feeds: dict[str, Array]) -> None:
    wanted = expected(feeds)
    assert outputs.keys() == wanted.keys()
    for name, values in wanted.items():
        assert outputs[name].dtype == np.float32
        assert np.array_equal(outputs[name], values), name


# --- results -------------------------------------------------------------------------------------------------------


def test_calls_of_a_compiled_shape_and_of_any_other_give_the_models_results(session: AscendSession) -> None:
    for batch, length in ((1, 8), (4, 16), (1, 16), (4, 8), (1, 1), (2, 8), (3, 11), (5, 16), (13, 9)):
        feeds = texts(batch, length)
        assert_right(session.run(feeds), feeds)


# --- types ---------------------------------------------------------------------------------------------------------


def test_other_types_in_the_file_do_not_reach_the_caller(acl: ModuleType, tmp_path: Path) -> None:
    session = open_session(tmp_path, grid((2,), (8,), tmp_path, ids="int32", floats="float16"))
    feeds = texts(2, 8)

    assert_right(session.run(feeds), feeds)
    session.close()


def test_an_output_axis_that_is_no_length_comes_back_whole(acl: ModuleType, tmp_path: Path) -> None:
    """Exporters leave out sizes of outputs; the place alone would make 3 classes a text of length 3."""
    logits = Port(name="logits", dtype="float32", shape=("batch", "sequence"))
    interface = Interface(inputs=TEXT.inputs, outputs=(logits, TEXT.outputs[1]))
    artifact = artifact_of({(2, 8): static_model(2, 8)}, tmp_path, interface=interface)
    session = open_session(tmp_path, artifact)
    feeds = texts(2, 2)

    assert_right(session.run(feeds), feeds)
    session.close()


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_wrong_feed_is_refused_and_the_session_goes_on(session: AscendSession) -> None:
    feeds = texts(2, 8)
    for wrong, fault in (
        ({**feeds, "mask": feeds["mask"][:1]}, "'mask' is fed batch 1, input 'ids' 2"),
        ({n: a[:0] for n, a in feeds.items()}, "nothing to compute"),
        ({n: np.tile(a, (1, 4)) for n, a in feeds.items()}, r"length 32 is longer than every compiled shape"),
    ):
        with pytest.raises(MeasureError, match=fault):
            session.run(wrong)
        assert_right(session.run(feeds), feeds)


def test_damaged_files_are_told_before_pyacl_is_asked(
    files: tuple[Path, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "acl", None)  # importing it fails
    directory, artifact = files
    contents = {file.file: (directory / file.file).read_bytes() for file in artifact.files}
    om, interface = artifact.files[1].file, artifact.files[-1].file
    for victim, damaged in ((om, contents[om][:-1]), (interface, b""), (interface, b"x" * len(contents[interface]))):
        for name, content in contents.items():
            (tmp_path / name).write_bytes(damaged if name == victim else content)
        with pytest.raises(MeasureError, match=rf"{re.escape(victim)}.*cannot load"):
            open_session(tmp_path, artifact)


def test_without_pyacl_the_sweep_stops_with_a_remedy(
    files: tuple[Path, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "acl", None)

    with pytest.raises(ToolchainError, match=r"module `acl`.*set_env\.sh"):
        open_session(*files)


def test_files_for_another_chip_are_refused_with_both_names(acl: ModuleType, tmp_path: Path) -> None:
    artifact = artifact_of({(1, 8): static_model(1, 8)}, tmp_path, device="Ascend310P3")

    with pytest.raises(MeasureError, match=r"device is Ascend910B3; the files were compiled for Ascend310P3"):
        open_session(tmp_path, artifact)


IDS, MASK = TEXT.inputs
LOGITS, TOKENS = TEXT.outputs


def test_files_that_are_not_what_the_interface_says_are_refused(acl: ModuleType, tmp_path: Path) -> None:
    for inputs, outputs, fault in (
        ((replace(IDS, name="tokens"), MASK), (LOGITS, TOKENS), "takes ids, mask; its interface says mask, tokens"),
        ((IDS, MASK), (LOGITS,), "gives 2 outputs"),
        ((replace(IDS, dtype="float32"), MASK), (LOGITS, TOKENS), "not the same kind of number"),
        ((replace(IDS, shape=("batch", 9)), MASK), (LOGITS, TOKENS), "compiled as"),
        ((IDS, MASK), (LOGITS, replace(TOKENS, shape=("batch",))), "'tokens' is"),
    ):
        interface = Interface(inputs=inputs, outputs=outputs)
        artifact = artifact_of({(1, 8): static_model(1, 8)}, tmp_path, interface=interface)
        with pytest.raises(MeasureError, match=fault):
            open_session(tmp_path, artifact)


# --- gears ---------------------------------------------------------------------------------------------------------


def test_gears_serve_as_separate_files_do_and_may_change_with_every_call(acl: ModuleType, tmp_path: Path) -> None:
    """pyacl.md §7"""
    model = gear_model([(1, 8), (4, 8), (1, 16), (4, 16)])
    session = open_session(tmp_path, artifact_of({(None, None): model}, tmp_path))
    for batch, length in ((1, 8), (4, 16), (1, 8), (3, 10), (9, 16), (2, 8), (1, 1)):
        feeds = texts(batch, length, seed=batch)
        assert_right(session.run(feeds), feeds)
    session.close()


# --- times and memory ----------------------------------------------------------------------------------------------


def test_copies_and_execution_are_timed_apart(session: AscendSession) -> None:
    session.run(texts(1, 8))
    one = session.times()
    assert session.times() == one

    session.run(texts(4, 16))
    four = session.times()
    session.run(texts(8, 16))
    two_turns = session.times()

    assert min(one.host_to_device_ms, one.execute_ms, one.device_to_host_ms) > 0
    assert four.host_to_device_ms >= one.host_to_device_ms
    assert two_turns.execute_ms == pytest.approx(2 * four.execute_ms, rel=1e-3)
    assert isinstance(session, DeviceSession)


# --- threads and handles ----------------------------------------------------------------------------------------------


def test_threads_share_a_session_and_get_their_own_answers(session: AscendSession) -> None:
    """pyacl.md §4, rows 25 and 27: the context is set in each thread, one lock over inputs and execution."""
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for turn in range(20):
                feeds = texts(1 + (seed + turn) % 5, 16, seed * 100 + turn)
                assert_right(session.run(feeds), feeds)
                session.times()
        except BaseException as error:  # told in the main thread
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


GRID = [Shape(batch=b, length=n) for b, n in itertools.product((1, 4, 8), (16, 64))]


def test_the_smallest_shape_that_holds_the_call_serves_it() -> None:
    for batch, length, expected_turns in (
        (1, 1, [(1, 16, 1)]),
        (1, 17, [(1, 64, 1)]),
        (2, 16, [(4, 16, 2)]),
        (5, 64, [(8, 64, 5)]),
        (9, 16, [(8, 16, 8), (1, 16, 1)]),
        (19, 20, [(8, 64, 8), (8, 64, 8), (4, 64, 3)]),
    ):
        found = turns(GRID, Shape(batch=batch, length=length))
        assert [(turn.shape.batch, turn.shape.length, turn.stop - turn.start) for turn in found] == expected_turns
