"""Record a table of a whole search space: measure its classes, compose them, and measure a share whole as the proof.

    python -m benchmarks.recorded.record minilm|bert-mini --workspace DIR [--bench DIR] [--to FILE] [--draft]

Killed and started again over the same workspace, it goes on where it was. `--draft` measures a part of the space with
few samples and rounds, to see that it runs; such a table cannot be replayed. What it does, in order:

1. Every recipe (choices of `quantization.*`) is compiled with the defaults and answers the validation split.
2. Recipes of one time class have one structure. One recipe of each structure is compiled with every combination of
   `compile.*`: which of them change its numerics class, which its time class?
3. Every time class, with every number of threads, is timed in rounds at some (batch, length); its best service is
   simulated over bins, batch, timeout and workers.
4. A share of all candidates, drawn by seed, is compiled and scored (before 3, since no clock runs) and timed whole.
   Printed: how many had the classes they were given, how many answered every sample as their class did, and the ratio
   of their times to their class's.
5. Some recipes are compiled once more, as a sweep would: what compiling costs on the machine as it is for the times.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recorded.measuring import answers, built, corrected, curve_of, longest, machine, right_of, timed
from benchmarks.recorded.parts import Json, Parts
from benchmarks.recorded.questions import BANKING77, BINS, Name, read_question, space_text
from benchmarks.recorded.tables import FOLDER, Floats, Table, choice_places, save_table
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.inputs.experiment import Experiment
from workbench.prediction.host_costs.measure import measure_host_costs
from workbench.prediction.search import best_settings
from workbench.space.dimensions import bins_of, dimension_of
from workbench.space.space import Forbidden, build, combinations, complete
from workbench.values.documents.canonical import decode, encode
from workbench.values.service import HostCosts

Assignment = dict[str, Any]
DRAFT = {
    "quantization.algorithm": "mse",
    "quantization.activation_symmetric": False,
    "quantization.keep_float": 0,
    "compile.graph_optimization": "all",
    "compile.fusions.SkipLayerNormFusion": "on",
    "compile.fusions.MatMulScaleFusion": "on",
    "compile.fusions.BiasGeluFusion": "on",
    "serving.intra_op_threads": 2,
}
"""What is left of the space where it shall only be seen that everything runs."""
_SHARE = 0.05
_BUILT_AGAIN = 7
_BATCHES = (1, 4, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds, whole_rounds: of a time class, and of a candidate that is measured whole; share: of the latter.
        samples: of the validation split; None for those of the question. only: parameter → the one choice that is kept.
    """

    rounds: int = 10
    whole_rounds: int = 4
    share: float = _SHARE
    samples: int | None = None
    only: Mapping[str, Any] = field(default_factory=dict)


