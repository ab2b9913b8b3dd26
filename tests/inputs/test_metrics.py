import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from sklearn.metrics import f1_score

from tests.inputs.meanings import batch_of
from workbench.inputs.dataset import NOT_SCORED, Batch
from workbench.inputs.metrics.outcomes import (
    ClassificationOutcomes,
    MeasuredOutcomes,
    NerOutcomes,
    Outcomes,
    concatenate,
    load_outcomes,
    per_sample,
    primary_metric,
    primary_of,
    save_outcomes,
    select,
    size,
    summarize,
    take,
)
from workbench.inputs.metrics.score import agreement, check_outputs, outcomes_of, scored_output
from workbench.values import significance
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model, TensorSpec

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG")


def one_hot(ids: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[ids]


def batch_with(targets: object, first: int = 0) -> Batch:
    array = np.asarray(targets, dtype=np.int64)
    return batch_of(len(array), first=first, targets=array)


def ner(predicted: list[list[str]], gold: list[list[str]]) -> NerOutcomes:
    """Score sentences of tags; they are padded with positions that are not scored, and have one in front."""
    width = max(len(tags) for tags in gold) + 2
    ids = np.full((len(gold), width), NOT_SCORED)
    guess = np.full((len(gold), width), TAGS.index("B-PER"))  # unscored positions must not be looked at
    for row, (p, g) in enumerate(zip(predicted, gold, strict=True)):
        ids[row, 1 : len(g) + 1] = [TAGS.index(tag) for tag in g]
        guess[row, 1 : len(p) + 1] = [TAGS.index(tag) for tag in p]
    return outcomes_of("ner", {"logits": one_hot(guess, len(TAGS))}, batch_with(ids), labels=TAGS)


def classification(predicted: list[int], target: list[int], classes: int = 4) -> ClassificationOutcomes:
    return outcomes_of("classification", {"y": one_hot(np.array(predicted), classes)}, batch_with(target))


sentence_pairs = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=n, max_size=n) for _ in range(2)])
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=300)
@given(pairs=sentence_pairs)
def test_entity_scores_are_those_of_seqeval(pairs: list[tuple[list[str], list[str]]]) -> None:
    predicted, gold = [p for p, _ in pairs], [g for _, g in pairs]
    outcomes = ner(predicted, gold)

    scores = summarize(outcomes)

    expected = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)
    found = [scores["entity_precision"], scores["entity_recall"], scores["entity_f1"]]
    assert found == pytest.approx([float(value) for value in expected[:3]])
    for counts, (p, g) in zip(per_sample(outcomes), pairs, strict=True):
        ours, theirs = set(get_entities(p)), set(get_entities(g))
        assert counts.tolist() == [len(ours & theirs), len(ours), len(theirs)]


def test_token_scores_count_tags_that_are_scored_and_not_outside() -> None:
    outcomes = ner([["B-PER", "O", "I-LOC"]], [["B-PER", "I-PER", "O"]])
    nothing = outcomes_of("ner", {"y": np.zeros((2, 3, 6))}, batch_with([[NOT_SCORED] * 3] * 2), labels=TAGS)

    assert outcomes.tokens.tolist() == [[1, 2, 2]]
    assert summarize(outcomes)["token_f1"] == 0.5
    assert per_sample(nothing).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert summarize(nothing)["entity_f1"] == 0.0


@settings(deadline=None, max_examples=100)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_classification_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, target = [p for p, _ in pairs], [t for _, t in pairs]
    outcomes = classification(predicted, target)

    scores = summarize(outcomes)

    assert scores["accuracy"] == pytest.approx(np.mean([p == t for p, t in pairs]))
    assert scores["macro_f1"] == pytest.approx(f1_score(target, predicted, average="macro", zero_division=0))
    assert per_sample(outcomes).dtype == np.bool_
    assert per_sample(outcomes).tolist() == [p == t for p, t in pairs]


OUTCOMES: dict[str, Outcomes] = {
    "classification": classification([0, 1, 2, 3, 0], [0, 1, 1, 3, 2]),
    "ner": ner([["B-PER", "O"]] * 5, [["B-PER", "O"], ["O", "O"], ["B-LOC", "I-LOC"], ["I-ORG", "O"], ["O", "B-PER"]]),
    "measured": MeasuredOutcomes(
        names=np.array(["boxes.recall", "boxes.worst"]),
        units=np.array(["", "px"]),
        higher=np.array([True, False]),
        bounds=np.array([[0.0, 1.0], [np.nan, np.nan]]),
        reduce=np.array(["ratio", "max"]),
        numerators=np.array([[2.0, 1], [3, 2], [0, 0], [1, 9], [0, 1]]),
        denominators=np.array([[2.0, 1], [4, 1], [0, 0], [1, 3], [1, 1]]),
    ),
}


def test_growing_subsets_joined_are_the_whole() -> None:
    for outcomes in OUTCOMES.values():
        parts = [take(outcomes, 2), select(outcomes, slice(2, None))]

        joined = concatenate(parts)

        assert size(parts[0]) == 2
        assert summarize(joined) == summarize(outcomes)
        assert significance.compare(per_sample(joined), per_sample(outcomes)).drop_pp.value == 0.0


