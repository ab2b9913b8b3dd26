"""Every model of the zoo goes the whole way: read, normalize, observe, choose, lower, and run in INT8."""

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from tests.model_zoo import BERTS, ZOO, Feeds
from tests.quantization.networks import choose
from workbench.graph.groups import layer_groups
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.values.candidate import EVERYTHING_INT8, Quantization
from workbench.values.model import Model


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Written models by name; filled as tests ask, because exporting takes seconds."""
    return {"": tmp_path_factory.mktemp("zoo")}


def opened(name: str, files: dict[str, Path]) -> Model:
    if name not in files:
        folder = files[""] / name
        folder.mkdir(exist_ok=True)
        ZOO[name].write(folder / "model.onnx")
        files[name] = folder / "model.onnx"
    return read_model(files[name])


def outputs(model: str | bytes, feeds: Feeds) -> dict[str, npt.NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


@pytest.mark.parametrize("name", ZOO)
def test_normalizing_keeps_what_a_model_computes(name: str, files: dict[str, Path]) -> None:
    model, zoo = opened(name, files), ZOO[name]
    feeds = zoo.feeds(4, 3)

    proto = normalized(load_graph(model))

    assert normalized(proto) is proto
    layers = quantizable_layers(proto)
    assert len(layers) == zoo.layers
    for layer in layers:
        assert layer.macs or layer.second is not None, layer.name
        assert (layer.output_channels > 0) == (layer.weight is not None), layer.name
    grouped = Counter(layer for group in layer_groups(proto, layers).values() for layer in group)
    assert grouped == Counter(layer.name for layer in layers)
    after = outputs(proto.SerializeToString(), feeds)
    for output, values in outputs(str(model.path), feeds).items():
        np.testing.assert_allclose(after[output], values, rtol=1e-5, atol=1e-5 * float(np.abs(values).max()))


@pytest.mark.parametrize("granularity", ["channel", "tensor"])
@pytest.mark.parametrize("name", ZOO)
def test_int8_is_close_to_float(name: str, granularity: str, files: dict[str, Path]) -> None:
    model, zoo = opened(name, files), ZOO[name]
    recipe = Quantization(**{**EVERYTHING_INT8.settings(), "weight_granularity": granularity})
    statistics = observe(model, [zoo.feeds(8, seed) for seed in range(4)])

    record = choose(model, statistics, recipe)
    lowered = lower_static(normalized(load_graph(model)), record)

    wanted = {layer.name for layer in statistics.layers if layer.op_type != "AveragePool"}
    assert {layer.layer for layer in record.layers} == wanted
    assert len(wanted) >= zoo.layers - 1
    feeds = zoo.feeds(16, 99)
    got = outputs(lowered.SerializeToString(), feeds)
    for output, values in outputs(str(model.path), feeds).items():
        assert cosine(values, got[output]) > zoo.cosine, output
        assert not np.array_equal(values, got[output]), f"{output} was not quantized"


def test_average_pooling_is_quantized_by_no_search(files: dict[str, Path]) -> None:
    layers = quantizable_layers(normalized(load_graph(opened("cnn", files))))

    recipe = recipe_of(EVERYTHING_INT8, layers)

    assert [layer.name for layer in layers if layer.name not in recipe.layers] == ["pool"]


@pytest.mark.parametrize("name", BERTS)
def test_every_exporters_blocks_are_recognized(name: str, files: dict[str, Path]) -> None:
    proto = normalized(load_graph(opened(name, files)))
    layers = quantizable_layers(proto)

    groups = layer_groups(proto, layers)

    for part, size in {"qkv": 3, "scores": 1, "context": 1, "attention output": 1, "FFN in": 1, "FFN out": 1}.items():
        assert [len(groups[f"block {block} / {part}"]) for block in range(2)] == [size] * 2
    assert len(groups) == 2 * 6 + 2
    (classifier,) = groups["classifier"]
    assert layers[-1].name == classifier
