"""What is wrong with a question, asked when a sweep is planned, not minutes into it: what the targets of a space refuse
about its model, and limits on the accuracy loss that are finer than a sample."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Batch
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.agreement.judges import AGAINST, FLOAT
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import GOLD
from workbench.inputs.metrics.score import Outputs, count_entities, tag_set
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import OPERATORS, wants
from workbench.space.dimensions import TARGET
from workbench.space.space import Assignment, Forbidden, SearchSpace, build, choice_text, complete
from workbench.targets import described
from workbench.targets.base import OperatorIssue, Target
from workbench.values.candidate import Candidate, Quantization
from workbench.values.dimension import Scalar
from workbench.values.errors import ConfigError
from workbench.values.measurement import AccuracyComparison, Split
from workbench.values.model import Model
from workbench.values.objectives import Constraint
from workbench.values.paired_scores import PairedScores
from workbench.values.significance import Outcomes

SCHEME = "quantization.scheme"
DECIDING = (SCHEME, "quantization.operators", "quantization.attention_matmul", "quantization.keep_float")
"""Settings that decide what of a model becomes INT8; one candidate stands for all that agree in them."""
_SHOWN = 5
_STOOD_FOR = 200
"""Most combinations of those settings that are asked about."""


def check_targets(experiment: Experiment, bench: Bench) -> tuple[str, ...]:
    """Ask every target about the float model and about each kind of INT8 in the space.

    Returns:
        A sentence for what is slow on a device, and for each kind of INT8 that will be refused, which the sweep can do
        without.

    Raises:
        ConfigError: a target cannot run the model at all, by node and with what to do.
    """
    kinds = 0
    slow: list[str] = []
    refused: dict[tuple[str, str], list[Assignment]] = {}
    for name in experiment.space.targets:
        target = bench.targets[name]
        asked = _standing_for(experiment.space, name)
        floats = [candidate for _, candidate in asked if candidate.quantization.scheme == "none"][:1]
        for candidate in floats:
            if errors := _errors(target, experiment.model, candidate):
                raise cannot_run(name, errors, experiment.model, key=f"{TARGET} in {experiment.space.path.name}")
            said = [issue for issue in target.check(experiment.model, candidate) if issue.slow]  # each with its mend
            slow += [f"{issue.node} ({issue.operator}): {_sentence(issue)}" for issue in said]
        for assignment, candidate in asked:
            if candidate.quantization.scheme == "none":
                continue
            kinds += 1
            if errors := candidate_errors(target, experiment.model, candidate):
                refused.setdefault((name, _sentence(errors[0])), []).append(assignment)
    words = [
        f"{kind} will be refused: {sentence}"
        for (name, sentence), alike in refused.items()
        for kind in _kinds(experiment.space, name, alike)
    ]
    if kinds and sum(map(len, refused.values())) == kinds:
        words.append("no candidate of this space is INT8: what is left are float ones.")
    return (*slow, *words)


def candidate_errors(target: Target, model: Model, candidate: Candidate) -> list[OperatorIssue]:
    """Everything known to make a candidate fail, whatever is measured."""
    errors = _errors(target, model, candidate)
    if not errors and (left := _nothing_left(model, candidate.quantization)) is not None:
        errors.append(left)
    return errors


def cannot_run(target: str, issues: Sequence[OperatorIssue], model: Model, *, key: str, more: str = "") -> ConfigError:
    """The refusal of a target, a line for each of the first issues.

    Args:
        key: where the user named the target.
        more: what else there is to say.
    """
    lines = [
        f"\n  {issue.node}" + (f" ({issue.operator})" if issue.operator else "") + f": {_sentence(issue)}"
        for issue in issues[:_SHOWN]
    ]
    rest = f"\n  … and {len(issues) - _SHOWN} more" if len(issues) > _SHOWN else ""
    return ConfigError(
        f"{described(target).title} cannot run it:{''.join(lines)}{rest}{more}",
        file=model.path if model.origin is None else model.origin.path,
        key=key,
    )


def _errors(target: Target, model: Model, candidate: Candidate) -> list[OperatorIssue]:
    return [issue for issue in target.check(model, candidate) if issue.severity == "error"]


def _sentence(issue: OperatorIssue) -> str:
    return f"{issue.problem.rstrip('.')}. {issue.remedy}"


def _kinds(space: SearchSpace, target: str, alike: Sequence[Assignment]) -> list[str]:
    """'onnxruntime: quantization.operators matmul with quantization.keep_float 2 or 4', of refusals in equal words.

    One where they are all combinations of its values, else one for each.
    """
    names = [SCHEME, *(name for name in DECIDING if name != SCHEME and any(name in one for one in alike))]
    values = [list(dict.fromkeys(choice_text(one[name]) for one in alike if name in one)) for name in names]
    if len(alike) != math.prod(map(len, values)):
        return list(dict.fromkeys(kind for one in alike for kind in _kinds(space, target, [one])))
    said = [f"{name} {' or '.join(choices)}" for name, choices in zip(names, values, strict=True)]
    return [(f"{target}: " if len(space.targets) > 1 else "") + " with ".join(said)]


def _standing_for(space: SearchSpace, target: str) -> list[tuple[Assignment, Candidate]]:
    """(assignment, candidate) for each combination of what decides about INT8 that a target can have, with the defaults
    for the rest; float first, which a space without a scheme of float has all the same."""
    offered: dict[str, tuple[Scalar, ...]] = {p.name: p.choices for p in space.parameters if p.name in DECIDING}
    offered[SCHEME] = tuple(dict.fromkeys(("none", *offered.get(SCHEME, ()))))
    found: dict[tuple[Scalar | None, ...], tuple[Assignment, Candidate]] = {}
    for values in itertools.islice(itertools.product(*offered.values()), _STOOD_FOR):
        assignment = complete(space, {TARGET: target, **dict(zip(offered, values, strict=True))})
        with contextlib.suppress(Forbidden):
            candidate = build(space, assignment)
            scheme = candidate.quantization.scheme
            told = DECIDING if scheme not in ("none", "cfg") else ()
            found.setdefault((scheme, *map(assignment.get, told)), (assignment, candidate))
    return sorted(found.values(), key=lambda each: each[1].quantization.scheme != "none")


# --- what becomes INT8 -----------------------------------------------------------------------------------------------


def _nothing_left(model: Model, quantization: Quantization) -> OperatorIssue | None:
    """Where a candidate's own settings leave nothing that is INT8."""
    scheme, kept, said = quantization.scheme, quantization.keep_float or 0, ("", "", "")
    if scheme not in ("static", "dynamic"):
        return None
    layers = tuple(layer for layer in _layers(model) if layer.op_type in OPERATORS["all"])
    wanted = [layer for layer in layers if wants(quantization, layer)]
    if scheme == "dynamic":
        if not any(layer.op_type in OPERATORS["matmul"] and layer.weight is not None for layer in layers):
            rule = "dynamic INT8 is for products by constant matrices, of which the model has none among its "
            said = SCHEME, f"{rule}{len(layers)} layers", "Use static."
    elif not layers:
        said = "model", "no float32 layer can be INT8", "Quantize a float32 model whose weights are constants."
    elif not wanted and any(wants(replace(quantization, attention_matmul=True), layer) for layer in layers):
        among = f"operators {quantization.operators!r}"
        if quantization.operators == "all":
            among = f"the {len(layers)} layers"
        rule = f"among {among} only products of two activations could be INT8, and these stay in float"
        said = "quantization.attention_matmul", rule, "Set it to true."
    elif not wanted:
        rule = f"none of the {len(layers)} layers is of operators {quantization.operators!r}"
        said = "quantization.operators", rule, "Use 'all'."
    elif quantization.keep_float_unit == "layer" and kept >= len(wanted):
        rule = f"it keeps every layer in float that could be INT8 ({len(wanted)}): nothing is left"
        said = "quantization.keep_float", rule, "Lower it."
    node, problem, remedy = said
    if not problem:
        return None
    return OperatorIssue(
        severity="error", node=node, operator="", problem=problem, remedy=remedy, source="the model's layers"
    )


