"""A agreement says how far real answers lie apart: of every way, in every shape, as a service groups its requests."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.tiny_texts import write_text_workspace
from workbench.api.opening import opened
from workbench.evaluation.bench import Bench
from workbench.inputs.answers import text_digest, write_answers
from workbench.inputs.experiment import Experiment
from workbench.shipping.agreement.compared import Asked, Comparison, Pair
from workbench.shipping.agreement.measure import agreement_of_candidate, agreement_of_sessions
from workbench.shipping.agreement.ways import Shape, Way
from workbench.space.space import build, complete
from workbench.values.agreement import Agreements
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode
from workbench.values.errors import ConfigError
from workbench.values.metrics import agreement_metrics
from workbench.values.service import ServiceSettings

SERVICE = ServiceSettings(max_batch_size=8)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Experiment, Bench]]:
    file = write_text_workspace(tmp_path_factory.mktemp("texts"))
    with opened(file, scratch=True) as found:
        yield found


@pytest.fixture(scope="module")
def int8(at: tuple[Experiment, Bench]) -> Candidate:
    return build(at[0].space, complete(at[0].space, {"quantization.scheme": "static"}))


@pytest.fixture(scope="module")
def of_int8(at: tuple[Experiment, Bench], int8: Candidate) -> Agreements:
    return agreement_of_candidate(*_with(at, int8), SERVICE, Asked())


def _with(at: tuple[Experiment, Bench], candidate: Candidate) -> tuple[Experiment, Candidate, Bench]:
    return at[0], candidate, at[1]


def host_logits(question: Experiment) -> dict[int, np.ndarray]:
    """Row → logits of the user's file, each text alone and without padding."""
    session = onnxruntime.InferenceSession(question.model.path, providers=["CPUExecutionProvider"])
    found = {}
    for batch in question.dataset.with_bins((16,)).batches("holdout", 1):
        length = int(batch.lengths[0])
        feeds = {name: array[:, :length] for name, array in batch.feeds.items()}
        found[int(batch.indices[0])] = session.run(None, feeds)[0][0]
    return found


def test_figures_are_those_of_every_sample_computed_alone(
    at: tuple[Experiment, Bench], int8: Candidate, of_int8: Agreements
) -> None:
    from workbench.evaluation.build import artifact_of

    question, bench = at
    artifact, directory = artifact_of(question, int8, bench)
    session = bench.target(int8).open(artifact, directory, int8)
    truth = host_logits(question)
    cosines, errors, same = [], [], []
    for batch in question.dataset.batches("holdout", 1):
        ours, theirs = (a.astype(np.float64) for a in (session.run(batch.feeds)["logits"][0], truth[batch.indices[0]]))
        cosines.append(float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)))
        errors.append(np.abs(ours - theirs))
        same.append(ours.argmax() == theirs.argmax())
    session.close()

    found = of_int8.find("served")

    assert found is not None
    assert found.top1 is not None
    assert found.samples == len(truth) == 120
    assert found.worst_cosine == pytest.approx(min(cosines), abs=1e-5)
    assert found.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found.max_abs == pytest.approx(np.max(errors), rel=1e-3)
    assert found.mae == pytest.approx(np.mean(errors), rel=1e-3)
    assert found.top1.value == pytest.approx(np.mean(same))
    assert found.worst_cosine < 0.9999


def test_the_float_path_agrees_and_int8_is_scored_beside_it(of_int8: Agreements) -> None:
    floats, served = of_int8.find("float32 compiled"), of_int8.find("served")

    assert floats is not None
    assert floats.max_abs < 1e-5
    assert served is not None
    assert served.drop is not None
    ours, theirs = served.accuracy["accuracy"]
    assert served.drop.drop_pp.value == pytest.approx(100 * (theirs - ours))
    assert theirs == 1.0  # labels are the float model's answers
    assert set(of_int8.missing) == {"pytorch", "float16 compiled", "old platform"}
    assert decode(Agreements, of_int8.to_json(), version=1) == of_int8


def test_what_another_platform_said_is_held_against_every_way(
    at: tuple[Experiment, Bench], int8: Candidate, tmp_path: Path
) -> None:
    question, _ = at
    texts = question.dataset.texts("holdout")
    assert texts is not None
    answers = [
        (text_digest(texts[row]), None, {"scores": logits + np.float32(0.25) * (row % 2)})
        for row, logits in list(host_logits(question).items())[:50]
    ]
    write_answers(tmp_path / "old.npz", answers, source="a rack in the cellar")

    found = agreement_of_candidate(*_with(at, int8), SERVICE, Asked(answers=tmp_path / "old.npz"))

    old, served = found.find("old platform"), found.find("served", "old platform")
    assert old is not None
    assert served is not None
    texts_asked = {text_digest(texts[int(b.indices[0])]) for b in question.dataset.batches("holdout", 1)}
    assert 50 <= old.samples <= 120  # equal texts have equal answers
    assert len(texts_asked) <= 120
    assert old.max_abs == pytest.approx(0.25, abs=1e-5)
    assert "a rack in the cellar" in old.about
    assert served.drop is not None
    assert served.samples == old.samples


