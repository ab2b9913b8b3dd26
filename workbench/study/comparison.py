"""Compare two models layer by layer: where along the graph do their numbers part, and by how much.

Float against INT8, one engine against another or against the exact integers of a compiled form: the two only have to
share names of tensors, which every lowering of the workbench keeps. Both run batch by batch, side by side; of a tensor
only sums are kept, so memory does not grow with the data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

from workbench.graph.door import open_foreign
from workbench.graph.flow import Flow
from workbench.graph.read import load_graph, read_model
from workbench.inputs.metrics.score import common_part
from workbench.quantization.observe import Feeds
from workbench.study.compared import INT8, Comparison, Limits, TensorComparison, usual_limits
from workbench.targets import REFERENCE, described, descriptions, graph_targets, open_target
from workbench.values.documents.input_files import is_file
from workbench.values.errors import ConfigError, nearest
from workbench.values.model import Model, axes_text

if TYPE_CHECKING:  # they import this module
    from workbench.study.device_side import DeviceSide
    from workbench.study.meaning import DatasetScoring

Array = npt.NDArray[Any]
Run = Callable[[Feeds], dict[str, Array]]
"""One batch → the compared tensors by name."""

JUMP_SHARE = 0.5
"""A step counts as a jump when it adds at least this share of the largest step along the graph."""

FLOAT_NOISE = 1e-4
"""Relative error (80 dB) that different kernels for the same float32 operators may make; below is no jump."""

ONNX = "onnx"
"""What the float model's own side may be called, beside compiled files."""

_UNDONE = 0.25
_THREADS = 2


WORST = 1e5
"""The largest relative error that is told apart: beyond, there is no common signal left."""

MASKED = -9000.0
"""What a mask adds before a softmax is below: exporters write -1e4, -1e9, the lowest float or -inf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two models.

    Attributes:
        about: for people.
        engine: as `engine_of` names it.
        path: an ONNX file as the engine takes it (lowered, not compiled).
        device: what it gave on a device, compiled; then `path` is where that lies.
    """

    about: str
    engine: str
    path: Path
    device: DeviceSide | None = None


def engine_of(target: str) -> str:
    """What executes the target's lowered files on this machine."""
    return described(target).engine or target


def _engines() -> dict[str, str]:
    """Engine → the target that shows its numbers."""
    return {engine_of(target.name): target.name for target in graph_targets()}


def side_of(text: str) -> Side:
    """`FILE` or `ENGINE:FILE`; a file that only one target can have lowered is recognized, anything else is ONNX.

    Raises:
        ConfigError: no such engine or file.
    """
    engine, separator, rest = text.partition(":")
    engines = {**_engines(), ONNX: REFERENCE}
    if not separator or is_file(Path(text)):
        engine, rest = "", text
    elif engine not in engines:
        raise ConfigError(f"{engine!r} is not an engine.", key=text, hint=nearest(engine, engines))
    path = Path(rest)
    open_foreign(path)
    if not engine:
        proto = onnx.load(path, load_external_data=False)
        engine = next((engine_of(t.name) for t in descriptions() if t.recognizes and t.recognizes(proto)), REFERENCE)
    engine = REFERENCE if engine == ONNX else engine
    return Side(about=f"{path.name} in {engine}", engine=engine, path=path)


