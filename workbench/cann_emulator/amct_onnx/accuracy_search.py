"""accuracy_based_auto_calibration: which layers stay float so that the user's metric is satisfied (amct.md §8).

evaluate float ─► quantize all ─► rank the layers ─► not satisfied? binary search over prefixes of the ranking
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from workbench.cann_emulator.amct_onnx.configuration import PathLike, read_quant_config
from workbench.cann_emulator.amct_onnx.files import FILE_MODE, make_folder, write
from workbench.cann_emulator.amct_onnx.layers import read_float_model
from workbench.cann_emulator.amct_onnx.log import log_folder, say
from workbench.cann_emulator.amct_onnx.quantize import quantize_preprocess, save_model, write_modified_model
from workbench.cann_emulator.amct_onnx.sensitivity import ranking
from workbench.quantization.amct.json_form import ExpandedConfig, config_json

_NAME = "accuracy_based_auto_calibration"


class Evaluator(Protocol):
    """The three methods of AutoCalibrationEvaluatorBase; any object that has them will do."""

    def calibration(self, model_file: str) -> Any: ...
    def evaluate(self, model_file: str) -> Any: ...
    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]: ...


def accuracy_based_auto_calibration(
    model_file: PathLike,
    model_evaluator: Evaluator,
    config_file: PathLike,
    record_file: PathLike,
    save_dir: PathLike,
    strategy: str = "BinarySearch",
    sensitivity: str = "CosineSimilarity",
) -> None:
    """Quantize as many layers as the metric allows, and save the models, the configuration and the ranking.

    Where no layer can be quantized there are no models in the end.

    Args:
        config_file: the JSON of create_quant_config, whose enabled layers take part.
        save_dir: a path prefix, as save_model's.

    Raises:
        ValueError: the metric is not satisfied with the float model itself, or an unknown strategy or sensitivity.
        RuntimeError: as the functions it calls. The temporary folder is left behind then, as AMCT leaves it.
    """
    if strategy != "BinarySearch":
        raise ValueError(f"strategy {strategy!r} is not supported, only 'BinarySearch'")
    if sensitivity != "CosineSimilarity":
        raise ValueError(f"sensitivity {sensitivity!r} is not supported, only 'CosineSimilarity'")
    model_path = os.path.realpath(model_file)
    original = model_evaluator.evaluate(model_path)
    satisfied, _ = model_evaluator.metric_eval(original, original)
    if not satisfied:
        raise ValueError("the accuracy of the original model does not satisfy metric_eval; check the evaluator.")
    model = read_float_model(model_path)
    config = read_quant_config(config_file, model)
    prefix = Path(os.path.realpath(save_dir))
    folder = prefix.parent / f"temp{time.time_ns()}"
    make_folder(folder)
    search = _Search(
        model_file=model_path,
        evaluator=model_evaluator,
        config=config,
        record_file=Path(os.path.realpath(record_file)),
        prefix=prefix,
        folder=folder,
        original=original,
    )
    trials = log_folder() / f"{_NAME}_record.json"
    make_folder(trials.parent)
    write(trials, "")
    enabled = [layer.name for layer in model.layers if layer.name in config.layers]
    enabled = [name for name in enabled if config.layers[name].quant_enable]
    good = search.trial((), enabled, trials, dump=True)
    found = ranking(model, search.record_file.read_text(encoding="utf-8"), folder)
    write(prefix.with_name(f"{_NAME}_ranking_information.json"), json.dumps(found, indent=4))
    rolled_back: Sequence[str] = ()
    if not good:
        rolled_back = _binary_search(search, [name for name, _ in found], enabled, trials)
    write(prefix.with_name(f"{_NAME}_final_config.json"), config_json(_without(config, rolled_back)))
    shutil.rmtree(folder)
    say(f"{_NAME} finished: {len(enabled) - len(rolled_back)} layers quantized, {len(rolled_back)} rolled back.")


def _binary_search(search: _Search, ranked: Sequence[str], enabled: Sequence[str], trials: Path) -> Sequence[str]:
    """The shortest prefix of the ranking that satisfies, by bisection; its models are the ones saved last."""
    left, right = 0, len(ranked) - 1
    best, last_good = list(ranked), False
    while left <= right:
        middle = (left + right) // 2
        tried = ranked[: middle + 1]
        last_good = search.trial(tried, enabled, trials)
        if last_good:
            best, right = list(tried), middle - 1
        else:
            left = middle + 1
    if not last_good:
        search.trial(best, enabled, trials)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    model_file: str
    evaluator: Evaluator
    config: ExpandedConfig
    record_file: Path
    prefix: Path
    folder: Path
    original: Any

    def trial(self, rolled_back: Collection[str], enabled: Sequence[str], trials: Path, *, dump: bool = False) -> bool:
        """Quantize without some layers, calibrate, save and evaluate; whether the metric is satisfied."""
        kept = {name: name not in rolled_back for name in enabled}
        if not any(kept.values()):
            for ending in ("deploy_model.onnx", "fake_quant_model.onnx", "quant.json"):
                self.prefix.with_name(f"{self.prefix.name}_{ending}").unlink(missing_ok=True)
            self._note(trials, kept, True, 0.0)
            return True
        config = self.folder / "config.json"
        write(config, config_json(_without(self.config, rolled_back)))
        if any(layer.dmq_balancer_param for name, layer in self.config.layers.items() if kept.get(name)):
            preprocessed = self.folder / "preprocessed.onnx"
            quantize_preprocess(config, self.record_file, self.model_file, preprocessed)
            self.evaluator.calibration(str(preprocessed))
        modified = self.folder / "modified.onnx"
        dump_dir = self.folder if dump else None
        write_modified_model(config, self.model_file, modified, self.record_file, dump_dir=dump_dir)
        self.evaluator.calibration(str(modified))
        save_model(modified, self.record_file, self.prefix)
        fake_quant = self.prefix.with_name(f"{self.prefix.name}_fake_quant_model.onnx")
        satisfied, loss = self.evaluator.metric_eval(self.original, self.evaluator.evaluate(str(fake_quant)))
        self._note(trials, kept, bool(satisfied), float(loss))
        return bool(satisfied)

    def _note(self, trials: Path, kept: dict[str, bool], satisfied: bool, loss: float) -> None:
        """One object per trial, one after the other without separators, as AMCT writes them (amct.md §8)."""
        with trials.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"roll_back_config": kept, "metric_eval": [satisfied, loss]}, indent=4))
        trials.chmod(FILE_MODE)


def _without(config: ExpandedConfig, rolled_back: Collection[str]) -> ExpandedConfig:
    layers = {
        name: replace(layer, quant_enable=False) if name in rolled_back else layer
        for name, layer in config.layers.items()
    }
    return replace(config, layers=layers)
