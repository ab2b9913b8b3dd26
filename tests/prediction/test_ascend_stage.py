"""The service stage on a device, emulated: samples that are no texts, and batches and lengths that are compiled."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.ascend_workspace import EXPERIMENT, QUIET, SPACE, write_ascend_workspace
from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.data_check import check_data
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.prediction.stage import serving_lengths
from workbench.search.pipeline import evaluate
from workbench.space.space import build, complete
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.measurement import ServiceResult, Split

HOST = "{request_ms: 0.3, batch_ms: 0.1, cores: 4, origin: a test}"
QUESTION = f"service: {{concurrency: 32, confirm: 0, host: {HOST}}}\n"
CHOICES = "service: {max_batch_size: [16, 1, 4], batch_timeout_ms: [0, 2], workers: [1]}\n"
COMPILED = '  compile.batches: {choices: ["1 8"]}\n'
BINS = {"compile.sequence_bins": "4 8"}
Opened = tuple[Experiment, Bench]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("ascend")
    space = SPACE.replace("presets:", COMPILED + "presets:") + CHOICES
    file = write_ascend_workspace(folder / "workspace", experiment=EXPERIMENT + QUESTION, space=space)
    with switched_on(emulated_environment(folder / "cann", **QUIET)):
        question = read_experiment(file)
        journal = open_journal(question.workspace, question.name, question.identity, fresh=True)
        store = Store(folder / "store")
        yield question, open_bench(question, journal, store, lambda candidate, stage: None)
        store.close()


def candidate(question: Experiment) -> Candidate:
    return build(question.space, complete(question.space, BINS))


def served(question: Experiment, bench: Bench, split: Split) -> ServiceResult:
    found = evaluate(question, candidate(question), bench, split=split, gates=False)
    bench.journal.write(found)
    assert (found.status, found.stage_reached) == ("complete", "service"), found.failure
    assert found.measurement.startup_s is None, "an emulator's start-up is no figure"
    assert found.measurement.service is not None
    return found.measurement.service


def test_samples_that_are_no_texts_are_served_in_the_shape_they_have(opened: Opened) -> None:
    """Of the compiled lengths 4 and 8 their 7 positions run in 8; of batches 1 and 8, 4 rows run as 8."""
    question, bench = opened
    assert question.dataset.preprocessor is None
    assert candidate(question).sequence_bins == (4, 8)
    assert serving_lengths(question, candidate(question)) == (0,)

    searched = served(question, bench, "validation")
    confirmed = served(question, bench, "holdout")

    assert (searched.curve.lengths, searched.curve.batches) == ((0,), (1, 8))
    assert (searched.curve.stepped, searched.curve.clock) == (True, "modelled")
    assert searched.best.settings.max_batch_size == 4, "16 is more than any compiled batch"
    assert "assumed" in searched.best.host.origin
    assert searched.untuned.settings.max_batch_size == 16
    assert confirmed.best.settings == searched.best.settings
    assert confirmed.untuned.settings == searched.untuned.settings


def test_arrays_longer_than_every_compiled_length_are_refused_before_any_work(opened: Opened) -> None:
    question, _ = opened
    parameters = tuple(
        replace(p, choices=("2 4",)) if p.name == "compile.sequence_bins" else p for p in question.space.parameters
    )

    with pytest.raises(
        ConfigError, match=r"no length of '2 4' holds the dataset's samples, arrays of length 7\. Add 7"
    ):
        check_data(replace(question, space=replace(question.space, parameters=parameters)))
