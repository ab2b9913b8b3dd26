"""Repair of a candidate whose results on its device overflow or are off: fault by fault, each as cheaply as it goes.

    cheapest so far ─► run with everything dumped ─► outputs within limits? ─yes─► overflow check of all samples
         ▲                                                  │ no                        │ nothing: done
         └─ each change compiled and profiled ◄─ changes for the first bad operator ◄───┘ names operators

A candidate costs what its kernels take of one call, by the target's profiler. The cheapest one is always looked at
next, so that the first whole one is the cheapest of those that the changes lead to, as far as a change never makes
kernels quicker. One shape stands for all: the batch that is called, at the longest length.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.overflow import overflowing
from workbench.evaluation.profiling import kernels_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.space.writer import space_yaml, with_preset
from workbench.study.compared import Comparison
from workbench.study.comparison import Side, compare
from workbench.study.device_side import DeviceSide, looker, prefixes
from workbench.study.first_bad import bad_operator
from workbench.study.layers import without_layers
from workbench.study.limits import Limits
from workbench.targets import REFERENCE, described, open_target
from workbench.targets.inside import Change, DeviceCall, DeviceOperator
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import encode
from workbench.values.errors import CandidateError, ConfigError, MeasureError
from workbench.values.evidence import Evidence
from workbench.values.system.files import write_json_atomically, write_text_atomically
from workbench.values.system.scratch import scratch_folder

MOST_COMPILED = 40
"""Candidates that are compiled; three faults with three changes each take fewer."""
_CALLS = 5
"""Under the profiler; a kernel's time is the median over them."""
_MOST_HOPS = 4
"""Operators around a fault that a change is widened by, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault, and the change that was made for it.

    Attributes:
        operator, op_type, nodes, tensor: of the first bad operator.
        fault: what is wrong there, in words.
        setting, what: of the change.
        call_us: what the kernels of a call take with it.
    """

    operator: str
    op_type: str
    nodes: tuple[str, ...]
    tensor: str
    fault: str
    setting: str
    what: str
    call_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Attributes:
    candidate: within the limits, without an overflow in any sample; the one that was asked about where that was whole.
    before_us, call_us: what the kernels of one call take, before and now.
    level: how well that is known: 'modelled' on an emulated device.
    compiled: candidates that were compiled for it.
    """

    candidate: Candidate
    steps: tuple[Step, ...]
    before_us: float
    call_us: float
    level: Evidence
    compiled: int
    limits: str


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """Attributes: key: tells whether a change left it as it was. operators: to be computed otherwise."""

    key: tuple[str, str]
    operator: DeviceOperator
    call: DeviceCall
    words: str
    operators: tuple[DeviceOperator, ...]
    layers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """Attributes: fault, hops, wider: of its last change: what for, how far around, and whether it can be wider."""

    candidate: Candidate
    steps: tuple[Step, ...] = ()
    fault: _Fault | None = None
    hops: int = 0
    wider: bool = False


def repair(
    experiment: Experiment,
    bench: Bench,
    candidate: Candidate,
    *,
    samples: int,
    limits: Limits | None = None,
    most: int = MOST_COMPILED,
    report: Callable[[str], None] = lambda line: None,
) -> Repair:
    """Look for the cheapest candidate whose outputs on the device are within the limits and in which nothing overflows.

    Args:
        samples: of the validation split that are compared; the overflow check takes all.
        limits: None for the usual ones of what the candidate computes in.
        most: candidates that are compiled at most.
        report: told in a line what is looked at.

    Raises:
        ConfigError: the target cannot be looked into, or the float model itself has no numbers.
        MeasureError: no change does; the message has the fault that stays, and what to do.
    """
    target = described(candidate.target)
    prefix = next((name for name, known in prefixes().items() if known == candidate.target), None)
    if target.profiler is None or prefix is None or experiment.model.is_language_model:
        raise ConfigError(
            f"{candidate.target} shows nobody what its operators compute, so that no fault is found there.",
            key="--candidate",
            hint=f"Choose a candidate of {', '.join(prefixes().values()) or 'a target with a device'}; "
            "`workbench compare` takes the others layer by layer.",
        )
    looks = looker(candidate.target)
    batch = experiment.model.fixed_batch or candidate.serving.batch
    shape = candidate.compile.compiled_lengths()[-1:]
    data = experiment.dataset.with_bins(shape) if shape else experiment.dataset
    feeds = list(calibration_feeds(data, experiment.model, batch=batch, samples=samples, split="validation"))
    _refuse_unsound(experiment, feeds)
    layers = [layer.name for layer in quantizable_layers(normalized(load_graph(experiment.model)))]

    def one_shape(of: Candidate) -> Candidate:
        return replace(of, compile=of.compile.for_shapes((batch,), shape)) if of.compile.compiles_shapes else of

    def call_us(made: Candidate) -> float:
        plain = one_shape(made)
        artifact, directory = artifact_of(experiment, plain, bench)
        return sum(kernel.call_us for kernel in kernels_of(directory, artifact, plain, feeds[0], calls=_CALLS))

    def seen(made: Candidate) -> tuple[Comparison, _Fault | None]:
        """What is wrong with it on the device; None for nothing."""
        plain = one_shape(made)
        artifact, directory = artifact_of(experiment, plain, bench)
        with scratch_folder("repair") as to:
            recording = looks.record(directory, artifact, experiment.model, feeds, to)
            device = DeviceSide(recording, experiment.model)
            a = Side(about="float", engine=REFERENCE, path=experiment.model.path)
            b = Side(about=made.short_id, engine=prefix, path=recording.folder, device=device)
            found = compare(a, b, device.feeds(), data="validation split", limits=limits)
            if not found.passed and (bad := bad_operator(found, a, device)) is not None:
                error = f"{bad.row.not_finite} values not finite" if bad.row.not_finite else ""
                return found, _Fault(
                    key=(bad.row.tensor, bad.cause),
                    operator=bad.operator,
                    call=bad.call,
                    words=f"{bad.cause}: {error or f'off by {bad.row.relative_error:.3g} of the signal'}",
                    operators=bad.kept,
                    layers=bad.layers if bad.cause == "integers" else _quantized(bad.kept),
                )
            over = overflowing(experiment, plain, bench)
            return found, _overflowed(over, recording.calls[0]) if over else None

    report("compiling and comparing the candidate as it is")
    known = {candidate.id}
    before_us = call_us(candidate)
    order = itertools.count()
    waiting = [(before_us, next(order), _Attempt(candidate=candidate))]
    while waiting:
        took_us, _, attempt = heapq.heappop(waiting)
        found, fault = seen(attempt.candidate)
        limits = limits or found.limits  # those of the candidate as it was: float32 in it does not make them stricter
        if fault is None:
            _check_all_shapes(experiment, attempt.candidate, one_shape(attempt.candidate), bench)
            return Repair(
                candidate=attempt.candidate,
                steps=attempt.steps,
                before_us=before_us,
                call_us=took_us,
                level="modelled" if bench.toolchain(candidate).emulated else "measured",
                compiled=len(known),
                limits=str(limits),
            )
        report(f"{_count(len(attempt.steps), 'change')}, {took_us:.1f} us a call: {_named(fault)}, {fault.words}")
        stays, again = fault, attempt.fault is not None and fault.key == attempt.fault.key
        hops, steps = (attempt.hops + 1, attempt.steps[:-1]) if again else (0, attempt.steps)
        if again and not (attempt.wider and hops <= _MOST_HOPS):
            continue
        around = _around(fault, hops)
        offered = [c for c in looks.changes(attempt.candidate, around) if c.wider or not again] if around else []
        offered += [] if again else _skipped(attempt.candidate, fault, layers, experiment)
        for change in offered:
            if change.candidate.id in known or len(known) >= most:
                continue
            known.add(change.candidate.id)
            said = f"  {change.setting}: {change.what}: "
            try:
                made_us = call_us(change.candidate)
            except CandidateError as error:
                report(f"{said}cannot be compiled or run ({error})")
                continue
            report(f"{said}{made_us:.1f} us a call")
            step = Step(
                operator=fault.operator.name,
                op_type=fault.operator.op_type,
                nodes=fault.operator.float_nodes,
                tensor=fault.key[0],
                fault=fault.words,
                setting=change.setting,
                what=change.what,
                call_us=made_us,
            )
            made = _Attempt(
                candidate=change.candidate, steps=(*steps, step), fault=fault, hops=hops, wider=change.wider
            )
            heapq.heappush(waiting, (made_us, next(order), made))
    single = (*stays.operator.float_nodes, stays.operator.name)[0]
    raise MeasureError(
        f"none of {len(known) - 1} changed candidates is within the limits ({limits}): {_named(stays)} stays, "
        f"{stays.words}. {'Let more be compiled with --most. ' if len(known) >= most else ''}Look at it by itself: "
        f"workbench compare float om:CANDIDATE --experiment {experiment.path} --single-op {single!r}. Where "
        "the difference does no harm, widen the limits (--error, --cosine); else scale these values down in the model."
    )


def repair_lines(found: Repair) -> list[str]:
    """For the terminal: each fault with its change, and what all of it costs."""
    if not found.steps:
        return [f"nothing to repair: within the limits ({found.limits}), and nothing overflows in any sample"]
    lines = [f"{_count(len(found.steps), 'fault')} mended; {found.compiled} candidates were compiled for it"]
    for number, step in enumerate(found.steps, 1):
        nodes = f"; nodes {', '.join(step.nodes[:4])}{' …' if len(step.nodes) > 4 else ''}" if step.nodes else ""
        lines += [
            f"  {number}. {step.operator} ({step.op_type}{nodes}), {step.fault}",
            f"     {step.setting}: {step.what}",
        ]
    share = 100 * (found.call_us / found.before_us - 1)
    times = f"{found.before_us:.1f} us before, {found.call_us:.1f} us now ({share:+.1f} %, {found.level})"
    return [
        *lines,
        f"within the limits now ({found.limits}), and nothing overflows in any sample of validation and holdout",
        f"kernels of one call: {times}",
    ]


def write_repair(found: Repair, asked: Candidate, experiment: Experiment, folder: Path) -> tuple[str, ...]:
    """Write all that was found, the candidate, and the search space with it as a preset; says how to go on.

    The space lies beside the experiment's, and overwrites nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, candidate = folder / "candidate.json", found.candidate
    write_json_atomically(file, candidate.to_json())
    write_json_atomically(folder / "repair.json", {"version": 1, "asked": asked.id, **encode(found)})
    lines = [f"wrote {file}", f"measure it:   workbench evaluate {experiment.path} --candidate {file}"]
    served = experiment.space.served_bins
    space = experiment.space if served is None else served.file
    stem = space.path.with_name(f"{space.path.stem}-repaired-{candidate.short_id}")
    place, cfg = stem.with_suffix(".yaml"), stem.with_suffix(".cfg")
    made = with_preset(space, candidate, f"repaired-{candidate.short_id}", based_on=asked, configuration=cfg.name)
    if made is None:
        return (*lines, f"{space.path.name} has no choices that say what it is, so that no preset was written")
    if candidate.quantization.cfg is not None and cfg.name in made.configurations:
        write_text_atomically(cfg, candidate.quantization.cfg)
    about = (f"{space.path.name} with the candidate that `workbench repair` found as its first preset.",)
    write_text_atomically(place, space_yaml(made, about=about))
    how = f"search_space: {os.path.relpath(place, experiment.path.parent)} in a copy of {experiment.path.name}"
    return (*lines, f"wrote {place}", f"search on:    {how}, then workbench sweep")


