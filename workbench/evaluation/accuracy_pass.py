"""Every sample of a split through a compiled candidate, and what came of each, by the dataset's scorer.

A candidate's answers are kept beside those of the float32 reference, and of the float baseline where that is another
one, sample by sample, because differences are tested pair by pair. They grow as far as a gate of
`workbench.search.pipeline` asks, and stay in the store once they are complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import reference_identity, whole_samples
from workbench.evaluation.store import Store
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.language import windows
from workbench.inputs.dataset.text import TextRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.outcomes import (
    MeasuredOutcomes,
    Outcomes,
    concatenate,
    load_outcomes,
    measured,
    save_outcomes,
    size,
    take,
)
from workbench.inputs.metrics.retrieval_scorer import RetrievalScorer, Side
from workbench.inputs.metrics.score import Outputs, Scorer, cut_alike
from workbench.targets.base import Session
from workbench.targets.language import Scores, language_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.measurement import Split
from workbench.values.paired_scores import WindowOutcomes
from workbench.values.system.source_closure import closure_digest

Kind = TypeVar("Kind", bound=Outcomes)


class Growing(ABC, Generic[Kind]):
    """Outcomes that grow from a split's first sample on, kept in the store once they are complete.

    Attributes:
        done: the outcomes so far; None before the first.
        total: samples of the split.
        step: so many run at once.
        from_store: the last call of `full` found them complete in the store.
    """

    total: int
    step = 1
    from_store = False

    def __init__(self, store: Store, key: Mapping[str, object]) -> None:
        self._store, self.stored_under = store, key
        self.done: Kind | None = self._stored(key)

    @abstractmethod
    def _run(self, start: int, stop: int) -> Kind:
        """Outcomes of these samples."""

    def first(self, count: int) -> Kind:
        """Outcomes of the first samples, at least `count` of them, whole batches only."""
        wanted = min(self.total, -(-count // self.step) * self.step)
        have = 0 if self.done is None else size(self.done)
        if have < wanted:
            new = self._run(have, wanted)
            self.done = new if self.done is None else concatenate([self.done, new])
        assert self.done is not None
        return take(self.done, wanted)

    def full(self) -> Kind:
        """Outcomes of the whole split."""
        outcomes = self.first(self.total)
        self.from_store = self._keep(self.stored_under, outcomes)
        return outcomes

    def _stored(self, key: Mapping[str, object]) -> Kind | None:
        entry = self._store.find("outcomes", key)
        return None if entry is None else cast(Kind, load_outcomes(entry.path / "outcomes.npz"))

    def _once(self, key: Mapping[str, object], make: Callable[[], Kind]) -> Kind:
        """Complete outcomes from the store, or made now and put there."""
        found = self._stored(key)
        if found is None:
            self._keep(key, found := make())
        return found

    def _keep(self, key: Mapping[str, object], outcomes: Kind) -> bool:
        """Put complete outcomes into the store; True when they were there already."""
        return self._store.get_or_build(
            "outcomes", key, lambda folder: save_outcomes(folder / "outcomes.npz", outcomes)
        ).cached


class AccuracyPass(Growing[Outcomes]):
    """Outcomes of one candidate; `from_store` is also said of those that were taken from another."""

    def __init__(
        self,
        experiment: Experiment,
        candidate: Candidate,
        bench: Bench,
        split: Split,
        *,
        artifact: Artifact,
        session: Session,
        baseline: Session,
        reference: Session | None = None,
    ) -> None:
        """`session` runs the candidate's `artifact`, `baseline` the float baseline (both are one for the baseline).

        Args:
            reference: of `evaluation.carried.open_reference`, where the baseline does not compute in float32.
        """
        self.experiment, self.candidate, self.bench = experiment, candidate, bench
        self.split: Split = split
        at = (experiment.dataset.interface, experiment.model)
        self.session, self.baseline = whole_samples(session, *at), whole_samples(baseline, *at)
        self.reference = self.baseline if reference is None else whole_samples(reference, *at)
        self.baseline_is_reference = reference is None  # it computes in float32, and nothing else is compared with
        # each is fed its own bins, as it would be served
        self.data, self.baseline_data = self._data(candidate), self._data(experiment.baseline)
        self.scorer = self._scorer()
        self.total, self.step = self.data.size(split), candidate.serving.batch
        self._borrowed = self._afresh = self._searches = False
        super().__init__(bench.store, self._key(candidate, artifact))

    @property
    def scored(self) -> dict[str, object]:
        """How and on what outcomes are made, but for the files that make them."""
        return {name: value for name, value in self.stored_under.items() if name not in ("artifact", "opened_with")}

    def reuse(self, outcomes: Outcomes) -> None:
        """Take another candidate's outcomes over the whole split. The store is not told: other files gave them."""
        self.done, self._borrowed = outcomes, True

    def measure_afresh(self) -> None:
        """Run every sample, whatever the store has."""
        self.done, self._afresh = None, True

    def full(self) -> Outcomes:
        outcomes = self.first(self.total)
        self.from_store = self._borrowed or (self._keep(self.stored_under, outcomes) and not self._afresh)
        return outcomes

    def reference_outcomes(self) -> Outcomes:
        """The float model in float32 over the whole split; run once per sweep."""
        if self.baseline_is_reference:
            return self.baseline_outcomes()
        baseline = self.experiment.baseline
        key = {**self._scoring(baseline), "reference": reference_identity(self.experiment.model)}
        return self._once(key, lambda: self._over_all(self.reference))

    def baseline_outcomes(self) -> Outcomes:
        """The float baseline over the whole split; run once per sweep."""
        baseline = self.experiment.baseline
        if self.candidate.id == baseline.id:
            return self.full()
        artifact, _ = artifact_of(self.experiment, baseline, self.bench)
        return self._once(self._key(baseline, artifact), lambda: self._over_all(self.baseline))

    def answers_as_baseline(self) -> bool:
        """Whether every sample has the float baseline's own answer, bit for bit: runs both, up to the first that has
        not."""
        pairs = zip(
            *(data.batches(self.split, self.candidate.serving.batch) for data in (self.data, self.baseline_data)),
            strict=True,
        )
        answers = ((self.session.run(ours.feeds), self.baseline.run(theirs.feeds)) for ours, theirs in pairs)
        alike = all(a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() for n in a) for a, b in answers)
        if not alike or self.experiment.dataset.retrieval is None:
            return alike
        scorer = self.searching()
        assert isinstance(scorer, RetrievalScorer)
        return self.baseline_is_reference and scorer.same_documents()

    def _over_all(self, session: Session) -> Outcomes:
        batch_size, scorer = self.experiment.baseline.serving.batch, self._scorer()
        self._search(scorer, session, self.baseline_data, batch_size)
        itself = session is self.reference or not scorer.needs_reference

        def runs() -> Iterator[tuple[Outputs, Batch, Outputs]]:
            for batch in self.baseline_data.batches(self.split, batch_size):
                outputs = session.run(batch.feeds)
                yield outputs, batch, outputs if itself else self.reference.run(batch.feeds)

        return scorer.score_all(runs())

    def _run(self, start: int, stop: int) -> Outcomes:
        span = {"start": start, "stop": stop}
        batches = self.data.batches(self.split, self.candidate.serving.batch, **span)
        if not self.scorer.needs_reference:
            return concatenate([self.scorer.score(self.session.run(batch.feeds), batch, None) for batch in batches])
        # without labels the float model in float32 is the truth, so it runs beside the candidate
        others = self.baseline_data.batches(self.split, self.candidate.serving.batch, **span)

        def runs() -> Iterator[tuple[Outputs, Batch, Outputs]]:
            for batch, other in zip(batches, others, strict=True):
                outputs, reference, common = cut_alike(
                    self.session.run(batch.feeds), batch, self.reference.run(other.feeds), other
                )
                yield outputs, common, reference

        return self.searching().score_all(runs())

    def searching(self) -> Scorer:
        """The scorer, which has embedded a retrieval's documents; of other data as it is."""
        if not self._searches:
            self._search(self.scorer, self.session, self.data, self.candidate.serving.batch)
            self._searches = True
        return self.scorer

    def _search(self, scorer: Scorer, session: Session, data: Dataset, batch: int) -> None:
        """Of a retrieval: documents are found as this session, and as the float model in float32, embeds them."""
        queries, said, exactly = data.split(self.split).source, data.retrieval, self.baseline_data.retrieval
        if not isinstance(scorer, RetrievalScorer) or said is None or exactly is None:
            return
        assert isinstance(queries, TextRows)  # which a retrieval's samples are
        exact = Side(run=self.reference.run, corpus=exactly.corpus, batch=self.experiment.baseline.serving.batch)
        own = exact if session is self.reference else Side(run=session.run, corpus=said.corpus, batch=batch)
        key = {
            **reference_identity(self.experiment.model),
            "documents": exactly.index_identity,
            "texts": exactly.corpus.preprocessor.identity,
            "batch": exact.batch,
            "code": closure_digest("workbench.inputs.metrics", "workbench.inputs.dataset", alone=(__name__,)),
        }
        scorer.search(own, exact, queries, lambda build: self.bench.store.get_or_build("index", key, build).path)

    def _data(self, candidate: Candidate) -> Dataset:
        """At the padded lengths that texts run at: where a candidate is confirmed those that the search chose for its
        service. On other splits none is chosen yet: it is scored at its own, or at those with the least padding."""
        bins = candidate.sequence_bins
        if bins is None and self.split == "holdout":
            searched = self.bench.journal.evaluation(candidate.id)
            service = None if searched is None else searched.measurement.service
            bins = None if service is None else (service.best or service.closest).settings.sequence_bins or None
        return self.experiment.dataset.with_bins(bins)

    def _scorer(self) -> Scorer:
        return scorer_of(self.experiment.dataset, self.experiment.model)

    def _key(self, candidate: Candidate, artifact: Artifact) -> dict[str, object]:
        """Outcomes depend on what executes and on what is fed. Threads are left out: ONNX Runtime splits rows and
        columns between threads, never one sum, so they change no output [inferred; its integer kernels are exact]."""
        held_against = not self.baseline_is_reference and self.scorer.needs_reference
        return {
            **self._scoring(candidate),
            **({"held_against": reference_identity(self.experiment.model)} if held_against else {}),
            # what a runtime rounds further when it opens the files is not in them
            **({"opened_with": candidate.compile} if candidate.compile.rounds_further() else {}),
            "artifact": [f.sha256 for f in artifact.files],
            "toolchain": self.bench.toolchain(candidate),
        }

    def _scoring(self, candidate: Candidate) -> dict[str, object]:
        """How and on what outcomes are made."""
        identity = self.scorer.identity
        return {
            **({} if identity is None else {"scorer": identity}),
            "data": self._data(candidate).digest(self.split),
            "model": self.experiment.model.sha256,
            "batch": candidate.serving.batch,
            "code": closure_digest(
                *(
                    "workbench.inputs.metrics",
                    "workbench.inputs.dataset",
                    type(self.bench.target(candidate)).__module__,
                ),
                alone=(__name__, "workbench.evaluation.carried"),
            ),
        }


