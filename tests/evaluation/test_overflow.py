"""Overflows planted in toy models on the emulated device: none of them is recommended or handed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.ascend_workspace import QUIET
from tests.emulated_cann import emulated_environment, switched_on
from tests.evaluation.overflowing import PLANTED, Planted, workspace
from tests.tiny import bench_of
from workbench.api.opening import summary_of
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report.text import detail
from workbench.search.pipeline import evaluate
from workbench.shipping.handover import bundle_contents
from workbench.space.space import build, complete
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError


@pytest.fixture(scope="module", autouse=True)
def _cann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)):
        yield


Swept = tuple[Experiment, Bench, Journal, Candidate]


def swept(root: Path, planted: Planted, settings: Mapping[str, str] | None = None) -> Iterator[Swept]:
    """The float baseline and the candidate with these settings, or of INT8, searched and confirmed."""
    question = read_experiment(workspace(root / "workspace", planted))
    bench = bench_of(question, root / "store", fresh=True)
    chosen = question.baseline
    if settings := settings or ({"quantization.scheme": "static"} if planted.int8 else {}):
        chosen = build(question.space, complete(question.space, settings))
    for candidate in {question.baseline.id: question.baseline, chosen.id: chosen}.values():
        for split in ("validation", "holdout"):
            bench.journal.write(evaluate(question, candidate, bench, split=split, gates=False))
    yield question, bench, bench.journal, chosen
    bench.store.close()


@pytest.mark.parametrize("name", PLANTED)
def test_what_overflows_is_neither_recommended_nor_handed_over_and_the_way_on_is_said(
    tmp_path: Path, name: str
) -> None:
    planted = PLANTED[name]
    for question, bench, journal, chosen in swept(tmp_path, planted):
        confirmed = journal.evaluation(chosen.id, "holdout")
        assert confirmed.failure is None, confirmed.failure
        assert planted.named in confirmed.overflow.partition("compile.keep_dtype")[0]
        assert "compile.keep_dtype: " in confirmed.overflow

        found = summary_of(question, journal).recommended
        assert found is None or found.candidate_id != chosen.id
        with pytest.raises(MeasureError, match=f"cannot be handed over: .*{planted.named}"):
            bundle_contents(question, chosen, bench, journal)
        kept = [bench.store.usage()["overflow"][0]]
        assert kept == [len({question.baseline.id, chosen.id})], "the answer of the confirmation is used again"
        assert f"Not to be shipped: {confirmed.overflow}" in detail(summary_of(question, journal), chosen.id)


def test_the_way_on_leads_to_a_candidate_that_is_not_refused_and_is_handed_over(tmp_path: Path) -> None:
    for question, bench, journal, chosen in swept(
        tmp_path, PLANTED["one operator"], {"precision.mode": "must_keep_origin_dtype"}
    ):
        confirmed = journal.evaluations("holdout")
        assert "grow" in confirmed[question.baseline.id].overflow
        assert confirmed[chosen.id].overflow == ""
        summary = summary_of(question, journal)
        confirmed_one = next(member.evaluation for member in summary.front if member.id == chosen.id)
        assert summary.refusal(confirmed_one) == ""
        assert "no INT8 candidate was measured" in summary.why_none
        assert bundle_contents(question, chosen, bench, journal).candidate == chosen
