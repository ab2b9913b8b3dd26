"""Lowered models of one structure are those that calibration alone tells apart."""

from pathlib import Path

import onnx

from tests.targets.encoder import ids, record_for, save, tiny_encoder
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.targets.ascend.lowering import atc_form, lowered_form
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate, Precision


def test_scales_and_integer_biases_do_not_count_and_which_layers_are_quantized_does(tmp_path: Path) -> None:
    plain = save(tiny_encoder(), tmp_path / "model.onnx")
    candidate = Candidate(
        target="ascend910b3",
        precision=Precision(mode="force_fp16"),
        compile=AscendCompile(batches=(1,), sequence_bins=(16,)),
    )

    def form(seed: int, *, products: bool = False) -> str:
        record = record_for(plain, ids(4, 7, seed), symmetric=True, products=products)
        file = tmp_path / f"{seed}{products}.onnx"
        onnx.save(atc_form(lower_deploy(load_graph(read_model(plain)), record, merge_bias=True)), file)
        return lowered_form(file, candidate)

    assert form(0) == form(1)  # the biases of MatMul's Add and of the Gemm are integers of other scales
    assert form(0) != form(0, products=True)
