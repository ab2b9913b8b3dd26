"""Bundles of a real INT8 text classifier: written, read, damaged in every way, replayed."""

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.bundle.making import body_of, emulated, exported, reseal, seal
from tests.evaluations import evaluation
from workbench.bundle.golden import GoldenBatch, golden_batches
from workbench.bundle.manifest import Shipped
from workbench.bundle.opened import read_bundle
from workbench.bundle.verify import verify_bundle
from workbench.bundle.write import BundleContents
from workbench.quantization.record import read_record
from workbench.shipping.handover import hand_over
from workbench.values.errors import BundleError, ConfigError, ToolchainError
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation
from workbench.values.service import ServiceSettings

DEPLOYED = (
    *("Dockerfile", "README.md", "alerts.yml", "autoscaler.yaml", "compose.yaml", "grafana-dashboard.json"),
    *("ingress.yaml", "kubernetes.yaml", "prometheus.yml", "requirements-serve.txt", "text-int8.service"),
)


@pytest.fixture(scope="module")
def pristine(contents: BundleContents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hand_over(tmp_path_factory.mktemp("out") / "bundle", contents)


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "copy"))


def test_a_bundle_holds_all_that_serving_needs_as_it_was_given(pristine: Path, contents: BundleContents) -> None:
    assert sorted(p.relative_to(pristine).as_posix() for p in pristine.rglob("*") if p.is_file()) == [
        "README.md",
        "SHA256SUMS",
        *(f"deploy/{name}" for name in DEPLOYED),
        "golden/samples.npz",
        "golden/texts.json",
        "labels.json",
        "manifest.json",
        "model/model.onnx",
        "record.json",
        "sbom.cdx.json",
        "tokenizer.json",
    ]
    assert [p.name for p in pristine.parent.iterdir()] == ["bundle"]
    manifest = read_bundle(pristine).manifest
    assert {f.name: getattr(manifest, f.name) for f in dataclasses.fields(Shipped)} == {
        f.name: getattr(contents, f.name) for f in dataclasses.fields(Shipped)
    }
    assert (manifest.candidate_id, body_of(pristine)["version"]) == (contents.candidate.id, 2)
    assert (manifest.model.sha256, manifest.model.file) == (contents.model.sha256, "model.onnx")
    assert read_record(pristine / "record.json").model_sha256 == contents.model.sha256


def test_a_bundle_of_version_1_is_read_with_the_default_service(folder: Path) -> None:
    manifest = body_of(folder)
    del manifest["service"], manifest["outcomes"]
    seal(folder, {**manifest, "version": 1})

    read = read_bundle(folder).manifest

    assert (read.service, read.outcomes) == (ServiceSettings(), None)
    assert verify_bundle(folder).largest_error == 0.0


def test_a_sound_bundle_replays_without_a_difference_and_its_readme_states_the_facts(pristine: Path) -> None:
    report = verify_bundle(pristine)

    assert (report.files, report.samples, report.largest_error, report.warnings) == (21, 3, 0.0, ())
    assert report.summary.startswith("21 files (0.0 MB) match their sha256; not signed; 3 golden samples replayed")
    assert verify_bundle(pristine, replay=False).largest_error is None
    command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]  # without the workbench
    assert subprocess.run(command, cwd=pristine, capture_output=True, check=False).returncode == 0
    text = (pristine / "README.md").read_text(encoding="utf-8")
    for said in (
        *("INT8 dynamic, weights per channel", "workbench verify .", "they are no signature"),
        *("| accuracy | 0.9500 | 0.9510 | 0.9470 |", "cut to 8 tokens", "- 1 thread, batch 1\n"),
        *("| accuracy loss against float, pp |  | 0.20 [-0.10, 0.50] | 0.30 [0.00, 0.60] |",),
        "`input_ids`: int64 [batch, length]",
    ):
        assert said in text
    assert "Timing of" not in text
    assert "mulated" not in text


