"""Bins from the space to the session: which lengths each side is fed, and that answers do not change by them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.binned_texts import write_binned_workspace
from tests.tiny import bench_of
from workbench.bundle.opened import read_bundle
from workbench.bundle.write import write_bundle
from workbench.evaluation.bench import Bench
from workbench.evaluation.data_check import check_data
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics.outcomes import load_outcomes, size
from workbench.search.pipeline import evaluate
from workbench.shipping.handover import bundle_contents
from workbench.space.space import build, combinations, compile_key
from workbench.targets.base import Array, Feeds
from workbench.targets.feeds import FileSession
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError

SERVICE = "service: {concurrency: 4, host: {request_ms: 0.5, origin: made up}, curve: 0.2s, confirm: 0}\n"
CHOICES = "service: {max_batch_size: [1, 4], workers: [1]}\n"
Opened = tuple[Experiment, Bench]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Opened]]:
    benches = []

    def open_with(task: str = "classification", *, service: bool = False) -> Opened:
        file = write_binned_workspace(tmp_path, task)
        for path, more in ((file, SERVICE), (tmp_path / "search_spaces" / "bins.yaml", CHOICES)):
            path.write_text(path.read_text() + more * service)
        question = read_experiment(file)
        benches.append(bench_of(question, fresh=True))
        return question, benches[-1]

    yield open_with
    for bench in benches:
        bench.store.close()


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """Session → the padded lengths it was fed; the sessions are the real ones."""
    found: dict[int, set[int]] = {}
    run = FileSession.run

    def noted(session: FileSession, feeds: Feeds) -> dict[str, Array]:
        found.setdefault(id(session), set()).add(feeds["input_ids"].shape[1])
        return run(session, feeds)

    monkeypatch.setattr(FileSession, "run", noted)
    return found


def candidates(question: Experiment) -> list[Candidate]:
    return [build(question.space, assignment) for assignment in combinations(question.space)]


def test_the_space_offers_the_datasets_own_bins_and_compiles_nothing_for_them(opened: Callable[..., Opened]) -> None:
    question, _ = opened()
    one, three = candidates(question)

    assert question.baseline == one
    assert one.sequence_bins == (48,)
    assert three.sequence_bins == (8, 24, 48), "texts have 4, 7, 11, 18 and 32 tokens, and more where a word is two"
    assert compile_key(one) == compile_key(three)


@pytest.mark.parametrize("task", ["classification", "tensors"])
def test_each_side_is_fed_its_own_bins_and_scores_alike(
    opened: Callable[..., Opened], fed: dict[int, set[int]], task: str
) -> None:
    question, bench = opened(task)
    one, three = candidates(question)

    first = evaluate(question, one, bench)
    fed.clear()
    second = evaluate(question, three, bench, gates=False)

    assert (first.status, second.status) == ("complete", "complete"), second.failure
    assert sorted(map(sorted, fed.values())) == [[8, 24, 48], [48]]
    assert first.measurement.accuracy is not None
    assert second.measurement.accuracy is not None
    assert second.measurement.accuracy.values == pytest.approx(first.measurement.accuracy.values, abs=1e-5)
    assert second.measurement.accuracy.samples == 60
    assert size(load_outcomes(bench.journal.outcomes(three.id, "validation"))) == 60
    with np.load(bench.journal.latency(three.id, "validation")) as times:
        assert times["candidate_ms"].size >= 40


def test_a_bundle_pads_as_its_candidate_was_measured(opened: Callable[..., Opened]) -> None:
    question, bench = opened()
    three = candidates(question)[1]
    bench.journal.write(evaluate(question, three, bench, gates=False))

    contents = bundle_contents(question, three, bench, bench.journal)

    assert contents.preprocessor is not None
    assert contents.preprocessor.bins == (8, 24, 48)
    assert {batch.feeds["input_ids"].shape[1] for batch in contents.golden} <= {8, 24, 48}
    assert min(batch.feeds["input_ids"].shape[1] for batch in contents.golden) < 48


def test_with_a_service_bins_are_its_choice_and_reach_its_bundle(opened: Callable[..., Opened], tmp_path: Path) -> None:
    question, bench = opened(service=True)
    (candidate,) = candidates(question)
    assert candidate == question.baseline
    assert candidate.sequence_bins is None

    searched = evaluate(question, candidate, bench)
    found = searched.measurement.service
    assert found is not None, searched.failure
    assert found.best is not None
    assert found.tried == 4
    assert found.untuned.settings.sequence_bins == (48,)
    assert found.best.settings.sequence_bins in ((48,), (8, 24, 48))
    assert found.curve.lengths == (8, 24, 48)

    # whatever the machine made of it, the confirmation and the bundle follow what stands in the journal
    one = replace(found.best, settings=replace(found.best.settings, sequence_bins=(48,)))
    bench.journal.write(replace(searched, measurement=replace(searched.measurement, service=replace(found, best=one))))
    confirmed = evaluate(question, candidate, bench, split="holdout", gates=False)
    bench.journal.write(confirmed)
    assert confirmed.measurement.service is not None, confirmed.failure
    assert confirmed.measurement.service.best is not None
    assert confirmed.measurement.service.best.settings == one.settings
    assert confirmed.measurement.service.curve.lengths == (48,)

    contents = bundle_contents(question, candidate, bench, bench.journal)
    assert {batch.feeds["input_ids"].shape[1] for batch in contents.golden} == {48}
    manifest = read_bundle(write_bundle(tmp_path / "bundle", contents)).manifest
    assert manifest.text is not None
    assert manifest.text.bins == manifest.service.sequence_bins == (48,)


def test_the_holdout_has_no_say_in_the_bins(opened: Callable[..., Opened]) -> None:
    dataset = opened()[0].dataset
    lengths = dataset.length_sample()

    assert lengths is not None
    parts = [dataset.lengths("calibration"), dataset.lengths("validation")]
    assert np.array_equal(lengths, np.concatenate([part for part in parts if part is not None]))


def test_a_model_of_one_length_cannot_be_asked_about_bins(opened: Callable[..., Opened]) -> None:
    question, _ = opened()
    inputs = tuple(replace(spec, shape=("batch", 48)) for spec in question.model.inputs)

    check_data(question)
    with pytest.raises(ConfigError, match=r"serving\.sequence_bins: the model takes texts of 48 tokens and no others"):
        check_data(replace(question, model=replace(question.model, inputs=inputs)))