def test_a_measured_metric_is_a_ratio_of_sums_or_the_worst_sample() -> None:
    found = summarize(OUTCOMES["measured"])

    assert found == {"boxes.recall": 6 / 8, "boxes.worst": 3.0}
    assert primary_of(OUTCOMES["measured"], "tensors") == ("boxes.recall", "", True)
    for task in ("classification", "ner"):
        assert primary_metric(task) in summarize(OUTCOMES[task])


def test_outcomes_on_disk_read_back_equal_or_are_refused_by_name(tmp_path: Path) -> None:
    for outcomes in OUTCOMES.values():
        path = tmp_path / "deep" / "outcomes.npz"

        save_outcomes(path, outcomes)
        with np.load(path) as written:
            np.savez(path, **written, lengths=np.ones(size(outcomes)))  # as earlier versions wrote it
        found = load_outcomes(path)

        assert type(found) is type(outcomes)
        assert summarize(found) == summarize(outcomes)
        assert [p.name for p in path.parent.iterdir()] == ["outcomes.npz"]
        whole = path.read_bytes()
        for content in (whole[: len(whole) // 2], b"", whole[:-40]):
            path.write_bytes(content)
            with pytest.raises(ValueError, match=re.escape(f"{path}: not a file of outcomes")):
                load_outcomes(path)
        np.savez(path, other=np.zeros(3))
        with pytest.raises(ValueError, match="not a file of outcomes"):
            load_outcomes(path)
        np.savez(path, kind=np.array("NerOutcomes"), version=np.array(2))
        with pytest.raises(ValueError, match="version 2 is unknown; this workbench reads version 1"):
            load_outcomes(path)


def test_what_cannot_be_scored_is_refused() -> None:
    for rows, targets, labels, error, message in (
        (3, [0, 0, 0], (), MeasureError, "'y' holds NaN for sample 11 "),
        (1, [0], ("a", "b", "c"), ConfigError, "dataset has 3 labels. Use the label"),
        (1, [7], (), ConfigError, "has 4 classes, the dataset has 8 labels"),
        (2, [0], (), MeasureError, "has the shape (2, 4); expected (1, 'classes')"),
    ):
        logits = np.zeros((rows, 4), dtype=np.float32)
        if "NaN" in message:
            logits[1, 2] = math.nan

        with pytest.raises(error, match=re.escape(message)):
            outcomes_of("classification", {"y": logits}, batch_with(targets, first=10), labels=labels)


def test_declared_outputs_are_checked_before_any_work() -> None:
    def check(task: Any, labels: tuple[str, ...], *shape: int | str) -> None:
        output = TensorSpec(name="logits", dtype="float32", shape=shape)
        model = Model(path=Path("m.onnx"), sha256="0" * 64, size_bytes=1, opset=17, inputs=(), outputs=(output,))
        check_outputs(task, labels, model)

    check("classification", ("a", "b"), "batch", 2)
    check("ner", TAGS, "batch", "length", "tags")
    check("tensors", (), 1)
    with pytest.raises(ConfigError, match="has 3 classes, the dataset has 2 labels"):
        check("classification", ("a", "b"), "batch", 3)
    with pytest.raises(ConfigError, match=r"m\.onnx: output 'logits' has 2 dimensions; ner needs 3"):
        check("ner", TAGS, "batch", 6)
    assert scored_output(["hidden", "logits"]) == "logits"
    assert scored_output(["anything"]) == "anything"
    with pytest.raises(ConfigError, match=r"outputs a, b and none is named 'logits'.*a=logits:against=labels"):
        scored_output(["a", "b"])


def test_agreement_sees_a_model_that_answers_the_same_to_everything_even_one_by_one() -> None:
    rng = np.random.default_rng(0)
    floats = [{"y": rng.normal(size=(1, 5))} for _ in range(4)]
    stuck = [{"y": np.ones((1, 5))}] * 4
    batches = [batch_of(1)] * 4

    assert agreement(zip(stuck, floats, batches, strict=True)).constant
    assert not agreement(zip(floats, floats, batches, strict=True)).constant
    assert not agreement(zip(stuck, stuck, batches, strict=True)).constant  # the float model does so too
    assert not agreement([(stuck[0], floats[0], batches[0])]).constant


def test_agreement_compares_sequences_padded_to_different_bins() -> None:
    rng = np.random.default_rng(0)
    runs = []
    for width in (4, 8):
        reference = rng.normal(size=(2, width, 3))
        valid = np.arange(width) < np.array([[2], [3]])
        noise = np.where(valid[..., None], 0.0, 5.0)
        runs.append(({"y": reference + noise}, {"y": reference}, batch_of(2, valid)))

    found = agreement(runs)

    assert found.cosine == pytest.approx(np.ones(4))
    assert found.finite.all()
    assert not found.constant


def test_agreement_says_which_samples_are_not_finite() -> None:
    outputs = np.ones((3, 2))
    outputs[1, 0], outputs[2, 1] = math.inf, math.nan

    found = agreement([({"y": outputs}, {"y": np.ones((3, 2))}, batch_of(3))])

    assert found.finite.tolist() == [True, False, False]
    assert found.indices[~found.finite].tolist() == [1, 2]
    with pytest.raises(ValueError, match="no batches"):
        agreement([])
