import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.encoder import ids, save, tiny_encoder
from workbench.evaluation.shared_shapes import compile_missing_shapes, shares_shapes
from workbench.evaluation.store import Store
from workbench.graph.read import read_model
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Precision, Serving
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import CompileError


class Watched(AscendTarget):
    """The target, which also remembers the shapes it was asked to compile."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        assert isinstance(candidate.compile, AscendCompile)
        self.asked.append((candidate.compile.batches, candidate.compile.sequence_bins))
        return super().compile(lowered, candidate, to)


def candidate(bins: tuple[int, ...], batches: tuple[int, ...] = (1,), **settings: object) -> Candidate:
    return Candidate(
        target=ASCEND,
        precision=Precision(mode="force_fp16"),
        compile=AscendCompile(batches=batches, sequence_bins=bins, **settings),  # type: ignore[arg-type]  # by keyword
        serving=Serving(batch=batches[-1]),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from workbench.cann_emulator import acl as emulated

    patch = pytest.MonkeyPatch()
    for name, value in emulated_environment(tmp_path_factory.mktemp("cann")).items():
        patch.setenv(name, value)
    patch.setitem(sys.modules, "acl", emulated)
    yield
    acl_process.shut_down()
    patch.undo()


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
    assembled(candidate((8, 16)), target, lowered, store, tmp_path / "a")

    artifact = assembled(candidate((8, 16, 32)), target, lowered, store, tmp_path / "b")
    assembled(candidate((8, 16)), target, lowered, store, tmp_path / "again")

    assert target.asked == [((1,), (8, 16)), ((1,), (32,))]
    assert [file.sequence_bin for file in artifact.files] == [8, 16, 32, None]


def test_a_shape_that_nobody_counted_is_compiled_again_where_it_is_the_largest(
    lowered: Path, store: Store, tmp_path: Path
) -> None:
    target = Watched()
    assembled(candidate((8, 16)), target, lowered, store, tmp_path / "a")

    artifact = assembled(candidate((8,)), target, lowered, store, tmp_path / "b")

    assert target.asked[1:] == [((1,), (8,))]
    assert artifact.float_matmuls_left == 9


def test_batches_are_compiled_one_after_the_other(lowered: Path, store: Store, tmp_path: Path) -> None:
    target = Watched()
    assembled(candidate((8,)), target, lowered, store, tmp_path / "a")

    artifact = assembled(candidate((8, 16), batches=(1, 4)), target, lowered, store, tmp_path / "b")

    assert target.asked[1:] == [((1,), (16,)), ((4,), (8, 16))]
    assert [(f.batch, f.sequence_bin) for f in artifact.files[:-1]] == [(1, 8), (1, 16), (4, 8), (4, 16)]


def test_other_settings_share_nothing(lowered: Path, store: Store, tmp_path: Path) -> None:
    target = Watched()
    assembled(candidate((8,)), target, lowered, store, tmp_path / "a")

    assembled(candidate((8,), disabled_fusions=("gelu",)), target, lowered, store, tmp_path / "b")
    assembled(candidate((8,)), target, lowered, store, tmp_path / "c", "another model")

    assert len(target.asked) == 3


def test_a_failed_compile_keeps_nothing_and_says_why(store: Store, place: None, tmp_path: Path) -> None:
    damaged = tmp_path / "lowered.onnx"
    damaged.write_bytes(b"not a model at all")

    with pytest.raises(CompileError):
        assembled(candidate((8,)), Watched(), damaged, store, tmp_path / "a")

    assert [usage for usage in store.usage() if usage.entries] == []


def test_gears_and_other_targets_are_compiled_as_they_are() -> None:
    assert shares_shapes(candidate((8,)))
    assert not shares_shapes(replace(candidate((8, 16)), compile=AscendCompile(sequence_bins=(8, 16), shapes="gears")))
    assert not shares_shapes(Candidate(target="onnxruntime"))
