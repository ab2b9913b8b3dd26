import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from tests.targets.masked_encoder import masked_encoder
from workbench.graph.read import read_model
from workbench.quantization.record import ActivationScale, LayerRecord, WeightScale
from workbench.targets.onnxruntime import compiler
from workbench.targets.onnxruntime.optimize import LEVELS
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.testing.conformance import STATIC, HostConformance, compiled, extreme_layers
from workbench.testing.encoder import (
    PRODUCTS,
    WEIGHT_LAYERS,
    Array,
    ids,
    model_of,
    record_for,
    record_with,
    run,
    save,
    tiny_encoder,
    value,
)
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CompileError

TARGET = OnnxRuntimeTarget()
FLOAT = Candidate(target="onnxruntime")
INT8 = replace(FLOAT, quantization=STATIC)
DYNAMIC = Candidate(target="onnxruntime", quantization=Quantization(scheme="dynamic", weight_granularity="channel"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")


class TestOnnxRuntime(HostConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> OnnxRuntimeTarget:
        return TARGET

    @pytest.fixture(scope="class")
    @classmethod
    def float_candidate(cls) -> Candidate:
        return FLOAT


# --- INT8 runs in integers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True], ids=["dynamic axes", "fixed axes"])
def test_every_layer_becomes_one_integer_kernel(tmp_path: Path, fixed: bool) -> None:
    path = save(tiny_encoder(batch=4, length=7) if fixed else tiny_encoder(), tmp_path / "model.onnx")
    for number, chosen in enumerate(itertools.product([False, True], repeat=3)):
        options = dict(zip(("per_channel", "symmetric", "products"), chosen, strict=True))
        record = record_for(path, ids(4, 7), **options)

        artifact, _ = compiled(TARGET, read_model(path), INT8, record, tmp_path / str(number))

        layers = len(WEIGHT_LAYERS) + len(PRODUCTS) * options["products"]
        assert artifact.int8_ops == layers, (options, artifact.kernels)
        assert artifact.float_matmuls_left == len(WEIGHT_LAYERS) + len(PRODUCTS) - layers, (options, artifact.kernels)
        assert artifact.kernels.get("DequantizeLinear", 0) == 0

    artifact, _ = compiled(TARGET, read_model(path), DYNAMIC, None, tmp_path / "dynamic")

    fused = artifact.kernels["DynamicQuantizeMatMul"] + 3 * artifact.kernels["QAttention"]
    assert artifact.int8_ops == fused == len(WEIGHT_LAYERS)
    assert artifact.float_matmuls_left == len(PRODUCTS)


@pytest.mark.parametrize("conv_outputs", [False, True])
@pytest.mark.parametrize("saturates", [False, True])
def test_a_file_for_another_class_of_processor_is_exact(saturates: bool, conv_outputs: bool, tmp_path: Path) -> None:
    """With products of activations, whose second factor is made by a node. Either file gives the same on both."""
    proto, record, feeds = extreme_layers(per_channel=True, conv_outputs=conv_outputs)
    record = replace(record, model_sha256=read_model(save(proto, tmp_path / "model.onnx")).sha256)
    lowered = TARGET.lower(read_model(tmp_path / "model.onnx"), INT8, record, tmp_path)
    here = TARGET.compile(lowered, INT8, tmp_path)
    expected = TARGET.open(here, tmp_path, INT8).run(feeds[0])
    (elsewhere := tmp_path / "elsewhere").mkdir()
    compiler.optimize(lowered, INT8, elsewhere, saturates=saturates)

    got = TARGET.open(here, elsewhere, INT8).run(feeds[0])

    assert all(np.array_equal(expected[name], got[name]) for name in expected)
    compiled_nodes = [node.name for node in onnx.load(elsewhere / compiler.COMPILED).graph.node]
    assert not [name for name in compiled_nodes if name.endswith("_floats_unsigned")], (
        "what a node makes is made unsigned"
    )


# --- compiled files ------------------------------------------------------------------------------------------------


def masked(added: str = "plain") -> onnx.ModelProto:
    """The encoder with a mask, or with something that is more than a mask."""
    proto = masked_encoder()
    nodes = {node.name: node for node in proto.graph.node}
    known = {tensor.name: tensor for tensor in proto.graph.initializer}
    if added == "weak":
        known["far"].CopyFrom(onnx.numpy_helper.from_array(np.array(-100, np.float32), "far"))
    if added == "distant":  # what is further to the right than any short text is hidden too
        constants = {"last": np.array(1), "most": np.array(500, np.float32)}
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, name) for name, v in constants.items())
        nodes["mask_wide"].input[0] = "mask_all"
        place = list(proto.graph.node).index(nodes["mask_wide"])
        more = [
            helper.make_node("CumSum", ["mask_float", "last"], ["position"], name="position"),
            helper.make_node("Greater", ["position", "most"], ["is_far"], name="is_far"),
            helper.make_node("Where", ["is_far", "far", "mask_far"], ["mask_all"], name="mask_all"),
        ]
        ordered = [*proto.graph.node[:place], *more, *proto.graph.node[place:]]
        del proto.graph.node[:]
        proto.graph.node.extend(ordered)
    return proto


def masked_feeds(batch: int, length: int) -> dict[str, Array]:
    mask = np.ones((batch, length), np.int64)
    mask[1, 2:] = 0
    return {"input_ids": ids(batch, length)["ids"], "attention_mask": mask}


@pytest.mark.parametrize("scheme", ["static", "dynamic"])
@pytest.mark.parametrize("added", ["none", "plain"])
def test_attention_in_one_kernel_is_exact(
    scheme: str, added: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tiny_encoder() if added == "none" else masked(), tmp_path / "model.onnx")
    feeds = ids(3, 9) if added == "none" else masked_feeds(3, 9)
    quantized = record_for(path, feeds, per_channel=True) if scheme == "static" else None
    candidate = INT8 if scheme == "static" else DYNAMIC

    one, directory = compiled(TARGET, read_model(path), candidate, quantized, tmp_path / "one")
    # the same candidate without this one rewrite, which no setting switches off: what it is compared with
    monkeypatch.setattr(compiler, "fuse_attention", lambda model: (model, "off"))
    many, other = compiled(TARGET, read_model(path), candidate, quantized, tmp_path / "many")

    got = TARGET.open(one, directory, candidate).run(feeds)["logits"]
    expected = TARGET.open(many, other, candidate).run(feeds)["logits"]
    assert (one.kernels.get("QAttention", 0), many.kernels.get("QAttention", 0)) == (1, 0)
    assert (one.int8_ops, one.float_matmuls_left) == (many.int8_ops, 2)
    assert sum(one.kernels.values()) <= sum(many.kernels.values()) - 12
    assert "1 of 1 self-attentions are QAttention" in (directory / compiler.LOG).read_text(encoding="utf-8")
    assert np.allclose(expected, got, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("added", ["distant", "weak"])
def test_a_mask_that_is_more_than_a_mask_stays_as_it_is(added: str, tmp_path: Path) -> None:
    path = save(masked(added), tmp_path / "model.onnx")
    quantized = record_for(path, masked_feeds(3, 9), per_channel=True)

    artifact, directory = compiled(TARGET, read_model(path), INT8, quantized, tmp_path / "compiled")

    assert "QAttention" not in artifact.kernels
    assert "1 self-attentions left as they are" in (directory / compiler.LOG).read_text(encoding="utf-8")


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "AveragePool"])
def test_layers_of_an_amct_record_are_counted_by_their_kernels(op_type: str, tmp_path: Path) -> None:
    """Without a scale for its output a Conv still runs in integers; the others have no integer kernel."""
    random = np.random.default_rng(6)
    w = random.normal(size=(4, 4, 2, 2)).astype(np.float32)
    inputs, settings = (["x"], {"kernel_shape": [2, 2]}) if op_type == "AveragePool" else (["x", "w"], {})
    node = helper.make_node(op_type, inputs, ["c"], name="layer", **settings)
    relu = helper.make_node("Relu", ["c"], ["y"], name="relu")
    image = value("x", ["n", 4, 6, 6])
    proto = model_of([node, relu], {"w": w} if "w" in inputs else {}, [image], [value("y", ["n", 4, "h", "w"])])
    path = save(proto, tmp_path / "model.onnx")
    activation = ActivationScale(tensor="x", scale=0.05, zero_point=3, low=-6.55, high=6.2)
    weight = None if op_type == "AveragePool" else WeightScale(scales=(0.03,), axis=None)
    layer = LayerRecord(layer="layer", op_type=op_type, activation=activation, weight=weight)
    feeds: dict[str, Array] = {"x": random.normal(size=(3, 4, 6, 6)).astype(np.float32)}
    record = record_with(layer, model_sha256=read_model(path).sha256, engine="amct")

    artifact, directory = compiled(TARGET, read_model(path), INT8, record, tmp_path / "c")

    got = TARGET.open(artifact, directory, FLOAT).run(feeds)["y"]
    (expected,) = run(proto, feeds)
    assert (artifact.int8_ops, artifact.float_matmuls_left) == ((1, 0) if op_type == "Conv" else (0, 1)), (
        artifact.kernels
    )
    assert artifact.kernels.get("ConvInteger", 0) == (op_type == "Conv")
    assert np.abs(expected - got).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_a_saved_model_gives_the_outputs_of_its_session(encoder: Path, tmp_path: Path, level: str) -> None:
    candidate = Candidate(target="onnxruntime", compile=OnnxRuntimeCompile(graph_optimization=level))  # type: ignore[arg-type] # parametrized
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    live = ort.InferenceSession(str(encoder), options, providers=["CPUExecutionProvider"])

    artifact, directory = compiled(TARGET, read_model(encoder), candidate, None, tmp_path)
    got = TARGET.open(artifact, directory, candidate).run(ids(3, 9))["logits"]

    assert np.array_equal(live.run(None, ids(3, 9))[0], got)


