"""Sweeps on the emulated Ascend 910B3 as a user runs them: the real command line, in CANN's environment."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.ascend_workspace import (
    EXPERIMENT,
    QUIET,
    Done,
    Environment,
    command,
    said,
    side_by_side,
    workbench,
    write_ascend_workspace,
)
from tests.emulated_cann import emulated_environment
from workbench.evaluation.journal import Journal
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs.experiment import read_experiment
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.encoder import WEIGHT_LAYERS
from workbench.values.documents.canonical import file_digest
from workbench.values.results import Evaluation


def journal_of(file: Path) -> Journal:
    question = read_experiment(file)
    journal = current_journal(question.workspace, question.name)
    assert journal is not None
    return journal


def evaluations_of(file: Path) -> dict[str, Evaluation]:
    return journal_of(file).evaluations()


# --- the whole job --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    file: Path
    done: Done
    environment: Environment

    @property
    def workspace(self) -> Path:
        return self.file.parent.parent


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory, emulated: Environment) -> dict[str, Swept]:
    """Six candidates of a classifier, in a folder whose path ATC does not take, and two of a tagger on another chip."""
    root = tmp_path_factory.mktemp("workspace")
    files = {
        "classifier": write_ascend_workspace(root / "a b+c"),
        "tagger": write_ascend_workspace(
            root / "tagger", task="ner", experiment=f"{EXPERIMENT}ascend: {{soc: Ascend910B4}}\n"
        ),
    }
    trials = {"classifier": 6, "tagger": 2}
    done = side_by_side({name: (emulated, ("sweep", files[name], "--trials", trials[name])) for name in files})
    return {name: Swept(file=files[name], done=done[name], environment=emulated) for name in files}


@pytest.fixture(scope="module")
def swept(sweeps: dict[str, Swept]) -> Swept:
    found = sweeps["classifier"]
    assert found.done.returncode == 0, found.done.stderr
    return found


@pytest.fixture(scope="module")
def chosen(swept: Swept) -> str:
    """The recommended candidate."""
    found = json.loads(workbench(swept.environment, "show", swept.file, "--json").stdout)
    recommended: str = found["recommended"]["candidate_id"]
    return recommended


def test_a_sweep_ends_well_over_shapes_precisions_and_int8_and_every_evaluation_is_emulated(swept: Swept) -> None:
    found = list(evaluations_of(swept.file).values())

    assert [e.status for e in found] == ["complete"] * 6, [e.failure for e in found]
    assert all(e.toolchain.emulated and e.toolchain.device == "Ascend910B3" for e in found)
    assert all(e.measurement.device is not None for e in found)
    for evaluation in found:
        latency = evaluation.measurement.latency
        assert latency is not None
        assert latency.clock == "modelled"
    settings = [e.candidate.compile for e in found if isinstance(e.candidate.compile, AscendCompile)]
    shapes = {(each.sequence_bins, each.shapes) for each in settings}
    assert shapes == {((8,), "static"), ((4, 8), "static"), ((4, 8), "gears")}
    assert {e.candidate.serving.batch for e in found} == {1, 4}
    assert {e.candidate.precision.mode for e in found} == {"force_fp16", "allow_mix_precision"}
    by_scheme = {e.candidate.quantization.scheme: e.measurement.int8_ops for e in found}
    assert by_scheme["none"] == 0
    assert (by_scheme["static"] or 0) > 0


def test_accuracy_is_said_against_float32_and_float16_has_a_loss_of_its_own(swept: Swept) -> None:
    question = read_experiment(swept.file)
    found = evaluations_of(swept.file)
    baseline = found[question.baseline.id].measurement.accuracy
    others = [e.measurement.accuracy for i, e in found.items() if i != question.baseline.id]

    assert baseline is not None
    assert baseline.comparison is not None
    assert baseline.reference == "float32 in ONNX Runtime"
    assert baseline.against_baseline is None
    journal = journal_of(swept.file)
    kept = [baseline, journal.evaluations("holdout")[question.baseline.id].measurement.accuracy]
    tests = [each.comparison.test for each in kept if each is not None and each.comparison is not None]
    assert tests == ["McNemar exact"] * 2, "float16 does not answer as float32 does, whoever is the baseline"
    for accuracy in others:
        assert accuracy is not None
        assert accuracy.comparison is not None
        assert accuracy.against_baseline is not None
        beyond = accuracy.comparison.drop_pp.value - baseline.comparison.drop_pp.value
        assert accuracy.against_baseline.drop_pp.value == pytest.approx(beyond)
    said = workbench(swept.environment, "show", swept.file, "--candidate", question.baseline.short_id).stdout
    assert "difference to float32 in ONNX Runtime" in said


def test_table_and_command_lines_say_that_it_is_emulated(swept: Swept, chosen: str) -> None:
    answers = side_by_side(
        {
            "show": (swept.environment, ("show", swept.file, "-v")),
            "one": (swept.environment, ("show", swept.file, "--candidate", chosen[:12])),
            "again": (swept.environment, ("evaluate", swept.file, "--candidate", chosen[:12])),
        }
    )

    assert [done.returncode for done in answers.values()] == [0, 0, 0], said(answers["again"])
    for words in (swept.done.stdout, answers["show"].stdout, answers["one"].stdout, answers["again"].stdout):
        assert "emulat" in words.lower()
    assert "EMULATED: no number below was measured on a real device" in answers["show"].stdout
    assert "Modelled, not measured; what its time rests on" in answers["show"].stdout
    found = evaluations_of(swept.file)[chosen].measurement.latency
    assert found is not None
    assert f"[{found.speedup.low:.2f}, {found.speedup.high:.2f}]" in answers["show"].stdout
    assert chosen[:12] in answers["one"].stdout
    assert "accuracy" in answers["again"].stdout


def test_export_refuses_what_is_emulated_unless_told_and_verify_replays_it(swept: Swept, tmp_path: Path) -> None:
    bundle = tmp_path / "my bundle"

    refused = workbench(swept.environment, "export", swept.file, "--to", bundle)
    assert refused.returncode != 0
    assert "--allow-emulated" in refused.stderr
    assert not bundle.exists()

    exported = workbench(swept.environment, "export", swept.file, "--to", bundle, "--allow-emulated")
    assert exported.returncode == 0, exported.stderr
    verified = workbench(swept.environment, "verify", bundle)
    assert verified.returncode == 0, verified.stderr
    assert "golden samples replayed" in verified.stdout
    assert "it was made on an emulator" in said(verified)


def test_a_candidate_that_was_not_confirmed_is_exported_with_that_word(swept: Swept, tmp_path: Path) -> None:
    journal = journal_of(swept.file)
    other = next(i for i in evaluations_of(swept.file) if journal.evaluation(i, "holdout") is None)
    options = ("--candidate", other, "--to", tmp_path / "bundle", "--allow-emulated", "--no-register")

    exported = workbench(swept.environment, "export", swept.file, *options)

    assert exported.returncode == 0, exported.stderr
    assert "not confirmed: Its confirmation on held-out data was never made" in said(exported)
    assert "**Not confirmed." in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")


def test_what_was_compiled_is_found_by_its_content_wherever_the_workspace_moves(swept: Swept, tmp_path: Path) -> None:
    moved = shutil.copytree(swept.workspace, tmp_path / "moved") / "experiments" / swept.file.name

    done = workbench(swept.environment, "evaluate", moved, "--candidate", "baseline", "--json")

    assert done.returncode == 0, done.stderr
    stages = {stage["stage"]: stage["cached"] for stage in json.loads(done.stdout)["stages"]}
    assert stages["compile"]
    assert stages["lower"]


def test_a_model_that_tags_every_position_is_swept_too(sweeps: dict[str, Swept]) -> None:
    tagger = sweeps["tagger"]

    assert tagger.done.returncode == 0, tagger.done.stderr
    assert "accuracy stands for entity_f1" in workbench(tagger.environment, "show", tagger.file, "-v").stdout
    baseline, int8 = evaluations_of(tagger.file).values()
    assert baseline.toolchain.device == int8.toolchain.device == "Ascend910B4"
    assert (baseline.status, int8.status) == ("complete", "complete")
    assert int8.measurement.int8_ops == len(WEIGHT_LAYERS)


# --- what ends a sweep ----------------------------------------------------------------------------------------------


def below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def words_of(process: psutil.Process) -> str:
    """The command line; empty for one that has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def compilers(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are ATC, or the program that watches over it."""
    return [p for p in processes if "cann_emulator.atc" in (words := words_of(p)) or "atc_child.py" in words]


def holds_device_memory(environment: Environment, pid: int) -> bool:
    """Whether a process below holds memory on the emulated device, as `npu-smi` would show it."""
    return any((Path(environment["CANN_EMULATOR_STATE"]) / f"{process.pid}.json").exists() for process in below(pid))


def half_written(workspace: Path) -> list[str]:
    """Files that are visible under a final name and are not whole."""
    store = workspace / ".workbench" / "store"
    found = []
    for entry in store.glob("[a-z]*/??/*/entry.json"):
        for name, expected in json.loads(entry.read_text(encoding="utf-8"))["files"].items():
            file = entry.parent / "files" / name
            if not file.exists() or file_digest(file) != expected["sha256"]:
                found.append(str(file))
    found += [str(om) for om in store.glob("[a-z]*/??/*/files/*.om") if not (om.parent.parent / "entry.json").exists()]
    return found


def killed_when(environment: Environment, file: Path, ready: Callable[[int], bool]) -> list[psutil.Process]:
    """Start the sweep, kill it -9 once `ready(pid)`, and return the compilers it had then."""
    with subprocess.Popen(
        command("sweep", file), env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while not ready(process.pid):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.02)
        found = compilers(below(process.pid))
        process.kill()
    return found


def test_whatever_ends_a_sweep_the_same_command_goes_on_and_at_most_one_candidate_is_measured_again(
    tmp_path: Path, emulated: Environment
) -> None:
    """Killed while ATC works, killed while the device computes, and stopped by a device that is lost."""
    file = write_ascend_workspace(tmp_path, experiment=EXPERIMENT.replace("trials: 6", "trials: 4"))

    running = killed_when(emulated, file, lambda pid: bool(compilers(below(pid))))
    assert running
    psutil.wait_procs(running, timeout=300)
    assert not compilers(running)
    assert half_written(tmp_path) == []
    assert evaluations_of(file) == {}

    def computes_for_the_second(pid: int) -> bool:
        done = len(list((tmp_path / ".workbench" / "sweeps").glob("*/*/evaluations/*.json")))
        return done == 1 and holds_device_memory(emulated, pid) and not compilers(below(pid))

    killed_when(emulated, file, computes_for_the_second)
    assert half_written(tmp_path) == []
    first = evaluations_of(file)
    assert [e.status for e in first.values()] == ["complete"]

    lost_later = {**emulated, "CANN_EMULATOR_FAULTS": "acl.mdl.load_from_file:5=lost"}
    lost = workbench(lost_later, "sweep", file)
    assert lost.returncode == 3
    assert "Do not use this device: look at `npu-smi info -t health" in said(lost)
    assert "Traceback" not in lost.stderr
    second = evaluations_of(file)
    assert [e.status for e in second.values()] == ["complete"] * 2

    done = workbench(emulated, "sweep", file)
    assert done.returncode == 0, done.stderr
    assert "2 candidates evaluated, 2 from before" in done.stdout
    last = evaluations_of(file)
    assert [e.status for e in last.values()] == ["complete"] * 4
    assert first.items() <= second.items() <= last.items()
    assert half_written(tmp_path) == []
    assert not list((tmp_path / ".workbench" / "sweeps").rglob("*.tmp")), "a draft stays until its file is written anew"
    assert not list((tmp_path / ".workbench" / "store" / ".building").iterdir())
