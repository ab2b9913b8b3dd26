"""Outputs that the data have labels for: the candidate and the float model are both held against these."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.inputs.meanings import batch_of, scorer, use
from workbench.inputs.dataset.arrays import read_arrays
from workbench.inputs.metrics.outcomes import summarize
from workbench.values.errors import ConfigError
from workbench.values.interface import Meaning


def scored(
    meaning: Meaning, ours: object, theirs: object, truths: list[Any], valid: object = None, **more: str | int | float
) -> dict[str, float]:
    outputs, reference = {"y": np.asarray(ours)}, {"y": np.asarray(theirs)}
    judged = scorer(use("y", meaning, against="labels", **more))
    return summarize(judged.score(outputs, batch_of(len(truths), valid, truths=tuple(truths)), reference))


def test_ids_are_held_against_labels_and_the_float_model() -> None:
    found = scored("ids", [[1, 2, 0], [3, 4, 5]], [[1, 2, 0], [3, 3, 5]], [[1, 2], [3, 4, 5]], pad=0)

    assert found == pytest.approx(
        {"exact_match": 1.0, "edit_rate": 0.0, "float_exact_match": 0.5, "float_edit_rate": 0.2}
    )


def test_detections_are_held_against_labelled_boxes() -> None:
    boxes = [[[0, 0, 10, 10, 0.9], [20, 20, 30, 30, 0.8]], [[0, 0, 10, 10, 0.9], [50, 50, 60, 60, 0.7]]]
    labels = [
        np.array([[0, 0, 10, 10]]),
        {"boxes": [[0, 0, 10, 10], [70, 70, 80, 80], [1, 1, 2, 2]], "classes": [0, 0, 0]},
    ]

    found = scored("boxes", boxes, boxes, labels)
    empty = scored("boxes", [[[0, 0, 10, 10, 0.9]]], [[[0, 0, 10, 10, 0.9]]], [np.zeros((0, 5))])

    assert found["recall"] == pytest.approx(2 / 4)
    assert found["precision"] == pytest.approx(2 / 4)
    assert found["float_f1"] == 1.0
    assert (empty["precision"], empty["f1"]) == (0.0, 0.0), "what is found where nothing is labelled counts"


def test_average_precision_of_a_picture_is_cocos() -> None:
    """One of two boxes is found exactly, before a wrong one: precision 1 up to recall 0.5, then 0."""
    boxes = [[[0, 0, 10, 10, 0.9], [40, 40, 50, 50, 0.8]], [[0, 0, 10, 8, 0.9], [40, 40, 50, 50, 0.6]]]
    labels = [[[0, 0, 10, 10], [20, 20, 30, 30]], [[0, 0, 10, 10]]]

    found = scored("boxes", boxes, boxes, labels)

    half, shrunk = 51 / 101, 7 / 10  # 51 of 101 recalls; an overlap of 0.8 counts at 0.50 to 0.80
    assert found["image_ap"] == pytest.approx((half + shrunk) / 2)
    assert found["float_image_ap"] == 1.0


def test_decisions_masks_and_values_have_labels_too() -> None:
    decided = scored("logits", [[2.0, 0, 0], [0, 1, 0]], [[2.0, 0, 0], [0, 0, 1]], [0, 2])
    steps = scored("probabilities", [[[0.9], [0.2], [0.0]]], [[[0.9], [0.2], [0.0]]], [[1, 1]], valid=[[1, 1, 0]])
    mask = scored("mask", [[[0.9, 0.1], [0.8, 0.2]]], [[[0.9, 0.1], [0.8, 0.2]]], [[[1, 0], [0, -1]]])
    values = scored("values", [[1.0, 2.0]], [[1.0, 1.0]], ["[1, 4]"])

    assert decided["accuracy"] == 0.5
    assert decided["float_top1_agreement"] == 0.5
    assert steps["accuracy"] == 0.5
    assert mask["iou"] == 0.5
    assert mask["pixel_agreement"] == pytest.approx(2 / 3)
    assert values["relative_error"] == pytest.approx(2 / 5)


def test_a_label_of_another_kind_is_refused_with_its_sample() -> None:
    for meaning, label, why in (
        ("ids", None, "is missing"),
        ("ids", [1.5], "is [1.5], not whole numbers"),
        ("boxes", [[1, 2, 3]], "has the shape [1, 3]"),
        ("boxes", [[5, 5, 1, 1]], "ends before it begins"),
        ("values", [1, 2, 3], "has the shape [3], the output [2]"),
        ("logits", "cat", "is 'cat', not whole numbers"),
    ):
        output = [[[1.0, 2.0, 3.0, 4.0, 0.9]]] if meaning == "boxes" else [[1, 2]] if meaning == "ids" else [[1.0, 2.0]]

        with pytest.raises(ConfigError, match="the label of sample 0") as raised:
            scored(meaning, output, output, [label])

        assert why in str(raised.value)
        assert raised.value.key == "outputs.y.against"


def test_what_has_no_labels_is_refused_before_any_data() -> None:
    with pytest.raises(ConfigError, match="embedding cannot be compared with labels"):
        scorer(use("y", "embedding", against="labels"))
    with pytest.raises(ConfigError, match="does not say where labels are"):
        scorer(use("y", "ids", against="truth"))


def test_labels_of_a_file_have_sizes_and_names(tmp_path: Path) -> None:
    boxes = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    np.savez(
        tmp_path / "x.npz",
        **{"image": np.zeros((3, 5), np.float32), "labels.boxes": boxes, "labels.boxes.sizes": np.array([0, 1, 2])},
        **{"labels.text": np.array([[1], [2], [3]])},
    )

    rows = read_arrays(tmp_path / "x.npz", label="labels", classes=None, tags=False, truths=True)
    (batch,) = rows.read([np.array([0, 2])])

    assert [name for name, _ in rows.inputs] == ["image"]
    assert [truth["boxes"].shape for truth in batch.truths] == [(0, 4), (2, 4)]
    assert [truth["text"].tolist() for truth in batch.truths] == [[1], [3]]
