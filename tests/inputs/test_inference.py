"""What an output is taken for, and where nobody can know."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from workbench.inputs.metrics import infer_outputs
from workbench.values.model import Model, TensorSpec

Shape = tuple[int | str | None, ...]


def inferred(outputs: dict[str, tuple[str, Shape]], nodes: dict[str, str], samples: object = None, **inputs: Shape):
    """`nodes`: output → chain of operators that make it, the last one last."""
    made = []
    for name, chain in nodes.items():
        names = ["x", *(f"{name}_{i}" for i in range(len(chain.split()) - 1)), name]
        made += [helper.make_node(op, [a], [b]) for op, a, b in zip(chain.split(), names[:-1], names[1:], strict=True)]
    graph = helper.make_graph(made, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])], [])
    specs = tuple(TensorSpec(name=n, dtype=dtype, shape=shape) for n, (dtype, shape) in outputs.items())
    given = tuple(TensorSpec(name=n, dtype="float32", shape=shape) for n, shape in inputs.items())
    model = Model(path=Path("m.onnx"), sha256="0" * 64, size_bytes=1, opset=17, inputs=given, outputs=specs)
    return infer_outputs(model, helper.make_model(graph), samples)


def test_name_shape_type_and_last_operator_tell() -> None:
    for name, dtype, shape, chain, meaning in (
        ("y", "float32", ("n", 1000), "Relu", "logits"),
        ("logits", "float32", ("n", "length", 5), "Relu", "logits"),
        ("y", "float32", ("n", "t", 6625), "Softmax", "probabilities"),
        ("output", "float32", ("n", 1), "Sigmoid Squeeze Unsqueeze", "probabilities"),
        ("output", "float32", ("n", 1), "Sigmoid ReduceMean", "probabilities"),
        ("y", "float32", ("n", 1000), "Tanh ReduceMean", "logits"),
        ("y", "float32", (None, 1, "h", "w"), "Sigmoid", "mask"),
        ("y", "int64", ("n", 64, 64), "ArgMax", "mask"),
        ("y", "int64", ("n", "length"), "ArgMax Cast", "ids"),
        ("audio", "float32", ("n", 1, "time"), "Relu", "signal"),
        ("y", "float32", ("n", 1, "time"), "Tanh", "signal"),
        ("y", "float32", ("n", 256), "LpNormalization", "embedding"),
        ("embeds", "float32", ("n", 256), "Relu", "embedding"),
    ):
        (found,) = inferred({name: (dtype, shape)}, {name: chain})

        assert found.use is not None, found
        assert found.use.meaning == meaning
        assert found.use.reason


def test_where_two_meanings_fit_nobody_guesses() -> None:
    for shape in (("n", 1), ("n", "length", 64), ("n", "any"), ("n", 3, 64, 64)):
        (found,) = inferred({"y": ("float32", shape)}, {"y": "Relu"})

        assert found.use is None
        assert len(found.candidates) > 1
        assert "Relu" in found.reason


def test_values_tell_what_the_file_does_not() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(6, 16))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    shares = np.abs(vectors) / np.abs(vectors).sum(axis=1, keepdims=True)

    (as_unit,) = inferred({"y": ("float32", ("n", 16))}, {"y": "Relu"}, {"y": unit})
    (as_shares,) = inferred({"y": ("float32", ("n", 16))}, {"y": "Relu"}, {"y": shares})
    (unclear,) = inferred({"y": ("float32", ("n", 16))}, {"y": "Relu"}, {"y": generator.uniform(0, 1, (6, 16))})

    assert as_unit.use.meaning == "embedding"
    assert as_shares.use.meaning == "probabilities"
    assert unclear.use is None


def test_a_detector_needs_values_to_know_the_format_of_its_boxes() -> None:
    outputs = {"scores": ("float32", (1, 44, 2)), "boxes": ("float32", (1, 44, 4))}
    corners = np.random.default_rng(0).uniform(0, 0.5, (1, 44, 4))
    corners[..., 2:] += corners[..., :2]
    nodes = {"scores": "Softmax", "boxes": "Relu"}

    blind = {one.name: one for one in inferred(outputs, nodes)}
    seen = {one.name: one for one in inferred(outputs, nodes, {"boxes": corners, "scores": np.ones((1, 44, 2))})}

    assert blind["boxes"].use is None
    assert blind["boxes"].candidates[0] == "boxes"
    assert dict(seen["boxes"].use.options) == {"scores": "scores", "format": "xyxy", "score": 0.5, "iou": 0.5}
    assert seen["scores"].use.meaning == "scores"


def test_a_state_is_named_and_shaped_as_its_input_and_texts_beside_scores_are_ignored() -> None:
    """Texts as a classifier of scikit-learn gives them."""
    texts = {"label": np.array(["a", "b"], dtype=object), "scores": np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)}
    stepped = {"output": ("float32", ("n", 1)), "stateN": ("float32", (2, "n", 128))}
    labelled = {"label": ("object", ("n",)), "scores": ("float32", ("n", 2))}

    found = inferred(stepped, {"output": "Sigmoid", "stateN": "Concat"}, state=(2, "n", 128))
    others = inferred(labelled, dict.fromkeys(labelled, "Identity"), texts)

    assert [one.use.meaning for one in found] == ["probabilities", "state"]
    assert [one.use.meaning for one in others] == ["ignored", "probabilities"]
