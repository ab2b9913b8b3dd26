"""Bundles without a model: the shapes of the model they stand for, and answers that are not all alike."""

from pathlib import Path

import numpy as np

from tests.prediction.host_costs.data import CLASSES, classification
from tests.tiny import write_workspace
from workbench.bundle.golden import golden_batches, preprocessor_of
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.verify import verify_bundle
from workbench.inputs.experiment import read_experiment
from workbench.prediction.host_costs.probe import write_probe
from workbench.targets import open_target
from workbench.values.service import ServiceSettings

SETTINGS = ServiceSettings(max_batch_size=16)


def _computes(bundle: Bundle) -> None:
    """For a while, as a model does."""
    assert bundle.manifest.artifact.kernels["MatMul"] == 2
    assert 33e6 < bundle.manifest.artifact.size_bytes < 35e6


def test_a_classifiers_probe_is_a_sound_bundle_with_its_labels_and_tokenizer(tmp_path: Path) -> None:
    model, dataset = classification(tmp_path)
    (tmp_path / "work").mkdir()

    bundle = read_bundle(write_probe(tmp_path / "work", model, dataset, SETTINGS))

    verify_bundle(bundle.directory)
    _computes(bundle)
    manifest = bundle.manifest
    assert (manifest.task, manifest.labels, manifest.service) == ("classification", CLASSES, SETTINGS)
    assert (manifest.model.inputs, manifest.model.outputs) == (model.inputs, model.outputs)
    preprocessor = preprocessor_of(bundle)
    assert preprocessor.identity == dataset.preprocessor.identity


def test_a_model_without_text_is_stood_for_by_constants(tmp_path: Path) -> None:
    experiment = read_experiment(write_workspace(tmp_path))
    (tmp_path / "work").mkdir()

    bundle = read_bundle(write_probe(tmp_path / "work", experiment.model, experiment.dataset, SETTINGS))

    verify_bundle(bundle.directory)
    (golden,) = golden_batches(bundle)
    assert {name: array.shape for name, array in golden.outputs.items()} == {"logits": (1, 4)}
    session = open_target("onnxruntime").open(
        bundle.manifest.artifact, bundle.model_directory, bundle.manifest.candidate
    )
    many = session.run({"x": np.ones((7, 16), dtype=np.float32)})
    session.close()
    assert many["logits"].shape == (7, 4)