def compare(
    a: Side,
    b: Side,
    batches: Iterable[Feeds],
    *,
    data: str,
    limits: Limits | None = None,
    every: bool = False,
    scoring: DatasetScoring | None = None,
) -> Comparison:
    """Run both sides over the batches, side by side on two threads, and compare the tensors that both have.

    Args:
        limits: None for the usual ones of what is compared (`usual_limits`).
        scoring: told of both models' outputs, batch by batch.
        every: compare what every operator computes, not only what layers give and read, and the outputs; takes
            longer and more memory.

    Raises:
        ConfigError: they share no tensor or output, a tensor has two shapes, or there is no batch.
        MeasureError: an engine cannot load or run its model.
    """
    device = b.device
    limits = limits or (usual_limits(a.path, b.path) if device is None else device.limits())
    graph = load_graph(read_model(a.path))
    flow = Flow(graph)
    wanted = flow.computed() if every else flow.milestones()
    if device is not None:  # few results leave its operators, so every one of them counts
        wanted = [name for node in graph.graph.node for name in node.output if name in device.makers]
    nodes = onnx.load(b.path, load_external_data=False).graph.node if device is None else ()
    theirs = {name for node in nodes for name in node.output} if device is None else set(device.makers)
    shared = [name for name in wanted if name in theirs]
    if not any(name in flow.outputs for name in shared):
        raise ConfigError(
            f"{a.about} and {b.about} share no output ({', '.join(flow.outputs)} in the first).",
            hint="Compare two files made from the same float model.",
        )
    if device is None:
        _refuse_other_sizes(read_model(a.path), read_model(b.path))
    run_a, run_b = _runner(a, shared), _runner(b, shared)
    masked = flow.into_softmax if device is None else flow.masks
    sums = {name: Differences(masked=name in masked) for name in shared}
    resized: Counter[str] = Counter()
    count = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for feeds in batches:
            both = pool.submit(run_a, feeds), pool.submit(run_b, feeds)
            ours, others = both[0].result(), both[1].result()
            for name in [name for name in sums if name not in ours or name not in others]:
                del sums[name]  # an engine may be unable to show a tensor; what it cannot show is not compared
            if scoring is not None:
                scoring.add({n: ours[n] for n in flow.outputs if n in ours}, others)
            for name in sums:
                if device is not None and ours[name].size == others[name].size:
                    others[name] = others[name].reshape(ours[name].shape)  # views are no operators there
                x, y = ours[name], others[name]
                if x.shape != y.shape:  # along axes whose size depends on the data, the first positions are compared
                    if x.ndim != y.ndim or 0 in (*x.shape, *y.shape):
                        raise _other_shape(name, x.shape, y.shape)
                    ours[name], others[name] = common_part(x, y)
                    resized[name] += 1
            list(pool.map(lambda name, a=ours, b=others: sums[name].add(a[name], b[name]), sums))
            count += 1
    if scoring is not None and count:
        outputs = [name for name in flow.outputs if name in theirs]
        scoring.whole(lambda: _runner(a, outputs), lambda: _runner(b, outputs))
    if count == 0:
        raise ConfigError("there is nothing to compare.", hint="Give at least one batch of data.")
    return Comparison(
        a=a.about,
        b=b.about,
        data=data,
        batches=count,
        limits=limits,
        rows=_rows(graph, flow, sums, limits, resized),
        only_in_a=len(wanted) - len(sums),
        meaning=() if scoring is None else scoring.judgements(),
        unscored="" if scoring is None else scoring.failed,
    )


def _refuse_other_sizes(a: Model, b: Model) -> None:
    """Raises ConfigError for an output whose fixed sizes differ: these are no two forms of one model."""
    theirs = {spec.name: spec.shape for spec in b.outputs}
    for spec in a.outputs:
        ours, other = spec.shape, theirs.get(spec.name, spec.shape)
        pairs = zip(ours, other, strict=False)
        if len(ours) != len(other) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in pairs):
            raise _other_shape(spec.name, ours, other)


def _other_shape(name: str, ours: tuple[Any, ...], other: tuple[Any, ...]) -> ConfigError:
    rule = f"tensor {name!r} has shape {axes_text(ours)} in A and {axes_text(other)} in B."
    return ConfigError(rule, hint="Compare two forms of one model, with the same fixed dimensions.")


def _runner(side: Side, tensors: Sequence[str]) -> Run:
    """Tensors of numbers by name, as the probe of the engine's target shows them, or as the device left them."""
    if side.device is not None:
        return side.device.run
    session = open_target(_engines()[side.engine]).probe(side.path, tensors)

    def run_session(feeds: Feeds) -> dict[str, Array]:
        found = {name: np.asarray(array) for name, array in session.run(feeds).items()}
        return {name: array for name, array in found.items() if array.dtype.kind in "fiub"}

    return run_session


def reference_values(a: Side, device: DeviceSide, call: int, tensors: Sequence[str]) -> dict[str, Array]:
    """The float model's tensors for what a device was fed in one of its calls."""
    feeds = next(feeds for index, feeds in enumerate(device.feeds()) if index == call)
    found = _runner(a, tensors)(feeds)
    return {name: found[name] for name in tensors if name in found}


# --- how far two tensors lie apart, and what that says along the graph ---------------------------------------------


