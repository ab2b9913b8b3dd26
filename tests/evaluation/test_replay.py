"""Peak memory of real artifacts in real child processes."""

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_artifact import linear_artifact
from workbench.evaluation.replay import peak_memory
from workbench.targets.base import Feeds
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError


def feeds(width: int = 32, length: int = 8) -> list[Feeds]:
    return [{"x": np.ones((1, length, width), dtype=np.float32)}, {"x": np.ones((1, 1, width), dtype=np.float32)}]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    folder = tmp_path_factory.mktemp("small")
    return folder / "compiled", linear_artifact(folder)


def test_a_larger_model_or_longer_feeds_need_more_memory_by_at_least_their_size(
    small: tuple[Path, Artifact], tmp_path: Path
) -> None:
    large = linear_artifact(tmp_path, width=2048)  # 16 MiB of weights

    little = peak_memory(*small, Candidate(target="onnxruntime"), feeds())
    much = peak_memory(tmp_path / "compiled", large, Candidate(target="onnxruntime"), feeds(2048))
    long = peak_memory(*small, Candidate(target="onnxruntime"), feeds(length=200_000))  # 24 MiB for each tensor

    assert 0 < little < 64 * 2**20
    assert much - little > 14 * 2**20
    assert long - little > 20 * 2**20


def test_a_damaged_artifact_is_the_candidates_error_with_the_runtimes_words(
    small: tuple[Path, Artifact], tmp_path: Path
) -> None:
    _, artifact = small
    (tmp_path / artifact.files[0].file).write_bytes(b"not a model")

    with pytest.raises(MeasureError, match=r"while its memory was measured: .*cannot load") as caught:
        peak_memory(tmp_path, artifact, Candidate(target="onnxruntime"), feeds())

    assert not caught.value.transient


def test_a_child_that_is_killed_or_out_of_time_is_a_transient_failure(
    small: tuple[Path, Artifact], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the kernel kills where memory runs out: here by a start-up file that kills the interpreter."""
    with pytest.raises(MeasureError, match=r"longer than 0\.05 s and was stopped") as late:
        peak_memory(*small, Candidate(target="onnxruntime"), feeds(), timeout_s=0.05)
    (tmp_path / "sitecustomize.py").write_text(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MeasureError, match="ended with signal 9") as killed:
        peak_memory(*small, Candidate(target="onnxruntime"), feeds())

    assert late.value.transient
    assert killed.value.transient
