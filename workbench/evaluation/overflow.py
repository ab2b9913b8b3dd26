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
from workbench.evaluation.replay import overflows
from workbench.graph.apart import array_of
from workbench.graph.flow import Flow
from workbench.graph.read import constants, load_graph
from workbench.inputs.experiment import Experiment
from workbench.targets import REFERENCE, described, open_target
from workbench.targets.base import Feeds
from workbench.targets.feeds import filled
from workbench.targets.inside import DeviceOperator
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest

LARGEST_HALF = 65504.0
_SPLITS: tuple[Literal["validation", "holdout"], ...] = ("validation", "holdout")
_FEEDS_A_RUN, _STATE_FEEDS, _MOST_DUMPED, _MOST_NAMED = 256, 32, 4, 8
_WRONG = 0.5
"""Relative error of a result behind a hidden value: what INT8 alone costs is less, what an overflow costs is more."""


def overflow_of(experiment: Experiment, candidate: Candidate, bench: Bench) -> str:
    """What overflows, and the way on, in words; '' where nothing does. See `overflowing`."""
    nodes, make = overflowing(experiment, candidate, bench), described(candidate.target).profiler
    if not nodes or make is None:
        return ""
    named = "; ".join(f"{node}: {what}" for node, what in list(nodes.items())[:_MOST_NAMED])
    return f"on the device {len(nodes)} operators overflow ({named}). {make().way_on(tuple(nodes))}"


def overflowing(experiment: Experiment, candidate: Candidate, bench: Bench) -> Mapping[str, str]:
    """Node, or operator, that overflows → what of it; nothing where the target has nothing that would tell. Looked for
    once for an artifact and its data; the answer is kept in the store.

    Raises:
        CandidateError, ToolchainError: it cannot be compiled or run, or the device's tools are missing.
    """
    target, data = described(candidate.target), experiment.dataset
    if target.profiler is None or target.inside is None or experiment.model.is_language_model:
        return {}
    artifact, directory = artifact_of(experiment, candidate, bench)
    key = {
        "artifact": [file.sha256 for file in artifact.files],
        "toolchain": bench.toolchain(candidate),
        "data": [data.digest(split) for split in _SPLITS],
        "bins": candidate.sequence_bins,
        "code": closure_digest("workbench.evaluation.overflow", type(bench.target(candidate)).__module__),
    }
    at = experiment, candidate, directory, artifact
    found: Mapping[str, str] = bench.store.json_of("overflow", key, lambda: {"nodes": _hidden(*at) | _checked(*at)})[
        "nodes"
    ]
    return found


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
    found = ((name, array_of(tensor)) for name, tensor in constants(proto).items())
    return {name: magnitude(array) for name, array in found if array.dtype.kind == "f"}


def _feeds(experiment: Experiment, candidate: Candidate) -> Iterator[Feeds]:
    data, model = experiment.dataset.with_bins(candidate.sequence_bins), experiment.model
    rows = model.fixed_batch or candidate.serving.batch
    for split in _SPLITS:
        if data.interface.state:
            yield from timed_feeds(data, model, split, count=_STATE_FEEDS, batch=rows, seed=experiment.seed)
        else:
            yield from (filled(b.feeds, rows) if model.fixed_batch else b.feeds for b in data.batches(split, rows))


def _checked(experiment: Experiment, candidate: Candidate, directory: Path, artifact: Artifact) -> dict[str, str]:
    """Operator → what of it is not finite, by the device's check; what is infinite in float32 too is no overflow."""
    proto = load_graph(experiment.model)
    made, masks, found = {node.name: node.output for node in proto.graph.node}, Flow(proto).masks, dict[str, str]()
    every = _feeds(experiment, candidate)
    while some := list(itertools.islice(every, _FEEDS_A_RUN)):
        with scratch_folder("overflow-check") as to:
            told = overflows(directory, artifact, candidate, some, to, once=True).suspects
        run = open_target(REFERENCE).probe(experiment.model.path, [n for node in told for n in made.get(node, ())]).run
        exact = [item for feeds in some for item in run(feeds).items()] if told else []
        sound = masks.union(name for name, values in exact if not np.isfinite(values).all())
        found |= {node: what for node, what in told.items() if not sound.intersection(made.get(node, ()))}
    return found


def _hidden(experiment: Experiment, candidate: Candidate, directory: Path, artifact: Artifact) -> dict[str, str]:
    """Node inside of an operator → where, of those whose values no half holds, and the operator's result is wrong."""
    proto = load_graph(experiment.model)
    flow, largest, worst = Flow(proto), constant_magnitudes(proto), dict[str, Feeds]()
    beyond = any(value > LARGEST_HALF for value in largest.values())
    run = open_target(REFERENCE).probe(experiment.model.path, [n for n in flow.computed() if n not in flow.masks]).run
    for feeds in _feeds(experiment, candidate):
        for name, values in run(feeds).items():
            if (found := magnitude(values)) > largest.get(name, -1.0):
                largest[name], worst[name] = found, feeds
    over = [feeds for name, feeds in worst.items() if largest[name] > LARGEST_HALF or beyond]
    make, hiding = described(candidate.target).inside, dict[str, str]()
    assert make is not None  # the caller has looked
    if not over:
        return hiding
    with scratch_folder("overflow-dump") as to:
        dumped = list({id(feeds): feeds for feeds in over}.values())[:_MOST_DUMPED]
        for call in make().record(directory, artifact, experiment.model, dumped, to).calls:
            exact = run({spec.name: call.fed[spec.name].load().astype(spec.dtype) for spec in experiment.model.inputs})
            for operator in call.operators:
                hidden = hidden_beyond_half(operator, proto, largest, flow.masks)
                if hidden and any(_wrong(exact.get(t.tensor), t.floats()) for t in operator.outputs):
                    hiding |= dict.fromkeys(hidden, f"beyond half precision inside of {operator.name}")
    return hiding


def _wrong(exact: npt.NDArray[Any] | None, values: npt.NDArray[Any] | None) -> bool:
    if exact is None or values is None or values.size != exact.size or not np.isfinite(exact).all():
        return False
    difference = np.linalg.norm(values.reshape(exact.shape).astype(np.float64) - exact)
    return not np.isfinite(values).all() or float(difference) > _WRONG * float(np.linalg.norm(exact))


def magnitude(values: npt.NDArray[Any]) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
