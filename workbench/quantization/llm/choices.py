"""Multiple choice by likelihood: the option whose words a model finds most likely behind the question.

Two ways to ask, both as lm-evaluation-harness does [inferred from its task files]: options are listed and the letter
is scored (its mmlu and ceval tasks), or nothing is listed and the option's text is, by the character (`acc_norm` of
mmlu_continuation). Chinese questions have no subject in their first line, whose names the files do not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.forwards import Forward
from workbench.quantization.llm.questions import LETTERS, Language, Question
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import AccuracyComparison, Estimate
from workbench.values.significance import mcnemar
from workbench.values.simultaneous import Pairs, all_pairs

By = Literal["letter", "text"]
Encode = Callable[[str], list[int]]
"""Text → ids, with what the tokenizer puts before a text and without what it puts behind."""
Answers = npt.NDArray[np.int64]
"""[questions] the option that a model takes."""
_TOKENS_AT_ONCE = 1 << 14
"""Of one call of a forward pass, whose hidden states stand in memory."""
_DESCRIPTION: Mapping[Language, str] = {
    "en": "The following are multiple choice questions (with answers) about {subject}.\n\n",
    "zh": "以下是单项选择题，请选出其中的正确答案。\n\n",
}
_ANSWER: Mapping[Language, str] = {"en": "Answer:", "zh": "答案："}
_QUESTION: Mapping[Language, str] = {"en": "Question: ", "zh": "问题："}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question as tokens.

    Attributes:
        inputs: of each option the ids that the model is given; those of one letter each are equal.
        targets: of each option the ids that are scored, the last of them predicted by the last input.
        lengths: what its log-likelihood is divided by: 1, or the characters of the option.
    """

    inputs: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceComparison:
    """One model's answers against the float model's, paired over questions.

    Attributes:
        accuracy, float_accuracy: shares of right answers.
        drop: in percentage points, by the exact McNemar test and Tango's interval.
        lost, won: right only by the float model, right only by this one.
        changed: questions with another answer than the float model's, right or wrong.
    """

    questions: int
    accuracy: float
    float_accuracy: float
    drop: AccuracyComparison
    lost: int
    won: int
    changed: int


def asked(
    questions: Sequence[Question],
    encode: Encode,
    config: LlmConfig,
    *,
    by: By = "letter",
    shots: int = 0,
    examples: Sequence[Question] = (),
) -> list[AskedQuestion]:
    """Questions as tokens.

    Args:
        shots: answered examples before each question, the first so many of its subject.
        examples: where they are taken from.
    """
    of_subject: dict[str, list[Question]] = {}
    for example in examples:
        of_subject.setdefault(example.subject, []).append(example)
    found = []
    for question in questions:
        shown = of_subject.get(question.subject, [])[:shots]
        if len(shown) < shots:
            raise ConfigError(
                f"{len(shown)} examples of {question.subject!r}, {shots} are to be shown.",
                key="--shots",
                hint="Give the dev files of the same subjects, named SUBJECT_dev.csv.",
            )
        one = _asked(question, shown, encode, by)
        if (longest := max(map(len, one.inputs))) > config.context:
            raise ConfigError(
                f"{question.place}: {longest} tokens with {shots} examples, the model's context is {config.context}.",
                hint="Show fewer examples.",
            )
        found.append(one)
    return found


