"""A bundle that costs all a service costs, with a call of some milliseconds in place of the model's.

It takes what the served model takes and answers in the same shapes, with the same tokenizer, labels and task, so that
requests cost the front end and the workers what they will cost later. The call's own time is taken off, but it has to
be there, and to be a model's: while it computes, front end, worker and client sleep and their caches are taken. Beside
a call that costs nothing, a batch of one request came to 0.44 ms of the front end; beside one of 1.3 ms over 6 MB of
weights to 0.69; beside one of 4.3 ms over 34 MB to 0.87, and served with MiniLM to 0.7 to 1.1 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import Tolerance
from workbench.bundle.write import BundleContents, write_bundle
from workbench.evaluation.carried import calibration_feeds
from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset
from workbench.quantization.sessions import open_session
from workbench.targets import REFERENCE, open_target
from workbench.values.candidate import Candidate
from workbench.values.model import Model, TensorSpec
from workbench.values.preprocess import Feeds, Text
from workbench.values.service import ServiceSettings

_KINDS = 8
"""Token ids are sorted into so many kinds; one of them opens an entity, so that answers of NER are not all empty."""
_LENGTH_AXIS = 1
_WORK_ROWS, _WORK_WIDTH, _WORK_INNER = 16, 1024, 4096
"""Of the call: two matrix products over 34 MB of weights, those of a feed-forward layer of a large encoder."""


def write_probe(to: Path, model: Model, dataset: Dataset, settings: ServiceSettings) -> Path:
    """Write the bundle into a folder beside others at `to`, and return it.

    Args:
        to: an existing empty folder for all that is made on the way.
    """
    batch = next(dataset.batches("validation", 1, stop=1))
    texts: Sequence[Text] | None = dataset.texts("validation")
    feeds = batch.feeds
    if texts is None:
        feeds = next(calibration_feeds(dataset, model, batch=1, samples=1, split="validation"))
    file = to / "probe.onnx"
    onnx.save(_working(_graph(_with_sizes(model, feeds), dataset)), file)
    probe, target, candidate = read_model(file), open_target(REFERENCE), Candidate(target=REFERENCE)
    lowered, compiled = to / "lowered", to / "compiled"
    lowered.mkdir()
    compiled.mkdir()
    artifact = target.compile(target.lower(probe, candidate, None, lowered), candidate, compiled)
    session = target.open(artifact, compiled, candidate)
    try:
        golden = GoldenBatch(
            feeds=feeds,
            outputs={n: a for n, a in session.run(feeds).items() if a.dtype.kind in "fiub"},  # a replay knows no texts
            texts=() if texts is None else tuple(texts[int(row)] for row in batch.indices),
        )
    finally:
        session.close()
    contents = BundleContents(
        name="host-costs",
        about="Answers without a model: what a service costs beside its model is measured with it.",
        task=dataset.task,
        candidate=candidate,
        artifact=artifact,
        artifact_directory=compiled,
        evaluations=(),
        baseline=(),
        model=probe,
        datasets={},
        golden=(golden,),
        tolerance=Tolerance(absolute=1e-3, relative=1e-3),
        labels=dataset.labels,
        preprocessor=dataset.preprocessor,
        service=settings,
    )
    return write_bundle(to / "bundle", contents)


def _working(plain: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, whose first output of numbers waits for the call's work. Without one there is no work."""
    graph = plain.graph
    output = next((o for o in graph.output if o.type.tensor_type.elem_type == TensorProto.FLOAT), None)
    if output is None:
        return plain
    generator = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> None:
        values = generator.normal(scale=0.02, size=shape).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, name))

    weights("work_rows", _WORK_ROWS, _WORK_WIDTH)
    weights("work_up", _WORK_WIDTH, _WORK_INNER)
    weights("work_down", _WORK_INNER, _WORK_WIDTH)
    zero = numpy_helper.from_array(np.zeros((), dtype=np.float32), "work_none")
    graph.initializer.append(zero)
    final = next(node for node in graph.node if output.name in node.output)
    final.output[list(final.output).index(output.name)] = "work_before"
    # a number of the answer goes in, so that nothing is computed before there is one
    graph.node.extend(
        [
            helper.make_node("ReduceMax", ["work_before"], ["work_of"], keepdims=0),
            helper.make_node("Mul", ["work_of", "work_none"], ["work_seed"]),
            helper.make_node("Add", ["work_rows", "work_seed"], ["work_in"]),
            helper.make_node("MatMul", ["work_in", "work_up"], ["work_wide"]),
            helper.make_node("MatMul", ["work_wide", "work_down"], ["work_out"]),
            helper.make_node("ReduceMax", ["work_out"], ["work_most"], keepdims=0),
            helper.make_node("Mul", ["work_most", "work_none"], ["work_done"]),
            helper.make_node("Add", ["work_before", "work_done"], [output.name]),
        ]
    )
    return plain


