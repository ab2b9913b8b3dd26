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
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.overflow import overflowing
from workbench.evaluation.replay import kernels_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.space.writer import space_yaml, with_preset
from workbench.study.compared import Limits
from workbench.study.comparison import Side, compare
from workbench.study.device_side import DeviceSide, first_bad, looker, prefixes
from workbench.study.layers import without_layers
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
_CALLS, _MOST_HOPS = 5, 4
"""Calls under the profiler; operators around a fault that a change is widened by, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault, and the change that was made for it.

    Attributes:
        operator, fault: the first bad operator with the nodes that it covers, and what is wrong there, in words.
        setting, what: of the change.
        call_us: what the kernels of a call take with it.
    """

    operator: str
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
    """Attributes: key: a tensor or an operator, and what is wrong with it. operators: to be computed otherwise."""

    key: tuple[str, str]
    operator: DeviceOperator
    words: str
    operators: tuple[DeviceOperator, ...]
    layers: tuple[str, ...]
    call: DeviceCall

    @property
    def named(self) -> str:
        nodes = ", ".join(self.operator.float_nodes[:4])
        return f"{self.operator.name} ({self.operator.op_type}{f'; {nodes}' if nodes else ''})"


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """Attributes: key, hops, wider: of its last change: for which fault, how far around it, and may it be wider."""

    candidate: Candidate
    steps: tuple[Step, ...] = ()
    key: tuple[str, str] | None = None
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
    name, model = candidate.target, experiment.model
    if described(name).profiler is None or name not in prefixes().values() or model.is_language_model:
        raise ConfigError(
            f"{name} shows nobody what its operators compute, so that no fault is found there.",
            key="--candidate",
            hint=f"Choose one of {', '.join(prefixes().values())}; `workbench compare` takes the others by layer.",
        )
    batch = model.fixed_batch or candidate.serving.batch
    longest = candidate.compile.compiled_lengths()[-1:]
    data = experiment.dataset.with_bins(longest) if longest else experiment.dataset
    feeds = list(calibration_feeds(data, model, batch=batch, samples=samples, split="validation"))
    _refuse_unsound(experiment, feeds)

    def one_shape(of: Candidate) -> Candidate:
        return replace(of, compile=of.compile.for_shapes((batch,), longest)) if of.compile.compiles_shapes else of

    def call_us(made: Candidate) -> float:
        plain = one_shape(made)
        artifact, directory = artifact_of(experiment, plain, bench)
        return sum(kernel.call_us for kernel in kernels_of(directory, artifact, plain, feeds[0], calls=_CALLS))

    def looked_at(made: Candidate) -> tuple[Limits, _Fault | None]:
        artifact, directory = artifact_of(experiment, one_shape(made), bench)
        with scratch_folder("repair") as to:
            looks = looker(name)
            device = DeviceSide(looks.record(directory, artifact, model, feeds, to), model)
            a = Side(about="float", engine=REFERENCE, path=model.path)
            b = Side(about=made.short_id, engine=name, path=to, device=device)
            found = compare(a, b, device.feeds(), data="validation split", limits=limits)
            bad = None if found.passed else first_bad(found, a, device, looks, to / "first-bad")
            calls = device.recording.calls
            if bad is None:
                over = overflowing(experiment, one_shape(made), bench)
                return found.limits, _fault(("", "overflow"), tuple(over), (), over, calls[0]) if over else None
            off = f"off by {bad.relative_error:.3g} of the signal"
            wrong = f"{bad.not_finite} values not finite" if bad.not_finite else off
            key, layers = (bad.tensor, bad.cause), bad.layers if bad.cause == "integers" else ()
            call = next(one for one in calls if any(o.name == bad.operator for o in one.operators))
            return found.limits, _fault(key, bad.kept, layers, {bad.operator: wrong}, call)

    report("compiling and comparing the candidate as it is")
    known, order = {candidate.id}, itertools.count()
    before_us = call_us(candidate)
    waiting = [(before_us, next(order), _Attempt(candidate=candidate))]
    layers = [layer.name for layer in quantizable_layers(normalized(load_graph(model)))]
    batches = -(-experiment.calibration.samples // experiment.calibration.batch)
    while waiting:
        took_us, _, attempt = heapq.heappop(waiting)
        usual, fault = looked_at(attempt.candidate)
        limits = limits or usual  # those of the candidate as it was: float32 in it does not make them stricter
        if fault is None:
            whole = attempt.candidate
            if whole.id != one_shape(whole).id and (over := overflowing(experiment, whole, bench)):
                node, what = next(iter(over.items()))
                raise MeasureError(
                    f"{whole.short_id} is whole at the batch that is called and the longest length; in a file for "
                    f"another shape {node} overflows: {what}. Compile fewer shapes, or keep that node with what reads "
                    "its results."
                )
            return Repair(
                candidate=whole,
                steps=attempt.steps,
                before_us=before_us,
                call_us=took_us,
                level="modelled" if bench.toolchain(candidate).emulated else "measured",
                compiled=len(known),
                limits=str(limits),
            )
        report(f"{_count(len(attempt.steps), 'change')}, {took_us:.1f} us a call: {fault.named}, {fault.words}")
        stays, again = fault, fault.key == attempt.key
        hops, steps = (attempt.hops + 1, attempt.steps[:-1]) if again else (0, attempt.steps)
        if again and not (attempt.wider and hops <= _MOST_HOPS):
            continue
        around = _around(fault, hops)
        offered = [c for c in looker(name).changes(attempt.candidate, around) if c.wider or not again] if around else []
        offered += [] if again else _skipped(attempt.candidate, fault, layers, batches)
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
            words = {"operator": fault.named, "fault": fault.words, "setting": change.setting, "what": change.what}
            done = (*steps, Step(**words, call_us=made_us))
            made = _Attempt(candidate=change.candidate, steps=done, key=fault.key, hops=hops, wider=change.wider)
            heapq.heappush(waiting, (made_us, next(order), made))
    raise MeasureError(
        f"none of {len(known) - 1} changed candidates is within the limits ({limits}): {stays.named} stays, "
        f"{stays.words}. {'Let more be compiled with --most. ' if len(known) >= most else ''}Look at it: "
        f"workbench compare float om:CANDIDATE --experiment {experiment.path}. Where "
        "the difference does no harm, widen the limits (--error, --cosine); else scale these values down in the model."
    )


def repair_lines(found: Repair) -> list[str]:
    """For the terminal: each fault with its change, and what all of it costs."""
    if not found.steps:
        return [f"nothing to repair: within the limits ({found.limits}), and nothing overflows in any sample"]
    lines = [f"{_count(len(found.steps), 'fault')} mended; {found.compiled} candidates were compiled for it"]
    for number, step in enumerate(found.steps, 1):
        lines += [f"  {number}. {step.operator}, {step.fault}", f"     {step.setting}: {step.what}"]
    share = 100 * (found.call_us / found.before_us - 1)
    return [
        *lines,
        f"within the limits now ({found.limits}), and nothing overflows in any sample of validation and holdout",
        f"kernels of one call: {found.before_us:.1f} us, now {found.call_us:.1f} us ({share:+.1f} %, {found.level})",
    ]


def write_repair(found: Repair, asked: Candidate, experiment: Experiment, folder: Path) -> tuple[str, ...]:
    """Write all that was found, the candidate, and the search space with it as a preset, which a copy of the experiment
    names; of the baseline it becomes the baseline, as nothing is measured beside a broken one. Says how to go on."""
    folder.mkdir(parents=True, exist_ok=True)
    file, candidate, space = folder / "candidate.json", found.candidate, experiment.space
    write_json_atomically(file, candidate.to_json())
    write_json_atomically(folder / "repair.json", {"version": 1, "asked": asked.id, **encode(found)})
    name = f"repaired-{candidate.short_id}"
    place, copy = (one.with_name(f"{one.stem}-{name}.yaml") for one in (space.path, experiment.path))
    cfg, default = place.with_suffix(".cfg"), asked.id == experiment.baseline.id
    made = with_preset(space, candidate, name, based_on=asked, default=default, configuration=cfg.name)
    if made is None:
        no_preset = f"{space.path.name} has no choices that say what it is, so that no preset was written"
        return (f"wrote {file}", no_preset, f"next: workbench evaluate {experiment.path} --candidate {file}")
    if text := made.configurations.get(cfg.name):
        write_text_atomically(cfg, text)
    about = f"{space.path.name} with the candidate that `workbench repair` found as its first preset."
    write_text_atomically(place, space_yaml(made, about=(about,)))
    text = experiment.path.read_text(encoding="utf-8")
    named = {"name": f"{experiment.name}-{name}", "search_space": os.path.relpath(place, copy.parent)}
    for key, value in named.items():
        line = f"{key}: {value}".replace("\\", "\\\\")  # a backslash means itself
        text = re.sub(rf"^{key}:.*$", line, text, count=1, flags=re.MULTILINE)
    write_text_atomically(copy, text)
    wrote = [f"wrote {one}" for one in (file, place, copy)]
    return (*wrote, f"next: workbench evaluate {copy} --candidate {file}; or workbench sweep {copy}")


def _refuse_unsound(experiment: Experiment, feeds: Sequence[Feeds]) -> None:
    """Raises ConfigError where the float model's own outputs are no numbers, which no compiler mends."""
    run = open_target(REFERENCE).probe(experiment.model.path, [spec.name for spec in experiment.model.outputs]).run
    for name, values in (item for each in feeds for item in run(each).items()):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ConfigError(
                f"{int((~np.isfinite(values)).sum())} of {values.size} values of output {name!r} are not finite in "
                "float32 already, so that no setting of a compiler mends them.",
                file=experiment.model.path,
                hint="`workbench compare MODEL MODEL --all` shows the first such tensor; export the model again.",
            )


def _fault(
    key: tuple[str, str], kept: Sequence[str], layers: tuple[str, ...], wrong: Mapping[str, str], call: DeviceCall
) -> _Fault:
    """Of operators, or nodes that some cover; with an overflow that only the device's check of all samples shows, what
    reads their results is kept too."""
    own = {name: [o for o in call.operators if name in (o.name, *o.float_nodes, *o.nodes)] for name in (*wrong, *kept)}
    first, words = next(iter(wrong.items()))
    if not own[first]:
        raise MeasureError(f"{first} is wrong ({words}), and no operator of the dump is called so.")
    found = tuple({o.name: o for name in kept for o in own[name]}.values())
    if key[1] == "overflow":
        key, found = (first, key[1]), (*found, *_beside(found, call, onward=True))
    quantized = tuple(dict.fromkeys(layer for operator in found for layer in operator.layers))
    return _Fault(
        key=key,
        operator=own[first][0],
        words=f"{key[1]}: {words}",
        operators=found,
        layers=layers or quantized,
        call=call,
    )


def _around(fault: _Fault, hops: int) -> tuple[DeviceOperator, ...]:
    """A fault's operators with those that they read, so many steps back; of overflows also who reads their results."""
    found = fault.operators
    for _ in range(hops):
        found += _beside(found, fault.call, onward=False)
        found += () if fault.key[1] == "rounding" else _beside(found, fault.call, onward=True)
    return found


def _beside(operators: Sequence[DeviceOperator], call: DeviceCall, *, onward: bool) -> tuple[DeviceOperator, ...]:
    """The next operators that cover nodes, in one direction; what the compiler put in between is passed."""
    names, edge = {o.name for o in operators}, list(operators)
    found: list[DeviceOperator] = []
    while edge:
        at = edge.pop()
        makers = {t.maker for t in at.inputs}
        for one in call.operators:
            reads = any(t.maker == at.name for t in one.inputs)
            if (reads if onward else one.name in makers) and one.name not in names:
                names.add(one.name)
                (found if one.float_nodes else edge).append(one)
    return tuple(found)


def _skipped(candidate: Candidate, fault: _Fault, layers: Sequence[str], batches: int) -> Iterator[Change]:
    """The fault's quantized layers in float, beside those that are in float already."""
    quantization = candidate.quantization
    listed = (quantization.cfg or "").lstrip().startswith("{")  # a configuration as JSON has no list of skipped layers
    if quantization.scheme not in ("static", "cfg") or not fault.layers or listed:
        return
    quantized = {layer for operator in fault.call.operators for layer in operator.layers}
    left = [name for name in layers if name in quantized and name not in fault.layers]
    what = f"{_count(len(fault.layers), 'layer')} in float ({', '.join(fault.layers[:4])})"
    if not left:
        made, setting, what = Quantization(), "quantization.scheme", f"{what}, and no INT8 layer is left"
    else:
        made = without_layers(quantization, [name for name in layers if name not in left], batches=batches)
        setting = "quantization.cfg"
    yield Change(candidate=replace(candidate, quantization=made), setting=setting, what=what)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
