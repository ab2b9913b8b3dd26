"""`import workbench`: the same sweeps, results and predictions as the command line's, as functions and values."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import workbench
from tests.evaluations import evaluation, service
from tests.report.summaries import judge
from tests.serve.making import make_bundle, running
from tests.tiny import write_workspace
from tests.tiny_texts import LABELS, WORDS, write_text_workspace
from workbench.api.result import search_rows
from workbench.bundle.golden import golden_batches
from workbench.bundle.opened import read_bundle
from workbench.bundle.signing import make_keys
from workbench.commands.cli import app
from workbench.evaluation.sweep_folders import current_journal

TEXTS: list[str | list[str]] = [
    "loan please",
    "late",
    ["when", "repay", "card"],
    " ".join(WORDS[2:]) * 4,
    "rate month sum bank nothing like it",
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, workbench.SweepResult]:
    file = write_text_workspace(tmp_path_factory.mktemp("api"))
    return file, workbench.sweep(str(file), trials=3)


@pytest.fixture(scope="module")
def bundle(swept: tuple[Path, workbench.SweepResult]) -> Path:
    file, result = swept
    int8 = next(row["candidate"] for row in result.rows() if row["quantization.scheme"] == "dynamic")
    done = workbench.export(str(file), str(file.parent / "bundle"), candidate=str(int8))
    assert done.candidate.id == int8
    return done.directory


def test_importing_the_package_imports_no_library_and_every_stable_name_is_there() -> None:
    code = (
        "import sys, workbench\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'optuna', 'mlflow', 'typer', 'workbench.values'} & set(sys.modules)\n"
        "assert set(workbench.__all__) <= set(dir(workbench))\n"
        "print(sorted(heavy), [name for name in workbench.__all__ if getattr(workbench, name, None) is None])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.strip() == "[] []"
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        workbench.sweeep  # type: ignore[attr-defined]  # noqa: B018


def test_every_stable_name_is_described_with_an_example() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")

    assert [name for name in workbench.__all__ if f"`{name}`" not in page and f"`{name}(" not in page] == []


def test_a_plain_script_does_it_all_and_is_run_once(tmp_path: Path) -> None:
    file = write_text_workspace(tmp_path)
    script = Path(__file__).with_name("api_usage.py")
    model, manifest = tmp_path / "data" / "model.onnx", tmp_path / "calibration" / "tiny-texts.yaml"

    done = subprocess.run(
        [sys.executable, script, file, model, manifest, tmp_path], capture_output=True, text=True, timeout=600
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(set(found["candidates"])) == 2  # those that were confirmed are there again: which ones, speed decides
    assert found["recommended"] in found["front"]
    assert found["stages"] > 4
    assert found["again"]
    assert found["layers"] == 2
    assert found["compared"] >= 2
    assert set(found["labels"]) <= set(LABELS)
    assert "absent.yaml" in found["refused"]


def test_a_sweep_that_a_callback_ends_is_gone_on_with_and_measures_nothing_twice(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    told: list[tuple[str, bool]] = []
    before = psutil.Process().children()  # such as the resource tracker that a test in this process has started

    def interrupt(found: workbench.Evaluation, reused: bool) -> None:
        told.append((found.candidate.id, reused))
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workbench.sweep(file, trials=4, on_evaluation=interrupt)
    first = [candidate for candidate, _ in told]
    assert workbench.read_sweep(file).end is None
    assert [e.candidate.id for e in workbench.read_sweep(file).summary.evaluations] == first
    assert psutil.Process().children() == before

    def wrong(candidate: workbench.Candidate, stage: str) -> None:
        raise LookupError("a defect in a callback")

    with pytest.raises(LookupError, match="a defect in a callback"):
        workbench.sweep(file, trials=4, on_stage=wrong)
    assert psutil.Process().children() == before

    told.clear()
    with ThreadPoolExecutor(1) as pool:  # another thread than before
        result = pool.submit(
            workbench.sweep, file, trials=4, on_evaluation=lambda e, r: told.append((e.candidate.id, r))
        )
        found = result.result()

    assert told[:2] == [(candidate, True) for candidate in first]
    assert found.end is not None
    assert (found.end.new, found.end.reused) == (2, 2)
    assert len({candidate for candidate, _ in told}) == 4
    assert not found.summary.damage


def test_the_command_line_and_the_functions_see_the_same_sweep(
    swept: tuple[Path, workbench.SweepResult], capsys: pytest.CaptureFixture[str]
) -> None:
    file, result = swept

    app(["show", str(file), "--json"], standalone_mode=False)
    shown = json.loads(capsys.readouterr().out)

    assert {c["id"] for c in shown["candidates"]} == {row["candidate"] for row in result.rows()}
    assert [m["id"] for m in shown["front"]] == [member.id for member in result.front]
    assert result.recommended is not None
    assert shown["recommended"]["candidate_id"] == result.recommended.id

    app(["sweep", str(file), "--trials", "3"], standalone_mode=False)

    assert "0 candidates evaluated, 3 from before" in capsys.readouterr().out
    assert workbench.read_sweep(file).recommendation == result.recommendation
    journal = current_journal(file.parent.parent, "tiny-texts")
    assert journal is not None
    assert journal.root.name == "0001"


def test_wrong_arguments_are_named_before_any_work(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    question = workbench.read_experiment(file, workspace=str(tmp_path / "elsewhere"))

    assert question.workspace == tmp_path / "elsewhere"
    with pytest.raises(workbench.ConfigError, match="trials: 0 is less than 1"):
        workbench.sweep(file, trials=0)
    with pytest.raises(workbench.ConfigError, match="timeout_s: nan"):
        workbench.sweep(file, timeout_s=float("nan"))
    with pytest.raises(workbench.ConfigError, match="was read for the workspace"):
        workbench.sweep(question, workspace=tmp_path)
    with pytest.raises(workbench.ConfigError, match="has not been swept yet"):
        workbench.read_sweep(file)
    with pytest.raises(workbench.ConfigError, match="samples: 0 is less than 1"):
        workbench.compare("a.onnx", "b.onnx", samples=0)
    assert not (tmp_path / ".workbench" / "sweeps").exists()


def test_rows_are_flat_alike_and_say_how_well_figures_are_known(swept: tuple[Path, workbench.SweepResult]) -> None:
    result = swept[1]
    rows = result.rows()

    assert all(row.keys() == rows[0].keys() for row in rows)
    assert all(value is None or isinstance(value, str | int | float | bool) for row in rows for value in row.values())
    evidence = {(row["split"], row["accuracy_evidence"], row["latency_evidence"]) for row in rows}
    assert evidence == {("validation", "measured", "measured"), ("holdout", "measured held-out", "measured held-out")}
    assert {row["service_evidence"] for row in rows} == {None}
    assert not any(row["emulated"] for row in rows)
    assert sum(bool(row["recommended"]) for row in rows if row["split"] == "validation") == 1
    front = result.front_rows()
    assert [row["candidate"] for row in front] == [member.id for member in result.front]
    assert {row["split"] for row in front} == {"holdout"}


def test_nothing_of_an_emulated_device_counts_as_measured() -> None:
    found = evaluation(served=service(measured_per_s=480.0))
    assert found.measurement.latency is not None
    modelled = replace(found.measurement.latency, clock="modelled")
    emulated = replace(
        found,
        toolchain=replace(found.toolchain, emulated=True),
        measurement=replace(found.measurement, latency=modelled),
    )

    confirmed = (replace(emulated, split="holdout"),)
    row = search_rows(judge(baseline=emulated, confirmed=confirmed, objectives=("latency_p50_ms",), limits={}))[1]

    assert row["emulated"] is True
    assert {row[f"{name}_evidence"] for name in ("accuracy", "latency", "service")} == {"modelled"}


def test_predictions_are_the_service_s_and_the_golden_outputs(bundle: Path) -> None:
    before = threading.active_count()
    with workbench.load_bundle(str(bundle)) as model, ThreadPoolExecutor(4) as pool:
        answers = model.predict(TEXTS)
        assert all(together == answers for together in pool.map(lambda _: model.predict(TEXTS), range(16)))
        for golden in golden_batches(read_bundle(bundle)):
            outputs = model.run(golden.feeds)
            assert all(np.array_equal(outputs[name], kept) for name, kept in golden.outputs.items())
        one = model.predict("late")
        empty = model.predict([])
        with pytest.raises(workbench.ConfigError, match="attention_mask is missing"):
            model.run({"input_ids": np.array([[2, 3]])})
    with pytest.raises(workbench.ConfigError, match="is closed"):
        model.predict("late")
    assert threading.active_count() == before
    with running(bundle) as service_of_it:
        told = service_of_it.predict({"texts": TEXTS})

    assert told.status == 200
    assert answers == told.body["results"]
    assert answers[3]["truncated"] is True
    assert one == [answers[1]]
    assert empty == []


def test_a_bundle_is_opened_only_when_it_is_whole_and_signed_by_somebody_trusted(tmp_path: Path) -> None:
    make_keys(tmp_path / "ours.key", tmp_path / "ours.pub")
    folder = make_bundle(tmp_path)
    with pytest.raises(workbench.BundleError, match="not signed"):
        workbench.load_bundle(folder, trusted_keys=str(tmp_path / "ours.pub"))
    with pytest.raises(workbench.ConfigError, match="policy"):
        workbench.load_bundle(folder, policy="ignore")  # type: ignore[arg-type]
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes().replace(b"paris", b"parma"))
    with pytest.raises(workbench.BundleError, match=r"tokenizer\.json"):
        workbench.load_bundle(folder)
