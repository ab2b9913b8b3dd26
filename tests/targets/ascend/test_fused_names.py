"""Names of kernels through fusions, asked of ATC for a compiled file."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulated_cann import emulated_environment, switched_on
from workbench.targets.ascend.fused_names import fused_kernels
from workbench.values.errors import CompileError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With `net.om`: a product with bias and Relu, which are fused."""
    place = tmp_path_factory.mktemp("fused")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Add", ["a", "b"], ["c"], name="bias"),
        helper.make_node("Relu", ["c"], ["y"], name="activation"),
    ]
    weights = [
        numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"),
        numpy_helper.from_array(np.ones(64, np.float32), "b"),
    ]
    boundary = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "net", boundary[:1], boundary[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), place / "net.onnx")
    environment = emulated_environment(place)
    command = ["atc", "--model=net.onnx", "--framework=5", "--output=net", "--soc_version=Ascend910B3"]
    subprocess.run(command, env=environment, cwd=place, check=True, capture_output=True, timeout=300)
    with switched_on(environment):
        yield place


def test_every_node_is_in_a_kernel_and_boundary_and_constants_are_none(folder: Path) -> None:
    kernels = fused_kernels(folder / "net.om")

    assert sorted(node for kernel in kernels.values() for node in kernel.nodes) == ["activation", "bias", "product"]
    (fused,) = [kernel for kernel in kernels.values() if "product" in kernel.nodes]
    assert len(fused.nodes) > 1
    assert not {"Data", "Const", "NetOutput"} & {kernel.op_type for kernel in kernels.values()}


def test_a_file_that_atc_cannot_read_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "broken.om").write_bytes(b"no model")

    with pytest.raises(CompileError, match=r"broken\.om"):
        fused_kernels(folder / "broken.om")
