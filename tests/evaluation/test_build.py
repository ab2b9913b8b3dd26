"""From a record to an artifact, made again when what it depends on changes."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.evaluation.workplace import CFG, LENGTH, PLAIN, Workplace
from workbench.evaluation.build import artifact_of
from workbench.evaluation.record import record_of
from workbench.quantization.record import read_record
from workbench.testing.encoder import CLASSES, ids, run
from workbench.values.candidate import Candidate, Quantization
from workbench.values.system import source_closure
from workbench.values.system.source_closure import closure_digest


@pytest.mark.parametrize(
    "quantization",
    [
        Quantization(scheme="cfg", cfg=CFG),
        replace(PLAIN, algorithm="mse", weight_algorithm="mse", balance="auto", bias_correction=True),
        replace(PLAIN, keep_float=1, keep_float_unit="group", sensitivity="kl"),
    ],
    ids=["cfg", "everything", "group in float"],
)
def test_a_record_becomes_an_artifact_that_computes_in_integers(work: Workplace, quantization: Quantization) -> None:
    candidate = Candidate(target="onnxruntime", quantization=quantization)

    artifact, folder = artifact_of(work.experiment, candidate, work.bench)

    record = read_record(work.bench.journal.record(candidate.id))
    assert record == record_of(work.experiment, candidate, work.bench)
    with_weights = sum(layer.weight is not None for layer in record.layers)
    assert with_weights <= artifact.int8_ops <= len(record.layers)
    session = work.bench.target(candidate).open(artifact, folder, candidate)
    feeds = ids(16, LENGTH, 9)
    (wanted,) = run(onnx.load(work.experiment.model.path), feeds)
    found = session.run(feeds)["logits"]
    session.close()
    assert found.shape == (16, CLASSES)
    assert np.abs(found - wanted).max() < 0.15 * np.abs(wanted).max()


def test_an_artifact_is_made_again_when_a_module_it_depends_on_changed_and_kept_otherwise(
    work: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a copy of the source, as an upgrade would change it between two sweeps of one workspace."""
    source = tmp_path / "workbench"
    shutil.copytree(source_closure._ROOT, source, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source_closure, "_ROOT", source)
    caches = (closure_digest, source_closure._needed, source_closure._file, source_closure._content)

    def made(edited: str) -> tuple[int, ...]:
        """How many new statistics, lowered and compiled models a candidate needs after a change of this file."""
        kinds = [work.bench.store.root / kind for kind in ("statistics", "lowered", "artifact")]
        if edited:
            content = (source / edited).read_text(encoding="utf-8")
            (source / edited).write_text(content + "# changed\n", encoding="utf-8")
        for cached in caches:
            cached.cache_clear()
        before = [len(list(kind.glob("*/*"))) for kind in kinds]
        artifact_of(work.experiment, Candidate(target="onnxruntime", quantization=PLAIN), work.bench)
        return tuple(len(list(kind.glob("*/*"))) - n for kind, n in zip(kinds, before, strict=True))

    try:
        assert made("") == (1, 1, 1)
        assert (
            made("")
            == made("evaluation/store.py")
            == made("targets/openvino/target.py")
            == made("targets/ascend/settings.py")
            == made("search/sweep.py")
            == (0, 0, 0)
        )
        assert made("targets/onnxruntime/simplify.py") == made("targets/onnxruntime/optimize.py") == (0, 1, 1)
        assert made("quantization/observe.py")[0] == 1
        assert made("values/candidate.py") == (1, 1, 1)
    finally:
        monkeypatch.undo()
        for cached in caches:
            cached.cache_clear()
