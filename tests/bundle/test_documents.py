"""The bill of materials of a bundle, and what its page says of a prepared model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.serve.making import make_bundle
from tests.shipping.deployment.manifests import manifest
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.readme import readme
from workbench.bundle.requirements import SBOM
from workbench.shipping.deployment import serving_pins
from workbench.values.documents.canonical import canonical_json, decode, encode
from workbench.values.model import Origin, PreparationStep, TensorSpec


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("made")))


@pytest.fixture(scope="module")
def bom(bundle: Bundle) -> Any:
    return json.loads(bundle.read(SBOM))


def of_type(bom: Any, kind: str) -> list[Any]:
    return [component for component in bom["components"] if component["type"] == kind]


def test_the_bill_of_materials_is_what_cyclonedx_asks(bom: Any) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")

    found = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(json.dumps(bom))

    assert found is None


def test_the_bill_lists_packages_model_and_data_as_they_are(bundle: Bundle, bom: Any) -> None:
    manifest = bundle.manifest
    assert [f"{c['name']}=={c['version']}" for c in of_type(bom, "library")] == list(serving_pins(manifest))
    assert all(c["purl"] == f"pkg:pypi/{c['name']}@{c['version']}" for c in of_type(bom, "library"))
    model, source = of_type(bom, "machine-learning-model")
    assert model["hashes"][0]["content"] == manifest.artifact.files[0].sha256
    assert {"name": "workbench:sha256", "value": manifest.model.sha256} in source["properties"]
    assert [c["name"] for c in of_type(bom, "data")] == list(manifest.datasets)
    refs = [component["bom-ref"] for component in (*bom["components"], bom["metadata"]["component"])]
    assert len(refs) == len(set(refs))
    for dependency in bom["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= set(refs)


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
