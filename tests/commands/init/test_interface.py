from pathlib import Path

import pytest

from workbench.commands.init.experiment import limit_pp
from workbench.commands.init.interface import declare, declared_axes, state_pairs
from workbench.commands.init.targets import choose_targets
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec


def model(inputs: dict[str, tuple[int | str | None, ...]], outputs: dict[str, tuple[int | str | None, ...]]) -> Model:
    def specs(shapes: dict[str, tuple[int | str | None, ...]]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(name=n, dtype="int64" if n == "sr" else "float32", shape=shape) for n, shape in shapes.items()
        )

    return Model(
        path=Path("m.onnx"), sha256="0" * 64, size_bytes=1, opset=17, inputs=specs(inputs), outputs=specs(outputs)
    )


@pytest.mark.parametrize(
    ("given", "carried"),
    [("h", "hn"), ("state", "stateN"), ("state_in", "state_out"), ("past.0.key", "present.0.key"), ("c0", "cn")],
)
def test_a_state_is_known_by_its_name_and_its_shape(given: str, carried: str) -> None:
    found = model({"x": ("batch", 8), given: (2, "batch", 16)}, {"y": ("batch", 1), carried: (2, "batch", 16)})
    other = model({"x": ("batch", 8), given: (2, "batch", 16)}, {carried: (2, "batch", 17)})

    assert list(state_pairs(found)) == [(carried, given)]
    assert list(state_pairs(other)) == []


def test_what_nothing_feeds_is_built_in_or_asked_for_with_the_option_to_write() -> None:
    speech = model({"input": (None, None), "state": (2, None, 128), "sr": ()}, {"out": (None, 1), "stateN": ()})
    data = {"input": (40, 10, 576)}

    with pytest.raises(ConfigError, match=r"nothing feeds the input 'sr' .*--constant sr=VALUE"):
        declare(speech, data, {}, None)
    found = declare(speech, data, {"sr": "16000"}, None).interface
    answered = declare(speech, data, {}, lambda question, answers: "8000").interface

    assert found.state == (("stateN", "state"),)
    assert {use.name: (use.constant, use.axes) for use in found.inputs} == {
        "sr": (16000, ()),
        "state": (None, (2, "batch", 128)),
    }
    assert answered.inputs[0].constant == 8000


def test_a_single_number_fills_an_input_of_a_fixed_shape() -> None:
    voice = model({"x": ("batch", 8), "h0": (2, 1, 3), "free": (None, 2)}, {"y": ("batch", 1)})
    data = {"x": (40, 8), "free": (40, 2)}

    with pytest.raises(ConfigError, match="--constant h0=VALUE, which a single number fills"):
        declare(voice, data, {}, None)
    (use,) = declare(voice, data, {"h0": "0.5"}, None).interface.inputs[:1]
    (spelled,) = declare(voice, data, {"h0": "[[[1,2,3]],[[4,5,6]]]"}, None).interface.inputs[:1]

    assert use.constant == [[[0.5] * 3]] * 2
    assert spelled.constant == [[[1, 2, 3]], [[4, 5, 6]]]
    assert declare(voice, {"x": (40, 8), "h0": (40, 1)}, {"free": "1"}, None).interface.inputs[0].constant == 1


@pytest.mark.parametrize(
    ("shape", "array", "axes"),
    [
        (("batch", 3, 8, 8), (40, 3, 8, 8), None),
        ((-1, 3, None, None), (40, 3, 8, 8), None),
        ((8, None, 16), (40, 8, 16), (8, "batch", 16)),
        ((16,), (40, 16), (16,)),
        (("batch", 16), (40, 32), None),
        ((None, 16), (40, 32), None),
        (("time", 1, 80), (40, 50, 80), ("time", "batch", 80)),
        ((1, 3, "height", 8), (40, 1, 3, 8, 8), (1, 3, "height", 8)),
    ],
)
def test_the_shape_of_one_sample_tells_which_axis_counts_them(
    shape: tuple[int | str | None, ...], array: tuple[int, ...], axes: tuple[str | int, ...] | None
) -> None:
    found = declared_axes([TensorSpec(name="x", dtype="float32", shape=shape)], {"x": array}, set())

    assert {name: chosen for name, (chosen, _) in found.items()} == ({} if axes is None else {"x": axes})


def test_one_sample_is_less_than_the_limit() -> None:
    assert [limit_pp(samples, 0.5) for samples in (1000, 201, 200, 100, 50, 3)] == [0.5, 0.5, 1.0, 1.5, 3.0, 50.0]
    assert [limit_pp(samples, 2.0) for samples in (1000, 51, 50, 3)] == [2.0, 2.0, 3.0, 50.0]


def test_targets_of_a_host_share_an_experiment_and_a_device_has_its_own() -> None:
    assert choose_targets(["onnxruntime,openvino", "ascend910b3"]).groups == (
        ("onnxruntime", "openvino"),
        ("ascend910b3",),
    )
    assert choose_targets([]).groups == (("onnxruntime",),)
    assert ("ascend910b3",) in choose_targets(["all"]).groups
    for written, says in ((["onxruntime"], "Did you mean 'onnxruntime'"), (["all", "openvino"], "nothing to add")):
        with pytest.raises(ConfigError, match=says):
            choose_targets(written)