def test_answers_and_checkpoints_that_do_not_belong_to_the_model_are_refused(
    at: tuple[Experiment, Bench], int8: Candidate, tmp_path: Path
) -> None:
    others, form = tmp_path / "others.npz", tmp_path / "form.npz"
    write_answers(others, [(text_digest("else"), None, {"logits": np.zeros(3)})], source="x")
    np.savez(form, logits=np.zeros((120, 3, 2)), sample_rows=np.arange(120))
    for asked, said in (
        (Asked(answers=others), "answers none of the 120 samples"),
        (Asked(answers=form), "the model gives logits"),
        (Asked(checkpoint=tmp_path), r"config\.json"),
    ):
        with pytest.raises(ConfigError, match=said):
            agreement_of_candidate(*_with(at, int8), SERVICE, asked)


def test_a_file_that_is_wrong_in_one_shape_alone_is_found(at: tuple[Experiment, Bench]) -> None:
    """A compiled file of a batch size that the service's own grouping hardly meets."""
    question, _ = at
    session = onnxruntime.InferenceSession(question.model.path, providers=["CPUExecutionProvider"])

    def right(feeds: object) -> dict[str, np.ndarray]:
        return {"logits": session.run(None, feeds)[0]}

    def wrong_for_three(feeds: object) -> dict[str, np.ndarray]:
        found = right(feeds)
        return {"logits": -found["logits"]} if len(found["logits"]) == 3 else found

    comparison = Comparison(
        {"float32": Way(run=right), "served": Way(run=wrong_for_three)},
        data=question.dataset,
        most=1,
        shapes=tuple(Shape(batch=b, length=n) for b in (1, 3) for n in (8, 16)),
        asked=Asked(samples=64, of_a_shape=10, scored=False),
        pair=lambda: Pair(("logits",)),
    )
    shares: list[float] = []
    comparison.run(64, shares.append)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] <= 1
    found = comparison.found()

    by_shape = {one.shape: one for one in found}
    assert by_shape["batch 3, length 8"].worst_cosine == pytest.approx(-1.0)
    assert by_shape["batch 1, length 8"].worst_cosine == pytest.approx(1.0)
    assert by_shape["as served, batch <= 1"].worst_cosine == pytest.approx(1.0)
    assert by_shape[""].worst_cosine == pytest.approx(-1.0)
    assert by_shape["batch 3, length 8"].samples == 10
    assert next(iter(by_shape)) == ""


def test_answers_that_are_not_finite_are_counted_and_not_scored(at: tuple[Experiment, Bench], int8: Candidate) -> None:
    question, bench = at

    class Overflows:
        def run(self, feeds: object) -> dict[str, np.ndarray]:
            assert isinstance(feeds, dict)
            found = np.ones((len(feeds["input_ids"]), 3), np.float32)
            found[0, 0] = np.nan
            return {"logits": found}

        def close(self) -> None:
            """Nothing is open."""

    found = agreement_of_sessions(
        question,
        int8,
        bench,
        session=Overflows(),
        baseline=Overflows(),
        asked=Asked(samples=40, scored=True),
    )

    served = found.find("served")
    assert served is not None
    assert sum(each.not_finite for each in served.outputs) > 0
    assert served.samples == 40
    assert served.worst_cosine == 0.0
    assert {"max_abs", "mae"}.isdisjoint(agreement_metrics(found))  # a limit on them is not met
    assert "cannot be scored" in served.about


def test_large_answers_are_taken_in_few_samples_at_once(at: tuple[Experiment, Bench]) -> None:
    question, _ = at
    seen: list[int] = []

    def large(feeds: object) -> dict[str, np.ndarray]:
        assert isinstance(feeds, dict)
        rows = len(feeds["input_ids"])
        seen.append(rows)
        return {"map": np.ones((rows, 1 << 22), np.float32)}  # 16 MiB for each sample

    comparison = Comparison(
        {"float32": Way(run=large), "served": Way(run=large)},
        data=question.dataset,
        most=64,
        asked=Asked(samples=12, scored=False),
        pair=lambda: Pair(()),
    )
    comparison.run(64, lambda share: None)

    (found,) = comparison.found()
    assert found.samples == 12
    assert max(seen) <= 8  # of 256 MiB
