"""Recipes and service settings of all stages of a pipeline, chosen together.

What was measured of a stage alone (times by batch, answers) is reused by every combination; how good a combination
answers is measured end to end, since errors of stages do not add up. Combinations are tried in the order of the
processor time that a request takes with them:

    each recipe alone, the other stages in float       the loss of each, end to end, for predictions
    combinations, the cheapest first                   left out where their predicted loss is certainly too large;
                                                       then measured end to end, and their service simulated
    enough of them keep the limit                      the best of the simulated services is recommended
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.pipeline_pass import (
    HANDED_OVER,
    OpenStage,
    Trace,
    open_stage,
    requests_of,
    scored,
    traces_of,
)
from workbench.evaluation.stage_data import FloatPipeline
from workbench.evaluation.store import Store
from workbench.inputs.dataset.sizing import shapes_of, sizing_of
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, load_outcomes, per_sample, save_outcomes, summarize
from workbench.inputs.pipeline import Pipeline
from workbench.prediction.curve import at_first_speed
from workbench.prediction.host_costs.measure import processors
from workbench.prediction.tandem import Tandem, TandemStage, simulate_tandem
from workbench.search.front import is_feasible
from workbench.space.served_bins import choices_of
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.measurement import BatchCurve, Estimate, Split
from workbench.values.pipeline import Item
from workbench.values.results import Evaluation
from workbench.values.sequential import Decision, Gate, decide
from workbench.values.service import HostCosts, ServiceChoices, ServiceSettings
from workbench.values.significance import compare
from workbench.values.system.source_closure import closure_digest

MOST_OPTIONS = 8
"""Recipes of a stage that are combined: those that cost least at their accuracy."""
MOST_COMBINATIONS = 4096
ENOUGH = 4
"""Combinations that keep the limit; what follows costs more processor time than all of them."""
_REQUESTS, _REQUESTS_FOR_P99 = 200, 1000
_EMULATED_CORES = 16
"""In front of a modelled card, whose host is not here."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One recipe of one stage, measured alone.

    Attributes:
        curve: time of a call by batch, at the speed its sweep began with.
    """

    stage: str
    candidate: Candidate
    evaluation: Evaluation
    curve: BatchCurve
    choices: ServiceChoices

    def cost_ms(self, items: float, host: HostCosts) -> float:
        """Processor time of so many items, in batches that cost least a row."""
        work = host.capacity[min(self.curve.threads, len(host.capacity)) - 1] if self.curve.threads else 0.0
        return items * min(point.mean_ms * max(work, 1e-3) / point.batch for point in self.curve.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What answers are worth, and by how much they are worse than the float pipeline's; percentage points of a share.

    Attributes:
        values: metric → value, the primary first.
        loss: None of the float pipeline itself.
    """

    values: Mapping[str, float]
    loss: Estimate | None
    unit: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """One combination.

    Attributes:
        recipes: stage → candidate id; `settings` the same for its service.
        predicted_per_s, predicted_p99_ms: of the simulated service.
        searched, held: measured end to end on validation and on held-out requests; None where not.
        measured_per_s, measured_p99_ms: under real load; None where nobody loaded it.
        by_stage: each stage is as its own search recommends it, for comparison.
        emulated: its cards are, so that times are modelled and nothing is loaded.
    """

    recipes: Mapping[str, str]
    settings: Mapping[str, ServiceSettings]
    predicted_per_s: float
    predicted_p99_ms: float
    searched: Loss | None = None
    held: Loss | None = None
    measured_per_s: Estimate | None = None
    measured_p99_ms: Estimate | None = None
    by_stage: bool = False
    emulated: bool = False
    note: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class JointSearch:
    """What a joint search knows.

    Attributes:
        benches: stage → its question and bench.
        options: stage → recipes, the float baseline first.
        host: costs of the front end and how processors share.
        opened: (stage, candidate id) → its model.
    """

    pipeline: Pipeline
    float_run: FloatPipeline
    benches: Mapping[str, tuple[Experiment, Bench]]
    store: Store
    options: Mapping[str, Sequence[Option]]
    host: HostCosts
    sessions: contextlib.ExitStack
    report: Callable[[str], None]
    opened: dict[tuple[str, str], OpenStage]

    @property
    def floats(self) -> dict[str, Option]:
        return {stage: options[0] for stage, options in self.options.items()}

    @property
    def emulated(self) -> bool:
        return any(
            bench.toolchain(self.options[name][0].candidate).emulated for name, (_, bench) in self.benches.items()
        )

    @property
    def combinations(self) -> int:
        """Of recipes, each with every setting of its service."""
        return math.prod(sum(len(one.choices.settings()) for one in each) for each in self.options.values())

    def first_settings(self) -> dict[str, ServiceSettings]:
        return {name: _first_settings(option.choices) for name, option in self.floats.items()}

    def stages(self, chosen: Mapping[str, Option]) -> dict[str, OpenStage]:
        return {name: self._open(option) for name, option in chosen.items()}

    # --- quality, end to end -----------------------------------------------------------------------------------------

    def answers_worth(self, chosen: Mapping[str, Option], split: Split) -> MeasuredOutcomes:
        """What each answer of a combination is worth; from the store where it is there.

        Raises:
            CandidateError: a stage cannot be compiled, or fails.
            ConfigError: glue failed.
        """
        artifacts = {n: artifact_of(self.benches[n][0], o.candidate, self.benches[n][1])[0] for n, o in chosen.items()}
        key = {
            "pipeline": self.pipeline.identity,
            "requests": [self.pipeline.dataset.digest(split), self.pipeline.samples[split]],
            "models": {name: self.benches[name][0].model.sha256 for name in chosen},
            "artifacts": artifacts,
            "code": closure_digest("workbench.evaluation.pipeline_pass"),
        }
        if (entry := self.store.find("outcomes", key)) is None:
            stages = self.stages(chosen)
            requests = requests_of(self.pipeline.dataset, split, self.pipeline.samples[split])
            answers = [trace.answer for trace in traces_of(self.pipeline, stages, requests)]
            reference = [trace.answer for trace in self.float_run.traces[split]]
            outcomes = scored(self.pipeline, answers, reference, split)

            def write(folder: Path) -> None:
                save_outcomes(folder / "outcomes.npz", outcomes)

            entry = self.store.get_or_build("outcomes", key, write)
        found = load_outcomes(entry.path / "outcomes.npz")
        assert isinstance(found, MeasuredOutcomes)  # `scored` gives no other
        return found

    def _open(self, option: Option) -> OpenStage:
        key = option.stage, option.candidate.id
        if key not in self.opened:
            experiment, bench = self.benches[option.stage]
            self.opened[key] = self.sessions.enter_context(open_stage(experiment, option.candidate, bench))
        return self.opened[key]

    def loss(self, chosen: Mapping[str, Option], split: Split) -> Loss:
        """Of a combination against the float pipeline, request by request."""
        ours, theirs = self.answers_worth(chosen, split), self.answers_worth(self.floats, split)
        is_float = all(option is self.options[stage][0] for stage, option in chosen.items())
        compared = None if is_float else compare(per_sample(theirs), per_sample(ours), seed=self.pipeline.seed)
        unit = "pp" if compared is None else compared.unit
        loss = None if compared is None else compared.drop_pp
        return Loss(values=summarize(ours), loss=loss, unit=unit, samples=len(ours.numerators))

    # --- service, simulated ------------------------------------------------------------------------------------------

    def simulated(
        self, chosen: Mapping[str, Option], settings: Mapping[str, ServiceSettings], requests: int = _REQUESTS
    ) -> Tandem:
        traces = self.float_run.traces["validation"]
        stages = []
        for stage in self.pipeline.stages:
            items, weights = _sizes(self.benches[stage.name][0], [trace.items[stage.name] for trace in traces])
            rounds = [_cut(each, trace.rounds[stage.name]) for each, trace in zip(items, traces, strict=True)]
            stages.append(
                TandemStage(
                    name=stage.name,
                    takes=tuple(name for name in stage.wiring.takes if name in self.options),
                    rounds=rounds,
                    weights=weights,
                    glue_ms=_steady(traces, stage.name),
                    curve=chosen[stage.name].curve,
                    settings=settings[stage.name],
                )
            )
        return simulate_tandem(
            stages,
            _steady(traces, "answer"),
            self.host,
            concurrency=self.pipeline.concurrency,
            devices=self.pipeline.service.devices,
            requests=requests,
            seed=self.pipeline.seed,
        )

    def with_request_ms(self, front_ms: float) -> HostCosts:
        """The host's costs where a loaded front end spent so much on a request, what it hands to glue counted there."""
        handed = float(np.mean(_steady(self.float_run.traces["validation"], HANDED_OVER)))
        return replace(self.host, request_ms=max(0.0, front_ms - handed), batch_ms=0.0, origin="measured under load")

    def best_settings(self, chosen: Mapping[str, Option]) -> tuple[dict[str, ServiceSettings], Tandem]:
        """Most requests a second within the limit on P99: each stage's settings in turns, until none gives more."""
        limit = self.pipeline.service.p99_ms
        settings = {name: _first_settings(option.choices) for name, option in chosen.items()}

        def worth(found: Tandem) -> tuple[bool, float]:
            kept = limit is None or found.p99_ms <= limit
            return kept, found.throughput_per_s if kept else -found.p99_ms

        best = self.simulated(chosen, settings)
        improved = True
        while improved:
            improved = False
            for name, option in sorted(chosen.items(), key=lambda each: -each[1].cost_ms(1.0, self.host)):
                for other in option.choices.settings():
                    if other == settings[name]:
                        continue
                    found = self.simulated(chosen, {**settings, name: other})
                    kept, rate = worth(found)
                    if (kept, rate) > (worth(best)[0], worth(best)[1] + 0.01 * abs(worth(best)[1])):
                        best, settings, improved = found, {**settings, name: other}, True
        return settings, best

    # --- the search --------------------------------------------------------------------------------------------------

    def run(self, baseline: Joint, until: float) -> list[Joint]:
        """Combinations that were measured end to end, the float pipeline first, then in the order of their trial.

        Args:
            baseline: the float pipeline as it was loaded.
            until: moment of `time.perf_counter` after which nothing is begun.
        """
        singles = self._singles(until)
        found = [baseline]
        tuned = self._joint(self.floats, self.loss(self.floats, "validation"))  # the same models, served better
        if tuned.settings != baseline.settings:
            found.append(tuned)
        kept = 0
        for chosen in self._by_cost():
            if kept >= ENOUGH or perf_counter() > until:
                break
            changed = {name: option for name, option in chosen.items() if option is not self.options[name][0]}
            if not changed:
                break  # all that comes behind costs more than float
            alone = [singles.get((name, option.candidate.id)) for name, option in changed.items()]
            if None in alone or _predicted_low(alone) > self.pipeline.gate.limit:  # type: ignore[arg-type]  # no None there
                continue
            try:
                loss = self.loss(chosen, "validation")
            except CandidateError as error:
                self.report(f"{self.words(chosen)}: {error}")
                continue
            joint = self._joint(chosen, loss)
            assert loss.loss is not None  # it is not the float pipeline
            kept += loss.loss.value <= self.pipeline.gate.limit
            self.report(
                f"{self.words(chosen)}: predicted {joint.predicted_per_s:.1f}/s, P99 {joint.predicted_p99_ms:.0f} ms; "
                f"loss {loss.loss.value:+.2f} {loss.unit} [{loss.loss.low:+.2f}, {loss.loss.high:+.2f}] measured"
            )
            found.append(joint)
        return found

    def _singles(self, until: float) -> dict[tuple[str, str], Loss]:
        """Every recipe with the other stages in float."""
        found: dict[tuple[str, str], Loss] = {}
        for name, options in combined(self.options, self.host).items():
            for option in options[1:]:
                if perf_counter() > until:
                    return found
                try:
                    loss = self.loss({**self.floats, name: option}, "validation")
                except CandidateError as error:
                    self.report(f"{name} {option.candidate.short_id}: {error}")
                    continue
                found[name, option.candidate.id] = loss
                assert loss.loss is not None
                said = f"{loss.loss.value:+.2f} {loss.unit} [{loss.loss.low:+.2f}, {loss.loss.high:+.2f}]"
                self.report(f"{name} {option.candidate.short_id} alone: loss {said} end to end")
        return found

    def _by_cost(self) -> list[dict[str, Option]]:
        items = {name: float(np.mean(self.float_run.items_a_request(name))) for name in self.options}
        options = combined(self.options, self.host)
        every = [dict(zip(options, chosen, strict=True)) for chosen in itertools.product(*options.values())]
        return sorted(every, key=lambda one: sum(o.cost_ms(items[n], self.host) for n, o in one.items()))

    def _joint(self, chosen: Mapping[str, Option], loss: Loss) -> Joint:
        settings, _ = self.best_settings(chosen)
        return self.joint_at(chosen, settings, loss)

    def joint_at(self, chosen: Mapping[str, Option], settings: Mapping[str, ServiceSettings], loss: Loss) -> Joint:
        served = self.simulated(chosen, settings, _REQUESTS_FOR_P99)
        return Joint(
            recipes={name: option.candidate.id for name, option in chosen.items()},
            settings=dict(settings),
            predicted_per_s=served.throughput_per_s,
            predicted_p99_ms=served.p99_ms,
            searched=loss,
            emulated=self.emulated,
        )

    def stage_by_stage(self) -> dict[str, Option]:
        """Each stage as its own search recommends it, which looks at no other."""
        found = {}
        for name, options in self.options.items():
            able = [o for o in options if is_feasible(self.benches[name][0], o.evaluation)]
            found[name] = max(able or options[:1], key=_own_rate)
        return found

    def of(self, joint: Joint) -> dict[str, Option]:
        """Its recipes. Raises ConfigError where a stage's journal has one of them no more."""
        found = {}
        for name, identity in joint.recipes.items():
            option = next((one for one in self.options[name] if one.candidate.id == identity), None)
            if option is None:
                rule = f"the recipe {identity[:12]} of the stage {name} is not in its journal any more."
                hint = f"Run: workbench sweep {self.pipeline.path}"
                raise ConfigError(rule, file=self.pipeline.path, hint=hint)
            found[name] = option
        return found

    def words(self, chosen: Mapping[str, Option]) -> str:
        return ", ".join(f"{name} {option.candidate.short_id}" for name, option in chosen.items())