class Recording:
    """One table in the making."""

    def __init__(self, name: Name, workspace: Path, bench: Path, effort: Effort) -> None:
        self.name, self.effort = name, effort
        experiment: Experiment = read_question(name, workspace, bench)
        self.experiment = replace(experiment, dataset=experiment.dataset.first(validation=effort.samples, holdout=None))
        journal = Journal(root=workspace / ".workbench" / "recorded" / f"{name}-journal")
        self.bench: Bench = open_bench(
            self.experiment, journal, Store(workspace / ".workbench" / "store"), lambda candidate, stage: None
        )
        self.parts = Parts(
            workspace / ".workbench" / "recorded" / (name if effort.samples is None else f"{name}-draft")
        )
        self.all = [
            a
            for a in combinations(self.experiment.space)
            if _possible(self.experiment, a)
            and all(a.get(name, choice) == choice for name, choice in effort.only.items())
        ]
        top = longest(self.experiment)
        lengths = sorted({top // 8, top // 4, top // 2, top})
        self.shapes = [(batch, length) for length in lengths for batch in _BATCHES]

    def candidate(self, assignment: Mapping[str, Any]) -> Any:
        return build(self.experiment.space, complete(self.experiment.space, assignment))

    def built(self, assignment: Assignment, place: str = "") -> Json:
        key = {n: v for n, v in assignment.items() if not n.startswith("serving.")}
        return self.parts.get(
            "built", key, lambda: built(self.bench, self.experiment, self.candidate(key)), place=place
        )

    def scored(self, assignment: Assignment, place: str = "") -> Json:
        key = {n: v for n, v in assignment.items() if not n.startswith("serving.")}
        return self.parts.get(
            "answers", key, lambda: answers(self.bench, self.experiment, self.candidate(key)), place=place
        )

    def timed(self, assignment: Assignment, rounds: int, kind: str, place: str = "") -> Json:
        return self.parts.get(
            kind,
            {"assignment": assignment, "rounds": rounds},
            lambda: timed(self.bench, self.experiment, self.candidate(assignment), self.shapes, rounds),
            place=place,
        )


def _possible(experiment: Experiment, assignment: Assignment) -> bool:
    try:
        build(experiment.space, assignment)
    except Forbidden:
        return False
    return True


def _of(assignment: Mapping[str, Any], prefix: str) -> tuple[tuple[str, Any], ...]:
    return tuple((n, v) for n, v in assignment.items() if n.startswith(prefix))


def record(recording: Recording) -> Table:
    experiment, parts = recording.experiment, recording.parts
    baseline = complete(experiment.space, {"quantization.scheme": "none"})
    recipes = list(dict.fromkeys(_of(a, "quantization.") for a in recording.all))
    compiles = list(dict.fromkeys(_of(a, "compile.") for a in recording.all))
    structure_of, member = {}, {}
    for number, recipe in enumerate(recipes):
        place = f"{number + 1}/{len(recipes)}"
        full = complete(experiment.space, dict(recipe))
        structure_of[recipe] = recording.built(full, place)["time"]
        recording.scored(full, place)
        member.setdefault(structure_of[recipe], recipe)
    forms: dict[tuple[str, Any], Json] = {}
    for number, (structure, recipe) in enumerate(member.items()):
        for chosen in compiles:
            full = complete(experiment.space, {**dict(recipe), **dict(chosen)})
            if _possible(experiment, full):
                forms[structure, chosen] = recording.built(full, f"{number + 1}/{len(member)}")
    drawn = _drawn(recording)
    for number, index in enumerate(drawn):  # all that takes no clock comes before all that does
        for part in (recording.built, recording.scored):
            part(recording.all[index], f"{number + 1}/{len(drawn)}")
    anchor = parts.get("anchor", "first", lambda: recording.timed(baseline, recording.effort.rounds, "times", "anchor"))
    anchor_ms = float(np.median(anchor["yardstick_ms"]))
    threads = list(dict.fromkeys(a["serving.intra_op_threads"] for a in recording.all))
    wanted = {}  # time class and threads → a member
    for (structure, chosen), form in forms.items():
        for count in threads:
            key = {**dict(member[structure]), **dict(chosen), "serving.intra_op_threads": count}
            wanted.setdefault((form["time"], count), complete(experiment.space, key))
    times: dict[tuple[str, int], Floats] = {}
    services: dict[tuple[str, int], Json] = {}
    host = parts.get("host", "costs", lambda: _host(recording))
    for number, (key, assignment) in enumerate(wanted.items()):
        place = f"{number + 1}/{len(wanted)}"
        found = recording.timed(assignment, recording.effort.rounds, "times", place)
        times[key] = corrected(found, anchor_ms)
        services[key] = parts.get(
            "service",
            {"times": found, "host": host},
            lambda key=key: _service(recording, times[key], key[1], decode(HostCosts, host["costs"])),  # type: ignore[misc]  # bound now
            place=place,
        )
    again = parts.get("build", "again", lambda: _built_again(recording, list(member.values())))
    classes = _Classes(recipes, structure_of, forms, list(wanted), baseline)
    whole = _whole(recording, classes, times, anchor_ms)
    return _table(recording, classes, times, services, whole, anchor_ms, again["build_s"])


@dataclass(frozen=True, slots=True)
class _Classes:
    """Which classes a candidate is given, without compiling it."""

    recipes: list[Any]
    structure_of: Mapping[Any, str]
    forms: Mapping[tuple[str, Any], Json]
    times: list[tuple[str, int]]
    baseline: Assignment

    def time(self, assignment: Assignment) -> tuple[str, int]:
        form = self.forms[self.structure_of[_of(assignment, "quantization.")], _of(assignment, "compile.")]
        return form["time"], assignment["serving.intra_op_threads"]

    def numerics(self, assignment: Assignment) -> tuple[Any, str]:
        """The recipe, and which of its structure's numerics classes the compile settings lead to."""
        recipe = _of(assignment, "quantization.")
        return recipe, self.forms[self.structure_of[recipe], _of(assignment, "compile.")]["numerics"]


def _host(recording: Recording) -> Json:
    experiment = recording.experiment
    toolchain = recording.bench.toolchain(experiment.baseline)
    costs = measure_host_costs(experiment.model, experiment.dataset, toolchain)
    quiet = not any(words in costs.origin for words in ("while others", "cut to"))
    return {"costs": encode(costs), "quiet": quiet}


def _service(recording: Recording, times: Floats, threads: int, host: HostCosts) -> Json:
    """The best service over bins and settings; the most requests per second among those that keep the limit."""
    experiment = recording.experiment
    choices, question = experiment.space.service, experiment.service
    dimension = dimension_of("serving.sequence_bins", experiment.space.targets)
    lengths, sample = experiment.dataset.lengths("validation"), experiment.dataset.length_sample()
    assert choices is not None and question is not None and dimension is not None and lengths is not None  # noqa: PT018
    assert sample is not None
    found: list[Json] = []
    for word in BINS:
        bins = bins_of(word, dimension, sample, longest(experiment))
        curve = curve_of(times, recording.shapes, bins, threads)
        best = best_settings(curve, choices, question, host, lengths, bins, seed=0).best
        if best is not None:
            found.append(
                {
                    "bins": list(bins),
                    "settings": encode(best.settings),
                    "throughput_per_s": best.throughput_per_s.value,
                    "p99_ms": best.p99_ms.value,
                }
            )
    return {"best": max(found, key=lambda one: one["throughput_per_s"], default=None)}


def _drawn(recording: Recording) -> list[int]:
    """The candidates that are measured whole, by their place."""
    count = max(round(recording.effort.share * len(recording.all)), 1)
    return sorted(int(i) for i in np.random.default_rng(0).choice(len(recording.all), size=count, replace=False))


def _whole(
    recording: Recording, classes: _Classes, times: Mapping[tuple[str, int], Floats], anchor_ms: float
) -> list[Json]:
    """A share of the candidates measured whole, beside what their classes say."""
    found = []
    for number, index in enumerate(drawn := _drawn(recording)):
        assignment, place = recording.all[index], f"{number + 1}/{len(drawn)}"
        form, scored = recording.built(assignment, place), recording.scored(assignment, place)
        own = corrected(recording.timed(assignment, recording.effort.whole_rounds, "whole", place), anchor_ms)
        key = classes.time(assignment)
        given = recording.scored(complete(recording.experiment.space, dict(_of(assignment, "quantization."))))
        ratios = np.median(own, axis=0) / np.median(times[key], axis=0)
        found.append(
            {
                "candidate": int(index),
                "time_class": form["time"] == key[0],
                "differ": int((right_of(scored) != right_of(given)).sum()),
                "ratio": float(np.exp(np.mean(np.log(ratios)))),
            }
        )
    return found


def _table(
    recording: Recording,
    classes: _Classes,
    times: Mapping[tuple[str, int], Floats],
    services: Mapping[tuple[str, int], Json],
    whole: list[Json],
    anchor_ms: float,
    build_s: float,
) -> Table:
    experiment, everything = recording.experiment, recording.all
    numerics = list(dict.fromkeys(classes.numerics(a) for a in everything))
    scored = [recording.scored(complete(experiment.space, dict(recipe))) for recipe, _ in numerics]
    right = np.stack([right_of(s) for s in scored])
    float_right = right_of(recording.scored(classes.baseline))
    apart = float_right - right
    keys = classes.times
    best = [services[key]["best"] or {} for key in keys]
    time = np.array([keys.index(classes.time(a)) for a in everything])
    logs = [np.log(times[key]) - np.log(np.median(times[key], axis=0)) for key in keys]
    measured_s = np.array([_timing_s(times[key], anchor_ms, experiment) for key in keys])
    lengths = experiment.dataset.lengths("validation")
    assert lengths is not None, "the tables are of texts"
    at = _nearest(recording.shapes, int(np.median(lengths)))
    sample_s = [
        float(np.median(times[classes.time(complete(experiment.space, dict(recipe)))][:, at])) / 1000
        for recipe, _ in numerics
    ]
    return Table(
        meta={
            "name": recording.name,
            "space": space_text(recording.name),
            "objectives": [o.metric for o in experiment.objectives],
            "constraints": {c.metric: c.limit for c in experiment.constraints},
            "machine": machine(),
            "effort": {f: getattr(recording.effort, f) for f in ("rounds", "whole_rounds", "share")},
            "samples": int(right.shape[1]),
            "shapes": [list(s) for s in recording.shapes],
            "measured": {
                "recipes": len(classes.recipes),
                "numerics": len(numerics),
                "structures": len(set(classes.structure_of.values())),
                "time": len(keys),
            },
            "time_classes": [{"class": k[0][:12], "threads": k[1], **services[k]} for k in keys],
            "whole": whole,
        },
        choices=np.array([choice_places(experiment.space, a) for a in everything], dtype=np.int8),
        numerics=np.array([numerics.index(classes.numerics(a)) for a in everything]),
        time=time,
        accuracy=right.mean(axis=1),
        drop_pp=100 * apart.mean(axis=1),
        drop_error=100 * apart.std(axis=1) / np.sqrt(apart.shape[1]),
        throughput_per_s=np.array([b.get("throughput_per_s", np.nan) for b in best]),
        p99_ms=np.array([b.get("p99_ms", np.nan) for b in best]),
        noise=np.log([w["ratio"] for w in whole]),
        rounds=np.array([each.mean(axis=1) for each in logs]),
        each_s=np.full(len(everything), build_s),
        numerics_s=np.array(sample_s) * right.shape[1],
        time_s=measured_s,
    )


def _built_again(recording: Recording, recipes: Sequence[Any]) -> Json:
    """Median seconds of compiling some recipes with the defaults, from nothing."""
    experiment, took = recording.experiment, []
    with tempfile.TemporaryDirectory(prefix="workbench-recorded-") as folder:
        store = Store(Path(folder) / "store")
        journal = Journal(root=Path(folder) / "journal")
        bench = open_bench(experiment, journal, store, lambda candidate, stage: None)
        for recipe in recipes[:_BUILT_AGAIN]:
            took.append(
                built(bench, experiment, recording.candidate(complete(experiment.space, dict(recipe))))["build_s"]
            )
        store.close()
    return {"build_s": float(np.median(took))}


def _nearest(shapes: Sequence[tuple[int, int]], length: int) -> int:
    """Place of the shape of one row whose length is nearest."""
    return min((i for i, (batch, _) in enumerate(shapes) if batch == 1), key=lambda i: abs(shapes[i][1] - length))


def _timing_s(times: Floats, anchor_ms: float, experiment: Experiment) -> float:
    """What the stages of a sweep take for a time class: both looks at its times with the float baseline beside them,
    three starts, and the curve of a service."""
    assert experiment.service is not None
    calls = experiment.measure.calls + experiment.measure.short_calls
    one_s = float(np.median(times, axis=0)[:: len(_BATCHES)].mean()) / 1000
    rounds_s = 15 * float(np.median(times, axis=0).sum()) / 1000
    return calls * (one_s + anchor_ms / 1000) + max(experiment.service.curve_s, rounds_s)


def proof(table: Table) -> str:
    """What measuring a share whole says about composing, in one sentence for each question."""
    whole = table.meta["whole"]
    ratios = np.array([w["ratio"] for w in whole])
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    equal = sum(w["differ"] == 0 for w in whole)
    most = max(w["differ"] for w in whole)
    return (
        f"{len(table)} candidates of {table.meta['measured']}.\n{len(whole)} measured whole: "
        f"{sum(w['time_class'] for w in whole)} have the time class they were given; {equal} answer every one of "
        f"{table.meta['samples']} samples as their class does, the others differ in {most} at most; their times are "
        f"{middle:.3f} of their class's in the median, 90 % within {low:.3f} to {high:.3f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["minilm", "bert-mini"])
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--bench", type=Path, default=BANKING77)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--draft", action="store_true")
    options = parser.parse_args()
    effort = Effort(rounds=3, whole_rounds=2, share=0.4, samples=60, only=DRAFT) if options.draft else Effort()
    workspace = options.workspace.resolve()
    print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores", flush=True)
    table = record(Recording(options.name, workspace, options.bench, effort))
    print(proof(table))
    to = options.to or FOLDER / f"{options.name}.npz"
    save_table(table, to)
    print(f"{to}: {to.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
