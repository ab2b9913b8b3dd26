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
    artifact_of,
    assert_right,
    gear_model,
    grid,
    static_model,
    texts,
)
from workbench.targets.ascend.acl.session import AscendSession
from workbench.targets.ascend.interface import Interface, Shape, turns
from workbench.targets.base import DeviceSession
from workbench.values.artifact import Artifact
from workbench.values.errors import MeasureError, ToolchainError

IDS, MASK = TEXT.inputs
LOGITS, TOKENS = TEXT.outputs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    directory = tmp_path_factory.mktemp("grid")
    return directory, grid((1, 4), (8, 16), directory)


@pytest.fixture
def session(acl: ModuleType, files: tuple[Path, Artifact]) -> Iterator[AscendSession]:
    session = AscendSession(*files)
    yield session
    session.close()


def test_calls_of_a_compiled_shape_and_of_any_other_give_the_models_results(acl: ModuleType, tmp_path: Path) -> None:
    """From files, from one with gears, which may change with every call (pyacl.md §7), and where the file has other
    types than the model."""
    # by its place alone 3 classes would be a text of length 3
    unnamed = replace(TEXT, outputs=(replace(LOGITS, shape=("batch", "sequence")), TOKENS))
    gears = gear_model([(1, 8), (4, 8), (1, 16), (4, 16)])
    for number, made in enumerate(
        (
            lambda to: grid((1, 4), (8, 16), to),
            lambda to: artifact_of({(None, None): gears}, to),
            lambda to: grid((2,), (16,), to, ids="int32", floats="float16"),
            lambda to: artifact_of({(2, 16): static_model(2, 16)}, to, interface=unnamed),
        )
    ):
        (place := tmp_path / str(number)).mkdir()
        session = AscendSession(place, made(place))
        for batch, length in ((1, 8), (4, 16), (1, 8), (1, 16), (4, 8), (1, 1), (3, 11), (5, 16), (13, 9)):
            feeds = texts(batch, length, seed=batch)
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


def test_damage_is_told_before_pyacl(
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
            AscendSession(tmp_path, artifact)
    with pytest.raises(ToolchainError, match=r"module `acl`.*set_env\.sh"):
        AscendSession(directory, artifact)


def test_files_for_another_chip_or_another_interface_are_refused(acl: ModuleType, tmp_path: Path) -> None:
    for inputs, outputs, fault in (
        ((replace(IDS, name="tokens"), MASK), (LOGITS, TOKENS), "takes ids, mask; its interface says mask, tokens"),
        ((IDS, MASK), (LOGITS,), "gives 2 outputs"),
        ((replace(IDS, dtype="float32"), MASK), (LOGITS, TOKENS), "not the same kind of number"),
        ((replace(IDS, shape=("batch", 9)), MASK), (LOGITS, TOKENS), "compiled as"),
        ((IDS, MASK), (LOGITS, replace(TOKENS, shape=("batch",))), "'tokens' is"),
    ):
        interface = Interface(inputs=inputs, outputs=outputs)
        with pytest.raises(MeasureError, match=fault):
            AscendSession(tmp_path, artifact_of({(1, 8): static_model(1, 8)}, tmp_path, interface=interface))
    other = artifact_of({(1, 8): static_model(1, 8)}, tmp_path, device="Ascend310P3")
    with pytest.raises(MeasureError, match=r"device is Ascend910B3; the files were compiled for Ascend310P3"):
        AscendSession(tmp_path, other)


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
