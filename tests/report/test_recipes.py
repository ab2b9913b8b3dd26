"""Recipes of a language model are held against the best preset by paired intervals, also those over a limit."""

from dataclasses import replace

import numpy as np

from tests.evaluations import evaluation
from workbench.report.alike import recipes_of
from workbench.values.measurement import Estimate, LanguageFigures, LanguageLoad
from workbench.values.modelled_times.statement import CallCosts, ModelledCalls, TimingModel
from workbench.values.paired_scores import PairedScores
from workbench.values.results import Evaluation, Stop

WINDOWS = 40
ONE = Estimate(value=1.0, low=1.0, high=1.0)
CALLS = ModelledCalls(
    clock=TimingModel(name="none", prices=(), unknowns=()),
    candidate=(CallCosts(works=()),),
    baseline=(CallCosts(works=()),),
    pairs=((0, 0, 1),),
)
FIGURES = LanguageFigures(
    load=LanguageLoad(),
    prefill_ms=ONE,
    decode_ms=ONE,
    prefill=CALLS,
    kv_bytes_per_token=1,
    weight_bytes=1,
    basis="a test's",
)


def scores(loss: float, seed: int) -> PairedScores:
    random = np.random.default_rng(seed)
    return PairedScores(
        numerators=100 * (3 + loss + 0.01 * random.standard_normal(WINDOWS)),
        denominators=np.full(WINDOWS, 100.0),
        higher=False,
        bounds=None,
        unit="nats",
    )


def of(threads: int) -> Evaluation:
    """A candidate of its own for each number."""
    found = evaluation(drop_pp=0.1, scheme="static")
    candidate = replace(found.candidate, serving=replace(found.candidate.serving, intra_op_threads=threads))
    accuracy = found.measurement.accuracy
    assert accuracy is not None
    measurement = replace(found.measurement, language=FIGURES, accuracy=replace(accuracy, unit="%"))
    return replace(found, candidate=candidate, measurement=measurement)


def test_the_best_preset_is_what_others_are_held_against() -> None:
    evaluations = [of(number) for number in range(1, 5)]
    losses = dict(zip((e.candidate.id for e in evaluations), (0.05, 0.0, 0.0, 0.3), strict=True))
    kept = {i: scores(loss, seed) for seed, (i, loss) in enumerate(losses.items())}
    presets = {evaluations[0].candidate.id: "static", evaluations[3].candidate.id: "worse"}
    found = recipes_of(evaluations, lambda i, split: kept[i], presets, "baseline")
    assert [losses[recipe.candidate_id] for recipe in found] == [0.0, 0.0, 0.05, 0.3]
    best = found[2]
    assert (best.preset, best.against_preset) == ("static", None)
    for recipe, truth in ((found[0], -0.05), (found[3], 0.25)):
        assert recipe.against_preset is not None
        assert recipe.against_preset.low * recipe.against_preset.high > 0
        assert recipe.against_preset.low < 100 * np.expm1(truth) < recipe.against_preset.high


def test_what_was_over_a_limit_is_shown_and_what_stopped_early_floats_and_other_models_are_not() -> None:
    stop = Stop(stage="accuracy_full", reason="over its limit")
    whole, early = (replace(of(number), status="stopped", stop=stop) for number in (1, 2))
    one = of(3)
    plain = replace(one, measurement=replace(one.measurement, language=None))
    kept = {whole.candidate.id: scores(0.5, 1), one.candidate.id: scores(0.0, 0)}
    for other, baseline in ((one, one.candidate.id), (plain, "baseline")):
        (found,) = recipes_of([whole, early, other], lambda i, split: kept.get(i), {}, baseline)
        assert (found.candidate_id, found.against_preset) == (whole.candidate.id, None)
    alike = [of(number) for number in range(1, 4)]
    kept = {e.candidate.id: scores(0.0, seed) for seed, e in enumerate(alike)}
    same = recipes_of(alike, lambda i, split: kept[i], {alike[0].candidate.id: "only"}, "baseline")
    known = [recipe.against_preset for recipe in same if recipe.against_preset is not None]
    assert len(known) == 2
    assert all(each.low <= 0 <= each.high for each in known), "recipes of one loss"
