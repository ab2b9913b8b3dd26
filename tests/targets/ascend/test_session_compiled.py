"""The session on files that the emulated atc compiled: the whole way from ONNX file to outputs."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.offline_files import entry
from tests.targets.encoder import ids, run, save, tiny_encoder
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.acl.session import open_session
from workbench.targets.ascend.interface import interface_of, write_interface
from workbench.targets.ascend.om_set import compile_set
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate, Precision


@pytest.mark.parametrize("shapes", ["static", "gears"])
def test_a_compiled_encoder_gives_the_float_models_outputs(acl: ModuleType, tmp_path: Path, shapes: str) -> None:
    path = save(tiny_encoder(), tmp_path / "model.onnx")
    compiled, environment = tmp_path / "compiled", emulated_environment(tmp_path)
    compiled.mkdir()
    settings = AscendCompile(batches=(1, 4), sequence_bins=(7, 16), shapes=shapes)  # type: ignore[arg-type]  # a literal
    candidate = Candidate(target="ascend910b3", precision=Precision(mode="force_fp32"), compile=settings)
    interface = interface_of(read_model(path))
    files = compile_set(
        path, candidate, interface, compiled, soc_version="Ascend910B3", environment=environment, parallel=2
    )
    artifact = Artifact(
        target="ascend910b3",
        files=(*files.files, entry(write_interface(interface, compiled), None, None)),
        toolchain=Toolchain(target="ascend910b3", components={}, device="Ascend910B3", emulated=True),
        int8_ops=files.int8_ops,
        float_matmuls_left=files.float_matmuls_left,
        kernels=files.kernels,
    )
    session = open_session(compiled, artifact)

    for batch, length in ((4, 7), (1, 16), (3, 7), (9, 16)):
        feeds = ids(batch, length)
        (wanted,) = run(load_graph(read_model(path)), feeds, ["logits"])
        assert np.allclose(session.run(feeds)["logits"], wanted, atol=0.02), "the cube rounds its inputs in fp32 too"

    session.close()
