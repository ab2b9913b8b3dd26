"""AIPP: data become the very bytes they were made from; and the interface that is kept beside compiled files."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.emulated_cann import emulated_environment, switched_on
from workbench.graph.read import read_model
from workbench.targets.ascend.fitting import pictures_of, with_bytes
from workbench.targets.ascend.interface import Interface, Port, has_axis, interface_of, read_interface
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model, TensorSpec

AIPP = """aipp_op {
  aipp_mode: static
  input_format: RGB888_U8
  rbuv_swap_switch: SWAP
  mean_chn_0: 124
  mean_chn_1: 117
  mean_chn_2: 104
  min_chn_1: 2.5
  var_reci_chn_0: 0.017
  var_reci_chn_1: 0.0175
  var_reci_chn_2: 0.0178
MORE}
"""
INTERFACE = Interface(
    inputs=(
        Port(name="x", dtype="float32", shape=("batch", 3, 6, 4)),
        Port(name="size", dtype="int64", shape=("batch", 2)),
    ),
    outputs=(Port(name="y", dtype="float32", shape=("batch", 3)),),
)


def text(*, swap: str = "false", more: str = "") -> str:
    return AIPP.replace("SWAP", swap).replace("MORE", f"  {more}\n" if more else "")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_prepared_data_become_the_bytes_they_were_made_of(seed: int, swapped: bool) -> None:
    pictured = np.random.default_rng(seed).integers(0, 256, (2, 6, 4, 3)).astype(np.uint8)
    ordered = pictured[..., ::-1] if swapped else pictured
    mean, scale = np.array([124, 119.5, 104], np.float32), np.array([0.017, 0.0175, 0.0178], np.float32)
    x = ((ordered.astype(np.float32) - mean) * scale).transpose(0, 3, 1, 2)
    pictures = pictures_of(text(swap="true" if swapped else "false"), INTERFACE)

    fed = with_bytes({"x": x, "size": np.zeros((2, 2), np.int64)}, pictures)

    assert np.array_equal(fed["x"], pictured)
    assert fed["x"].dtype == np.uint8
    assert set(fed) == {"x", "size"}


@pytest.mark.parametrize("value", [0.5, 1000.0, -1000.0, float("nan")])
def test_a_value_that_aipp_makes_of_no_byte_is_refused(value: float) -> None:
    x = np.full((1, 3, 6, 4), (10 - 124) * 0.017, np.float32)
    x[0, 0, 0, 0] = (value - 124) * 0.017
    x[0, 1], x[0, 2] = (10 - 119.5) * 0.0175, (10 - 104) * 0.0178

    with pytest.raises(MeasureError, match="makes of no byte"):
        with_bytes({"x": x}, pictures_of(text(), INTERFACE))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (text(more="crop: true"), "crop cannot be undone"),
        (text(more="csc_switch: true"), "csc_switch cannot be undone"),
        (text(more="src_image_size_h: 9"), "src_image_size_h is 9"),
        (text(more="related_input_rank: 7"), "no input 7"),
        (text(more="related_input_name: 'size'"), "is ['batch', 2]"),
        (text().replace("static", "dynamic"), "only aipp_mode: static"),
        (text().replace("RGB888_U8", "YUV420SP_U8"), "whose channels are the model's"),
        (text().replace("0.017\n", "0\n"), "every byte the same"),
        (text() + text(), "one aipp_op"),
        ("", "one aipp_op"),
        ("other { a: 1 }", "is no aipp_op"),
        ("aipp_op {", "compile.insert_op_conf"),
    ],
)
def test_a_file_that_cannot_be_undone_is_refused_with_the_key(changed: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        pictures_of(changed, INTERFACE)

    assert "compile.insert_op_conf" in str(caught.value)


def test_a_compiled_model_with_aipp_answers_as_without_it(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32) / 9
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3]),
            helper.make_node("GlobalAveragePool", ["c"], ["p"], name="pool"),
            helper.make_node("Flatten", ["p"], ["logits"], name="flat"),
        ],
        "pictures",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 6, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    model = read_model(tmp_path / "m.onnx")
    pixels = np.random.default_rng(1).integers(0, 256, (3, 6, 4, 3))
    x = ((pixels - np.array([124, 119.5, 104])) * np.array([0.017, 0.0175, 0.0178])).astype(np.float32)
    feeds = {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    answers = {}
    with switched_on(emulated_environment(tmp_path)):
        target = AscendTarget()
        for name, options in (("plain", ()), ("aipp", (("insert_op_conf", text()),))):
            candidate = Candidate(
                target="ascend910b3",
                precision=Precision(mode="force_fp16"),
                compile=AscendCompile(batches=(2,), options=options),
            )
            (tmp_path / name).mkdir()
            (tmp_path / f"{name}-lowered").mkdir()
            lowered = target.lower(model, candidate, None, tmp_path / f"{name}-lowered")
            artifact = target.compile(lowered, candidate, tmp_path / name)
            session = target.open(artifact, tmp_path / name, candidate)
            answers[name] = session.run(feeds)["logits"]
            session.close()

    assert answers["aipp"].shape == (3, 4)
    assert np.abs(answers["aipp"] - answers["plain"]).max() < 0.01
    assert np.abs(answers["plain"]).max() > 0.1


def model(*inputs: tuple[int | str | None, ...], output: tuple[int | str | None, ...] = ("batch", 12)) -> Model:
    return Model(
        path=Path("model.onnx"),
        sha256="0" * 64,
        size_bytes=1,
        opset=17,
        inputs=tuple(TensorSpec(name=f"in{i}", dtype="int64", shape=shape) for i, shape in enumerate(inputs)),
        outputs=(TensorSpec(name="out", dtype="float32", shape=output),),
    )


def test_the_first_free_axis_is_the_batch_and_the_other_the_length() -> None:
    found = interface_of(model(("batch", "sequence"), ("batch", "sequence"), output=("unk_0", "unk_1", 9)))

    assert [port.shape for port in found.inputs] == [("batch", "sequence")] * 2
    assert found.outputs[0].shape == ("batch", "sequence", 9)


@pytest.mark.parametrize(("output", "port"), [((4, 12), "batch"), ((128, 12), 128), (("kept", 12), "sequence")])
def test_a_fixed_first_axis_is_the_batch_too_and_other_fixed_axes_stay(output: tuple[int, int], port: str) -> None:
    found = interface_of(model((4, 128), output=output))

    assert found.inputs[0].shape == ("batch", 128)
    assert found.outputs[0].shape == (port, 12), "where it is declared with a row for each sample"
    assert not has_axis(found, "sequence")


@pytest.mark.parametrize("shapes", [(("n", "h", "w"),), (("n", "source"), ("n", "target")), (("n", "n"),)])
def test_two_lengths_are_refused(shapes: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(ConfigError, match="more free axes than a batch and one length"):
        interface_of(model(*shapes))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested deeper than 64 levels"),
        ('{"inputs": [], "outputs": []}', "0 inputs"),
        ('{"inputs": 3, "outputs": []}', "expected a list"),
    ],
    ids=["deep", "nothing", "no list"],
)
def test_an_interface_that_no_model_has_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "interface.json").write_text(text)

    with pytest.raises(ValueError, match=words):
        read_interface(tmp_path)
