"""Quantization by the real AMCT: calibrate, search by accuracy, import QDQ, and run its own simulation.

    model ─► normalized, named ─► amct_onnx in its interpreter ─► record.txt ─► QuantizationRecord
              batches as NPZ                                   ├─► MODEL_deploy_model.onnx      input of ATC
                                                               └─► MODEL_fake_quant_model.onnx  its own simulation

The record read back is lowered and interpreted by the workbench like any other, so that what AMCT decided can be
checked on a CPU; `compare_with_fake_quant` holds AMCT's simulation against our interpreter of its deploy model.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from workbench.canonical import digest
from workbench.errors import CalibrationError, ConfigError, ToolchainError
from workbench.graph import Layer, load_graph, quantizable_layers
from workbench.model import Model
from workbench.quantization.amct_cfg import AmctConfig
from workbench.quantization.amct_config import parse_config
from workbench.quantization.amct_json import ExpandedConfig
from workbench.quantization.amct_record import parse_record
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.normalize import normalized
from workbench.quantization.record import Provenance, QuantizationRecord
from workbench.quantization.surgery import MAX_PROTO_BYTES, default_opset
from workbench.targets.ascend.amct_process import LOG, AmctInstallation, ask, write_feeds
from workbench.targets.base import Array, Feeds

TIMEOUT_S = 3600.0
RECORD, CONFIG = "record.txt", "config.json"
DEPLOY, FAKE_QUANT = "model_deploy_model.onnx", "model_fake_quant_model.onnx"

_RANKINGS = (
    "accuracy_based_auto_calibration_ranking_information.json",
    "accuracy_based_auto_calibration_ranking_info.json",
)
"""Both names occur in the vendor's material (amct.md §8)."""