@functools.lru_cache(maxsize=4)
def _layers(model: Model) -> tuple[Layer, ...]:
    """Every candidate of a sweep asks."""
    return quantizable_layers(normalized(load_graph(model)))


# --- limits finer than a sample, and a candidate that one rejects ----------------------------------------------------


_Z = 1.96
_ONE_VECTOR = 2
"""Axes of an output with one decision a sample."""
_ROUNDING = 1e-9
_COUNTED_AT_ONCE = 64


Runs = Sequence[tuple[Batch, Outputs]]


def too_fine(experiment: Experiment, runs: Runs = ()) -> list[str]:
    """A sentence for each limit and split whose single sample, or entity, weighs more than the limit allows.

    Args:
        runs: of the float model, which tell how much is decided in a sample; else the output's shape does.
    """
    splits: tuple[Split, ...] = ("validation", "holdout")
    found = []
    for constraint in experiment.constraints:
        for split in splits:
            said = None
            if constraint.metric == "accuracy_loss_pp":
                said = _drop_too_fine(experiment, constraint.limit, split, runs)
            elif constraint.of_output is not None:
                said = _output_too_fine(experiment, constraint, split, runs)
            found += [said] if said is not None else []
    return found


def _drop_too_fine(experiment: Experiment, limit_pp: float, split: Split, runs: Runs) -> str | None:
    data = experiment.dataset
    scorer = scorer_of(data, experiment.model)
    if data.retrieval is not None:  # a query may lose a part
        return None
    if limit_pp <= 0 or (isinstance(scorer, MeaningScorer) and not _one_each(experiment, scorer, scorer.primary, runs)):
        return None
    count, one, many = data.size(split), "sample", "samples"
    if data.task == "ner" and data.metric is None:  # entities that the labels name, cut as texts are cut
        tags, one, many = tag_set(data.labels), "entity", "entities"
        golds = (batch.targets for batch in data.batches(split, _COUNTED_AT_ONCE))
        count = sum(int(count_entities(tags, gold, gold)[0][..., GOLD].sum()) for gold in golds if gold is not None)
    if count and 100 / count <= limit_pp:
        return None
    if not count:
        return f"accuracy_loss_pp <= {limit_pp:g} pp says nothing of {split}, which holds no {one} at all."
    return (
        f"accuracy_loss_pp <= {limit_pp:g} pp is finer than one {one} of {split}: of {count} {many} one is "
        f"{100 / count:.3g} pp. {math.ceil(100 / limit_pp)} {many} are needed to see such a loss, about "
        # so many that Tango's interval of two models that agree on all of them ends at the limit
        f"{math.ceil(_Z**2 * (100 / limit_pp - 1))} to be certain of a smaller one."
    )


