"""What a table of the emulated device is made of, against the target that it stands for."""

from pathlib import Path

import onnx
import pytest

from benchmarks.recorded import emulated
from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.encoder import ids, record_for, save, tiny_encoder
from workbench.evaluation.modelled_clock import modelled_call
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.values.candidate import Candidate, Precision, Quantization, Serving


def test_a_file_made_in_this_process_takes_what_the_session_of_the_target_says(tmp_path: Path) -> None:
    plain = save(tiny_encoder(), tmp_path / "model.onnx")
    deploy = atc_form(lower_deploy(load_graph(read_model(plain)), record_for(plain, ids(4, 7), symmetric=True)))
    onnx.save(deploy, tmp_path / "int8.onnx")
    candidate = Candidate(
        target="ascend910b3",
        precision=Precision(mode="force_fp16"),
        quantization=Quantization(
            scheme="static",
            algorithm="minmax",
            activation_symmetric=True,
            weight_granularity="tensor",
            attention_matmul=False,
            keep_float=0,
        ),
        compile=AscendCompile(batches=(1, 4), sequence_bins=(16,), disabled_fusions=("gelu",)),
        serving=Serving(batch=1),
    )
    with switched_on(emulated_environment(tmp_path)):
        (tmp_path / "set").mkdir()
        artifact = AscendTarget().compile(tmp_path / "int8.onnx", candidate, tmp_path / "set")
        data = emulated.device()
        session = AscendTarget().open(artifact, tmp_path / "set", candidate)
        try:
            for batch in (1, 4):
                model = emulated.compiled(tmp_path / "int8.onnx", candidate, (batch, 16))
                assert emulated.call_ms(model, data) == pytest.approx(
                    modelled_call(session, dict(ids(batch, 16))).ms, rel=1e-3
                )
        finally:
            session.close()
        other = emulated.compiled(tmp_path / "int8.onnx", candidate, (1, 16))
        assert emulated.form(other, data) != emulated.form(model, data)
