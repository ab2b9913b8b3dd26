"""Modules that programs touch beside models, and those that are not emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cann_emulator.acl.library import run_source, saved
from tests.cann_emulator.handmade import offline_model
from workbench.cann_emulator import acl


def test_the_log_of_a_program_and_a_failing_kernel_stay_off_the_console(tree: Path, tmp_path: Path) -> None:
    """pyacl.md §1.1: app_log writes to the CANN log."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"])]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [4, 2])],
        [numpy_helper.from_array(np.ones((8, 2), np.float32), "table")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = saved(offline_model(proto, dtype="float32"), tmp_path)
    source = f"""
import acl, numpy as np
acl.app_log(3, "an error of the program")
acl.init(), acl.rt.set_device(0)
model, _ = acl.mdl.load_from_file({path!r})
ids = np.full(4, 99)
sets = []
for size in (32, 32):
    there, _ = acl.rt.malloc(size, 0)
    sets.append(acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), acl.create_data_buffer(there, size))[0])
    acl.rt.memcpy(there, size, ids.ctypes.data, size, 1)
print(acl.mdl.execute(model, *sets))
"""
    done = run_source(source, tree, env={"CANN_EMULATOR_LEAKS": "off"})
    assert (done.stdout, done.stderr) == ("507015\n", "")


def test_modules_of_the_vendor_that_are_not_emulated_are_refused_by_name(tree: Path) -> None:
    source = "import acl\nprint(*(hasattr(acl, m) for m in ('himpi', 'media', 'op')))\nacl.himpi.sys_init()"
    done = run_source(source, tree)
    assert done.stdout == "False False False\n"
    assert done.stderr.endswith(
        "AttributeError: acl.himpi, the second interface of the picture and video units (DVPP), is not emulated\n"
    )
    with pytest.raises(AttributeError, match="module 'acl' has no attribute 'nothing'"):
        acl.nothing  # noqa: B018  # the look-up is what is tested