def _check_all_shapes(experiment: Experiment, candidate: Candidate, looked_at: Candidate, bench: Bench) -> None:
    """Raises MeasureError where a file for another shape than the one that was looked at overflows."""
    if candidate.id != looked_at.id and (over := overflowing(experiment, candidate, bench)):
        node, what = next(iter(over.items()))
        raise MeasureError(
            f"{candidate.short_id} is whole at the batch that is called and the longest length; in a file for another "
            f"shape {node} overflows: {what}. Compile fewer shapes, or keep that node with what reads its results."
        )


def _refuse_unsound(experiment: Experiment, feeds: Sequence[Feeds]) -> None:
    """Raises ConfigError where the float model's own outputs are no numbers, which no compiler mends."""
    names = [spec.name for spec in experiment.model.outputs]
    run = open_target(REFERENCE).probe(experiment.model.path, names).run
    for each in feeds:
        for name, values in run(each).items():
            if values.dtype.kind == "f" and (broken := int((~np.isfinite(values)).sum())):
                raise ConfigError(
                    f"{broken} of {values.size} values of output {name!r} are not finite in float32 already, so "
                    "that no setting of a compiler mends them.",
                    file=experiment.model.path,
                    hint="Look for the first such tensor with `workbench compare MODEL MODEL --all`, and export the "
                    "model again.",
                )