class Differences:
    """Running sums in float64 over one pair of tensors, A (the reference) and B.

    Args:
        masked: the tensor goes into a softmax: elements that both sides mask out are left out of every sum, since
            they are large and mean nothing.

    Attributes:
        elements: compared so far.
        not_finite: elements that are NaN or infinite in one of the two, or NaN in both. They are in no other sum;
            the same infinity in both counts as equal.
        largest: of |a - b|.
        magnitude: the largest |a| that is finite.
        whole: the tensor holds whole numbers.
        differing: elements that differ, where it does.
    """

    def __init__(self, *, masked: bool = False) -> None:
        self.elements = self.not_finite = self.differing = 0
        self.whole = False
        self.largest = self.magnitude = 0.0
        self._masked = masked
        self._aa = self._bb = self._dd = self._absolute = 0.0

    def add(self, a: Array, b: Array) -> None:
        """Take in two arrays of one shape, of any type of numbers."""
        if a.dtype.kind != "f":
            self.whole = True
            self.differing += int(np.count_nonzero(a != b))
        x, y = (np.asarray(values, np.float64).reshape(-1) for values in (a, b))
        if self._masked:
            seen = ~((x < MASKED) & (y < MASKED))  # NaN is below nothing
            x, y = x[seen], y[seen]
        finite = np.isfinite(x) & np.isfinite(y)
        self.magnitude = max(self.magnitude, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
        if not finite.all():
            self.not_finite += int(np.count_nonzero(~finite & (x != y)))  # NaN differs from NaN
            x, y = x[finite], y[finite]
        difference = np.abs(x - y)
        self.elements += x.size
        self._aa, self._bb = self._aa + float(x @ x), self._bb + float(y @ y)
        self._dd, self._absolute = self._dd + float(difference @ difference), self._absolute + float(difference.sum())
        self.largest = max(self.largest, float(difference.max(initial=0.0)))

    def cosine(self) -> float:
        """1 - cos = (|d|² - (|a| - |b|)²) / (2 |a| |b|) with d = a - b: exact where a·b would cancel."""
        a, b = math.sqrt(self._aa), math.sqrt(self._bb)
        if a == 0.0 or b == 0.0:
            return 1.0 if a == b and self.elements else 0.0
        return min(max(1.0 - (self._dd - (a - b) ** 2) / (2 * a * b), -1.0), 1.0)

    def mean_absolute(self) -> float:
        return self._absolute / max(self.elements, 1)

    def relative_error(self) -> float:
        """|a - b| / |a|, at most `WORST`; `WORST` itself where a value is not finite."""
        if self.not_finite:
            return WORST
        if self._dd == 0.0:
            return 0.0
        return min(math.sqrt(self._dd / self._aa), WORST) if self._aa > 0 else WORST


def _rows(
    graph: onnx.ModelProto,
    flow: Flow,
    sums: Mapping[str, Differences],
    limits: Limits,
    resized: Mapping[str, int],
) -> tuple[TensorComparison, ...]:
    own = {name: total.relative_error() for name, total in sums.items()}
    rescaled = _rescaled(flow, own)
    carried: dict[str, float] = {}  # every tensor → the relative error it carries, through tensors not compared
    drafts: list[tuple[str, onnx.NodeProto, float]] = []
    for node in graph.graph.node:
        before = max((carried.get(name, 0.0) for name in node.input), default=0.0)
        for name in node.output:
            carried[name] = before if name not in own or name in rescaled else own[name]
            if name in own:
                drafts.append((name, node, 0.0 if name in rescaled else max(own[name] - before, 0.0)))
    largest = max((added for _, _, added in drafts), default=0.0)
    rows = []
    for name, node, added in drafts:
        total, error, again = sums[name], own[name], resized.get(name, 0)
        if total.not_finite or (again and limits.about != INT8.about):
            within = False
        elif total.whole:
            within = total.differing <= limits.differing * total.elements
        else:
            within = limits.met(total.cosine(), total.largest, total.mean_absolute(), error)
        rows.append(
            TensorComparison(
                tensor=name,
                node=node.name,
                op_type=node.op_type,
                is_output=name in flow.outputs,
                elements=total.elements,
                not_finite=total.not_finite,
                cosine=total.cosine(),
                max_abs=total.largest,
                mae=total.mean_absolute(),
                sqnr_db=None if error == 0.0 else -20 * math.log10(error),
                relative_error=error,
                added_error=added,
                jump=added > FLOAT_NOISE and added >= JUMP_SHARE * largest,
                rescaled=name in rescaled,
                within_limits=within,
                resized=again,
                differing=total.differing if total.whole else None,
                magnitude=total.magnitude,
            )
        )
    return tuple(rows)


def _rescaled(flow: Flow, own: Mapping[str, float]) -> set[str]:
    """Tensors whose difference every reader undoes: layers by their weights, or operators whose result is rescaled."""
    found: set[str] = set()
    for name in reversed(list(own)):  # readers stand behind what they read
        readers = flow.readers(name)
        if own[name] <= FLOAT_NOISE or name in flow.outputs or not readers:
            continue
        if all(
            reader in found or (reader in own and reader in flow.weighted and own[reader] < _UNDONE * own[name])
            for reader in readers
        ):
            found.add(name)
    return found
