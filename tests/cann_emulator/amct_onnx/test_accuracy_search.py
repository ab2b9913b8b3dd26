"""accuracy_based_auto_calibration (amct.md §8): ranking, bisection, files."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.cann_emulator.amct_onnx.making import encoder_feeds, encoder_file, mlp_file, run
from tests.quantization.golden import data
from workbench.cann_emulator import amct_onnx as amct
from workbench.cann_emulator.amct_onnx.common.auto_calibration import AutoCalibrationEvaluatorBase
from workbench.cann_emulator.amct_onnx.sensitivity import similarity

NAME = "accuracy_based_auto_calibration"


class Evaluator(AutoCalibrationEvaluatorBase):
    """Largest distance to the float outputs, which must stay below a tolerance; remembers what it was asked."""

    def __init__(self, feeds: list[dict[str, Any]], tolerance: float) -> None:
        self.feeds, self.tolerance = feeds, tolerance
        self.reference: list[Any] = []
        self.losses: list[float] = []

    def calibration(self, model_file: str) -> None:
        run(model_file, self.feeds, amct.AMCT_SO)

    def evaluate(self, model_file: str) -> float:
        session = onnxruntime.InferenceSession(model_file, amct.AMCT_SO)
        values = [session.run(None, each)[0] for each in self.feeds]
        self.reference = self.reference or values
        return max(float(np.abs(a - b).max()) for a, b in zip(values, self.reference, strict=True))

    def metric_eval(self, original_metric: float, new_metric: float) -> tuple[bool, float]:
        self.losses.append(new_metric - original_metric)
        return self.losses[-1] <= self.tolerance, self.losses[-1]


def searched(folder: Path, model: str, evaluator: Evaluator, cfg: str = "") -> list[dict[str, Any]]:
    """Run the search; the trials it noted."""
    (folder / "quant.cfg").write_text(f"batch_num: {len(evaluator.feeds)}\n{cfg}")
    amct.create_quant_config("config.json", model, config_defination="quant.cfg")
    amct.accuracy_based_auto_calibration(model, evaluator, "config.json", "record.txt", "results/net")
    text = Path(f"amct_log/{NAME}_record.json").read_text()
    decoder, trials, at = json.JSONDecoder(), [], 0
    while at < len(text):  # objects one after the other, without separators
        trial, at = decoder.raw_decode(text, at)
        trials.append(trial)
    return trials


def final_config() -> dict[str, bool]:
    settings = json.loads(Path(f"results/{NAME}_final_config.json").read_text())
    return {name: layer["quant_enable"] for name, layer in settings.items() if isinstance(layer, dict)}


def test_a_metric_that_is_satisfied_at_once_keeps_every_layer(folder: Path) -> None:
    trials = searched(folder, encoder_file(folder), Evaluator(encoder_feeds(), 10.0))

    assert [trial["metric_eval"][0] for trial in trials] == [True]
    assert all(final_config().values())
    ranking = json.loads(Path(f"results/{NAME}_ranking_information.json").read_text())
    assert [value for _, value in ranking] == sorted(value for _, value in ranking)
    assert all(0.9 < value <= 1 for _, value in ranking)
    assert {name for name, _ in ranking} == final_config().keys()
    assert sorted(p.name for p in Path("results").iterdir()) == [
        f"{NAME}_final_config.json",
        f"{NAME}_ranking_information.json",
        "net_deploy_model.onnx",
        "net_fake_quant_model.onnx",
        "net_quant.json",
    ]
    assert stat.S_IMODE(Path(f"amct_log/{NAME}_record.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("cfg", ["", "common_config { dmq_balancer { migration_strength: 0.5 } }"])
def test_bisection_rolls_back_the_shortest_satisfying_prefix_of_the_ranking(cfg: str, folder: Path) -> None:
    model, feeds = encoder_file(folder), encoder_feeds()
    everything = Evaluator(feeds, 10.0)
    searched(folder, model, everything, cfg)
    evaluator = Evaluator(feeds, everything.losses[1] * 0.6)

    trials = searched(folder, model, evaluator, cfg)

    ranking = [name for name, _ in json.loads(Path(f"results/{NAME}_ranking_information.json").read_text())]
    rolled_back = [name for name in ranking if not final_config()[name]]
    assert rolled_back
    assert rolled_back == ranking[: len(rolled_back)]
    for trial in trials:
        left_out = [name for name in ranking if not trial["roll_back_config"][name]]
        assert left_out == ranking[: len(left_out)]
        assert trial["metric_eval"][0] == (len(left_out) >= len(rolled_back)) or left_out == []
    deploy = onnx.load("results/net_deploy_model.onnx")
    kept = {node.name.removesuffix(".dequant") for node in deploy.graph.node if node.op_type == "AscendDequant"}
    assert kept == set(ranking[len(rolled_back) :])
    assert trials[-1]["metric_eval"][0], "a last trial that failed is followed by the best one again"


def test_a_metric_that_no_int8_layer_satisfies_leaves_no_models(folder: Path) -> None:
    trials = searched(folder, mlp_file(folder), Evaluator([{"x": data((16, 8), 0)}], 0.0))

    assert not any(final_config().values())
    assert not any(trials[-1]["roll_back_config"].values())
    assert not list(Path("results").glob("*.onnx"))
    assert not list(Path("results").glob("temp*"))


def test_a_metric_that_the_float_model_does_not_satisfy_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="original model does not satisfy"):
        searched(folder, mlp_file(folder), Evaluator([{"x": data((16, 8), 0)}], -1.0))


def test_an_exception_of_the_evaluator_leaves_the_temporary_folder(folder: Path) -> None:
    class Broken(Evaluator):
        def calibration(self, model_file: str) -> None:
            raise KeyError("no data")

    with pytest.raises(KeyError):
        searched(folder, mlp_file(folder), Broken([{"x": data((16, 8), 0)}], 1.0))

    assert len(list(Path("results").glob("temp*"))) == 1


@pytest.mark.parametrize("argument", [{"strategy": "Random"}, {"sensitivity": "MseSimilarity"}])
def test_other_strategies_are_refused(argument: dict[str, str], folder: Path) -> None:
    with pytest.raises(ValueError, match="is not supported"):
        amct.accuracy_based_auto_calibration("m", Evaluator([], 0), "c", "r", "s", **argument)


def test_similarity_of_zeros() -> None:
    """amct.md §8.3."""
    one, zero = np.ones(3, np.float32), np.zeros(3, np.float32)

    assert (similarity(zero, one), similarity(one, zero), similarity(one, one)) == (1.0, 0.0, pytest.approx(1.0))
    assert similarity(one, -one) == pytest.approx(0.0)
