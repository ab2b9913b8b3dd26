"""Can the metric move at all? Noise of known size is planted into the float model's outputs, and it must react.

A measure that stays at its best whatever is done to an output (a threshold that nothing reaches, a detector on pictures
without objects, a user's function that looks at the wrong output) would pass every candidate. It is found here, before
the first of them, on a few samples.
"""

from __future__ import annotations

import functools
import json
import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.evaluation.carried import first_steps, whole_samples
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.batch import STEPS as STEPS_OF
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import MeaningScorer, scorer_of
from workbench.inputs.metrics.agreement import AGAINST, reading_of
from workbench.inputs.metrics.agreement.decisions import LogitsJudge, ProbabilitiesJudge
from workbench.inputs.metrics.agreement.judge import Array
from workbench.inputs.metrics.agreement.judges import FLOAT
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, concatenate, summarize
from workbench.inputs.metrics.score import Outputs, Scorer
from workbench.inputs.metrics.scorer import passed_outputs, uses_of
from workbench.inputs.metrics.user_scorer import library_metric
from workbench.targets.base import Session
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.interface import OutputUse
from workbench.values.measurement import Split
from workbench.values.metrics import apart_words
from workbench.values.model import Model, axes_text

SAMPLES = 24
STEPS = 64
"""Of each sample, where a state is carried."""
NOISE = (1e-3, 1e-2, 1e-1, 1.0)
"""Standard deviations of the noise, as shares of the output's own; for whole numbers, shares that are replaced."""
_DECISIONS_S = 10.0
"""So long the float model is asked for a sample that it decides otherwise than the others."""
_DECIDES = ("top1_agreement", "decision_agreement")
_NOISE = 1e-6
_LEAST = 1e-9
"""A metric that moves by less has not moved."""

Run = tuple[Batch, Outputs]


def check_metric(
    experiment: Experiment, session: Session, split: Split, searching: Callable[[], Scorer] | None = None
) -> str:
    """Plant noise until the primary metric and every metric with a limit of its own have moved.

    Nothing is run for classes and tags against labels.

    Args:
        searching: of a retrieval, its scorer with the documents embedded: noise is planted into queries alone.

    Returns:
        in one sentence, the least noise that shows in the primary metric.

    Raises:
        ConfigError: a metric does not move; names it, the output, and what to do.
    """
    data, model = experiment.dataset, experiment.model
    if data.metric is None and data.task != "tensors":
        return ""
    if data.retrieval is not None and data.retrieval.candidates:
        return ""  # its pairs are run where they are scored, and noise in the outputs of others is seen by nobody
    whole = whole_samples(session, data.interface, model)
    batches = first_steps(data.batches(split, experiment.baseline.serving.batch, stop=SAMPLES), STEPS)
    runs = [(batch, whole.run(batch.feeds)) for batch in batches]
    refuse_imperfect(data, model, runs)
    make: Callable[[], Scorer] = functools.partial(scorer_of, data, model)
    if data.retrieval is not None and searching is not None:
        searches = searching()
        make = lambda: searches  # noqa: E731  # one that remembers no batch
    untouched = _scored(make(), runs, runs)
    scorer = make()
    primary = scorer.primary if scorer.primary in untouched else next(iter(untouched))
    waiting = dict.fromkeys((primary, *(c.metric for c in experiment.constraints if c.metric in untouched)))
    said = ""
    for words, changed in _changes(experiment, runs):
        try:
            found = _scored(make(), changed, runs)
        except MeasureError:  # a measure that refuses to score such outputs has seen them
            found = dict.fromkeys(untouched, float("inf"))
        moved = [name for name in waiting if not abs(found.get(name, 0.0) - untouched[name]) <= _LEAST]
        if primary in moved:
            before, after = apart_words(untouched[primary], found[primary])
            said = f"{primary} moves from {before} to {after} by {words}"
        for name in moved:
            del waiting[name]
        if not waiting:
            return said
    stuck, samples = next(iter(waiting)), sum(len(batch) for batch, _ in runs)
    raise ConfigError(
        f"{stuck} stays at {untouched[stuck]:.4g} on {samples} samples whatever is done to the float "
        "model's outputs: noise as large as their spread, turned signs, exchanged samples. Every candidate would pass.",
        file=data.path,
        key="metric" if data.metric is not None else "outputs" if data.retrieval is None else "retrieval",
        hint="See which output the function looks at, and whether its result depends on it."
        if data.metric is not None
        else "Use samples on which the model finds something, or another meaning or option (threshold, score) for the "
        "output under outputs."
        if data.retrieval is None
        else "Give more documents, or a smaller k: here every order of them is as good.",
    )


