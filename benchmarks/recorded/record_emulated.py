"""Record the table of BERT-small on the emulated 910B3. Its cost is runs of ATC; its times are modelled, not measured.

    python -m benchmarks.recorded.record_emulated --workspace DIR [--to FILE] [--threads 1] [--draft]

Killed and started again over the same workspace, it goes on where it was. `--draft` records a part of the space with
few samples, to see that it runs. What it does, in order:

1. Every recipe (choices of `quantization.*`) is calibrated and lowered; those of one structure differ in numbers alone.
2. Every structure is compiled with every combination of fusions at one shape. Files of one form have one list of
   kernels with their times; every form is compiled at every shape that a set of batches and bins may hold.
3. For every form and set the best service settings are simulated.
4. Every recipe answers the validation split in the emulator's arithmetic, with the default fusions and the bins that
   pad least.
5. Some candidates, drawn by seed, are compiled whole by the emulated `atc`, opened by the target and scored. Printed:
   how far their times lie from those they were given, and in how many samples their answers differ.

A candidate costs a run of ATC for each of its files.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recorded import emulated
from benchmarks.recorded.emulated_question import BINS, NAME, space_text, write_question
from benchmarks.recorded.measuring import Shape, answers, longest, machine, opened, right_of
from benchmarks.recorded.parts import Json, Parts
from benchmarks.recorded.record import _of, _possible
from benchmarks.recorded.tables import ATC_RUNS, FOLDER, Floats, Table, choice_places, save_table
from tests.emulated_cann import emulated_environment, switched_on
from workbench.cann_emulator.om import load_om
from workbench.evaluation.bench import open_bench
from workbench.evaluation.build import artifact_of, lowered_file, structure_of
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.journal import Journal
from workbench.evaluation.modelled_clock import modelled_call
from workbench.evaluation.store import Store
from workbench.inputs.experiment import read_experiment
from workbench.prediction.search import best_settings
from workbench.search.outlook import compiled_files
from workbench.space.space import build, combinations, complete
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import encode

DRAFT = {
    "quantization.algorithm": "mse",
    "quantization.keep_float": 0,
    "compile.fusions.gelu": "on",
    "compile.fusions.elementwise": "on",
    "compile.batches": "1 8",
}


Set = tuple[tuple[int, ...], tuple[int, ...]]
"""Batches and lengths that are compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is recorded.

    Attributes:
        samples: of the validation split; whole_samples: of those, that candidates compiled whole answer; whole: how
            many those are. only: parameter → the one choice that is kept. threads: of the arithmetic.
    """

    samples: int = 150
    whole_samples: int = 60
    whole: int = 20
    only: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1


class Recording:
    """One table in the making; the emulated CANN is switched on."""

    def __init__(self, workspace: Path, effort: Effort) -> None:
        self.effort = effort
        self.experiment = read_experiment(write_question(workspace, effort.samples), workspace)
        root = workspace / ".workbench" / "recorded"
        store = Store(workspace / ".workbench" / "store")
        self.bench = open_bench(self.experiment, Journal(root=root / f"{NAME}-journal"), store, lambda c, stage: None)
        self.parts = Parts(root / NAME)
        self.device = emulated.device()
        space = self.experiment.space
        self.all = [
            a
            for a in combinations(space)
            if _possible(self.experiment, a) and all(a.get(n, kept) == kept for n, kept in effort.only.items())
        ]
        self.sets = list(dict.fromkeys(set_of(a) for a in self.all))
        self.shapes = sorted({shape for batches, bins in self.sets for shape in itertools.product(batches, bins)})
        self.scored_bins = max((bins for _, bins in self.sets), key=lambda bins: (len(bins) <= 4, len(bins)))

    def candidate(self, assignment: Mapping[str, Any]) -> Candidate:
        return build(self.experiment.space, complete(self.experiment.space, assignment))

    def structure(self, recipe: Mapping[str, Any], place: str) -> str:
        """What of a recipe decides times."""
        found = self.parts.get(
            "structure",
            recipe,
            lambda: {"structure": structure_of(self.experiment, self.candidate(recipe), self.bench)},
            place=place,
        )
        return str(found["structure"])

    def _compiled(self, assignment: Mapping[str, Any], shape: Shape) -> Any:
        candidate = self.candidate(assignment)
        return emulated.compiled(lowered_file(self.experiment, candidate, self.bench), candidate, shape)

    def form(self, structure: str, assignment: Mapping[str, Any], place: str) -> str:
        """Of a structure and fusions: the kernels of the file for one text of the longest length."""
        key = {"structure": structure, "fusions": _of(assignment, "compile.fusions.")}

        def make() -> Json:
            return {"form": emulated.form(self._compiled(assignment, (1, longest(self.experiment))), self.device)}

        return str(self.parts.get("form", key, make, place=place)["form"])

    def times(self, form: str, assignment: Mapping[str, Any], place: str) -> dict[Shape, float]:
        """Modelled milliseconds of a call at every shape."""
        found = {}
        for length in sorted({length for _, length in self.shapes}):
            batches = [batch for batch, each in self.shapes if each == length]

            def make(batches: list[int] = batches, length: int = length) -> Json:
                models = (self._compiled(assignment, (batch, length)) for batch in batches)
                return {"ms": [emulated.call_ms(model, self.device) for model in models]}

            key = {"form": form, "length": length, "batches": batches}
            told = self.parts.get("times", key, make, place=f"{place}, {length}")
            found.update({(batch, length): ms for batch, ms in zip(batches, told["ms"], strict=True)})
        return found

    def service(self, form: str, held: Set, times: Mapping[Shape, float], place: str) -> Json:
        """The settings that serve most within the limit on P99."""
        choices, question = self.experiment.space.service, self.experiment.service
        lengths = self.experiment.dataset.lengths("validation")
        assert choices is not None  # the space says
        assert question is not None  # the experiment says
        assert question.host is not None  # the experiment says
        assert lengths is not None  # texts
        host = question.host

        def make() -> Json:
            curve = emulated.curve({shape: times[shape] for shape in itertools.product(*held)})
            best = best_settings(curve, choices, question, host, lengths, held[1], seed=0).best
            if best is None:
                return {"best": None}
            figures = {"throughput_per_s": best.throughput_per_s.value, "p99_ms": best.p99_ms.value}
            return {"best": {"settings": encode(best.settings), **figures}}

        return self.parts.get("service", {"form": form, "set": held, "lengths": lengths.tolist()}, make, place=place)

    def scored(self, recipe: Mapping[str, Any], place: str) -> Json:
        def make() -> Json:
            began = time.monotonic()
            models = {length: self._compiled(recipe, (1, length)) for length in self.scored_bins}
            right = emulated.right(self.experiment, models, self.effort.threads)
            hexed = np.packbits(np.array(right)).tobytes().hex()
            return {"right": hexed, "samples": len(right), "score_s": time.monotonic() - began}

        key = {"recipe": recipe, "samples": self.effort.samples, "bins": self.scored_bins}
        return self.parts.get("answers", key, make, place=place)

    def whole(self, assignment: Mapping[str, Any], times: Mapping[Shape, float], place: str) -> Json:
        """Compiled as a set by `atc`, opened by the target, scored, and its shortest call timed by the device."""
        few = replace(
            self.experiment,
            dataset=self.experiment.dataset.first(validation=self.effort.whole_samples, holdout=None),
        )

        def make() -> Json:
            candidate = self.candidate(assignment)
            artifact, directory = artifact_of(self.experiment, candidate, self.bench)
            files = {(f.batch or 0, f.sequence_bin or 0): directory / f.file for f in artifact.files if f.batch}
            ratios = [emulated.call_ms(load_om(file), self.device) / times[shape] for shape, file in files.items()]
            batch, length = min(files)
            with opened(self.bench, few, candidate) as (session, _):
                at = (few.dataset, few.model, "validation")
                feeds = timed_feeds(*at, count=1, batch=batch, seed=0, length=length)  # type: ignore[arg-type]
                clock = modelled_call(session, feeds[0]).ms / times[batch, length]
            return {"files": len(files), "ratios": ratios, "clock": clock, **answers(self.bench, few, candidate)}

        return self.parts.get(
            "whole", {"assignment": assignment, "samples": self.effort.whole_samples}, make, place=place
        )


def set_of(assignment: Mapping[str, Any]) -> Set:
    batches, bins = (tuple(map(int, assignment[name].split())) for name in ("compile.batches", BINS))
    return batches, bins


def record(recording: Recording) -> Table:
    everything, experiment = recording.all, recording.experiment
    recipes = list(dict.fromkeys(_of(a, "quantization.") for a in everything))
    print(
        f"{len(everything)} candidates: {len(recipes)} recipes, {len(recording.sets)} sets of {len(recording.shapes)} "
        f"shapes; texts answered in bins {recording.scored_bins}",
        flush=True,
    )
    structures = {r: recording.structure(dict(r), f"{n + 1}/{len(recipes)}") for n, r in enumerate(recipes)}
    wanted = {}  # structure and fusions → a member
    for a in everything:
        wanted.setdefault((structures[_of(a, "quantization.")], _of(a, "compile.fusions.")), a)
    forms = {
        key: recording.form(key[0], member, f"{n + 1}/{len(wanted)}") for n, (key, member) in enumerate(wanted.items())
    }
    members = {}
    for key, form in forms.items():
        members.setdefault(form, wanted[key])
    print(f"{len(set(structures.values()))} structures, {len(members)} forms", flush=True)
    times = {f: recording.times(f, m, f"{n + 1}/{len(members)}") for n, (f, m) in enumerate(members.items())}
    classes = list(itertools.product(members, recording.sets))
    services = [
        recording.service(form, held, times[form], f"{n + 1}/{len(classes)}") for n, (form, held) in enumerate(classes)
    ]

    def form_of(a: Mapping[str, Any]) -> str:
        return forms[structures[_of(a, "quantization.")], _of(a, "compile.fusions.")]

    scored = [recording.scored(dict(recipe), f"{n + 1}/{len(recipes)}") for n, recipe in enumerate(recipes)]
    right = np.stack([right_of(s) for s in scored])
    drawn = sorted(np.random.default_rng(0).choice(len(everything), size=recording.effort.whole, replace=False))
    whole = []
    for n, index in enumerate(drawn):
        a = everything[index]
        found = recording.whole(a, times[form_of(a)], f"{n + 1}/{len(drawn)}")
        own = right_of(found)
        given = right[recipes.index(_of(a, "quantization."))][: len(own)]
        whole.append(
            {
                "candidate": int(index),
                "files": found["files"],
                "differ": int((own != given).sum()),
                "samples": len(own),
                "ratio": float(max(found["ratios"], key=lambda ratio: abs(np.log(ratio)))),
                "clock": found["clock"],
            }
        )
    kinds = list(forms)
    place = {key: number for number, key in enumerate(classes)}
    apart = right[recipes.index(_of(complete(experiment.space, {}), "quantization."))] - right
    best = [service["best"] or {} for service in services]
    lengths = next(p for p in experiment.space.parameters if p.name == BINS).choices
    return Table(
        meta={
            "name": NAME,
            "space": space_text([str(choice) for choice in lengths]),
            "objectives": [o.metric for o in experiment.objectives],
            "constraints": {c.metric: c.limit for c in experiment.constraints},
            "cost": ATC_RUNS,
            "modelled": "times are those of the emulated 910B3's analytical model; accuracy is its arithmetic",
            "machine": machine(),
            "samples": int(right.shape[1]),
            "shapes": [list(s) for s in recording.shapes],
            "measured": {
                "numerics": len(recipes),
                "structures": len(set(structures.values())),
                "forms": len(members),
                "time": len(classes),
            },
            "structures": [
                kinds.index((structures[_of(a, "quantization.")], _of(a, "compile.fusions."))) for a in everything
            ],
            "time_classes": [{"class": c[0][:12], "set": c[1], **s} for c, s in zip(classes, services, strict=True)],
            "whole": whole,
        },
        choices=np.array([choice_places(experiment.space, a) for a in everything], dtype=np.int8),
        numerics=np.array([recipes.index(_of(a, "quantization.")) for a in everything]),
        time=np.array([place[form_of(a), set_of(a)] for a in everything]),
        accuracy=right.mean(axis=1),
        drop_pp=100 * apart.mean(axis=1),
        drop_error=100 * apart.std(axis=1) / np.sqrt(apart.shape[1]),
        throughput_per_s=np.array([b.get("throughput_per_s", np.nan) for b in best]),
        p99_ms=np.array([b.get("p99_ms", np.nan) for b in best]),
        noise=np.zeros(1),
        rounds=np.zeros((len(classes), 1)),
        each_s=_runs(recording),
        numerics_s=np.zeros(len(recipes)),
        time_s=np.zeros(len(classes)),
    )


def _runs(recording: Recording) -> Floats:
    return np.array([float(len(compiled_files(recording.candidate(a)))) for a in recording.all])


def proof(table: Table) -> str:
    whole = table.meta["whole"]
    equal = sum(w["differ"] == 0 for w in whole)
    far = max(abs(w["ratio"] - 1) for w in whole)
    clock = max(abs(w["clock"] - 1) for w in whole)
    return (
        f"{len(table)} candidates of {table.meta['measured']}, times modelled; compiling all of them whole takes "
        f"{table.each_s.sum():.0f} runs of ATC.\n{len(whole)} compiled whole, {sum(w['files'] for w in whole)} files: "
        f"the times of their files are within {far:.2%} of those they were given, and of the device's own clock at the "
        f"shortest call within {clock:.2%}; {equal} answer every sample as their class does, the others differ in "
        f"{max(w['differ'] for w in whole)} of {max(w['samples'] for w in whole)} at most."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=FOLDER / f"{NAME}.npz")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--draft", action="store_true")
    options = parser.parse_args()
    effort = Effort(threads=options.threads)
    if options.draft:
        effort = Effort(threads=options.threads, samples=50, whole_samples=50, whole=2, only=DRAFT)
    workspace = options.workspace.resolve()
    workspace.mkdir(parents=True, exist_ok=True)
    print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores", flush=True)
    with switched_on(emulated_environment(workspace / "emulated")):
        table = record(Recording(workspace, effort))
    print(proof(table))
    save_table(table, options.to)
    print(f"{options.to}: {options.to.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