def keeps_limits(pipeline: Pipeline, one: Joint, found: Sequence[Joint]) -> bool:
    """P99 and the loss within their limits, by the strongest evidence of each; held out, the gate decides, of all that
    were confirmed at once."""
    limit = pipeline.service.p99_ms
    p99 = one.predicted_p99_ms if one.measured_p99_ms is None else one.measured_p99_ms.value
    if one.note or one.by_stage or (limit is not None and p99 > limit):
        return False
    if one.searched is not None and one.searched.loss is not None and one.searched.loss.value > pipeline.gate.limit:
        return False
    decision = gate_of(pipeline.gate, one, found) if one.held is not None else None
    return decision is None or decision.keeps


def gate_of(gate: Gate, one: Joint, found: Sequence[Joint]) -> Decision | None:
    """What a gate says of a combination; None of the float pipeline."""
    quality = one.held or one.searched
    if quality is None or quality.loss is None:
        return None
    held = [other.held.loss for other in found if other.held is not None and other.held.loss is not None]
    among = held if one.held is not None else ()
    return decide(gate, quality.loss, samples=quality.samples, unit=quality.unit, among=among)


def recommended(pipeline: Pipeline, found: Sequence[Joint]) -> Joint | None:
    """The most requests a second among those that keep the limits; where any was loaded for real, among these."""

    def rate(one: Joint) -> float:
        return one.predicted_per_s if one.measured_per_s is None else one.measured_per_s.value

    kept = [one for one in found if keeps_limits(pipeline, one, found)]
    return max([one for one in kept if one.measured_per_s is not None] or kept, key=rate, default=None)


