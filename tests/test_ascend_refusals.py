"""Machines that cannot, compilers that misbehave, damaged files: what the command line says, and how it ends."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.ascend_workspace import (
    EXPERIMENT,
    LENGTH,
    QUIET,
    SPACE,
    Done,
    Environment,
    said,
    side_by_side,
    workbench,
    write_ascend_workspace,
)
from tests.emulated_cann import emulated_environment
from workbench.cann_emulator.om import read_om, write_om
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs.experiment import read_experiment
from workbench.testing.encoder import WIDTH
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.sealed_json import read_sealed, write_sealed

BUSY = "207010"
"""NO_MODEL_RESOURCE: the device can hold no further model."""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)


# --- an ATC and a device that misbehave -------------------------------------------------------------------------------

MODES = "[force_fp16, allow_mix_precision, allow_fp32_to_fp16, cube_fp16in_fp32out, must_keep_origin_dtype, force_fp32]"
MISBEHAVING_SPACE = (
    SPACE[: SPACE.index("presets:")].replace("[force_fp16, allow_mix_precision]", MODES)
    + """
forbid:
  - quantization.scheme: [static]
    precision.mode: [cube_fp16in_fp32out, must_keep_origin_dtype, force_fp32]
    reason: not for INT8
presets:
  - {name: int8, quantization.scheme: static}
  - {name: garbage, precision.mode: allow_mix_precision}
  - {name: crash, precision.mode: allow_fp32_to_fp16}
  - {name: killed, precision.mode: cube_fp16in_fp32out}
  - {name: nothing, precision.mode: must_keep_origin_dtype}
  - {name: hangs, precision.mode: force_fp32}
"""
)
MISBEHAVING_ATC = r"""#!/bin/sh
case "$*" in
  *--precision_mode=allow_mix_precision*) printf '\033[2J\377garbage of no compiler\n'; exit 3 ;;
  *--precision_mode=allow_fp32_to_fp16*) kill -SEGV $$ ;;
  *--precision_mode=cube_fp16in_fp32out*) kill -KILL $$ ;;
  *--precision_mode=must_keep_origin_dtype*) echo "ATC run success, welcome to the next use."; exit 0 ;;
  *--precision_mode=force_fp32*) echo "working"; sleep 600 & wait ;;
esac
exec "REAL" "$@"
"""


def test_an_atc_that_misbehaves_and_a_busy_device_cost_one_candidate_each_and_the_sweep_goes_on(tmp_path: Path) -> None:
    """The real compiler's launcher is replaced by a program that does what no emulator would."""
    file = write_ascend_workspace(
        tmp_path, space=MISBEHAVING_SPACE, experiment=EXPERIMENT.replace("trials: 6", "trials: 7")
    )
    # 1st load: the plan's probe, 2nd and 3rd: the first look at INT8 beside the baseline, 4th: the baseline,
    # 5th: the INT8 candidate's own file
    environment = emulated_environment(
        tmp_path, **QUIET, WORKBENCH_ATC_TIMEOUT_S="8", CANN_EMULATOR_FAULTS=f"acl.mdl.load_from_file:5={BUSY}"
    )
    atc = tmp_path / "cann" / "bin" / "atc"
    real = atc.rename(atc.with_name("atc.real"))
    atc.write_text(MISBEHAVING_ATC.replace("REAL", str(real)), encoding="utf-8")
    atc.chmod(0o755)

    done = workbench(environment, "sweep", file)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "\033" not in done.stdout
    question = read_experiment(file)
    journal = current_journal(question.workspace, question.name)
    assert journal is not None
    found = list(journal.evaluations().values())
    assert found[0].status == "complete"
    failures = {
        "int8" if e.candidate.quantization.scheme == "static" else e.candidate.precision.mode: e.failure
        for e in found[1:]
    }
    expected = {
        "int8": ("smoke", True, "End other processes on the device (`npu-smi info`) and run the same command again."),
        "allow_mix_precision": ("compile", False, "ended with exit status 3 and gave no reason"),
        "allow_fp32_to_fp16": ("compile", False, "crashed with SIGSEGV"),
        "cube_fp16in_fp32out": ("compile", True, "was killed by SIGKILL"),
        "must_keep_origin_dtype": ("compile", False, "there is no OM file"),
        "force_fp32": ("compile", True, "within 8 s and was stopped with all its processes"),
    }
    for name, (stage, transient, words) in expected.items():
        failure = failures[name]
        assert failure is not None, name
        assert (failure.stage, failure.transient) == (stage, transient), failure
        assert words in failure.message
        assert failure.log_path is not None
        assert words[:20] in Path(failure.log_path).read_text(encoding="utf-8")
        assert failure.reproduce.startswith("workbench evaluate ")
    logs = {name: Path(failure.log_path or "").read_text() for name, failure in failures.items() if failure}
    assert "garbage of no compiler" in logs["allow_mix_precision"]
    assert "--precision_mode=force_fp32" in logs["force_fp32"]
    assert "working" in logs["force_fp32"]


