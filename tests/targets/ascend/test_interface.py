"""The interface that is kept beside compiled files."""

from pathlib import Path

import pytest

from workbench.targets.ascend.interface import has_axis, interface_of, read_interface
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec


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


def test_a_fixed_first_axis_is_the_batch_too_and_other_fixed_axes_stay() -> None:
    for output, port in (((4, 12), "batch"), ((128, 12), 128), (("kept", 12), "sequence")):
        found = interface_of(model((4, 128), output=output))
        assert found.inputs[0].shape == ("batch", 128)
        assert found.outputs[0].shape == (port, 12), "where it is declared with a row for each sample"
        assert not has_axis(found, "sequence")


def test_two_lengths_are_refused() -> None:
    for shapes in ((("n", "h", "w"),), (("n", "source"), ("n", "target")), (("n", "n"),)):
        with pytest.raises(ConfigError, match="more free axes than a batch and one length"):
            interface_of(model(*shapes))


def test_an_interface_that_no_model_has_is_refused(tmp_path: Path) -> None:
    for text, words in (
        ("[" * 100_000, "nested deeper than 64 levels"),
        ('{"inputs": [], "outputs": []}', "0 inputs"),
        ('{"inputs": 3, "outputs": []}', "expected a list"),
    ):
        (tmp_path / "interface.json").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_interface(tmp_path)