def look_at_decisions(experiment: Experiment, session: Session, split: Split) -> str:
    """`decided_alike` of as many samples of a split as the float model gets through in `_DECISIONS_S`."""
    data, ends_at = experiment.dataset, time.monotonic() + _DECISIONS_S
    whole = whole_samples(session, data.interface, experiment.model)

    def runs() -> Iterator[Run]:
        for batch in first_steps(data.batches(split, experiment.baseline.serving.batch), STEPS):
            if time.monotonic() < ends_at:
                yield batch, whole.run(batch.feeds)

    return decided_alike(data, experiment.model, runs())


def decided_alike(data: Dataset, model: Model, runs: Iterable[Run]) -> str:
    """That the float model decides every sample alike, where decisions that agree with its own are the accuracy, or
    finds nothing in any: a candidate that always says the same would agree too. Empty where it does neither.

    Args:
        runs: taken one by one, until a second decision or something that is found is seen.
    """
    seen, samples = set[int](), 0
    scorer = scorer_of(data, model)
    if not isinstance(scorer, MeaningScorer) or not scorer.judges:
        return ""
    judge, metric = scorer.judges[0], scorer.primary
    name = judge.use.name
    for batch, outputs in runs:
        samples += len(batch)
        if isinstance(judge, LogitsJudge | ProbabilitiesJudge) and metric.endswith(_DECIDES):
            decided = judge.decided(outputs[name].astype(np.float64), batch)
            seen |= set(np.unique(decided).tolist())
            classes = decided.ndim < outputs[name].ndim
        elif scorer.score(outputs, batch, outputs).denominators[:, 0].any():
            return ""
        if len(seen) > 1:
            return ""
    if samples < 2:
        return ""
    first = f"the first {samples} samples of the validation"
    if not seen:
        return (
            f"The float model finds nothing in {first} ({name!r}), so that {metric} says nothing of what it finds, nor "
            "can be told whether the output's options are right: give samples in which it finds something, or a lower "
            "score or threshold."
        )
    above = f"{'always' if 1 in seen else 'never'} above {'0' if isinstance(judge, LogitsJudge) else 'its threshold'}"
    return (
        f"The float model decides each of {first} alike ({name!r}: "
        f"{f'always class {min(seen)}' if classes else above}), so that {metric} says nothing of samples that it "
        f"decides otherwise: give some in the data, or let how far it moves count (primary: {judge.metrics[1].name})."
    )


def refuse_imperfect(data: Dataset, model: Model, runs: Sequence[Run]) -> None:
    """Whether the float model is perfect in its own eyes: where it is not, what is measured is no agreement.

    Args:
        runs: of the float model; none says nothing.

    Raises:
        ConfigError: it is not, or its outputs cannot be scored; says what would be right, where trying tells.
    """
    uses = _read(data, model)
    for batch, outputs in runs[:1]:
        refuse_shared(outputs, uses, batch, data.path, model)
    said, hint = "", "Give the output another meaning or option."
    try:
        for metric, value, best, higher in _in_its_own_eyes(data, model, runs) if runs else ():
            if not (value >= best - _NOISE if higher else value <= best + _NOISE):  # NaN is neither
                said = f"{metric} of the float model against its own answers is {value:.4g} on "
                said += f"{sum(len(batch) for batch, _ in runs)} samples, where equal answers have {best:g}: it "
                said += "measures something else than agreement."
                break
    except MeasureError as error:  # of the float model's own outputs: no candidate is at fault
        said, hint = f"the float model's outputs cannot be scored: {error}", ""
    if not said:
        return
    boxes = next((use for use in uses if use.meaning == "boxes"), None)
    if boxes is not None:
        right = reading_of(boxes, runs)
        written = right.removeprefix("boxes:").replace("=", ": ").replace(",", ", ")
        hint = f"By trying, this is right: --output {shlex.quote(boxes.name)}={right} (in the manifest {boxes.name}: "
        hint += f"{{meaning: boxes, {written}}})."
        if not right:
            hint = "No axis, format or columns were found by which boxes agree: are they offsets for a decoder?"
    raise ConfigError(said, file=data.path, key="outputs" if data.metric is None else "metric", hint=hint or None)


