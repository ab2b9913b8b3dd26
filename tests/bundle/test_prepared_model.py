"""A bundle of a prepared model says which file it was prepared from, and how its interface differs."""

import dataclasses
from pathlib import Path

from tests.shipping.deployment.manifests import manifest
from workbench.bundle.readme import readme
from workbench.values.documents.canonical import canonical_json, decode, encode
from workbench.values.model import Origin, PreparationStep, TensorSpec

STEP = PreparationStep(name="constants", words="Built in: sr = 16000.", figures=(("largest_difference", 0.0),))
FED = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
RATE = TensorSpec(name="sr", dtype="int64", shape=())


def test_the_readme_names_the_source_its_digest_and_every_step() -> None:
    plain = manifest()
    origin = Origin(
        path=Path("m.onnx"), sha256="7" * 64, size_bytes=9, opset=9, inputs=(FED, RATE), outputs=(), steps=(STEP,)
    )
    prepared = dataclasses.replace(plain, model=dataclasses.replace(plain.model, inputs=(FED,), origin=origin))

    text = readme(prepared)

    assert f"Prepared from `m.onnx` (sha256 `{'7' * 64}`), opset 9:" in text
    assert "- constants: Built in: sr = 16000. (largest difference 0)" in text
    assert "- input `sr`: int64" in text.partition("which has:")[2]
    assert decode(type(prepared.model), encode(prepared.model)) == prepared.model
    assert "Prepared from" not in readme(plain)
    assert "origin" not in canonical_json(plain.model)
