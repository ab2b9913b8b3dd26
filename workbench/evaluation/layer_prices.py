"""What each layer costs in float on the device: its time in the float files less that in the INT8 ones.

Both are profiled on the same feeds. A compiler fuses what is beside a layer into the layer's kernel, and does so
otherwise in INT8, so kernels are mapped to nodes and what belongs together in either file is compared as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

from onnx import ModelProto

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of, lowered_file
from workbench.evaluation.replay import kernels_of
from workbench.graph.nodes import reached
from workbench.graph.read import load_graph, read_model
from workbench.inputs.experiment import Experiment
from workbench.targets.base import Feeds
from workbench.targets.profiler import KernelTime
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.evidence import Evidence

CALLS = 20
"""Of each file, under the profiler; a kernel's time is the median over them."""
_NEAR = 6
"""Nodes between a layer and the dequantization behind it, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Where the times of layers come from.

    Attributes:
        by: 'device' for a profile of the float and the INT8 files on the target; 'host' for the kernels of ONNX Runtime
            on this machine, one layer at a time, one thread, the fastest of some rounds.
        level: how well they are known; 'modelled' on an emulated device.
        call_us: the float model's whole call; on a device that of its kernels alone.
        batch, length: of what was timed; on a device those that the files were compiled for, length 0 where samples are
            no sequences.
        unpriced: layers that could not be priced; their times are equal and cost nothing.
    """

    by: Literal["device", "host"]
    level: Evidence
    call_us: float
    batch: int
    length: int
    unpriced: tuple[str, ...] = ()


def layer_prices(
    experiment: Experiment, bench: Bench, quantization: Quantization, feeds: Feeds, layers: Sequence[str]
) -> tuple[dict[str, tuple[float, float]], Prices]:
    """Compile the float baseline and the recipe for the one shape of these feeds, and profile both.

    Layers that the recipe leaves in float are priced by the same recipe with products of activations in INT8.

    Returns:
        layer → microseconds of one call (in the float files, in the INT8 ones), its quantization and what is fused with
        it included, (0, 0) where it is not priced; and whose times they are.

    Args:
        quantization: a static recipe; its `keep_float` is not looked at.
        layers: names of all layers that can be INT8.

    Raises:
        ConfigError: the target has no profiler.
        CandidateError, ToolchainError: a file cannot be compiled or profiled.
    """
    base = experiment.baseline
    first = next(iter(feeds.values()))
    texts = experiment.dataset.preprocessor is not None or bool(base.compile.compiled_lengths())
    length = int(first.shape[1]) if texts and first.ndim > 1 else 0
    lengths = base.compile.compiled_lengths()
    held = (min((one for one in lengths if one >= length), default=lengths[-1]),) if lengths else ()
    plain = replace(base, compile=base.compile.for_shapes((base.serving.batch,), held))
    everything = replace(quantization, keep_float=0, keep_float_unit=None, sensitivity=None)
    recipes = [everything]
    if not everything.attention_matmul:
        recipes.append(replace(everything, attention_matmul=True, activation_symmetric=True))
    kernels, modelled, lowered = _profiled(experiment, bench, plain, feeds)
    known = {node.name for node in lowered.graph.node}
    found: dict[str, tuple[float, float]] = {}
    for number, recipe in enumerate(recipes):
        left = [name for name in layers if name not in found]
        if not left:
            break
        try:
            quantized, _, int8 = _profiled(experiment, bench, replace(plain, quantization=recipe), feeds)
        except (CandidateError, ConfigError):
            if number == 0:
                raise
            break  # the target has no INT8 for products of activations: those layers have no price
        owners = owners_of(int8, frozenset(layers), known)
        priced = prices(kernels, quantized, owners, frozenset(layers))
        quantized_now = {layer for owned in owners.values() for layer in owned}
        found |= {name: priced[name] for name in left if name in quantized_now and name in priced}
    priced_by = Prices(
        by="device",
        level="modelled" if modelled else "measured",
        call_us=sum(kernel.call_us for kernel in kernels),
        batch=base.serving.batch,
        length=held[0] if held else length,
        unpriced=tuple(name for name in layers if name not in found),
    )
    return {name: found.get(name, (0.0, 0.0)) for name in layers}, priced_by


