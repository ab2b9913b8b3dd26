"""`workbench agreement` as a user runs it: on an experiment, on a bundle, with answers of another platform."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundle.making import reseal
from tests.commands.running import run as workbench
from tests.tiny import write_model, write_workspace
from workbench.api.bundle import export
from workbench.bundle.golden import bundle_agreement
from workbench.bundle.opened import read_bundle
from workbench.inputs.experiment import read_experiment
from workbench.values.agreement import Agreements
from workbench.values.documents.canonical import decode
from workbench.values.errors import BundleError, ConfigError


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write_workspace(tmp_path_factory.mktemp("workspace"))
    run("sweep", file, "--trials", 2)
    return file


def run(*arguments: object) -> str:
    done = workbench(*arguments)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def told_of(text: str) -> Agreements:
    return decode(Agreements, json.loads(text), version=1)


def preset(file: Path) -> str:
    """The INT8 candidate of the sweep."""
    shown = json.loads(run("show", file, "--json"))
    question = read_experiment(file)
    ids = [member["id"] for member in shown["front"]] or [shown["closest"]["candidate_id"]]
    return next((i for i in ids if i != question.baseline.id), ids[0])


@pytest.fixture(scope="module")
def bundle(swept: Path) -> Path:
    folder = swept.parent.parent / "bundle"
    run("agreement", swept, "--candidate", preset(swept))
    export(swept, folder, candidate=preset(swept), register=False)
    return folder


def test_a_agreement_is_printed_kept_and_shown(swept: Path, tmp_path: Path) -> None:
    chosen = preset(swept)

    said = run("agreement", swept, "--candidate", chosen, "--samples", 50, "--to", tmp_path / "f.json")

    said = " ".join(said.split())
    assert "what ships" in said
    assert "PyTorch: no checkpoint is known" in said
    assert "50 samples of holdout" in said
    kept = told_of((tmp_path / "f.json").read_text(encoding="utf-8"))
    assert kept.candidate_id == chosen
    told = told_of(run("agreement", swept, "--candidate", chosen, "--samples", 50, "--json"))
    assert kept == replace(told, command=kept.command)


def test_a_bundle_says_what_was_measured_and_is_measured_anew(swept: Path, bundle: Path) -> None:
    kept = bundle_agreement(read_bundle(bundle))

    assert kept is not None
    assert "agreement.json" in read_bundle(bundle).manifest.files
    assert kept == told_of(run("agreement", bundle, "--json"))
    anew = told_of(run("agreement", bundle, "--experiment", swept, "--json"))
    ours, theirs = kept.find("served"), anew.find("served")
    assert ours is not None
    assert theirs is not None
    assert (ours.worst_cosine, ours.max_abs, ours.samples) == (theirs.worst_cosine, theirs.max_abs, theirs.samples)


def test_a_agreement_of_another_candidate_in_a_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    body = json.loads((folder / "agreement.json").read_text(encoding="utf-8"))
    (folder / "agreement.json").write_text(json.dumps({**body, "candidate_id": "0" * 64}), encoding="utf-8")
    reseal(folder, {})

    with pytest.raises(BundleError, match="not of its own"):
        bundle_agreement(read_bundle(folder))


def test_what_does_not_fit_is_refused(swept: Path, bundle: Path, tmp_path: Path) -> None:
    other = write_workspace(tmp_path)
    write_model(tmp_path / "data" / "model.onnx", seed=5)
    with pytest.raises(BundleError, match="Name the experiment it comes from"):
        run("agreement", bundle, "--experiment", other)
    with pytest.raises(ConfigError, match="Name the experiment that the bundle comes from"):
        run("agreement", bundle, "--reference", tmp_path / "old.npz")
    for options, said in (
        (("--split", "train"), "is none of calibration, validation, holdout"),
        (("--experiment", "x.yaml"), "belongs to a bundle"),
    ):
        with pytest.raises(ConfigError, match=said):
            run("agreement", swept, *options)