_NEWEST_OPSET = {8: 13, 9: 14, 10: 15, 11: 16, 12: 17, 13: 18, 14: 19, 15: 20, 16: 21, 17: 22, 18: 23}
"""onnx 1.x → newest opset it knows (onnx/docs/Versioning.md); its checker refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctResult:
    """What AMCT wrote.

    Attributes:
        record: AMCT's record for the model as the workbench normalizes it; provenance engine 'amct'.
        record_text, config_json: AMCT's files as they are.
        deploy_model, fake_quant_model: AMCT's own ONNX files.
        log: everything AMCT said.
        casts: inputs that AMCT's model takes in another type than the float model, such as 'ids: int32 to float32'.
    """

    record: QuantizationRecord
    record_text: str
    config_json: str
    deploy_model: Path
    fake_quant_model: Path
    log: Path
    casts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctSearch:
    """What accuracy_based_auto_calibration found.

    Attributes:
        result: None where the metric allows no INT8 layer at all.
        ranking: (layer, similarity of its output to float, alone), the most sensitive first.
        rolled_back: layers it left in float.
        metrics: (of the float model, of the trial) in the order of the trials; the first is float against itself.
    """

    result: AmctResult | None
    ranking: tuple[tuple[str, float], ...]
    rolled_back: tuple[str, ...]
    metrics: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """AMCT's fake-quant model in AMCT's interpreter against our interpreter on AMCT's deploy model, over all outputs.

    Attributes:
        identical: bit for bit, which holds while every float operator between rounds alike (amct.md §0 fact 7).
        largest_difference: as a share of the largest |output|.
    """

    batches: int
    identical: bool
    largest_difference: float
    cosine: float


def calibrate_with_amct(
    model: Model,
    config: str,
    batches: Iterable[Feeds],
    to: Path,
    *,
    installation: AmctInstallation,
    timeout_s: float = TIMEOUT_S,
) -> AmctResult:
    """Quantize a model with AMCT and put its files into the folder `to`, each by one rename.

    AMCT gets the model as `quantization.normalize` gives it: every node named, biases where AMCT moves them into the
    integer product (amct.md §6.4), so that names and layers are those of the workbench. Exactly `batch_num` of the
    batches are read.

    Args:
        config: text of a simplified configuration (.cfg), or of AMCT's quantization JSON.

    Raises:
        CalibrationError: fewer batches than batch_num, AMCT refuses model or configuration, crashes or takes too long
            (with its log; transient where it was killed).
        ToolchainError: the installation is broken, or `to` cannot be written.
    """
    config_of = _parsed(config)
    with _workplace(to) as folder:
        layers = _write_model(model, folder / "model.onnx", installation)
        feeds = _first(batches, config_of.batch_num, folder)
        request = {"action": "calibrate", "feeds": feeds, **_write_config(config, config_of, folder)}
        answer = _ask(installation, folder, request, timeout_s, to)
        return _result(model, layers, folder, to, installation, config, answer)


def search_with_amct(
    model: Model,
    config: str,
    batches: Iterable[Feeds],
    to: Path,
    *,
    evaluation: Iterable[Feeds],
    output: str,
    tolerance: float,
    labels: npt.NDArray[np.integer[Any]] | None = None,
    installation: AmctInstallation,
    timeout_s: float = TIMEOUT_S,
) -> AmctSearch:
    """accuracy_based_auto_calibration: leave as few layers in float as a metric allows (amct.md §8).

    The metric is evaluated in AMCT's process, over files: with `labels`, the share of rows whose argmax over the last
    axis of `output` is the label (one per row of all but the last axis, in order); without, the cosine of `output`
    with the float model's. Entity F1 and other metrics of a dataset are not computed there; compare the result with
    them afterwards.

    Args:
        tolerance: largest loss of the metric against the float model.

    Raises:
        CalibrationError, ToolchainError: as `calibrate_with_amct`.
    """
    config_of = _parsed(config)
    with _workplace(to) as folder:
        layers = _write_model(model, folder / "model.onnx", installation)
        request: dict[str, Any] = {
            "action": "search",
            "feeds": _first(batches, config_of.batch_num, folder),
            "evaluation": write_feeds(evaluation, folder, "evaluation"),
            "metric": "cosine" if labels is None else "top1",
            "output": output,
            "tolerance": tolerance,
            **_write_config(config, config_of, folder),
        }
        if not request["evaluation"]["files"]:
            raise CalibrationError("there is nothing to evaluate on. Give at least one batch.")
        if labels is not None:
            np.savez(folder / "labels.npz", np.ascontiguousarray(labels))
        answer = _ask(installation, folder, request, timeout_s, to)
        found = next((folder / "result" / name for name in _RANKINGS if (folder / "result" / name).is_file()), None)
        ranking = [] if found is None else json.loads(found.read_text(encoding="utf-8"))
        final = folder / "result" / "accuracy_based_auto_calibration_final_config.json"
        rolled_back = _rolled_back(final, [name for name, _ in ranking])
        result = None
        if (folder / "result" / DEPLOY).is_file():
            shutil.copyfile(final, folder / CONFIG)
            result = _result(model, layers, folder, to, installation, config, answer)
        return AmctSearch(
            result=result,
            ranking=tuple((str(name), float(similarity)) for name, similarity in ranking),
            rolled_back=rolled_back,
            metrics=tuple((each["original"], each["new"]) for each in answer["evaluations"]),
        )


def convert_qdq_with_amct(
    qdq: Path, to: Path, *, installation: AmctInstallation, timeout_s: float = TIMEOUT_S
) -> tuple[Path, Path]:
    """AMCT's own deploy and fake-quant models of a QDQ model (convert_qat_model, amct.md §6.7), in the folder `to`.

    Raises:
        CalibrationError, ToolchainError: as `calibrate_with_amct`.
    """
    with _workplace(to) as folder:
        shutil.copyfile(qdq, folder / "model.onnx")
        _ask(installation, folder, {"action": "convert"}, timeout_s, to)
        _publish(folder, to, _made(folder))
    return to / DEPLOY, to / FAKE_QUANT


def run_in_amct(
    model_file: Path, batches: Iterable[Feeds], *, installation: AmctInstallation, timeout_s: float = TIMEOUT_S
) -> list[dict[str, Array]]:
    """The outputs of a fake-quant (or float) model in AMCT's interpreter, one dict per batch.

    Raises:
        CalibrationError: the model fails there; the log is gone with the run, its last words are in the message.
        ToolchainError: the installation is broken.
    """
    folder = Path(tempfile.mkdtemp(prefix="amct-"))
    try:
        # external data of a large model lies next to it
        for file in [model_file, *model_file.parent.glob("*.external")]:
            name = "model.onnx" if file == model_file else file.name
            (folder / name).symlink_to(file.absolute())
        request = {"action": "run", "feeds": write_feeds(batches, folder, "feeds")}
        log = folder / f"kept-{LOG}"
        answer = ask(installation.python, installation.variables, folder, request, timeout_s=timeout_s, log=log)
        results = []
        for file in sorted((folder / "outputs").iterdir()):
            with np.load(file, allow_pickle=False) as arrays:
                results.append({name: arrays[f"arr_{index}"] for index, name in enumerate(answer["outputs"])})
        return results
    except CalibrationError as error:
        error.log_path = None
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare_with_fake_quant(
    result: AmctResult,
    batches: Iterable[Feeds],
    *,
    installation: AmctInstallation,
    timeout_s: float = TIMEOUT_S,
) -> Agreement:
    """How far our arithmetic is from AMCT's simulation, on AMCT's own files. The batches are kept in memory.

    Raises:
        CandidateError: either of the models fails.
        ToolchainError: the installation is broken.
    """
    feeds = list(batches)
    theirs = run_in_amct(result.fake_quant_model, feeds, installation=installation, timeout_s=timeout_s)
    interpreter = Interpreter(onnx.load(result.deploy_model), force_fp16=result.record.force_fp16)
    ours = [interpreter.run(each) for each in feeds]
    a, b = _flat(ours), _flat(theirs)
    largest = float(np.abs(b).max(initial=0.0)) or 1.0
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    identical = bool(np.array_equal(a, b))
    return Agreement(
        batches=len(feeds),
        identical=identical,
        largest_difference=float(np.abs(a - b).max(initial=0.0)) / largest,
        cosine=1.0 if identical else float(a @ b) / norms if norms else 0.0,
    )


def _flat(runs: Iterable[Mapping[str, Array]]) -> npt.NDArray[np.float64]:
    values = [np.asarray(run[name], np.float64).ravel() for run in runs for name in sorted(run)]
    return np.concatenate(values) if values else np.zeros(0)


# --- what goes in --------------------------------------------------------------------------------------------------


def _parsed(config: str) -> AmctConfig | ExpandedConfig:
    try:
        return parse_config(config, file="quantization.cfg")
    except ConfigError as error:
        raise CalibrationError(str(error)) from error


def _write_config(text: str, config: AmctConfig | ExpandedConfig, folder: Path) -> dict[str, str]:
    if isinstance(config, AmctConfig):
        (folder / "quant.cfg").write_text(text, encoding="utf-8")
        return {"config_defination": "quant.cfg"}
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return {}


def _write_model(model: Model, file: Path, installation: AmctInstallation) -> tuple[Layer, ...]:
    """The model for AMCT; its layers. The IR version is the lowest for its opset: old onnx wheels refuse newer ones."""
    proto = normalized(load_graph(model))
    opset, newest = default_opset(proto), _newest_opset(installation.onnx)
    if newest is not None and opset > newest:
        raise CalibrationError(
            f"the model has opset {opset}; AMCT's onnx {installation.onnx} knows {newest} at most. Export it with an "
            "opset from 11 to 17, or let the workbench calibrate."
        )
    layers = quantizable_layers(proto)
    proto.ir_version = helper.find_min_ir_version_for(list(proto.opset_import), True)
    if proto.ByteSize() > MAX_PROTO_BYTES:
        onnx.save_model(proto, file, save_as_external_data=True, location="model.data")
    else:
        onnx.save_model(proto, file)
    return layers


def _newest_opset(version: str) -> int | None:
    parts = version.split(".")
    if len(parts) < 2 or parts[0] != "1" or not parts[1].isdigit():
        return None
    return _NEWEST_OPSET.get(int(parts[1]))


def _first(batches: Iterable[Feeds], count: int, folder: Path) -> dict[str, Any]:
    feeds = write_feeds(itertools.islice(batches, count), folder, "feeds")
    if len(feeds["files"]) < count:
        raise CalibrationError(
            f"the configuration asks for {count} batches (batch_num), there are {len(feeds['files'])}. AMCT needs "
            "exactly as many forwards; lower batch_num or raise the calibration samples."
        )
    return feeds


# --- what comes out ------------------------------------------------------------------------------------------------


@contextmanager
def _workplace(to: Path) -> Iterator[Path]:
    """A folder for the child inside `to`, gone in the end: results leave it by rename only."""
    folder: Path | None = None
    try:
        to.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".amct-", dir=to.resolve()))
        yield folder
    except OSError as error:
        raise ToolchainError(
            f"{to} cannot be written: {error.strerror or error}. Free space or choose another folder."
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _ask(
    installation: AmctInstallation, folder: Path, request: Mapping[str, Any], timeout_s: float, to: Path
) -> dict[str, Any]:
    return ask(installation.python, installation.variables, folder, request, timeout_s=timeout_s, log=to / LOG)


def _result(
    model: Model,
    layers: tuple[Layer, ...],
    folder: Path,
    to: Path,
    installation: AmctInstallation,
    config: str,
    answer: Mapping[str, Any],
) -> AmctResult:
    files = _made(folder)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        config_json = (folder / CONFIG).read_text(encoding="utf-8")
        record = parse_record(text, layers=layers, model_sha256=model.sha256, file=RECORD)
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise CalibrationError(f"AMCT's record cannot be read back: {error}", log_path=to / LOG) from error
    provenance = Provenance(
        engine="amct",
        recipe={
            "producer": f"amct_onnx {installation.amct_onnx}",
            **installation.components(),
            "configuration_sha256": digest(config),
            "record_sha256": digest(text),
            "batch_num": answer.get("forwards"),
        },
        statistics=None,
        code_revision=record.provenance.code_revision,
    )
    _publish(folder, to, [*files, folder / RECORD, folder / CONFIG])
    return AmctResult(
        record=replace(record, provenance=provenance),
        record_text=text,
        config_json=config_json,
        deploy_model=to / DEPLOY,
        fake_quant_model=to / FAKE_QUANT,
        log=to / LOG,
        casts=tuple(answer.get("casts", ())),
    )


def _made(folder: Path) -> list[Path]:
    """The model files, external data first: a model without its data must not be seen."""
    found = sorted((folder / "result").iterdir(), key=lambda file: file.suffix == ".onnx")
    names = {file.name for file in found}
    for name in (DEPLOY, FAKE_QUANT):
        if name not in names:
            raise CalibrationError(f"AMCT did not write {name}; it wrote {', '.join(sorted(names)) or 'nothing'}.")
    return found


def _publish(folder: Path, to: Path, files: Iterable[Path]) -> None:
    for file in files:
        file.replace(to / file.name)


def _rolled_back(final_config: Path, ranked: Iterable[str]) -> tuple[str, ...]:
    settings = json.loads(final_config.read_text(encoding="utf-8"))
    return tuple(name for name in ranked if not settings.get(name, {}).get("quant_enable", False))
