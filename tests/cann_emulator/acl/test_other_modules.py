"""Modules that programs touch beside models: profile marks, picture descriptions, single operators."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cann_emulator.acl.library import ok, run_source, saved, taken, text
from tests.cann_emulator.handmade import offline_model
from workbench.cann_emulator import acl


@pytest.fixture
def stream(device: int) -> int:
    made: int = taken(acl.rt.create_stream())
    return made


def test_a_program_builds_media_descriptions_and_is_refused_at_the_channel(device: int) -> None:
    """The order of AclLiteImageProc in Ascend/samples; 200006 is FEATURE_UNSUPPORTED (pyacl.md §2.6)."""
    channel = acl.media.dvpp_create_channel_desc()
    picture = acl.media.dvpp_create_pic_desc()
    memory = taken(acl.media.dvpp_malloc(64))
    ok(acl.media.dvpp_set_pic_desc_data(picture, memory))
    ok(acl.media.dvpp_set_pic_desc_width_stride(picture, 128))
    assert acl.media.dvpp_get_pic_desc_data(picture) == memory
    assert acl.media.dvpp_get_pic_desc_width_stride(picture) == 128
    assert acl.media.dvpp_get_pic_desc_height(picture) == 0
    roi = acl.media.dvpp_create_roi_config(1, 2, 3, 4)
    assert acl.media.dvpp_get_roi_config_right(roi) == 2
    assert acl.media.dvpp_create_channel(channel) == 200006
    assert "dvpp_create_channel" in text()
    assert acl.media.dvpp_jpeg_predict_dec_size(memory, 64, 1) == (0, 200006)
    ok(acl.media.dvpp_destroy_pic_desc(picture))
    assert acl.media.dvpp_destroy_pic_desc(picture) == 100000
    assert acl.media.dvpp_set_pic_desc_data(channel, 1) == 100000
    ok(acl.media.dvpp_free(memory))
    ok(acl.media.dvpp_free(0))


def test_attributes_of_an_operator_are_kept_and_no_operator_is_found(device: int, stream: int) -> None:
    """pyacl.md §2.6: 100024, OP_NOT_FOUND."""
    attributes = acl.op.create_attr()
    ok(acl.op.set_attr_int(attributes, "axis", -1))
    ok(acl.op.set_attr_bool(attributes, "flag", 0))
    ok(acl.op.set_attr_float(attributes, "scale", 2.0))
    ok(acl.op.set_attr_string(attributes, "mode", "x"))
    ok(acl.op.set_attr_list_float(attributes, "scales", np.ones(3, np.float32)))
    ok(acl.op.set_attr_list_list_int(attributes, "parts", [[1], [2, 3]]))
    assert acl.op.set_attr_int(0, "axis", 1) == 100000
    desc = acl.create_tensor_desc(3, [8, 16], 2)
    buffer = acl.create_data_buffer(taken(acl.rt.malloc(512, 0)), 512)
    call = ("Add", [desc, desc], [buffer, buffer], [desc], [buffer], attributes, stream)
    assert acl.op.execute_v2(*call) == 100024
    assert "Add" in text()
    assert acl.op.create_handle("Add", [desc], [desc], attributes) == (0, 100024)
    assert acl.op.execute("Add", [0], [buffer], [desc], [buffer], attributes, stream) == 100000
    with pytest.raises(TypeError):
        acl.op.execute_v2("Add", (desc,), [buffer], [desc], [buffer], attributes, stream)
    acl.op.destroy_attr(attributes)
    assert acl.op.set_attr_int(attributes, "axis", 1) == 100000
    assert acl.op.set_model_dir("/no/such/folder") == 100014


def test_marks_in_a_profile_are_taken(device: int, stream: int) -> None:
    ok(acl.prof.set_config(3, "15"))
    step = acl.prof.create_step_info()
    ok(acl.prof.get_step_timestamp(step, 0, stream))
    ok(acl.prof.get_step_timestamp(step, 1, stream))
    assert acl.prof.get_step_timestamp(step, 1, stream) == 100000
    acl.prof.destroy_step_info(step)
    stamp = acl.prof.create_stamp()
    ok(acl.prof.set_stamp_trace_message(stamp, "request", 7))
    ok(acl.prof.push(stamp))
    ok(acl.prof.pop())
    assert acl.prof.pop() == 100000
    number = taken(acl.prof.range_start(stamp))
    ok(acl.prof.range_stop(number))
    assert acl.prof.range_stop(number) == 100000
    acl.prof.destroy_stamp(stamp)
    assert acl.prof.mark(stamp) == 100000


def test_rows_are_copied_in_a_stream_too(device: int, stream: int) -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    there, back = taken(acl.rt.malloc(24, 0)), bytearray(12)
    ok(acl.rt.memcpy2d_async(there, 8, rows.ctypes.data, 4, 4, 3, 1, stream))
    target = ctypes.addressof((ctypes.c_char * 12).from_buffer(back))
    ok(acl.rt.memcpy2d_async(target, 4, there, 8, 4, 3, 2, stream))
    assert bytes(back) == bytes(12)
    ok(acl.rt.synchronize_stream(stream))
    assert bytes(back) == rows.tobytes()
    assert acl.rt.memcpy2d_async(there, 2, rows.ctypes.data, 4, 4, 3, 1, stream) == 107000


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


def test_the_modules_are_imported_as_the_vendors(tree: Path) -> None:
    source = (
        "import acl; import acl.op; from acl import media, prof\nprint(acl.op.create_attr() > 0, media is acl.media)"
    )
    done = run_source(source, tree, env={"CANN_EMULATOR_LEAKS": "off"})
    assert done.stdout == "True True\n", done.stderr


def test_modules_of_the_vendor_that_are_not_emulated_are_refused_by_name(tree: Path) -> None:
    source = "import acl\nprint(hasattr(acl, 'himpi'))\nacl.himpi.sys_init()"
    done = run_source(source, tree)
    assert done.stdout == "False\n"
    assert done.stderr.endswith(
        "AttributeError: acl.himpi, the second interface of the picture and video units (DVPP), is not emulated\n"
    )
    with pytest.raises(AttributeError, match="module 'acl' has no attribute 'nothing'"):
        acl.nothing  # noqa: B018  # the look-up is what is tested
