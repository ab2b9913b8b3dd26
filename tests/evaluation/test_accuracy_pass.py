"""A split through a candidate: how far it goes, what it is compared with, and what is never run twice."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.retrievals import write_retrieval
from tests.tiny import bench_of, write_workspace
from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics.outcomes import per_sample, size, summarize
from workbench.targets.base import Feeds, Session
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Quantization, Serving

BATCH = 24
DYNAMIC = Candidate(
    target="onnxruntime",
    quantization=Quantization(scheme="dynamic", weight_granularity="channel"),
    serving=Serving(intra_op_threads=1, batch=BATCH),
)


class Counted:
    """A session that says how often it ran."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runs = 0

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        self.runs += 1
        return dict(self.session.run(feeds))

    def close(self) -> None:
        self.session.close()


Opened = tuple[Experiment, Bench, Artifact, Counted, Counted]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    question = read_experiment(write_workspace(tmp_path))
    bench = bench_of(question)
    artifact, folder = artifact_of(question, DYNAMIC, bench)
    float_artifact, float_folder = artifact_of(question, question.baseline, bench)
    session = Counted(bench.target(DYNAMIC).open(artifact, folder, DYNAMIC))
    baseline = Counted(bench.target(question.baseline).open(float_artifact, float_folder, question.baseline))
    yield question, bench, artifact, session, baseline
    session.close()
    baseline.close()
    bench.store.close()


def scores_of(opened: Opened) -> AccuracyPass:
    question, bench, artifact, session, baseline = opened
    return AccuracyPass(question, DYNAMIC, bench, "validation", artifact=artifact, session=session, baseline=baseline)


def test_a_pass_grows_by_whole_batches_runs_no_sample_twice_and_is_kept_once_complete(opened: Opened) -> None:
    session, scores = opened[3], scores_of(opened)

    few = scores.first(10)
    assert (size(few), session.runs) == (BATCH, 1)
    assert (size(scores.first(BATCH)), session.runs) == (BATCH, 1)
    more = scores.first(BATCH + 1)
    assert (size(more), session.runs) == (2 * BATCH, 2)
    assert per_sample(more)[:BATCH].tolist() == per_sample(few).tolist()
    assert scores_of(opened).done is None, "an incomplete one is not"

    whole = scores.full()
    runs = session.runs
    again = scores_of(opened)
    assert (size(whole), scores.from_store) == (320, False)
    assert per_sample(again.full()).tolist() == per_sample(whole).tolist()
    assert (again.from_store, session.runs) == (True, runs)


def test_a_retrieval_embeds_its_documents_once_for_the_float_model_and_once_for_each_candidate(tmp_path):
    question = read_experiment(write_retrieval(tmp_path))
    bench, found, runs = bench_of(question), [], []
    floats = artifact_of(question, question.baseline, bench)
    for candidate in (question.baseline, DYNAMIC):
        artifact, folder = artifact_of(question, candidate, bench)
        baseline = Counted(bench.target(candidate).open(*floats, question.baseline))
        with closing(baseline), closing(Counted(bench.target(candidate).open(artifact, folder, candidate))) as own:
            session = baseline if candidate == question.baseline else own
            scores = AccuracyPass(
                *(question, candidate, bench, "validation"), artifact=artifact, session=session, baseline=baseline
            )
            found.append(scores.full())
            runs += [session.runs, baseline.runs]
            assert scores.answers_as_baseline() == (candidate == question.baseline)
    # the baseline: 60 documents, and 240 queries as itself and as what they are compared with
    assert runs[:2] == [60 + 2 * 240] * 2
    assert runs[2:] == [-(-60 // BATCH) + 240 // BATCH, 240 // BATCH]  # the float model's documents are in the store
    assert summarize(found[0])["recall_at_5"] == 1  # what the float model finds is right
    assert summarize(found[1])["recall_at_5"] < 1
    bench.store.close()