# --- machines that cannot, and files that are damaged -----------------------------------------------------------------

MIXED_SPACE = """
version: 1
target: [onnxruntime, ascend910b3]
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16], when: {target: [ascend910b3]}}
  compile.sequence_bins: {choices: ["8"], when: {target: [ascend910b3]}}
  serving.batch: {choices: [1]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A command that must not work, and what its message says."""

    code: int
    words: tuple[str, ...]


REFUSED = "ATC refused the model for batch 1, length 8"
REFUSALS = {
    "no CANN": Refusal(code=3, words=("No CANN: ASCEND_HOME_PATH is not set", "Install the CANN 8.5.0 toolkit")),
    "no atc": Refusal(code=3, words=("No atc on PATH", "Install the CANN 8.5.0 toolkit")),
    "no device": Refusal(code=3, words=("device 0 cannot be used", "no device has this id", "VISIBLE_DEVICES")),
    "truncated model": Refusal(code=2, words=("this is not a complete ONNX file", "copy or export it again")),
    "emulated beside measured": Refusal(code=3, words=("ascend910b3 is emulated here", "experiment of its own")),
    "refused by 8.5.0": Refusal(code=1, words=(REFUSED, "Reproduce: ")),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Every one of them, side by side, since each is mostly the start of a program."""
    root = tmp_path_factory.mktemp("refusals")

    def cann(name: str, *lacking: str, **changes: str) -> Environment:
        folder = root / name.replace(" ", "-")
        environment = emulated_environment(folder, **QUIET, **changes)
        for part in lacking:
            for place in [*(folder / "cann").rglob(part)]:
                shutil.rmtree(place) if place.is_dir() else place.unlink()
        return environment

    def written(name: str, **options: str) -> Path:
        return write_ascend_workspace(root / f"{name.replace(' ', '-')}-workspace", **options)

    whole, plain = written("whole"), {n: v for n, v in os.environ.items() if not n.startswith(("ASCEND_", "CANN_"))}
    calls: dict[str, tuple[Environment, tuple[object, ...]]] = {}
    calls["no CANN"] = plain | QUIET, ("sweep", whole)
    baseline = ("--candidate", "baseline")
    for name, environment in {
        "no atc": cann("atc", "atc"),
        "no device": cann("device", CANN_EMULATOR_DEVICES="0"),
    }.items():
        calls[name] = environment, ("evaluate", written(name), *baseline)
    sound = cann("sound")

    truncated = written("truncated")
    model = truncated.parent.parent / "data" / "model.onnx"
    model.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    calls["truncated model"] = sound, ("plan", truncated)

    calls["emulated beside measured"] = sound, ("plan", written("mixed", space=MIXED_SPACE))

    fixed = written("fixed")
    fix_the_length(fixed.parent.parent / "data" / "model.onnx")
    calls["refused by 8.5.0"] = sound, ("evaluate", fixed, *baseline)
    return side_by_side(calls)


def fix_the_length(model: Path) -> None:
    """A Reshape to the data's own length, as exporters leave it; it does not fit a padded bin."""
    proto = onnx.load(model)
    merged = next(constant for constant in proto.graph.initializer if constant.name == "merged")
    merged.CopyFrom(numpy_helper.from_array(np.array([0, LENGTH, WIDTH]), "merged"))
    onnx.save(proto, model)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_work_gets_an_exit_code_and_the_remedy(refusals: dict[str, Done], name: str) -> None:
    done, expected = refusals[name], REFUSALS[name]

    assert done.returncode == expected.code, said(done)
    for words in expected.words:
        assert words in said(done)
    assert "Traceback" not in done.stderr


def test_the_log_of_a_failed_evaluation_stays(refusals: dict[str, Done]) -> None:
    log = Path(refusals["refused by 8.5.0"].stderr.rpartition("Its log: ")[2].strip())

    text = log.read_text(encoding="utf-8")
    assert "ATC run failed" in text
    assert "--input_shape=ids:1,8" in text


def test_a_damaged_om_in_the_store_is_built_again_and_one_for_another_chip_refused(
    tmp_path: Path, emulated: Environment
) -> None:
    file = write_ascend_workspace(tmp_path)
    evaluate = ("evaluate", file, "--candidate", "baseline")
    assert workbench(emulated, *evaluate).returncode == 0
    (om,) = (tmp_path / ".workbench" / "store" / "artifact").rglob("*.om")
    sound = om.read_bytes()

    om.write_bytes(sound[: len(sound) // 2])
    rebuilt = workbench(emulated, *evaluate)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "is damaged" in said(rebuilt)
    assert "built again" in said(rebuilt)
    assert om.read_bytes() == sound

    put_with_its_digest(om, write_om(replace(read_om(sound), soc_version="Ascend310P3")))
    refused = workbench(emulated, *evaluate)
    assert refused.returncode == 1
    assert "pyACL cannot load it" in said(refused)
    assert "Ascend310P3" in said(refused)


def put_with_its_digest(om: Path, content: bytes) -> None:
    """Another file in an entry of the store, which is none the wiser."""
    old = file_digest(om)
    size = om.stat().st_size
    om.write_bytes(content)
    artifact = om.with_name("artifact.json")
    artifact_text = artifact.read_text(encoding="utf-8").replace(old, file_digest(om))
    artifact.write_text(artifact_text.replace(f'"size_bytes":{size}', f'"size_bytes":{len(content)}'), encoding="utf-8")
    entry = om.parent.parent / "entry.json"
    body = read_sealed(entry)
    for name in (om.name, artifact.name):
        path = om.parent / name
        body["files"][name] = {"sha256": file_digest(path), "size_bytes": path.stat().st_size}
    write_sealed(entry, body)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB below the workspace's store."""
    store = tmp_path / ".workbench" / "store"
    store.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(store)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a small file system takes root and a mount")
    yield store
    subprocess.run(["umount", "-l", str(store)], check=True)


def test_a_full_or_forbidden_disk_stops_with_the_remedy_and_room_lets_it_go_on(
    small_disk: Path, tmp_path: Path, emulated: Environment
) -> None:
    file = write_ascend_workspace(tmp_path)
    evaluate = ("evaluate", file, "--candidate", "baseline")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(260_000))

    full = workbench(emulated, *evaluate)
    assert full.returncode == 3, said(full)
    assert "space" in said(full).lower()
    assert "Traceback" not in full.stderr
    assert not list(small_disk.rglob("*.om"))

    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    forbidden = workbench(emulated, *evaluate)
    assert forbidden.returncode == 3
    assert "writable" in said(forbidden)

    subprocess.run(["mount", "-o", "remount,rw,size=8m", str(small_disk)], check=True)
    assert workbench(emulated, *evaluate).returncode == 0