def options_of(experiment: Experiment, evaluations: Mapping[str, Evaluation], stage: str) -> list[Option]:
    """Recipes of a stage that were measured in full, the float baseline first.

    Raises:
        ConfigError: not even the baseline was.
    """
    found = []
    for evaluation in evaluations.values():
        service = evaluation.measurement.service
        if evaluation.status != "complete" or service is None:
            continue
        choices = choices_of(experiment.space, evaluation.candidate)
        assert choices is not None  # every stage's space has them
        found.append(
            Option(
                stage=stage,
                candidate=evaluation.candidate,
                evaluation=evaluation,
                curve=at_first_speed(service.curve),
                choices=choices,
            )
        )
    baseline = [one for one in found if one.candidate.id == experiment.baseline.id]
    if not baseline:
        rule = f"the float baseline of the stage {stage} was not measured in the time that there was."
        raise ConfigError(rule, file=experiment.path, hint="Allow more: budget.timeout, or --timeout.")
    return [*baseline, *(one for one in found if one is not baseline[0])]


def combined(
    options: Mapping[str, Sequence[Option]], host: HostCosts, most: int = MOST_COMBINATIONS
) -> dict[str, Sequence[Option]]:
    """Of each stage the recipes that cost least, so that there are at most `most` combinations."""
    chosen: dict[str, Sequence[Option]] = {}
    count = MOST_OPTIONS
    while not chosen or math.prod(map(len, chosen.values())) > most:
        for name, (first, *others) in options.items():
            cheapest = sorted(others, key=lambda one: one.cost_ms(1.0, host))[: count - 1]
            chosen[name] = [first, *cheapest]
        count -= 1
    return chosen