def _in_its_own_eyes(data: Dataset, model: Model, runs: Sequence[Run]) -> Iterator[tuple[str, float, float, bool]]:
    """(metric, value, what equal answers have, whether more is better) of the float model held against itself.

    Nothing where labels decide. A library's metric that may take the float model's answer for the truth is given that.
    """
    if data.retrieval is not None:
        return
    known = None if data.metric is None else library_metric(data.metric)
    if data.metric is not None:
        labelled = any(batch.truths is not None or batch.targets is not None for batch, _ in runs)
        scorer = scorer_of(data, model)
        for batch, outputs in runs:
            scorer.score(outputs, batch, outputs)  # which says what it cannot score
        if not scorer.needs_reference or (labelled and known is None):
            return
        runs = [(replace(batch, truths=None, targets=None), outputs) for batch, outputs in runs]
    scorer = scorer_of(data, model)
    whole = concatenate([scorer.score(outputs, batch, outputs) for batch, outputs in runs])
    for at, (metric, value) in enumerate(summarize(whole).items()):
        if isinstance(scorer, MeaningScorer):
            spec, use = scorer.spec_of(metric)
            of_labels = AGAINST in dict(use.options) and not metric.rpartition(".")[2].startswith(FLOAT)
            best, higher = math.nan if of_labels else spec.best, spec.higher
        elif isinstance(whole, MeasuredOutcomes):
            higher, share = bool(whole.higher[at]), not whole.units[at]
            best = float(whole.bounds[at][int(higher)]) if share or not higher else math.nan  # dB end anywhere
        else:
            return
        if math.isfinite(best) and not metric.endswith("image_ap"):  # which looks at a hundred of a class alone
            yield metric, value, best, higher


def _read(data: Dataset, model: Model) -> list[OutputUse]:
    """Outputs that need an answer for each sample; a user's own function may look at any other."""
    if data.task != "tensors" or data.metric is None:
        return list(uses_of(data, model)) if data.task == "tensors" else []
    if library_metric(data.metric) is None:
        return []
    options = json.loads(data.metric.options)
    return [OutputUse(name=options.get("output", model.outputs[0].name), meaning="values")]


def _scored(scorer: Scorer, runs: Sequence[Run], reference: Sequence[Run]) -> dict[str, float]:
    both = zip(runs, reference, strict=True)
    return summarize(scorer.score_all((outputs, batch, theirs) for (batch, outputs), (_, theirs) in both))


def refuse_shared(outputs: Outputs, uses: Sequence[OutputUse], batch: Batch, file: Path, model: Model) -> None:
    """Whether outputs have an answer for each sample, and the axes that the file declares: a mean over the rows of a
    call has none, nor has a table, nor what counts samples on another axis.

    Raises:
        ConfigError: one has not; says what to declare, or to leave it out.
    """
    rows, steps, origin = len(batch), int(STEPS_OF in batch.sizes), model.origin or model
    declared = {spec.name: spec.shape for spec in model.outputs}
    in_file = {spec.name: spec.shape for spec in (*origin.inputs, *origin.outputs)}
    for use in uses:
        array, said = outputs.get(use.name), declared.get(use.name, ())
        if use.meaning == "ignored":
            continue
        if array is None:
            raise ConfigError(f"the model has no output {use.name!r}.", file=file, hint=nearest(use.name, outputs))
        as_said = not said or len(said) == array.ndim - steps or use.meaning == "state"
        if as_said and array.ndim and len(array) == rows:
            continue
        what = f"has the shape {list(array.shape)}" if array.ndim else "is one number of a whole call"
        told = f", and its file declares {axes_text(in_file[use.name])}" if in_file.get(use.name) else ""
        hint = f"Leave it out: {use.name}: ignored (--output {shlex.quote(use.name)}=ignored), or export the model "
        hint += "without it, or with its axis for samples first."
        fed = {spec.name: spec.shape for spec in model.inputs if spec.name in batch.feeds}
        if rows in array.shape and array.ndim > 1:
            axes = [*(f"axis_{n}" for n in range(array.ndim - 1)), array.shape[-1]]
            axes[array.shape.index(rows)] = "batch"
            hint = f"Declare it in the file as {axes_text(axes)}: samples are then taken from the axis 'batch'. {hint}"
        elif as_said and rows == 1 and not steps and all(in_file[n][1:] == shape[1:] for n, shape in fed.items()):
            one_call = {
                name: (1, *(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape[1:], 1)))
                for name, shape in fed.items()
            }
            arrays = ", ".join(f"{name!r} {axes_text(('samples', *axes))}" for name, axes in one_call.items())
            written = ", ".join(f"{name}: {{axes: {axes_text(axes)}}}" for name, axes in one_call.items())
            hint = (
                "Where a call is one sample and this its answer, let each sample have all axes of a call: "
                f"{arrays} in the data, and in the manifest inputs: {{{written}}}, which init writes of such data. "
                f"Else {hint[0].lower()}{hint[1:]}"
            )
        raise ConfigError(
            f"the output {use.name!r} {what} for {rows} sample{'' if rows == 1 else 's'}{told}: "
            + ("it has no answer for each sample that could be compared." if as_said else "the two do not fit."),
            file=file,
            key="outputs",
            hint=hint,
        )


