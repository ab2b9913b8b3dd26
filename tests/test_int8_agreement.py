"""One model, one record, four ways to run INT8, and how far they may be apart (amct.md §0 fact 7, §6.6, §12).

AMCT's fake-quant model in ONNX Runtime   ═  interpreter of the deploy model      bit for bit
QDQ on ONNX Runtime                       ≈  the same integers                    float32 rounding
OM on the emulated 910B3                  ≈  the same integers between halves     float16 rounding, 2**-10
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.played_atc import CHAIN
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import load_om
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.amct.cfg import parse_cfg
from workbench.quantization.amct.config import recipe_of_config
from workbench.quantization.amct.record_file import record_text
from workbench.quantization.calibrate import follow_amct
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.amct.amct import AmctResult, calibrate_with_amct, simulation_difference
from workbench.targets.ascend.amct.process import VARIABLE, find_amct
from workbench.targets.ascend.interface import interface_of
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.om_set import compile_shapes
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, ids, save, tiny_encoder
from workbench.values.candidate import Candidate, Precision, Quantization
from workbench.values.model import Model

Logits = npt.NDArray[np.float32]

BATCH, LENGTH = 8, 16
QUANTIZATION = Quantization(
    scheme="static",
    algorithm="ifmr",
    activation_symmetric=False,
    weight_granularity="tensor",
    weight_algorithm="arq",
    attention_matmul=True,
    keep_float=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Attributes: feeds: what all of them are run on; none of it calibrated."""

    model: Model
    environment: dict[str, str]
    cfg: str
    calibration: list[dict[str, npt.NDArray[np.generic]]]
    amct: AmctResult
    feeds: list[dict[str, npt.NDArray[np.generic]]]

    @property
    def record(self) -> QuantizationRecord:
        return self.amct.record

    def deploy(self) -> onnx.ModelProto:
        """Ours, with biases where AMCT puts those of the normalized model it was given."""
        return lower_deploy(load_graph(self.model), self.record, merge_bias=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("agreement")
    model = read_model(save(tiny_encoder(), folder / "model.onnx"))
    changes = {VARIABLE: sys.executable, "OMP_NUM_THREADS": "1"}
    environment = emulated_environment(folder, **changes)
    root = str(Path(__file__).parents[1])
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:{root}"
    installation = find_amct(environment)
    assert installation is not None
    cfg = (
        "batch_num: 3\nactivation_offset: true\ncommon_config { arq_quantize { } ifmr_quantize { asymmetric: true } }\n"
    )
    calibration, feeds = ([ids(BATCH, LENGTH, seed) for seed in seeds] for seeds in (range(3), range(10, 14)))
    return Bench(
        model=model,
        environment=environment,
        cfg=cfg,
        calibration=calibration,
        amct=calibrate_with_amct(model, cfg, calibration, folder / "amct", installation=installation, compared=feeds),
        feeds=feeds,
    )


def integers(model: onnx.ModelProto, feeds: list[dict[str, npt.NDArray[np.generic]]], **arithmetic: bool) -> Logits:
    interpreter = Interpreter(model, **arithmetic)
    return np.concatenate([interpreter.run(each)["logits"] for each in feeds])


def row_differences(a: Logits, b: Logits) -> Logits:
    """Per sample, the largest difference as a share of the largest |value| of all."""
    differences: Logits = np.abs(a - b).max(axis=1) / np.abs(b).max()
    return differences


def error(a: Logits, b: Logits) -> float:
    """Root of the mean square of the difference, as a share of b's."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_every_layer_is_recorded_and_the_record_is_that_of_our_own_procedure(bench: Bench) -> None:
    layers = quantizable_layers(normalized(load_graph(bench.model)))
    ours = follow_amct(bench.model, recipe_of_config(parse_cfg(bench.cfg), layers), lambda: bench.calibration)

    assert {layer.layer for layer in bench.record.layers} == {*WEIGHT_LAYERS, *PRODUCTS}
    assert record_text(bench.record) == record_text(ours)


def test_amcts_simulation_equals_the_integers_of_its_deploy_model_bit_for_bit(bench: Bench) -> None:
    assert simulation_difference(bench.amct, bench.feeds) == 0.0


def test_our_lowering_of_the_record_equals_amcts_deploy_model_bit_for_bit(bench: Bench) -> None:
    ours, theirs = integers(bench.deploy(), bench.feeds), integers(onnx.load(bench.amct.deploy_model), bench.feeds)

    np.testing.assert_array_equal(ours, theirs)


def test_qdq_on_onnx_runtime_agrees_up_to_float32_rounding(bench: Bench) -> None:
    """amct.md §7: ORT divides where AMCT multiplies by 1/scale_d, and sums float operators in another order; a value
    at the border of two integers then falls on its other side. Samples without such a value agree to float32."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    payload = lower_static(load_graph(bench.model), bench.record).SerializeToString(deterministic=True)
    session = onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])

    qdq = np.concatenate([session.run(["logits"], each)[0] for each in bench.feeds])

    exact = integers(bench.deploy(), bench.feeds)
    assert np.mean(row_differences(qdq, exact) < 1e-6) > 0.8
    assert error(qdq, exact) < 0.3 * error(exact, float_logits(bench)), "one step, here and there"
    assert (qdq.argmax(axis=1) == exact.argmax(axis=1)).all()


def test_the_emulated_om_agrees_up_to_float16_rounding_and_decides_alike(bench: Bench, tmp_path: Path) -> None:
    """amct.md §12: truncated factors and half-precision activations stand between the device and the simulation."""
    deploy = bench.deploy()
    onnx.save(atc_form(deploy), tmp_path / "lowered.onnx")
    candidate = Candidate(
        target="ascend910b3",
        precision=Precision(mode="force_fp16"),
        quantization=replace(QUANTIZATION, activation_symmetric=True),  # AMCT does so by itself where it must
        compile=AscendCompile(batches=(BATCH,), sequence_bins=(LENGTH,)),
    )

    (compiled,) = compile_shapes(
        tmp_path / "lowered.onnx",
        candidate,
        interface_of(read_model(tmp_path / "lowered.onnx")),
        lambda shape: tmp_path,
        toolchain=CHAIN,
        environment=bench.environment,
    )

    executable = Executable(load_om(tmp_path / compiled.files[0].file), threads=1)
    om = np.concatenate([executable.run(each)["logits"] for each in bench.feeds]).astype(np.float32)
    exact, truncated = integers(deploy, bench.feeds), integers(deploy, bench.feeds, truncate_deq_scale=True)
    of_int8 = error(exact, float_logits(bench))
    assert compiled.int8_ops == len(WEIGHT_LAYERS) + len(PRODUCTS)
    assert 0 < error(truncated, exact) < of_int8
    assert 0 < error(om, exact) < of_int8, "halves cost less than INT8 does"
    assert row_differences(om, exact).max() < 2**-5
    assert (om.argmax(axis=1) == exact.argmax(axis=1)).all()


def float_logits(bench: Bench) -> Logits:
    session = onnxruntime.InferenceSession(str(bench.model.path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["logits"], each)[0] for each in bench.feeds])


def test_the_simulation_is_no_float_model(bench: Bench) -> None:
    """The comparison above would hold of anything that is not quantized at all."""
    values = np.concatenate([each["logits"] for each in bench.amct.simulated])
    assert 1e-4 < error(values, float_logits(bench)) < 0.2
