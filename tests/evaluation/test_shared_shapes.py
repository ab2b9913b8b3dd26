import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.build import compile_missing_shapes, shares_shapes
from workbench.evaluation.store import Store
from workbench.graph.read import read_model
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.testing.encoder import ids, save, tiny_encoder
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Precision, Serving
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import CompileError


class Watched(AscendTarget):
    """The target, which also remembers the shapes it was asked to compile."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def compile_each(
        self, lowered: Path, candidate: Candidate, to: Path, made: Callable[[Artifact, Path], None]
    ) -> None:
        assert isinstance(candidate.compile, AscendCompile)
        self.asked.append((candidate.compile.batches, candidate.compile.sequence_bins))
        super().compile_each(lowered, candidate, to, made)


def candidate(bins: tuple[int, ...], batches: tuple[int, ...] = (1,), **settings: object) -> Candidate:
    return Candidate(
        target=ASCEND,
        precision=Precision(mode="force_fp16"),
        compile=AscendCompile(batches=batches, sequence_bins=bins, **settings),
        serving=Serving(batch=batches[-1]),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"))):
        yield


@pytest.fixture(scope="module")
def lowered(place: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lowered")
    path = save(tiny_encoder(), folder / "model.onnx")
    return AscendTarget().lower(read_model(path), candidate((8,)), None, folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


def assembled(
    one: Candidate, target: AscendTarget, lowered: Path, store: Store, to: Path, lowered_digest: str = "x"
) -> Artifact:
    to.mkdir()
    return compile_missing_shapes(one, target, lowered, to, store, {"lowered": lowered_digest})


def test_a_set_is_compiled_in_one_go_and_equals_the_target_own(lowered: Path, store: Store, tmp_path: Path) -> None:
    one, target = candidate((8, 16)), Watched()
    (tmp_path / "plain").mkdir()

    artifact = assembled(one, target, lowered, store, tmp_path / "set")

    assert target.asked == [((1,), (8, 16))]
    assert artifact == AscendTarget().compile(lowered, one, tmp_path / "plain")
    for file in artifact.files:
        assert file_digest(tmp_path / "set" / file.file) == file.sha256
    session = target.open(artifact, tmp_path / "set", one)
    assert session.run(ids(1, 5))["logits"].shape == (1, 5)
    session.close()


def test_only_shapes_that_no_other_set_has_are_compiled(lowered: Path, store: Store, tmp_path: Path) -> None:
    target = Watched()

    def files(one: Candidate, *of: str) -> tuple[Artifact, list[int | None]]:
        made = assembled(one, target, lowered, store, tmp_path / f"{len(list(tmp_path.iterdir()))}", *of)
        return made, [file.sequence_bin for file in made.files]

    files(candidate((8, 16)))
    assert files(candidate((8, 16, 32)))[1] == [8, 16, 32, None]
    files(candidate((8, 16)))
    part, bins = files(candidate((8,)))
    assert (part.float_matmuls_left, bins) == (9, [8, None]), "a part is counted without another compile"
    assert target.asked == [((1,), (8, 16)), ((1,), (32,))]
    more, _ = files(candidate((8, 64), batches=(1, 2, 4)))
    assert target.asked[2:] == [((1,), (64,)), ((2, 4), (8, 64))], "batches that miss the same lengths together"
    assert [f.file for f in more.files[:4]] == ["b1_s8.om", "b1_s64.om", "b2_s8.om", "b2_s64.om"]
    files(candidate((8,), disabled_fusions=("gelu",)))
    files(candidate((8,)), "another model")
    assert target.asked[4:] == [((1,), (8,))] * 2, "other settings and models share nothing"


def test_a_failed_compile_keeps_nothing_and_says_why(store: Store, place: None, tmp_path: Path) -> None:
    damaged = tmp_path / "lowered.onnx"
    damaged.write_bytes(b"not a model at all")

    with pytest.raises(CompileError):
        assembled(candidate((8,)), Watched(), damaged, store, tmp_path / "a")

    assert store.usage() == {}


KILLED = """
import os, sys
from pathlib import Path
from tests.evaluation.test_shared_shapes import candidate
from workbench.cann_emulator import acl
sys.modules["acl"] = acl
from workbench.evaluation.build import compile_missing_shapes
from workbench.evaluation.store import Store
from workbench.targets.ascend import om_set
from workbench.targets.ascend.target import AscendTarget
om_set.parallel_compiles = lambda files: 1
compile_missing_shapes(candidate((8, 16, 32)), AscendTarget(), Path(sys.argv[1]), Path(sys.argv[2]),
    Store(Path(sys.argv[3])), {"lowered": "x"}, lambda: os.kill(os.getpid(), 9))
"""


def test_a_kill_loses_only_the_file_in_flight(lowered: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(lowered), str(tmp_path / "a"), str(tmp_path / "store")], timeout=300
    )
    target, store = Watched(), Store(tmp_path / "store")

    artifact = assembled(candidate((8, 16, 32)), target, lowered, store, tmp_path / "b")

    assert killed.returncode == -9
    assert target.asked == [((1,), (16, 32))]
    assert [file.sequence_bin for file in artifact.files] == [8, 16, 32, None]
    store.close()


def test_gears_and_other_targets_are_compiled_as_they_are() -> None:
    assert shares_shapes(candidate((8,)))
    assert not shares_shapes(replace(candidate((8, 16)), compile=AscendCompile(sequence_bins=(8, 16), shapes="gears")))
    assert not shares_shapes(Candidate(target="onnxruntime"))