def _quantized(operators: Sequence[DeviceOperator]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(layer for operator in operators for layer in operator.layers))


def _overflowed(nodes: Mapping[str, str], call: DeviceCall) -> _Fault:
    """A fault that only the device's own check of all samples shows: those operators, and who reads their results."""
    own = [o for o in call.operators if o.name in nodes or not nodes.keys().isdisjoint((*o.float_nodes, *o.nodes))]
    if not own:
        raise MeasureError(
            f"{next(iter(nodes))} overflows ({next(iter(nodes.values()))}), and no operator of the dump is called so.",
        )
    every = (*own, *_neighbours(own, call, onward=True))
    words = f"overflow: {next(iter(nodes.values()))}"
    key = (own[0].name, "overflow")
    return _Fault(key=key, operator=own[0], call=call, words=words, operators=every, layers=_quantized(every))


def _around(fault: _Fault, hops: int) -> tuple[DeviceOperator, ...]:
    """A fault's operators with those that they read, so many steps back; of overflows also who reads their results."""
    found = list(fault.operators)
    for _ in range(hops):
        found += _neighbours(found, fault.call, onward=False)
        if fault.key[1] != "rounding":
            found += _neighbours(found, fault.call, onward=True)
    return tuple(found)


def _neighbours(operators: Sequence[DeviceOperator], call: DeviceCall, *, onward: bool) -> tuple[DeviceOperator, ...]:
    """Next operators that cover nodes; what the compiler put in between is passed."""
    names, edge = {o.name for o in operators}, list(operators)
    found: list[DeviceOperator] = []
    while edge:
        at = edge.pop()
        makers = {t.maker for t in at.inputs}
        for one in call.operators:
            beside = any(t.maker == at.name for t in one.inputs) if onward else one.name in makers
            if not beside or one.name in names:
                continue
            names.add(one.name)
            (found if one.float_nodes else edge).append(one)
    return tuple(found)


