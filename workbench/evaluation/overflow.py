"""Whether a compiled model overflows on its device with the data that score it: what does is neither recommended nor
exported.

    the device's own check    every sample of validation and holdout, one call for each batch
    inside of its operators   float ranges beyond half precision; what hides such a value is dumped for the samples with
                              the largest ones, and its result held against the float model's
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.profiling import overflows
from workbench.graph.apart import array_of
from workbench.graph.flow import Flow
from workbench.graph.read import constants, load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.sessions import open_session
from workbench.targets import described
from workbench.targets.base import Feeds
from workbench.targets.full_rows import filled
from workbench.targets.inside import DeviceOperator
from workbench.values.candidate import Candidate
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest

LARGEST_HALF = 65504.0
_SPLITS: tuple[Literal["validation", "holdout"], ...] = ("validation", "holdout")
_FEEDS_A_RUN, _STATE_FEEDS, _MOST_DUMPED, _MOST_NAMED = 256, 32, 4, 8
_WRONG = 0.5
"""Relative error of a result behind a hidden value: what INT8 alone costs is less, what an overflow costs is more."""


def overflow_of(experiment: Experiment, candidate: Candidate, bench: Bench) -> str:
    """What overflows, and the way on; '' where nothing does, or the target has nothing that would tell. Looked for once
    for an artifact and its data; the answer is kept in the store.

    Raises:
        CandidateError, ToolchainError: it cannot be compiled or run, or the device's tools are missing.
    """
    target, data = described(candidate.target), experiment.dataset
    if target.profiler is None or target.inside is None or experiment.model.is_language_model:
        return ""
    artifact, directory = artifact_of(experiment, candidate, bench)
    key = {
        "artifact": [file.sha256 for file in artifact.files],
        "toolchain": bench.toolchain(candidate),
        "data": [data.digest(split) for split in _SPLITS],
        "bins": candidate.sequence_bins,
        "code": closure_digest("workbench.evaluation.overflow", type(bench.target(candidate)).__module__),
    }
    found = bench.store.get_json("overflow", key)
    if found is None:
        proto = load_graph(experiment.model)
        nodes = {**_checked(experiment, candidate, proto, directory, artifact)}
        nodes |= _hidden(experiment, candidate, proto, directory, artifact)
        found = {"nodes": nodes}
        bench.store.put_json("overflow", key, found)
    nodes = found["nodes"]
    if not nodes:
        return ""
    named = "; ".join(f"{node}: {what}" for node, what in list(nodes.items())[:_MOST_NAMED])
    return f"on the device {len(nodes)} operators overflow ({named}). {target.profiler().way_on(tuple(nodes))}"


def hidden_beyond_half(
    operator: DeviceOperator, proto: ModelProto, largest: Mapping[str, float], masks: set[str]
) -> tuple[str, ...]:
    """Nodes inside of an operator on halves whose result, or a constant they read, no half holds; masks left out.

    Args:
        largest: magnitude of tensors of the float model, constants among them.
    """
    crossing = {tensor.tensor for tensor in (*operator.inputs, *operator.outputs)}
    if "float16" not in {tensor.dtype for tensor in (*operator.inputs, *operator.outputs)}:
        return ()
    return tuple(
        node.name
        for node in proto.graph.node
        if node.name in operator.float_nodes
        and not masks.intersection(node.output)
        and any(largest.get(name, 0.0) > LARGEST_HALF for name in (*node.input, *node.output) if name not in crossing)
    )


def constant_magnitudes(proto: ModelProto) -> dict[str, float]:
    found = {name: array_of(tensor) for name, tensor in constants(proto).items()}
    return {name: magnitude(array) for name, array in found.items() if array.dtype.kind == "f"}


def _feeds(experiment: Experiment, candidate: Candidate) -> Iterator[Feeds]:
    data, model, fixed = (
        experiment.dataset.with_bins(candidate.sequence_bins),
        experiment.model,
        experiment.model.fixed_batch,
    )
    rows = fixed or candidate.serving.batch
    for split in _SPLITS:
        if data.interface.state:
            yield from timed_feeds(data, model, split, count=_STATE_FEEDS, batch=rows, seed=experiment.seed)
        else:
            for batch in data.batches(split, rows):
                yield batch.feeds if fixed is None else filled(batch.feeds, fixed)


def _checked(
    experiment: Experiment, candidate: Candidate, proto: ModelProto, directory: Path, artifact: Any
) -> dict[str, str]:
    """Operator → what of it is not finite, by the device's check; what is infinite in float32 too is no overflow."""
    made = {node.name: node.output for node in proto.graph.node}
    masks, found = Flow(proto).masks, dict[str, str]()
    waiting = list[Feeds]()
    for feeds in itertools.chain(_feeds(experiment, candidate), (None,)):
        if feeds is not None:
            waiting.append(feeds)
        if waiting and (feeds is None or len(waiting) == _FEEDS_A_RUN):
            with scratch_folder("overflow-check") as to:
                told = overflows(directory, artifact, candidate, waiting, to, once=True).suspects
            named = [name for node in told for name in made.get(node, ()) if name]
            session = open_session(experiment.model, named) if named else None
            beyond = {n for n in named if session and any(not _finite(session.run([n], dict(f))[0]) for f in waiting)}
            found |= {n: what for n, what in told.items() if not {*beyond, *masks}.intersection(made.get(n, ()))}
            waiting = []
    return found


def _hidden(
    experiment: Experiment, candidate: Candidate, proto: ModelProto, directory: Path, artifact: Any
) -> dict[str, str]:
    flow, known = Flow(proto), constant_magnitudes(proto)
    names = [name for name in flow.computed() if name not in flow.masks]
    session, largest = open_session(experiment.model, names), dict[str, float]()
    worst: dict[str, Feeds] = {}
    for feeds in _feeds(experiment, candidate):
        for name, values in zip(names, session.run(names, dict(feeds)), strict=True):
            if (found := magnitude(values)) > largest.get(name, -1.0):
                largest[name], worst[name] = found, feeds
    over = [name for name in names if largest[name] > LARGEST_HALF]
    if not over and max(known.values(), default=0.0) <= LARGEST_HALF:
        return {}
    dumped = list({id(worst[name]): worst[name] for name in (*over, *names[-1:])}.values())[:_MOST_DUMPED]
    make = described(candidate.target).inside
    assert make is not None  # the caller has looked
    hiding: dict[str, str] = {}
    with scratch_folder("overflow-dump") as to:
        for call in make().record(directory, artifact, experiment.model, dumped, to).calls:
            fed = {spec.name: call.fed[spec.name].load().astype(spec.dtype) for spec in experiment.model.inputs}
            for operator in call.operators:
                hidden = hidden_beyond_half(operator, proto, largest | known, flow.masks)
                results = [tensor for tensor in operator.outputs if hidden and tensor.tensor in names]
                for tensor, exact in zip(
                    results, session.run([t.tensor for t in results] or names[-1:], fed), strict=False
                ):
                    if _wrong(exact, tensor.floats()):
                        hiding |= dict.fromkeys(hidden, f"beyond half precision inside of {operator.name}")
    return hiding


def _wrong(exact: npt.NDArray[Any], values: npt.NDArray[Any] | None) -> bool:
    if values is None or values.size != exact.size or not _finite(exact):
        return False
    difference = np.linalg.norm(values.reshape(exact.shape).astype(np.float64) - exact)
    return not _finite(values) or float(difference) > _WRONG * float(np.linalg.norm(exact))


def magnitude(values: npt.NDArray[Any]) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _finite(values: npt.NDArray[Any]) -> bool:
    return bool(np.isfinite(values).all())
