"""Sets of shapes that wait, predicted by a few of them: which are compiled whole."""

from dataclasses import replace
from typing import cast

from tests.evaluations import candidate, evaluation, service
from workbench.inputs.experiment import Experiment
from workbench.search.front import audit_failed, audit_words, may_be_on_front
from workbench.values.measurement import Estimate
from workbench.values.objectives import Objective
from workbench.values.results import Evaluation, Prediction, Stop


class _Question:
    """What `may_be_on_front` asks of an experiment."""

    objectives = (Objective(metric="service_throughput_per_s"), Objective(metric="accuracy"))
    constraints = ()
    baseline = candidate(threads=9)


ASKED = cast(Experiment, _Question())


def about(value: float, spread: float = 0.1) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def member(rate: float, accuracy: float, threads: int = 1) -> Evaluation:
    return evaluation(threads=threads, accuracy=accuracy, served=service(rate))


def set_waiting(rate: float, accuracy: float, keep_float: int) -> Evaluation:
    prediction = Prediction(structure="s", shapes=12, throughput_per_s=about(rate), accuracy=accuracy)
    stop = Stop(stage="predict", reason="predicted")
    return replace(evaluation(scheme="static", keep_float=keep_float, stop=stop), prediction=prediction)


def by_id(*found: Evaluation) -> dict[str, Evaluation]:
    return {e.candidate.id: e for e in found}


def test_who_may_be_on_the_front_is_compiled_the_best_first() -> None:
    front = member(900, 0.95)
    quick, slow, exact = set_waiting(1000, 0.94, 0), set_waiting(800, 0.95, 1), set_waiting(500, 0.96, 2)
    near = set_waiting(850, 0.95, 4)  # 935/s at best

    assert may_be_on_front(ASKED, by_id(front, quick, slow, exact, near)) == [quick, near, exact]
    assert may_be_on_front(ASKED, by_id(slow)) == [slow], "nobody is on the front"


def test_a_prediction_that_was_wrong_has_everything_compiled_and_is_said() -> None:
    front, slow = member(900, 0.95), set_waiting(100, 0.5, 1)
    held, wrong = member(900, 0.94, 3), member(900, 0.94, 4)
    predictions = [Prediction(structure="s", shapes=12, throughput_per_s=about(rate)) for rate in (900, 100)]
    held, wrong = (replace(e, prediction=p) for e, p in zip((held, wrong), predictions, strict=True))

    assert may_be_on_front(ASKED, by_id(front, slow, held)) == []
    assert "2 sets of shapes were predicted" in audit_words([front, slow, held])
    found = by_id(front, slow, wrong)
    assert audit_failed(found.values())
    assert slow in may_be_on_front(ASKED, found)
    assert "serves 900/s, predicted were 110 at most" in audit_words([*found.values()])
