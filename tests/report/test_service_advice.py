"""Advice on what a service may be told: edges that won, choices that never did, each with how well it is known."""

from dataclasses import replace

from tests.evaluations import evaluation, service
from tests.report.summaries import BASELINE, judge
from workbench.report.advice import FEWEST, advise_service
from workbench.values.results import Evaluation
from workbench.values.service import ServiceChoices, ServiceSettings

OFFERED = ServiceChoices(max_batch_size=(1, 4, 8), batch_timeout_ms=(0.0, 2.0, 5.0), workers=(1, 2))


def serving(place: int, settings: ServiceSettings) -> Evaluation:
    found = evaluation(scheme="static", threads=place + 2, drop_pp=0.1, p50_ms=4 / (2 + place), speedup=2.0 + place)
    result = service(500 + 10 * place)
    assert result.best is not None
    result = replace(result, best=replace(result.best, settings=settings))
    return replace(found, measurement=replace(found.measurement, service=result))


def test_the_largest_number_of_workers_won_and_two_timeouts_never_did() -> None:
    best = ServiceSettings(max_batch_size=4, batch_timeout_ms=2.0, workers=2)
    found = [BASELINE, *(serving(place, best) for place in range(FEWEST))]

    said = [note.words() for note in advise_service(judge(*found[1:]), OFFERED)]

    assert said == [
        "service.max_batch_size 1, 8: best for none of 8 candidates (predicted)",
        "service.batch_timeout_ms 0, 5: best for none of 8 candidates (predicted)",
        "service.workers: 2 is the largest on offer and was best for the one member of the front (predicted): a larger "
        "one may be better",
        "service.workers 1: best for none of 8 candidates (predicted)",
    ]


def test_without_batching_a_timeout_says_nothing_and_least_is_no_edge() -> None:
    alone = ServiceSettings(max_batch_size=1, batch_timeout_ms=0.0, workers=1)
    found = [BASELINE, *(serving(place, alone) for place in range(3))]

    assert advise_service(judge(*found[1:]), OFFERED) == ()


def test_an_emulated_device_measured_nothing() -> None:
    best = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=2)
    found = [BASELINE, *(serving(place, best) for place in range(FEWEST))]
    emulated = [replace(e, toolchain=replace(e.toolchain, emulated=True)) for e in found]

    assert advise_service(judge(*emulated[1:]), OFFERED) == ()