def prices(
    plain: Sequence[KernelTime],
    quantized: Sequence[KernelTime],
    owners: Mapping[str, Sequence[str]],
    layers: AbstractSet[str],
) -> dict[str, tuple[float, float]]:
    """Layer → (µs in float, µs in INT8).

    A kernel belongs to the layers whose own nodes
    are in it; else to those of the group it is in, where nodes that share a kernel in either file are one group; else,
    quantization alone, to the layers it is for. Several share it equally.

    Args:
        owners: node that quantization added → the layers it is for.
        layers: names of nodes.
    """
    from scipy.cluster.hierarchy import DisjointSet  # it takes longer to import than all of this

    groups = DisjointSet({node for kernel in (*plain, *quantized) for node in kernel.nodes})
    for kernel in (*plain, *quantized):
        for node in kernel.nodes:
            groups.merge(kernel.nodes[0], node)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for side, kernels in enumerate((plain, quantized)):
        for kernel in kernels:
            own: list[str] = [node for node in kernel.nodes if node in layers]
            if not own:
                own = sorted({node for one in kernel.nodes[:1] for node in groups.subset(one) if node in layers})
            if not own:
                own = sorted({layer for node in kernel.nodes for layer in owners.get(node, ())})
            for layer in own:
                sums[layer][side] += kernel.call_us / len(own)
    return {layer: (both[0], both[1]) for layer, both in sums.items()}


def owners_of(lowered: ModelProto, layers: AbstractSet[str], known: AbstractSet[str]) -> dict[str, tuple[str, ...]]:
    """Nodes that quantization added → layers they are for: those that read what it quantizes, else the one whose
    result it turns back.

    Args:
        known: nodes of the float graph.
    """
    nodes = {node.name: node for node in lowered.graph.node}
    maker = {output: node.name for node in lowered.graph.node for output in node.output}
    readers: dict[str, list[str]] = defaultdict(list)
    for node in lowered.graph.node:
        for name in node.input:
            readers[name].append(node.name)

    def onward(name: str) -> list[str]:
        return [reader for output in nodes[name].output for reader in readers[output]]

    def backward(name: str) -> list[str]:
        return [maker[tensor] for tensor in nodes[name].input if tensor in maker]

    found = {}
    for name in nodes:
        if name in known:
            continue
        ahead = _reached(name, layers, onward, through=nodes.keys() - known)
        behind = _reached(name, layers, backward, through=nodes.keys())
        owned = ahead or behind[:1]
        if owned:
            found[name] = tuple(owned)
    return found


def _reached(
    start: str, goals: AbstractSet[str], step: Callable[[str], list[str]], *, through: AbstractSet[str]
) -> list[str]:
    """Goals in the order of their distance, along nodes that may be passed."""

    def onward(at: tuple[str, int]) -> list[tuple[str, int]]:
        name, far = at
        passed = name == start or (name in through and name not in goals)
        return [(one, far + 1) for one in step(name)] if passed and far <= _NEAR else []

    return [name for name in dict.fromkeys(name for name, _ in reached([(start, 0)], onward)) if name in goals]


def _profiled(
    experiment: Experiment, bench: Bench, candidate: Candidate, feeds: Feeds
) -> tuple[tuple[KernelTime, ...], bool, ModelProto]:
    """Kernels of one call, whether they are modelled, and the graph that was compiled."""
    artifact, directory = artifact_of(experiment, candidate, bench)
    kernels = kernels_of(directory, artifact, candidate, feeds, calls=CALLS)
    lowered = load_graph(read_model(lowered_file(experiment, candidate, bench)))
    return kernels, bench.toolchain(candidate).emulated, lowered
