"""The bill of materials and the provenance of a bundle: what the standards ask, and what is true."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.serve.making import make_bundle
from workbench import __version__
from workbench.bundle import SBOM, STATEMENT, Bundle, Origin, read_bundle
from workbench.bundle.provenance import _commit, _git, statement
from workbench.shipping.deployment import serving_pins


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("made")))


@pytest.fixture(scope="module")
def bom(bundle: Bundle) -> Any:
    return json.loads(bundle.read(SBOM))


@pytest.fixture(scope="module")
def made(bundle: Bundle) -> Any:
    return json.loads(bundle.read(STATEMENT))


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


def test_the_statement_is_in_totos_with_slsas_provenance(bundle: Bundle, made: Any) -> None:
    """The required fields of both, by their published schemas."""
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert set(made) == {"_type", "subject", "predicateType", "predicate"}
    for resource in (*made["subject"], *made["predicate"]["runDetails"]["byproducts"]):
        assert resource["digest"] == {"sha256": bundle.manifest.files[resource["name"]].sha256}
    definition = made["predicate"]["buildDefinition"]
    assert definition["buildType"].startswith("urn:")
    assert definition["externalParameters"]["candidate"]["target"] == "onnxruntime"
    assert made["predicate"]["runDetails"]["builder"]["version"]["int8-workbench"] == __version__
    inputs = {resource["name"]: resource["digest"] for resource in definition["resolvedDependencies"]}
    assert inputs["model.onnx"] == {"modelSha256": bundle.manifest.model.sha256}
    assert inputs["validation"] == {"datasetSha256": bundle.manifest.datasets["validation"]}
    assert len(inputs["int8-workbench"]["sourceSha256"]) == 64


def test_the_statement_says_what_was_asked_for(bundle: Bundle) -> None:
    origin = Origin(
        experiment="e.yaml", experiment_sha256="1" * 64, identity="2" * 64, space="s.yaml", space_sha256="3" * 64
    )
    record = dataclasses.replace(bundle.manifest.files["README.md"])
    found = statement(bundle.manifest, {"record.json": record, "model/model.onnx": record}, origin)

    definition = found["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["experiment_identity"] == "2" * 64
    inputs = {resource["name"]: resource["digest"] for resource in definition["resolvedDependencies"]}
    assert (inputs["e.yaml"], inputs["s.yaml"]) == ({"sha256": "1" * 64}, {"sha256": "3" * 64})
    assert [r["name"] for r in found["subject"]] == ["model/model.onnx"]
    assert [r["name"] for r in found["predicate"]["runDetails"]["byproducts"]] == ["record.json"]


def test_a_commit_is_named_only_where_the_sources_are_its(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "workbench"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(workbench, "__file__", str(package / "__init__.py"))
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
        assert _git(tmp_path, *arguments) == ""
    head = _git(tmp_path, "rev-parse", "HEAD")

    assert _commit() == head
    (package / "__init__.py").write_text("changed")
    assert _commit() is None