def test_the_readme_gives_the_times_of_the_report_corrected_for_drift_and_says_whose_were_disturbed(
    contents: BundleContents, tmp_path: Path
) -> None:
    def changed(found: Evaluation) -> Evaluation:
        assert found.measurement.latency is not None
        latency = dataclasses.replace(found.measurement.latency, drift=1.25, quiet=False, verdict="another process ran")
        return dataclasses.replace(found, measurement=dataclasses.replace(found.measurement, latency=latency))

    evaluations, baseline = (tuple(map(changed, found)) for found in (contents.evaluations, contents.baseline))
    made = dataclasses.replace(contents, evaluations=evaluations, baseline=baseline)

    text = (hand_over(tmp_path / "bundle", made) / "README.md").read_text(encoding="utf-8")

    assert metrics(evaluation(p50_ms=4.0, drift=1.25))["latency_p50_ms"] == 3.2
    assert "| latency P50, ms | 3.2 [3.14, 3.26] | 3.2 [3.14, 3.26] | 3.2 [3.14, 3.26] |" in text
    assert "| latency P99, ms | 4.8 | 4.8 | 4.8 |" in text
    assert "| throughput, samples/s | 312.5 | 312.5 | 312.5 |" in text
    assert "| speed-up over float | 1.00 [0.98, 1.02] | 1.80 [1.76, 1.84] | 1.70 [1.67, 1.73] |" in text
    assert "corrected for the drift of the machine during the sweep; raw times are in `manifest.json`" in text
    for whose in ("the float model on validation", "this candidate on validation", "this candidate on holdout"):
        assert f"\nTiming of {whose}: another process ran\n" in text


# --- from a sweep, by engine and scheme ----------------------------------------------------------------------------


needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed; it is the extra [openvino]"
)


@pytest.fixture(scope="module")
def openvino_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("openvino"), "openvino", "static")


@needs_openvino
def test_an_openvino_bundle_has_both_files_and_replays(openvino_bundle: Path) -> None:
    report = verify_bundle(openvino_bundle)
    manifest = read_bundle(openvino_bundle).manifest

    assert sorted(p.name for p in (openvino_bundle / "model").iterdir()) == ["model.bin", "model.xml"]
    assert [f.file for f in manifest.artifact.files] == ["model.xml", "model.bin"]
    assert {"model/model.xml", "model/model.bin", "record.json"} <= manifest.files.keys()
    assert (report.largest_error, report.warnings) == (0.0, ())
    assert report.samples == 12
    for sample in golden_batches(read_bundle(openvino_bundle)):
        assert all(np.isfinite(array).all() for array in sample.outputs.values())


# --- damage --------------------------------------------------------------------------------------------------------


def test_one_flipped_byte_anywhere_is_found(folder: Path) -> None:
    checked = 0
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        sound = file.read_bytes()
        step = max(1, len(sound) // 23)
        for position in sorted({*range(0, len(sound), step), len(sound) - 1}):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << (position % 8)
            file.write_bytes(damaged)
            with pytest.raises(BundleError):
                verify_bundle(folder, replay=False)
            checked += 1
        file.write_bytes(sound)

    assert checked > 150
    verify_bundle(folder, replay=False)


@pytest.mark.parametrize("name", ["model/model.onnx", "golden/samples.npz", "README.md", "manifest.json", "SHA256SUMS"])
def test_a_truncated_or_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-7])
    with pytest.raises(BundleError, match=Path(name).name):
        verify_bundle(folder, replay=False)

    (folder / name).unlink()
    with pytest.raises(BundleError, match=f"{Path(name).name} is missing"):
        verify_bundle(folder, replay=False)
    with pytest.raises(BundleError, match=r"manifest.json is missing; this is no complete bundle"):
        verify_bundle(folder.parent)


def other_outputs(folder: Path) -> None:
    arrays = dict(np.load(folder / "golden" / "samples.npz"))
    arrays["1/outputs/logits"] = arrays["1/outputs/logits"] + np.float32(0.25)
    np.savez(folder / "golden" / "samples.npz", **arrays)