def _changes(experiment: Experiment, runs: Sequence[Run]) -> Iterator[tuple[str, list[Run]]]:
    """(what was done, outputs), each scored output by itself, the smallest noise of all first."""
    data, model = experiment.dataset, experiment.model
    if data.metric is None:
        able = {use.name for use in uses_of(data, model) if use.meaning != "ignored"}
    else:  # a user's function may look at any that holds an answer for each sample
        able = {name for name, array in runs[0][1].items() if array.ndim and array.dtype.kind in "fiub"}
        able -= passed_outputs(model)
    names = [name for name in runs[0][1] if name in able]
    floats = [name for name in names if runs[0][1][name].dtype.kind == "f"]
    every = {name: np.concatenate([outputs[name].ravel() for _, outputs in runs]) for name in names}
    generator = np.random.default_rng(experiment.seed)

    def changed(name: str, change: Callable[[Array], Array]) -> list[Run]:
        return [(batch, {**outputs, name: change(outputs[name])}) for batch, outputs in runs]

    for share in NOISE:
        for name in names:
            change, words = _substituted, f"{share:g} of {name!r} replaced, one in each call at least"
            if name in floats:
                change, words = _noisy, f"noise of {share:g} of the spread of {name!r}"
            yield words, changed(name, functools.partial(change, every[name], share, generator))
    for name in floats:
        yield f"turned signs of {name!r}", changed(name, functools.partial(_turned, every[name]))
    for name in names:  # every sample has the output of the next one, where that has its shape
        rows = [row for _, outputs in runs for row in outputs[name]]
        following = iter([b if a.shape == b.shape else a for a, b in zip(rows, rows[1:] + rows[:1], strict=True)])
        exchanged = changed(name, lambda array: np.stack([next(following) for _ in array]))  # noqa: B023  # used at once
        yield f"exchanged samples of {name!r}", exchanged


def _noisy(every: Array, share: float, generator: np.random.Generator, array: Array) -> Array:
    """The noise in shares of the standard deviation of all values; of a constant of its size, of zeros of 1."""
    known, values = every.astype(np.float64), array.astype(np.float64)
    spread = float(known.std()) or float(np.abs(known).max(initial=0.0)) or 1.0
    noisy = values + share * spread * generator.standard_normal(values.shape)
    kept: Array = np.clip(noisy, 0.0, 1.0) if _are_shares(every) else noisy
    return kept.astype(array.dtype)


def _substituted(every: Array, share: float, generator: np.random.Generator, array: Array) -> Array:
    """Some ids, one in each call at least, become another one that occurs, or the next where only one does."""
    known = np.unique(every)
    chosen = generator.random(array.shape) < share
    chosen.reshape(-1)[:1] |= not chosen.any()
    if array.dtype.kind == "b":
        return np.where(chosen, ~array.astype(np.bool_), array)
    if len(known) == 1:
        return np.where(chosen, array.astype(np.int64) + 1, array).astype(array.dtype)
    other = (np.searchsorted(known, array) + generator.integers(1, len(known), array.shape)) % len(known)
    return np.where(chosen, known[other], array).astype(array.dtype)


def _turned(every: Array, array: Array) -> Array:
    values = array.astype(np.float64)
    return (1 - values if _are_shares(every) else -values).astype(array.dtype)


def _are_shares(every: Array) -> bool:
    return float(every.min(initial=0)) >= 0 and float(every.max(initial=0)) <= 1