# --- of a language model: every window of a split, beside the float model --------------------------------------------

NLL, KL, TOP1 = "nll", "kl", "top1_agreement"
_UNITS = {NLL: "nats", KL: "nats", TOP1: ""}
_BOUNDS = {NLL: None, KL: (0.0, None), TOP1: (0.0, 1.0)}
_PRIMARY = {"perplexity": NLL, "kl": KL}
"""What the dataset measures → what is kept of every window: a perplexity's logarithm is a mean."""


class WindowPass(Growing[MeasuredOutcomes]):
    """Outcomes of one candidate over a split, window by window.

    Candidates whose checkpoints give equal outputs share them: the key is what decides outputs, not the recipe.

    Attributes:
        key: of the outcomes over the whole split, 64 hex digits.
    """

    def __init__(
        self,
        experiment: Experiment,
        candidate: Candidate,
        bench: Bench,
        split: Split,
        *,
        artifact: Artifact,
        directory: Path,
    ) -> None:
        self.experiment, self.candidate, self.bench = experiment, candidate, bench
        self.split: Split = split
        self.total = experiment.dataset.size(split)
        self._artifact, self._directory = artifact, directory
        self._scores: Scores | None = None
        super().__init__(bench.store, self._key_of(candidate, artifact))
        self.key = digest(self.stored_under)

    def _run(self, start: int, stop: int) -> MeasuredOutcomes:
        """Raises MeasureError: a logit is NaN or infinite, or the checkpoint cannot be executed."""
        if self._scores is None:
            self._scores = self._opened(self.candidate, self._artifact, self._directory)
        return self._outcomes(self._scores(start, stop))

    def reference(self) -> MeasuredOutcomes:
        """Of the float model over the whole split; run once for all candidates."""
        baseline = self.experiment.baseline
        if self.candidate.id == baseline.id:
            return self.full()
        artifact, directory = artifact_of(self.experiment, baseline, self.bench)
        return self._once(
            self._key_of(baseline, artifact),
            lambda: self._outcomes(self._opened(baseline, artifact, directory)(0, self.total)),
        )

    def _opened(self, candidate: Candidate, artifact: Artifact, directory: Path) -> Scores:
        target, chosen = language_target(self.bench.target(candidate)), windows(self.experiment.dataset, self.split)
        model = self.experiment.model
        kept = self.bench.store.get_or_build(
            "float_states",
            self._scored() | {"of": "float states"},
            lambda folder: target.keep_reference(model, chosen, folder),
        )
        return target.scores(model, candidate, artifact, directory, chosen, kept.path)

    def _outcomes(self, scores: WindowOutcomes) -> MeasuredOutcomes:
        primary = _PRIMARY[self.experiment.dataset.measure]
        names = sorted(_UNITS, key=lambda name: name != primary)
        sums = {NLL: scores.nll, KL: scores.kl, TOP1: scores.agreed.astype(np.float64)}
        counted = scores.predictions.astype(np.float64)
        metrics = [(name, _UNITS[name], name == TOP1, _BOUNDS[name], "ratio") for name in names]
        fractions = np.stack([sums[name] for name in names], axis=1), np.stack([counted] * len(names), axis=1)
        return measured(metrics, fractions)

    def _key_of(self, candidate: Candidate, artifact: Artifact) -> dict[str, object]:
        target = language_target(self.bench.target(candidate))
        measure = self.experiment.dataset.measure
        return self._scored() | {"outputs": target.decides_outputs(artifact), "measure": measure}

    def _scored(self) -> dict[str, object]:
        """On what, and by what code."""
        baseline = self.experiment.baseline
        target = self.bench.target(baseline)
        return {
            "data": self.experiment.dataset.digest(self.split),
            "model": self.experiment.model.sha256,
            "toolchain": self.bench.toolchain(baseline),
            "code": closure_digest(type(target).__module__, "workbench.inputs.dataset.language", alone=(__name__,)),
        }
