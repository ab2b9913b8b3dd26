"""AMCT's own search for the layers that have to stay in float: accuracy_based_auto_calibration (amct.md §8)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.amct.amct import TIMEOUT_S, AmctResult, ask_in, read_result
from workbench.targets.ascend.amct.files import (
    CONFIG,
    DEPLOY,
    parsed_config,
    workplace,
    write_config,
    write_first,
    write_model,
)
from workbench.targets.ascend.amct.process import LOG, AmctInstallation, write_feeds
from workbench.targets.base import Feeds
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import CalibrationError, ConfigError
from workbench.values.model import Model

_RANKINGS = (
    "accuracy_based_auto_calibration_ranking_information.json",
    "accuracy_based_auto_calibration_ranking_info.json",
)
"""Both names occur in the vendor's material (amct.md §8)."""

_FINAL_CONFIG = "accuracy_based_auto_calibration_final_config.json"


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
    config_of = parsed_config(config)
    with workplace(to) as folder:
        proto, layers = write_model(model, folder / "model.onnx", installation)
        request: dict[str, Any] = {
            "action": "search",
            "feeds": write_first(batches, config_of.batch_num, folder),
            "evaluation": write_feeds(evaluation, folder, "evaluation"),
            "metric": "cosine" if labels is None else "top1",
            "output": output,
            "tolerance": tolerance,
            **write_config(config, config_of, folder),
        }
        if not request["evaluation"]["files"]:
            raise CalibrationError("there is nothing to evaluate on. Give at least one batch.")
        if labels is not None:
            np.savez(folder / "labels.npz", np.ascontiguousarray(labels))
        answer = ask_in(installation, folder, request, timeout_s, to)
        ranking = _read_json(_written(folder, to, *_RANKINGS), to)
        final = _written(folder, to, _FINAL_CONFIG)
        rolled_back = _rolled_back(_read_json(final, to), [name for name, _ in ranking])
        result = None
        if (folder / "result" / DEPLOY).is_file():
            shutil.copyfile(final, folder / CONFIG)
            result = read_result(model, proto, layers, folder, to, installation, config, answer)
        return AmctSearch(
            result=result,
            ranking=tuple((str(name), float(similarity)) for name, similarity in ranking),
            rolled_back=rolled_back,
            metrics=tuple((each["original"], each["new"]) for each in answer["evaluations"]),
        )


def _written(folder: Path, to: Path, *names: str) -> Path:
    """A file of the search, whichever folder AMCT put it in."""
    for name in names:
        if found := sorted(folder.rglob(f"*{name}")):
            return found[0]
    raise CalibrationError(f"AMCT's search ended without {' or '.join(names)}.", log_path=to / LOG)


def _read_json(file: Path, to: Path) -> Any:
    try:
        return read_json(file)
    except ConfigError as error:
        raise CalibrationError(f"AMCT's search left a file that cannot be read: {error}", log_path=to / LOG) from error


def _rolled_back(settings: Mapping[str, Any], ranked: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in ranked if not settings.get(name, {}).get("quant_enable", False))
