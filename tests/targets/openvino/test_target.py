import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from workbench.commands.doctor import exit_code
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import ActivationScale, LayerRecord, WeightScale
from workbench.quantization.weights import encoded_bits
from workbench.targets.openvino.check import openvino_findings
from workbench.targets.openvino.lowering import openvino_form
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.targets.openvino.target import OpenVinoTarget
from workbench.testing.conformance import STATIC, HostConformance, compiled, extreme_layers
from workbench.testing.encoder import (
    PRODUCTS,
    WEIGHT_LAYERS,
    ids,
    model_of,
    record_for,
    record_with,
    run,
    save,
    tiny_encoder,
    value,
)
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Quantization
from workbench.values.errors import MeasureError
from workbench.values.system.cpu import this_cpu

TARGET = OpenVinoTarget()
FLOAT = Candidate(target="openvino", compile=OpenVinoCompile())
INT8 = replace(FLOAT, quantization=STATIC)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")


class TestOpenVino(HostConformance):
    weight_steps = 2 if this_cpu().saturates else 1

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> OpenVinoTarget:
        return TARGET

    @pytest.fixture(scope="class")
    @classmethod
    def float_candidate(cls) -> Candidate:
        return FLOAT


# --- INT8 runs in integers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
def test_every_product_runs_in_integers_with_attention(encoder: Path, tmp_path: Path, symmetric: bool) -> None:
    record = record_for(encoder, ids(4, 7), per_channel=True, symmetric=symmetric, products=True)
    artifact, _ = compiled(TARGET, read_model(encoder), INT8, record, tmp_path)

    dynamic = replace(FLOAT, quantization=Quantization(scheme="dynamic", weight_granularity="channel"))
    assert [issue.problem for issue in TARGET.check(read_model(encoder), dynamic) if issue.severity == "error"] == [
        "dynamically quantized products run in float on OpenVINO"
    ]
    in_float = len(PRODUCTS) if this_cpu().saturates else 0
    layers = len(WEIGHT_LAYERS) + len(PRODUCTS)
    assert (artifact.int8_ops, artifact.float_matmuls_left) == (layers - in_float, in_float), artifact.kernels


@pytest.mark.parametrize("made_for", ["any processor", "one that does not saturate", "a model quantized already"])
def test_a_file_that_would_overflow_on_this_processor_does_not_open(made_for: str, tmp_path: Path) -> None:
    proto, record, feeds = extreme_layers(per_channel=False, conv_outputs=False)
    form = openvino_form(proto, record, saturates=made_for == "any processor")
    onnx.save(form, tmp_path / "lowered.onnx")
    candidate = FLOAT if made_for == "a model quantized already" else INT8
    artifact = TARGET.compile(tmp_path / "lowered.onnx", candidate, tmp_path)

    if this_cpu().saturates and made_for != "any processor":
        with pytest.raises(MeasureError, match=r"can overflow on this CPU .* weights of 7 bits"):
            TARGET.open(artifact, tmp_path, candidate)
        return
    got = TARGET.open(artifact, tmp_path, candidate).run(feeds[0])

    (expected,) = run(proto, feeds[0], ["wide_y"])
    assert np.allclose(expected, got["wide_y"], rtol=1e-6)