def shared_host(options: Mapping[str, Sequence[Option]], stated: HostCosts | None, *, emulated: bool) -> HostCosts:
    """The costs of a pipeline's front end before any was loaded, and what processors do together; what the
    user states of a host that is not here."""
    if stated is not None:
        return stated
    count = _EMULATED_CORES if emulated else processors()
    capacity = tuple(map(float, range(1, count + 1)))
    # what sessions of one thread do side by side is what processors do; those of more threads share more than these
    single = [o for each in options.values() for o in each if o.curve.threads == 1 and o.curve.together]
    if single and not emulated:
        together = max(single, key=_call_ms).curve.together
        at, work = [1, *(one.sessions for one in together)], [1.0, *(one.work.value for one in together)]
        capacity = tuple(float(np.interp(n, at, work)) for n in range(1, count + 1))
    return HostCosts(
        request_ms=1.0,
        batch_ms=0.3,
        worker_batch_ms=0.2,
        capacity=capacity,
        origin="assumed, until the float pipeline is loaded",
    )


def _call_ms(option: Option) -> float:
    return min(point.mean_ms for point in option.curve.points)


def _own_rate(option: Option) -> float:
    service = option.evaluation.measurement.service
    best = None if service is None else service.best
    return 0.0 if best is None else best.throughput_per_s.value