def _skipped(candidate: Candidate, fault: _Fault, layers: Sequence[str], experiment: Experiment) -> Iterator[Change]:
    """The fault's quantized layers in float, beside those that are in float already."""
    quantization = candidate.quantization
    if (
        quantization.scheme not in ("static", "cfg")
        or not fault.layers
        or (quantization.cfg or "").lstrip().startswith("{")
    ):
        return
    quantized = set(_quantized(fault.call.operators))
    left = [name for name in layers if name in quantized and name not in fault.layers]
    what = f"{_count(len(fault.layers), 'layer')} in float ({', '.join(fault.layers[:4])})"
    if not left:
        yield Change(
            candidate=replace(candidate, quantization=Quantization()),
            setting="quantization.scheme",
            what=f"{what}, and no INT8 layer is left",
        )
        return
    batches = -(-experiment.calibration.samples // experiment.calibration.batch)
    made = without_layers(quantization, [name for name in layers if name not in left], batches=batches)
    yield Change(candidate=replace(candidate, quantization=made), setting="quantization.cfg", what=what)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(fault: _Fault) -> str:
    nodes = ", ".join(fault.operator.float_nodes[:4])
    return f"{fault.operator.name} ({fault.operator.op_type}{f'; {nodes}' if nodes else ''})"