def other_ids(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["loan"], vocabulary["pay"] = vocabulary["pay"], vocabulary["loan"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def half_a_model(folder: Path) -> None:
    file = folder / "model" / "model.onnx"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_outputs, r"output 'logits' of golden batch 1 differs by 0.25; 0.001 \+ 0.001"),
        (other_ids, "texts of golden batch 0 become another 'input_ids'"),
        (half_a_model, "does not run on this machine"),
    ],
)
def test_what_does_not_give_its_golden_samples_again_is_refused_with_why(
    folder: Path, change: Callable[[Path], None], said: str
) -> None:
    change(folder)
    reseal(folder, {})

    with pytest.raises(BundleError, match=said):
        verify_bundle(folder)


def test_another_machine_is_a_warning(folder: Path) -> None:
    manifest = body_of(folder)
    toolchain = manifest["artifact"]["toolchain"]
    toolchain["components"]["onnxruntime"] = "1.20.0"
    toolchain["device"] = "another CPU"
    toolchain["features"] = ["a_flag_of_tomorrow"]
    reseal(folder, {"artifact": manifest["artifact"]})

    warnings = verify_bundle(folder).warnings

    assert any(w.endswith("here, it was made with 1.20.0") for w in warnings)
    assert any("lacks a_flag_of_tomorrow" in w for w in warnings)
    assert any("another CPU: measure again" in w for w in warnings)


# --- refusals ------------------------------------------------------------------------------------------------------


def test_what_must_not_be_handed_over_is_refused_and_nothing_is_written(
    contents: BundleContents, tmp_path: Path
) -> None:
    other = dataclasses.replace(contents.artifact.toolchain, device="another CPU")
    stale = dataclasses.replace(contents.evaluations[0], toolchain=other)
    bad = GoldenBatch(feeds=contents.golden[0].feeds, outputs={"logits": np.full((2, 3), np.nan, np.float32)})
    for changes, said in (
        ({"evaluations": (stale,)}, "measured with another toolchain"),
        ({"evaluations": contents.baseline}, "does not belong to"),
        ({"golden": (bad,)}, "not finite"),
    ):
        with pytest.raises(BundleError, match=said):
            hand_over(tmp_path / "bundle", dataclasses.replace(contents, **changes))  # type: ignore[arg-type]  # fields
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "bundle").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        hand_over(tmp_path / "bundle", contents)
    assert list((tmp_path / "bundle").iterdir()) == []


def test_an_emulated_artifact_needs_an_explicit_word(contents: BundleContents, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="--allow-emulated"):
        hand_over(tmp_path / "bundle", emulated(contents))
    assert list(tmp_path.iterdir()) == []

    hand_over(tmp_path / "bundle", emulated(contents), allow_emulated=True)

    assert "**Emulated" in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")
    assert "made on an emulator" in verify_bundle(tmp_path / "bundle", replay=False).warnings[0]


def test_a_model_changed_after_compiling_is_refused(contents: BundleContents, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(contents.artifact_directory, tmp_path / "compiled"))
    with (copy / "model.onnx").open("ab") as stream:
        stream.write(b"\0")

    changed = dataclasses.replace(contents, artifact_directory=copy)
    with pytest.raises(BundleError, match="changed since it was compiled"):
        hand_over(tmp_path / "bundle", changed)
    (copy / "model.onnx").unlink()
    with pytest.raises(BundleError, match="or is gone"):
        hand_over(tmp_path / "bundle", changed)
    assert not (tmp_path / "bundle").exists()


def test_a_folder_that_cannot_be_written_is_the_machines_fault(contents: BundleContents, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root ignores permission bits")
    tmp_path.chmod(0o500)
    with pytest.raises(ToolchainError, match="cannot be written"):
        hand_over(tmp_path / "bundle", contents)
    tmp_path.chmod(0o700)
