"""What outputs mean decides how they are compared: each meaning against figures worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inputs.meanings import Option, batch_of, scorer, use
from workbench.inputs.metrics.agreement import MEANINGS
from workbench.inputs.metrics.agreement.decisions import edit_distance
from workbench.inputs.metrics.agreement.detections import DetectionsJudge
from workbench.inputs.metrics.outcomes import summarize
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.interface import OutputUse


def scored(
    uses: tuple[OutputUse, ...], ours: dict[str, object], theirs: dict[str, object], **more: object
) -> dict[str, float]:
    outputs, reference = ({k: np.asarray(v) for k, v in of.items()} for of in (ours, theirs))
    n = len(next(iter(reference.values())))
    return summarize(scorer(*uses).score(outputs, batch_of(n, more.get("valid")), reference))


def test_logits_are_compared_over_every_decision_but_padding() -> None:
    theirs = np.array([[[2.0, 0], [0, 1], [0, 1]], [[1, 0], [1, 0], [1, 0]]])
    ours = theirs.copy()
    ours[0, 0] = [0, 2]  # one decision flips
    ours[1, 2] = [0, 9]  # padding

    found = scored((use("y", "logits"),), {"y": ours}, {"y": theirs}, valid=[[1, 1, 1], [1, 1, 0]])

    assert found["top1_agreement"] == pytest.approx(4 / 5)
    assert found["max_abs_error"] == 2.0


def test_probabilities_say_how_far_they_move_and_what_flips() -> None:
    theirs, ours = [[0.40], [0.60], [0.9], [0.1]], [[0.544], [0.60], [0.9], [0.1]]
    vectors = {"p": [[0.4, 0.41, 0.19], [0.1, 0.2, 0.7]]}, {"p": [[0.45, 0.35, 0.2], [0.1, 0.2, 0.7]]}

    found = scored((use("p", "probabilities"),), {"p": ours}, {"p": theirs})
    higher = scored((use("p", "probabilities", threshold=0.58),), {"p": ours}, {"p": theirs})

    assert found == pytest.approx({"decision_agreement": 0.75, "mean_dp": 0.036, "max_dp": 0.144})
    assert higher["decision_agreement"] == 1.0
    assert scored((use("p", "probabilities"),), *vectors)["decision_agreement"] == 0.5, "what sums to 1: its largest"


def test_ids_are_the_same_sequence_or_not() -> None:
    theirs = [[5, 6, 7, 2, 0], [5, 6, 2, 0, 0]]
    ours = [[5, 9, 7, 2, 0], [5, 6, 2, 3, 3]]

    plain = scored((use("t", "ids"),), {"t": ours}, {"t": theirs})
    ended = scored((use("t", "ids", end=2),), {"t": ours}, {"t": theirs})

    assert plain == {"exact_match": 0.0, "edit_rate": 3 / 10}
    assert ended == {"exact_match": 0.5, "edit_rate": 1 / 5}

    def levenshtein(a: list[int], b: list[int]) -> int:
        if not a or not b:
            return len(a) + len(b)
        changed = levenshtein(a[1:], b[1:]) + (a[0] != b[0])
        return min(levenshtein(a[1:], b) + 1, levenshtein(a, b[1:]) + 1, changed)

    generator = np.random.default_rng(0)
    for _ in range(60):
        a, b = (generator.integers(0, 3, generator.integers(0, 6)) for _ in range(2))
        assert edit_distance(a, b) == levenshtein(a.tolist(), b.tolist())


def test_detections_are_matched_after_thresholds_and_suppression() -> None:
    boxes = np.array([[[0.1, 0.1, 0.3, 0.3], [0.11, 0.1, 0.31, 0.3], [0.6, 0.6, 0.9, 0.9], [0.0, 0.0, 0.1, 0.1]]])
    scores = np.array([[[0.05, 0.95], [0.1, 0.9], [0.2, 0.8], [0.6, 0.4]]])
    moved = boxes.copy()
    moved[0, 2] += 0.29  # overlaps the float model's no longer
    uses = (use("boxes", "boxes", scores="scores", score=0.7, iou=0.5), use("scores", "scores"))

    same = scored(uses, {"boxes": boxes, "scores": scores}, {"boxes": boxes, "scores": scores})
    away = scored(uses, {"boxes": moved, "scores": scores}, {"boxes": boxes, "scores": scores})
    lost = scored(uses, {"boxes": boxes, "scores": scores - [[[0, 0.15]]]}, {"boxes": boxes, "scores": scores})

    assert same == {"f1": 1.0, "recall": 1.0, "precision": 1.0, "matched_iou": pytest.approx(1.0), "image_ap": 1.0}
    assert (away["recall"], away["precision"]) == (0.5, 0.5)  # two are kept of three over the score
    assert (lost["recall"], lost["precision"]) == (0.5, 1.0)


def test_one_tensor_may_hold_boxes_scores_and_classes() -> None:
    for options, row in (
        ({"format": "cxcywh", "score_column": 4, "class_column": 5}, [0.5, 0.5, 0.2, 0.2, 0.9, 0.1, 0.8]),
        ({"format": "xywh", "class_column": 4}, [0.4, 0.4, 0.2, 0.2, 0.1, 0.8]),
        ({"format": "yxyx", "score_column": 4, "label_column": 5}, [0.4, 0.4, 0.6, 0.6, 0.9, 3]),
        ({"class_column": 4, "activation": "sigmoid"}, [0.4, 0.4, 0.6, 0.6, -3.0, 2.0]),
    ):
        table = np.zeros((1, 3, len(row)))
        table[0, 1] = row
        if options.get("activation"):
            table[0, [0, 2], 4:] = -9
        found = DetectionsJudge(use=use("y", "boxes", **options)).detections({"y": table}, batch_of(1))[0]
        other = DetectionsJudge(use=use("y", "boxes", axis=1, **options))
        turned = other.detections({"y": np.moveaxis(table, 1, 2)}, batch_of(1))[0]

        assert found.boxes == pytest.approx(np.array([[0.4, 0.4, 0.6, 0.6]]))
        assert np.array_equal(found.boxes, turned.boxes)
        assert found.classes.tolist() == [3 if "label_column" in options else 1]


def test_masks_are_compared_by_what_both_cover() -> None:
    theirs, ours = np.zeros((2, 1, 4, 4)), np.zeros((2, 1, 4, 4))
    theirs[0, 0, :2], ours[0, 0, 1:3] = 0.9, 0.9  # 4 of 12 pixels in common; the second sample is empty in both

    found = scored((use("m", "mask", threshold=0.3),), {"m": ours}, {"m": theirs})
    classes = scored((use("m", "mask"),), {"m": ours[:1, 0].astype(int)}, {"m": theirs[:1, 0].round().astype(int)})

    assert found["iou"] == pytest.approx(4 / 12)
    assert found["pixel_agreement"] == pytest.approx(24 / 32)
    assert classes["iou"] < 1


def test_signals_are_compared_in_decibels_and_may_differ_in_length() -> None:
    time = np.arange(16000) / 16000
    theirs = np.sin(2 * np.pi * 440 * time)[None]
    noise = np.random.default_rng(0).normal(size=theirs.shape)
    noise *= np.sqrt((theirs**2).mean() / (noise**2).mean()) / 10  # 20 dB below

    same = scored((use("a", "signal"),), {"a": theirs}, {"a": theirs})
    noisy = scored((use("a", "signal"),), {"a": theirs + noise}, {"a": theirs})
    short = scored((use("a", "signal"),), {"a": theirs[:, :12000]}, {"a": theirs})
    louder = scored((use("a", "signal"),), {"a": 2 * theirs + noise}, {"a": theirs + noise / 2})

    assert (same["log_mel"], same["snr"], same["length_agreement"]) == (0.0, 100.0, 1.0)
    assert noisy["snr"] == pytest.approx(20.0, abs=1e-6)
    assert short["length_agreement"] == 0.75
    assert short["log_mel"] == pytest.approx(0.0, abs=0.1)
    assert short["snr"] == pytest.approx(10 * np.log10(4), abs=0.1)
    assert louder["log_mel"] == pytest.approx(20 * np.log10(2), abs=0.1)


def test_embeddings_keep_their_neighbours_or_lose_them() -> None:
    generator = np.random.default_rng(0)
    theirs = generator.normal(size=(64, 16))
    judged = (use("e", "embedding", k=3),)

    rotated = scored(judged, {"e": theirs[:, ::-1]}, {"e": theirs})
    other = scored(judged, {"e": generator.normal(size=(64, 16))}, {"e": theirs})

    assert rotated["neighbour_recall"] == 1.0
    assert rotated["cosine"] < 0.3
    assert other["neighbour_recall"] < 0.3


def test_every_output_counts_with_its_own_limits() -> None:
    uses = (use("p", "probabilities"), use("h/out", "state"), use("v", "values", {"relative_error": 0.01}))

    found = scorer(*uses)

    assert found.primary == "p.decision_agreement"
    assert [str(limit) for limit in found.limits()] == ["v.relative_error <= 0.01", "h/out.cosine >= 0.95"]
    values = {"p": [[0.2]], "h/out": [[1.0, 2.0]], "v": [[10.0]]}
    wrong = {**values, "v": [[12.0]]}
    numbers = scored(uses, wrong, values)
    assert found.limits()[0].violation(numbers["v.relative_error"]) == pytest.approx(0.19)


def test_what_is_not_of_a_meaning_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="probabilities has no option 'treshold'") as refused:
        scorer(use("p", "probabilities", treshold=0.3))
    assert "threshold" in str(refused.value.hint)
    with pytest.raises(ConfigError, match="ids has no metric 'recall'"):
        scorer(use("t", "ids", {"recall": 0.9}))
    with pytest.raises(ConfigError, match="'max_dp' is no metric that probabilities can be searched by"):
        scorer(use("p", "probabilities", primary="max_dp"))
    with pytest.raises(ConfigError, match="no boxes use the scores 's'"):
        scorer(use("p", "probabilities"), use("s", "scores"))
    with pytest.raises(ConfigError, match="no output is compared"):
        scorer(use("h", "state"))
    with pytest.raises(MeasureError, match="holds NaN or infinity for sample 1"):
        scored((use("p", "probabilities"),), {"p": [[0.5], [np.nan]]}, {"p": [[0.5], [0.5]]})


SHAPES = st.lists(st.sampled_from([0, 1, 2, 4, 5, 7]), min_size=0, max_size=3)
OPTIONS: dict[str, list[Option]] = {
    "axis": [-9, -1, 0, 1, 2, 9],
    "format": ["xyxy", "cxcywh"],
    "score": [-10.0, 0.5],
    "iou": [0.0, 2.0],
    "activation": ["none", "softmax"],
    "background": [-1, 0, 99],
    "scores": ["z"],
    "labels": ["z"],
    "score_column": [-9, 4, 99],
    "class_column": [0, 4, 6, 99],
    "label_column": [5, 99],
    "threshold": [0.5],
    "rate": [-1, 0, 16000],
    "end": [0],
    "k": [0, 3],
}


@settings(deadline=None, max_examples=400)
@given(data=st.data(), rows=st.integers(1, 3))
def test_whatever_is_declared_of_any_shape_ends_as_a_named_error_or_as_figures(data: st.DataObject, rows: int) -> None:
    judged = [meaning for meaning, rules in MEANINGS.items() if rules.make is not None and meaning != "state"]
    meaning = data.draw(st.sampled_from(judged))
    known = [name for name in MEANINGS[meaning].options if name in OPTIONS]
    names = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3)) if known else []
    declared = use("y", meaning, **{name: data.draw(st.sampled_from(OPTIONS[name])) for name in names})
    rng = np.random.default_rng(0)
    first = st.sampled_from([rows, rows, rows, 1, 5])

    def array() -> np.ndarray[Any, Any]:
        shape = (data.draw(first), *data.draw(SHAPES)) if data.draw(st.integers(0, 9)) else ()
        return (10 * rng.normal(size=shape)).astype(data.draw(st.sampled_from(["f4", "f2", "i8"])))

    outputs = {"y": array(), "z": array()}
    batch = batch_of(rows)
    try:
        found = scorer(declared).score(outputs, batch, outputs)
    except (ConfigError, MeasureError) as error:
        said = str(error)
    else:
        said = "'y'" if all(np.isfinite(value) for value in summarize(found).values()) else "a figure is none"
    assert "'y'" in said or "'z'" in said or "outputs.y" in said


def test_scores_with_their_classes_first_are_turned_to_their_boxes() -> None:
    boxes = np.tile(np.array([[0, 0, 2, 2], [5, 5, 9, 9], [20, 20, 24, 24]], np.float32), (2, 1, 1))
    scores = np.array([[[0.9, 0.1, 0.1], [0.1, 0.8, 0.2]]] * 2, np.float32)  # [n, classes, boxes]
    judge = DetectionsJudge(use=use("boxes", "boxes", scores="scores"))

    turned = (scores, scores.swapaxes(1, 2))
    found = [judge.detections({"boxes": boxes, "scores": each}, batch_of(2)) for each in turned]

    assert [one.classes.tolist() for one in found[0]] == [one.classes.tolist() for one in found[1]] == [[0, 1], [0, 1]]