def answers(name: str, questions: Sequence[AskedQuestion], forward: Forward) -> Answers:
    """[questions] the option that the model finds most likely; the first of equal ones."""
    by_input: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, question in enumerate(questions):
        for option, ids in enumerate(question.inputs):
            by_input.setdefault(ids, []).append((number, option))
    scores = np.full((len(questions), max(len(each.inputs) for each in questions)), -np.inf)
    for part in _parts(list(by_input)):
        for ids, logits in zip(part, forward([torch.tensor([ids]) for ids in part]), strict=True):
            for number, option in by_input[ids]:
                question = questions[number]
                likelihood = _likelihood(logits, question.targets[option], f"{name}: question {number}")
                scores[number, option] = likelihood / question.lengths[option]
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def compare_answers(questions: Sequence[AskedQuestion], reference: Answers, given: Answers) -> ChoiceComparison:
    """A model's answers against the float model's."""
    right = np.array([each.answer for each in questions])
    ours, theirs = reference == right, given == right
    return ChoiceComparison(
        questions=len(questions),
        accuracy=float(theirs.mean()),
        float_accuracy=float(ours.mean()),
        drop=mcnemar(ours, theirs),
        lost=int((ours & ~theirs).sum()),
        won=int((~ours & theirs).sum()),
        changed=int((reference != given).sum()),
    )


def accuracy_pairs(questions: Sequence[AskedQuestion], given: Sequence[Answers]) -> Pairs:
    """Differences in the share of right answers between all pairs of models, with intervals that hold all at once."""
    right = np.array([each.answer for each in questions])
    return all_pairs(np.stack([each == right for each in given]).astype(np.float64), np.ones(len(right)))


def chance(questions: Sequence[AskedQuestion]) -> float:
    """The share that guessing gets right."""
    return float(np.mean([1 / len(each.inputs) for each in questions]))


def accuracy(questions: Sequence[AskedQuestion], given: Answers) -> Estimate:
    """The share of right answers, with Wilson's 95 % interval."""
    right = float((given == np.array([each.answer for each in questions])).mean())
    n, z = len(questions), 1.959963984540054
    middle = (right + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(right * (1 - right) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Estimate(value=right, low=min(float(middle - half), right), high=max(float(middle + half), right))


def _asked(question: Question, shown: Sequence[Question], encode: Encode, by: By) -> AskedQuestion:
    language = question.language
    parts = [_DESCRIPTION[language].format(subject=question.subject) if by == "letter" else ""]
    parts += [f"{_words(each, by)} {_said(each, each.answer, by)}\n\n" for each in shown]
    context = "".join(parts) + _words(question, by)
    before = encode(context)
    inputs, targets, lengths = [], [], []
    for option in range(len(question.options)):
        said = _said(question, option, by)
        if not said.strip():
            raise ConfigError(
                f"{question.place}: option {LETTERS[option]} has no text to be scored.", hint="Score by letter."
            )
        # tokens may join across the border: what is scored is all behind the context's own tokens
        whole = encode(f"{context} {said}")
        first = min(len(before), len(whole) - 1)
        inputs.append(tuple(whole[:-1]))
        targets.append(tuple(whole[first:]))
        lengths.append(1 if by == "letter" else len(said))
    return AskedQuestion(inputs=tuple(inputs), targets=tuple(targets), lengths=tuple(lengths), answer=question.answer)


def _words(question: Question, by: By) -> str:
    language, text = question.language, question.text.strip()
    if by == "text":
        return f"{_QUESTION[language]}{text}\n{_ANSWER[language]}"
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, question.options, strict=False))
    return f"{text}\n{listed}\n{_ANSWER[language]}"


def _said(question: Question, option: int, by: By) -> str:
    return LETTERS[option] if by == "letter" else question.options[option]


def _parts(inputs: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    parts: list[list[tuple[int, ...]]] = [[]]
    tokens = 0
    for ids in inputs:
        if parts[-1] and tokens + len(ids) > _TOKENS_AT_ONCE:
            parts.append([])
            tokens = 0
        parts[-1].append(ids)
        tokens += len(ids)
    return parts


def _likelihood(logits: torch.Tensor, targets: Sequence[int], where: str) -> float:
    """Σ log p of the targets, from the last rows of [1, tokens, vocabulary]."""
    rows = logits[0, -len(targets) :].to(torch.float64)
    if not bool(torch.isfinite(rows).all()):
        raise MeasureError(f"{where} has logits that are NaN or infinite.")
    return float(torch.log_softmax(rows, dim=1).gather(1, torch.tensor(targets)[:, None]).sum())
