"""Encoders of BERT's shapes with random weights, written as a stream: what `model_size.py` measures with.

    python -m benchmarks.large_models base /tmp/models/base.onnx [--external] [--seed 0]

Sizes: `base` (12 layers of 768, 409 MB), `large` (24 of 1024, 1.3 GB), `huge` (over 2 GB, always with external data),
`mini` (for tries). The graph is the one that an export by PyTorch has: MatMul and Add with constant matrices,
LayerNormalization, attention by Reshape and Transpose, GELU by Erf; two classes from the first token.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    vocabulary: int = 30522
    positions: int = 512


SHAPES = {
    "mini": Shape(layers=2, hidden=128, heads=2, vocabulary=2000),
    "base": Shape(layers=12, hidden=768, heads=12),
    "large": Shape(layers=24, hidden=1024, heads=16),
    "huge": Shape(layers=8, hidden=2048, heads=32, vocabulary=100_000),
}


class Writer:
    """Collects the graph; of the weights only their shapes and seeds, so that they are made one at a time."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.small: list[onnx.TensorProto] = []
        self.large: list[tuple[str, tuple[int, ...], float]] = []

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def vector(self, name: str, values: npt.ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        self.small.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def matrix(self, name: str, shape: tuple[int, ...], scale: float = 0.02) -> str:
        self.large.append((name, shape, scale))
        return name

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        rng = np.random.default_rng(len(self.nodes))
        product = self.node("MatMul", [x, self.matrix(f"{name}.weight", (inputs, outputs))], f"{name}/MatMul")
        bias = self.vector(f"{name}.bias", rng.normal(0, 0.02, outputs))
        return self.node("Add", [product, bias], f"{name}/Add")

    def norm(self, x: str, name: str) -> str:
        rng = np.random.default_rng(len(self.nodes))
        size = self.shape.hidden
        scale = self.vector(f"{name}.weight", rng.normal(1, 0.1, size))
        bias = self.vector(f"{name}.bias", rng.normal(0, 0.1, size))
        return self.node("LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=1e-12)

    def layer(self, x: str, name: str) -> str:
        hidden, heads = self.shape.hidden, self.shape.heads
        split, merged = f"{name}.split", f"{name}.merged"
        self.vector(split, [0, 0, heads, hidden // heads], np.int64)
        self.vector(merged, [0, 0, hidden], np.int64)
        found = {}
        for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            dense = self.dense(x, f"{name}/{part}", hidden, hidden)
            apart = self.node("Reshape", [dense, split], f"{name}/{part}/Reshape")
            found[part] = self.node("Transpose", [apart], f"{name}/{part}/Transpose", perm=order)
        scores = self.node("MatMul", [found["query"], found["key"]], f"{name}/scores")
        root = self.vector(f"{name}.root", np.sqrt(hidden / heads))
        scaled = self.node("Div", [scores, root], f"{name}/Div")
        masked = self.node("Add", [scaled, "mask"], f"{name}/Mask")
        probabilities = self.node("Softmax", [masked], f"{name}/Softmax", axis=-1)
        context = self.node("MatMul", [probabilities, found["value"]], f"{name}/context")
        back = self.node("Transpose", [context], f"{name}/Transpose", perm=[0, 2, 1, 3])
        together = self.node("Reshape", [back, merged], f"{name}/Reshape")
        attended = self.dense(together, f"{name}/attention/output", hidden, hidden)
        x = self.norm(self.node("Add", [attended, x], f"{name}/attention/Residual"), f"{name}/attention/Norm")
        wide = self.dense(x, f"{name}/intermediate", hidden, 4 * hidden)
        two, one, half = (
            self.vector(f"{name}.{word}", value) for word, value in (("two", np.sqrt(2)), ("one", 1.0), ("half", 0.5))
        )
        erf = self.node("Erf", [self.node("Div", [wide, two], f"{name}/GeluDiv")], f"{name}/Erf")
        gelu = self.node("Mul", [wide, self.node("Add", [erf, one], f"{name}/GeluAdd")], f"{name}/GeluMul")
        gelu = self.node("Mul", [gelu, half], f"{name}/GeluHalf")
        narrow = self.dense(gelu, f"{name}/output", 4 * hidden, hidden)
        return self.norm(self.node("Add", [narrow, x], f"{name}/Residual"), f"{name}/Norm")

    def encoder(self) -> onnx.ModelProto:
        """The model with the small tensors in it; of the large ones nothing but their names in the nodes."""
        shape = self.shape
        words = self.node(
            "Gather", [self.matrix("words", (shape.vocabulary, shape.hidden)), "input_ids"], "words/Gather"
        )
        size = self.node("Shape", ["input_ids"], "Shape", start=1, end=2)
        zero = self.vector("zero", [0], np.int64)
        places = self.matrix("positions", (shape.positions, shape.hidden))
        cut = self.node("Slice", [places, zero, size, zero], "positions/Slice")
        x = self.norm(self.node("Add", [words, cut], "embeddings/Add"), "embeddings/Norm")
        as_float = self.node("Cast", ["attention_mask"], "mask/Cast", to=TensorProto.FLOAT)
        wide = self.node("Unsqueeze", [as_float, self.vector("axes", [1, 2], np.int64)], "mask/Unsqueeze")
        off = self.node("Sub", [self.vector("one", 1.0), wide], "mask/Sub")
        self.nodes.append(helper.make_node("Mul", [off, self.vector("low", -10000.0)], ["mask"], name="mask/Mul"))
        for index in range(shape.layers):
            x = self.layer(x, f"/layer.{index}")
        first = self.node("Gather", [x, self.vector("first", 0, np.int64)], "first", axis=1)
        pooled = self.node("Tanh", [self.dense(first, "/pooler", shape.hidden, shape.hidden)], "/pooler/Tanh")
        self.dense(pooled, "/classifier", shape.hidden, 2)
        self.nodes[-1].output[0] = "logits"
        free = ["batch", "length"]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info(n, TensorProto.INT64, free) for n in ("input_ids", "attention_mask")],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
            self.small,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def weights(self, seed: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        for index, (name, shape, scale) in enumerate(self.large):
            rng = np.random.default_rng([seed, index])
            yield name, rng.standard_normal(shape, np.float32) * np.float32(scale)


def write(shape: Shape, to: Path, *, external: bool = False, seed: int = 0) -> None:
    """Write the model; with `external` its matrices into `NAME.data` beside it."""
    writer = Writer(shape)
    model = writer.encoder()
    to.parent.mkdir(parents=True, exist_ok=True)
    if not external:
        with to.open("wb") as stream:
            stream.write(model.SerializeToString())
            for name, values in writer.weights(seed):  # serialized messages merge when they are joined
                part = onnx.ModelProto(graph=onnx.GraphProto(initializer=[numpy_helper.from_array(values, name)]))
                stream.write(part.SerializeToString())
        return
    data = to.with_suffix(".data")
    offset = 0
    with data.open("wb") as stream:
        for name, values in writer.weights(seed):
            stream.write(values.data)
            tensor = model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=values.shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", offset), ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            offset += values.nbytes
    to.write_bytes(model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("to", type=Path)
    parser.add_argument("--external", action="store_true", help="weights beside the model, in NAME.data")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    external = arguments.external or arguments.shape == "huge"
    write(SHAPES[arguments.shape], arguments.to, external=external, seed=arguments.seed)


if __name__ == "__main__":
    main()