def own_settings(option: Option) -> ServiceSettings:
    """What a stage's own search tells its service."""
    service = option.evaluation.measurement.service
    assert service is not None  # an option has one
    return (service.best or service.closest).settings


def _first_settings(choices: ServiceChoices) -> ServiceSettings:
    return replace(choices.settings()[0], workers=1)


def _predicted_low(alone: Sequence[Loss]) -> float:
    """The lower end of the sum of losses, as if stages lost apart from each other."""
    losses = [each.loss for each in alone if each.loss is not None]
    return sum(each.value for each in losses) - math.hypot(*(each.value - each.low for each in losses))


def _sizes(experiment: Experiment, items: Sequence[Sequence[Item]]) -> tuple[list[list[int]], list[float]]:
    """Of each request the padded sizes of its items, as numbers; and what each size weighs beside their mean."""
    sizing = sizing_of(experiment.dataset.interface, experiment.model, experiment.dataset.path)
    known: dict[object, int] = {}
    elements: list[int] = []
    found = []
    for each in items:
        row = []
        for item in each:
            shapes = tuple((name, sizing.padded(name, shape)) for name, shape in shapes_of(item))
            if shapes not in known:
                known[shapes] = len(elements)
                elements.append(sum(math.prod(shape) for _, shape in shapes))
            row.append(known[shapes])
        found.append(row)
    every = [elements[size] for row in found for size in row]
    mean = float(np.mean(every)) if every else 1.0
    return found, [count / mean for count in elements]


def _cut(items: Sequence[int], counts: Sequence[int]) -> list[Sequence[int]]:
    """A request's items by round."""
    ends = np.cumsum(counts).tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _steady(traces: Sequence[Trace], place: str) -> list[float]:
    """Glue's time of each request; the first call, which imports what it needs, counts as the median."""
    took = [trace.glue_ms.get(place, 0.0) for trace in traces]
    middle = float(np.median(took)) if took else 0.0
    return [min(each, 4 * middle) for each in took]