def _with_sizes(model: Model, feeds: Feeds) -> Model:
    """The model with every output's size said: one that neither the file nor an input tells is that of one run."""
    told = {size for spec in model.inputs for size in spec.shape if isinstance(size, str)}
    if all(o.shape and all(isinstance(s, int) or s in told for s in o.shape[1:]) for o in model.outputs):
        return model
    arrays = open_session(model, ()).run([o.name for o in model.outputs], dict(feeds))
    outputs = []
    for output, array in zip(model.outputs, arrays, strict=True):
        declared = output.shape if len(output.shape) == array.ndim else (None,) * array.ndim
        shape = tuple(
            d if isinstance(d, int) or d in told else found for d, found in zip(declared, array.shape, strict=True)
        )
        outputs.append(replace(output, shape=(declared[0], *shape[1:])))
    return replace(model, outputs=tuple(outputs))


def _graph(model: Model, dataset: Dataset) -> onnx.ModelProto:
    """Inputs and outputs of the model; outputs made from the token ids, or constant where there are none."""
    preprocessor = dataset.preprocessor
    ids = None if preprocessor is None else next(i.name for i in preprocessor.inputs if i.role == "ids")
    nodes: list[onnx.NodeProto] = []
    constants = [numpy_helper.from_array(np.array([_KINDS], dtype=np.int64), "kinds")]
    for number, output in enumerate(model.outputs):
        width = output.shape[-1] if output.shape else None
        if ids is not None and isinstance(width, int) and len(output.shape) in (2, 3):
            table = np.zeros((_KINDS, width), dtype=np.float32)
            table[:, 0] = 1.0
            table[-1, min(1, width - 1)] = 2.0
            constants.append(numpy_helper.from_array(table, f"table{number}"))
            per_token = output.name if len(output.shape) == 3 else f"tokens{number}"
            nodes += [
                helper.make_node("Cast", [ids], [f"id{number}"], to=TensorProto.INT64),
                helper.make_node("Mod", [f"id{number}", "kinds"], [f"kind{number}"]),
                helper.make_node("Gather", [f"table{number}", f"kind{number}"], [per_token]),
            ]
            if per_token != output.name:
                nodes.append(
                    helper.make_node("ReduceMean", [per_token], [output.name], axes=[_LENGTH_AXIS], keepdims=0)
                )
        else:
            nodes += _constant(number, output, model.inputs, constants)
    graph = helper.make_graph(nodes, "probe", _infos(model.inputs), _infos(model.outputs), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _constant(
    number: int, output: TensorSpec, inputs: Sequence[TensorSpec], constants: list[onnx.TensorProto]
) -> list[onnx.NodeProto]:
    """Zeros of the output's shape; a dimension that varies is read from the input that shares its name."""
    nodes, parts = [], []
    for axis, size in enumerate(output.shape):
        part = f"dimension{number}_{axis}"
        found = next(((i.name, i.shape.index(size)) for i in inputs if size in i.shape), None)
        if axis == 0 or (not isinstance(size, int) and found is not None):
            name, place = found if found is not None and not isinstance(size, int) else (inputs[0].name, 0)
            nodes.append(helper.make_node("Shape", [name], [part], start=place, end=place + 1))
        else:
            fixed = np.array([size if isinstance(size, int) else 1], dtype=np.int64)
            constants.append(numpy_helper.from_array(fixed, part))
        parts.append(part)
    # Made from an input's first value: where no size varies, the optimizer would leave nothing of a constant.
    first, rank = inputs[0], len(inputs[0].shape)
    for name, values in (("from", [0] * rank), ("to", [1] * rank), ("one", [1])):
        constants.append(numpy_helper.from_array(np.array(values, dtype=np.int64), f"{name}{number}"))
    constants.append(numpy_helper.from_array(np.zeros(1, dtype=np.float32), f"zero{number}"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(output.dtype))
    nodes += [
        helper.make_node("Slice", [first.name, f"from{number}", f"to{number}"], [f"corner{number}"]),
        helper.make_node("Reshape", [f"corner{number}", f"one{number}"], [f"value{number}"]),
        helper.make_node("Cast", [f"value{number}"], [f"float{number}"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"float{number}", f"zero{number}"], [f"nothing{number}"]),
        helper.make_node("Cast", [f"nothing{number}"], [f"typed{number}"], to=kind),
        helper.make_node("Concat", parts, [f"shape{number}"], axis=0),
        helper.make_node("Expand", [f"typed{number}", f"shape{number}"], [output.name]),
    ]
    return nodes


def _infos(specs: Sequence[TensorSpec]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(s.name, helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype)), list(s.shape))
        for s in specs
    ]