def _output_too_fine(experiment: Experiment, constraint: Constraint, split: Split, runs: Runs) -> str | None:
    """Of a share of what samples have one of, against the float model, where all of them agree at best."""
    data = experiment.dataset
    scorer = scorer_of(data, experiment.model)
    if not isinstance(scorer, MeaningScorer):
        return None
    spec, use = scorer.spec_of(constraint.metric)
    labelled = AGAINST in dict(use.options) and not spec.name.rpartition(".")[2].startswith(FLOAT)
    allowed, samples = 1 - constraint.limit, data.size(split)
    if (
        labelled
        or not _one_each(experiment, scorer, spec.name, runs)
        or allowed <= 0
        or samples * allowed >= 1 - _ROUNDING
    ):
        return None
    needed = math.ceil(1 / allowed - _ROUNDING)
    return (
        f"{constraint} is finer than one sample of {split}: of {samples} samples one is {1 / samples:.3g}, so that "
        f"all of them must agree. {needed} samples are needed for one to differ."
    )


def _one_each(experiment: Experiment, scorer: MeaningScorer, metric: str, runs: Runs) -> bool:
    """Whether a metric is the share of samples that do well, each being one."""
    spec, use = scorer.spec_of(metric)
    if spec.counts == "decisions" and runs:
        column = [known.name for known in scorer.specs].index(metric)
        return all((scorer.score(found, batch, found).denominators[:, column] == 1).all() for batch, found in runs)
    shape = next((known.shape for known in experiment.model.outputs if known.name == use.name), ())
    one_decision = spec.counts == "decisions" and len(shape) == _ONE_VECTOR and not experiment.dataset.interface.state
    return spec.counts == "sequences" or one_decision


def rejection(
    metric: str, comparison: AccuracyComparison, limit: float, baseline: Outcomes, candidate: Outcomes
) -> str:
    """'accuracy loss 1.00 pp [0.18, 2.84], limit 0.5: not certain: 1 of 100 samples lost, 0 won'."""
    drop, unit = comparison.drop_pp, comparison.unit
    words = f"{metric} {drop.value:.2f} {unit} [{drop.low:.2f}, {drop.high:.2f}], limit {limit:g}: "
    if drop.low > limit:
        return words + "certain"
    ours, theirs = _values(candidate), _values(baseline)
    lost, won = int(np.count_nonzero(ours < theirs)), int(np.count_nonzero(ours > theirs))
    samples = f"{len(ours)} sample{'' if len(ours) == 1 else 's'}"
    return f"{words}not certain: {lost} of {samples} worse, {won} better"


def _values(outcomes: Outcomes) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How well each sample did; more is better."""
    if isinstance(outcomes, PairedScores):
        return np.asarray(outcomes.turned / np.where(outcomes.denominators == 0, 1.0, outcomes.denominators))
    if outcomes.ndim == 1:
        return outcomes.astype(np.float64)
    entities = np.maximum(outcomes[:, 1] + outcomes[:, 2], 1)
    return np.asarray(2 * outcomes[:, 0] / entities, dtype=np.float64)