def test_disabled_fusions_do_not_fire(encoder: Path, tmp_path: Path) -> None:
    off = Candidate(target="onnxruntime", compile=OnnxRuntimeCompile(disabled_fusions=("GeluFusionL1", "GeluFusionL2")))

    with_gelu, _ = compiled(TARGET, read_model(encoder), FLOAT, None, tmp_path / "on")
    without, directory = compiled(TARGET, read_model(encoder), off, None, tmp_path / "off")

    assert with_gelu.kernels.get("Gelu", 0) + with_gelu.kernels.get("BiasGelu", 0) == 1
    assert without.kernels.get("Gelu", 0) + without.kernels.get("BiasGelu", 0) == 0
    assert "GraphTransformer" in (directory / compiler.LOG).read_text(encoding="utf-8")


def test_the_runtime_refusing_a_model_is_reported_with_its_reason(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")
    proto = model_of([node], {"w": np.ones((5, 3), np.float32)}, [value("x", [2, 4])], [value("y", [2, 3])])
    onnx.save(proto, tmp_path / "lowered.onnx")
    (tmp_path / "compiled").mkdir()

    with pytest.raises(CompileError, match=r"ONNX Runtime refused the model: .*layer") as caught:
        TARGET.compile(tmp_path / "lowered.onnx", FLOAT, tmp_path / "compiled")

    assert caught.value.log_path is not None
    assert [file.name for file in (tmp_path / "compiled").iterdir()] == [compiler.LOG]


# --- check ---------------------------------------------------------------------------------------------------------


def test_an_opset_the_runtime_does_not_know_is_an_error(tmp_path: Path) -> None:
    proto = tiny_encoder()
    proto.opset_import[0].version = 99
    onnx.save(proto, tmp_path / "model.onnx")

    (issue,) = TARGET.check(read_model(tmp_path / "model.onnx"), FLOAT)

    assert (issue.severity, issue.node) == ("error", "opset 99")
    assert "knows opsets up to" in issue.problem
