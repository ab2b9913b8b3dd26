"""Large models, whose weights stay in their files, give the very results of small ones."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from tests.quantization.networks import saved
from workbench.graph import apart
from workbench.graph.apart import kept_aside
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.graph.write import is_apart, write_model
from workbench.quantization.amct.cfg import parse_cfg
from workbench.quantization.amct.config import recipe_of_config
from workbench.quantization.calibrate import calibrate_exactly, derive_record
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_dynamic, lower_static
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.quantization.sensitivity import measure_sensitivity
from workbench.testing.encoder import ids, tiny_encoder
from workbench.values.candidate import EVERYTHING_INT8
from workbench.values.model import Model

BATCHES = (ids(3, 7), ids(2, 9, seed=1))


def results(model: Model, folder: Path) -> tuple[tuple[object, ...], bool]:
    folder.mkdir()
    with kept_aside(model.size_bytes):
        proto = load_graph(model)
        layers = quantizable_layers(normalized(proto))
        statistics = observe(model, BATCHES)
        balanced = recipe_of(replace(EVERYTHING_INT8, balance=0.5, algorithm="minmax"), layers)
        plain = recipe_of_config(parse_cfg(""), layers)
        records = (
            derive_record(model, balanced, statistics, lambda: BATCHES),
            calibrate_exactly(model, lambda: BATCHES, plain),
        )
        ranked = measure_sensitivity(model, statistics, plain, BATCHES, {layers[0].name: (layers[0].name,)})
        lowered = [lower_static(proto, record) for record in records] + [lower_dynamic(proto, "channel")]
        lowered.append(lower_deploy(proto, records[1]))
        for number, each in enumerate(lowered):
            write_model(each, folder / f"{number}.onnx")
        apart_now = [is_apart(each) for each in lowered]
    files = [
        onnx.load(folder / f"{number}.onnx").SerializeToString(deterministic=True) for number in range(len(lowered))
    ]
    return (statistics.digest, *(record.digest for record in records), ranked, files), all(apart_now)


def test_weights_apart_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tiny_encoder(), tmp_path)

    usual, held_apart = results(model, tmp_path / "usual")
    monkeypatch.setattr(apart, "FROM_BYTES", 0)
    monkeypatch.setattr(apart, "LARGE_BYTES", 512)
    found, all_apart = results(model, tmp_path / "apart")

    assert (held_apart, all_apart) == (False, True)
    assert found == usual