@pytest.mark.parametrize("bias", [None, "zeros"])
@pytest.mark.parametrize("between", [None, "int8"])
def test_a_residual_net_runs_in_integers_as_its_file_says(
    between: str | None, bias: str | None, tmp_path: Path
) -> None:
    """Strides of one pixel, a convolution without bias that two operators read, and an addition of two blocks."""
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=(8, 8, int(n[1]), int(n[1]))).astype(np.float32) / 8 for n in ("w1", "v1", "w3")}
    weights["zeros"] = np.zeros(8, np.float32)
    one = {"kernel_shape": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["a"], "a", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "b"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "c", strides=[2, 2], **one),
        helper.make_node("Conv", ["b", "v1"], ["d"], "d", strides=[2, 2], **one),
        helper.make_node("Relu", ["d"], ["e"], "e"),
        helper.make_node("Conv", ["e", "w3"], ["f"], "f", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Add", ["f", "c"], ["g"], "g"),
        helper.make_node("Conv", ["g", "w1", *([] if bias is None else ["zeros"])], ["h"], "h", **one),
        helper.make_node("GlobalAveragePool", ["h"], ["i"], "i"),
        helper.make_node("Mul", ["h", "i"], ["j"], "j"),
        helper.make_node("Add", ["h", "j"], ["y"], "y"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model_of(nodes, weights, [value("x", ["n", 8, 9, 9])], [value("y", None)]), path)
    model, feeds = read_model(path), {"x": rng.normal(size=(4, 8, 9, 9)).astype(np.float32)}
    asked = Quantization(**{**EVERYTHING_INT8.settings(), "elementwise": between})
    recipe = recipe_of(asked, quantizable_layers(normalized(load_graph(model))))
    record = derive_record(model, recipe, observe(model, [feeds]), lambda: iter([feeds]))
    candidate = replace(FLOAT, quantization=asked)

    artifact, folder = compiled(TARGET, model, candidate, record, tmp_path / "built")

    assert (artifact.int8_ops, artifact.float_matmuls_left) == (5, 0), artifact.kernels
    got = TARGET.open(artifact, folder, candidate).run(feeds)["y"]
    saturates = this_cpu().saturates
    form = openvino_form(load_graph(model), record, saturates=saturates, integers_between=between == "int8")
    (expected,) = run(form, feeds)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 0.02 * np.std(expected)


def test_seven_bits_round_the_weight_itself_and_not_its_eight() -> None:
    w = np.array([[127, 3, 1, -127], [2.98, -1, -3, 0]], np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")
    proto = model_of([node], {"w": w}, [value("x", ["n", 2])], [value("y", ["n", 4])])
    bits = encoded_bits(np.ones(8, np.bool_))  # learned for 8 bits
    weight = WeightScale(scales=(1.0,), axis=None, rounding=bits)
    scale = ActivationScale(tensor="x", scale=1 / 255, zero_point=-128, low=0, high=1)
    record = record_with(LayerRecord(layer="layer", op_type="MatMul", activation=scale, weight=weight))

    lowered = openvino_form(proto, record, saturates=True)

    (got,) = [numpy_helper.to_array(t) for t in lowered.graph.initializer if t.data_type == TensorProto.INT8 and t.dims]
    assert got.tolist() == [[64, 2, 0, -64], [1, 0, -2, 0]]


def test_outputs_have_the_names_of_the_onnx_file(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Identity", ["a"], ["b"], name="same"),
    ]
    proto = model_of(nodes, {}, [value("x", ["n", 4])], [value("a", ["n", 4]), value("b", ["n", 4])])
    path = save(proto, tmp_path / "model.onnx")

    artifact, directory = compiled(TARGET, read_model(path), FLOAT, None, tmp_path)
    got = TARGET.open(artifact, directory, FLOAT).run({"x": np.full((2, 4), -1.0, np.float32)})

    assert sorted(got) == ["a", "b"]
    assert np.array_equal(got["a"], got["b"])


def test_importing_openvino_and_converting_make_no_connection(encoder: Path, tmp_path: Path) -> None:
    """OpenVINO's own import looks up the host of its usage statistics; here any look-up ends the process."""
    program = f"""
import json, os, socket, sys
def refuse(*arguments, **options):
    os._exit(7)
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from workbench.targets.openvino.compiler import library
openvino = library()
openvino.convert_model({str(encoder)!r})
print(json.dumps([name for name in sys.modules if name.startswith("openvino_telemetry")]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"HOME": str(tmp_path), "PATH": ""},
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert list(tmp_path.iterdir()) == []  # and no client id is written


def test_without_openvino_the_machine_is_usable_and_told_how_to_get_it() -> None:
    (finding,) = openvino_findings({}, place_of=lambda name: None)

    assert (finding.status, finding.value) == ("warn", "not installed; it is optional")
    assert re.search(r"-m pip install -e '/\S+\[openvino\]'$", finding.remedy)
    assert exit_code([finding]) == 0


def test_an_openvino_that_cannot_be_loaded_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "openvino.py").write_text("raise ImportError('libopenvino.so is missing')")
    code = f"""\
import sys
sys.path.insert(0, {str(tmp_path)!r})
from workbench.targets.openvino.check import openvino_findings
for finding in openvino_findings({{}}):
    print(finding.status, finding.name, finding.value)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.startswith("warn usable no: OpenVINO cannot be imported: libopenvino.so is missing")
    assert len(done.stdout.splitlines()) == 1


def test_what_openvino_can_do_here_is_told() -> None:
    found = {finding.name: finding for finding in openvino_findings({})}

    assert list(found) == ["usable", "version", "CPU plugin", "telemetry"]
    assert found["usable"].value.startswith("yes: a test layer")
    assert "INT8" in found["CPU plugin"].value
    assert found["telemetry"].value.startswith("blocked")
