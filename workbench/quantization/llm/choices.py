"""Multiple choice by likelihood: the option whose letter a model finds most likely behind the listed question.

    MMLU        CSV without a header: question, A, B, C, D, answer
    C-Eval      CSV with one: id, question, A, B, C, D, answer (CMMLU's first column has no name; explanations are left)
    JSON lines  {"question": …, "choices": [… 2 to 26 …], "answer": 0 or "A"}

A file's subject is its name without `_dev`, `_val` or `_test`. Questions are asked as lm-evaluation-harness does in its
mmlu and ceval tasks [inferred from its task files]. Chinese questions have no subject in their first line, whose names
the files do not hold.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.forward import Forward
from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import parse_json
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import AccuracyComparison, Estimate
from workbench.values.significance import Pairs, all_pairs, mcnemar

Language = Literal["en", "zh"]
Encode = Callable[[str], list[int]]
"""Text → ids, with what the tokenizer puts before a text and without what it puts behind."""
Answers = npt.NDArray[np.int64]
"""[questions] the option that a model takes."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_QUESTIONS = 100_000
_MOST_BYTES = 1 << 28
_COLUMNS = ("question", "a", "b", "c", "d", "answer")
_TOKENS_AT_ONCE = 1 << 14
"""Of one call of a forward pass, whose hidden states stand in memory."""
_DESCRIPTION: Mapping[Language, str] = {
    "en": "The following are multiple choice questions (with answers) about {subject}.\n\n",
    "zh": "以下是单项选择题，请选出其中的正确答案。\n\n",
}
_ANSWER: Mapping[Language, str] = {"en": "Answer:", "zh": "答案："}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Attributes:
    options: at least two; an empty one is kept, as benchmarks have such.
    answer: the place of the right one.
    language: of the words around it.
    place: file and line, for errors.
    """

    text: str
    options: tuple[str, ...]
    answer: int
    subject: str
    language: Language
    place: str


def read_questions(paths: Sequence[Path]) -> list[Question]:
    """The questions of files, or of the .csv and .jsonl files of folders, in the order of their names.

    Raises:
        ConfigError: a file is missing, of another form, has a line that is none of a question, an answer that is no
            option, or there is no question or more than 100 000.
    """
    found: list[Question] = []
    for path in paths:
        inside = sorted(each for each in path.glob("*") if each.suffix in (".csv", ".jsonl"))
        for file in inside if path.is_dir() else [path]:
            found += _of_table(file) if file.suffix == ".csv" else _of_lines(file)
    if not 0 < len(found) <= _MOST_QUESTIONS:
        raise ConfigError(f"{len(found)} questions; from 1 to {_MOST_QUESTIONS} are asked.", file=paths[0])
    return found


def _of_table(file: Path) -> Iterator[Question]:
    places, width, language = tuple(range(len(_COLUMNS))), len(_COLUMNS), "en"
    with open_lines(file, limit_bytes=_MOST_BYTES, newline="") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            for number, row in enumerate(filter(None, reader)):
                names = [each.strip().lower() for each in row]
                if not number and "question" in names:
                    if missing := [each for each in _COLUMNS if each not in names]:
                        hint = "C-Eval's test files have no answers: give its val files."
                        raise ConfigError(f"has no column {missing[0]!r}.", file=file, hint=hint)
                    places, width = tuple(map(names.index, _COLUMNS)), len(row)
                    # the first column of C-Eval and CMMLU is a number
                    language = "zh" if places[0] else "en"
                    continue
                if len(row) != width:
                    hint = "Is a quote missing around a text with commas?"
                    rule = f"has {len(row)} columns, expected {width}."
                    raise ConfigError(rule, file=file, line=reader.line_num, hint=hint)
                asked, *options, answer = (row[place] for place in places)
                yield _question(asked, options, answer.strip(), file, reader.line_num, language)
        except csv.Error as error:
            raise ConfigError(f"is no CSV: {error}.", file=file, line=reader.line_num) from error


def _of_lines(file: Path) -> Iterator[Question]:
    with open_lines(file, limit_bytes=_MOST_BYTES) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            value = parse_json(line, file=file, line=number)
            if not isinstance(value, dict):
                raise ConfigError("holds no JSON object.", file=file, line=number)
            yield _question(value.get("question"), value.get("choices"), value.get("answer"), file, number, "en")


def _question(asked: Any, options: Any, answer: Any, file: Path, line: int, language: Any) -> Question:
    if not isinstance(asked, str) or not asked.strip():
        raise ConfigError(f"{asked!r} is no question.", file=file, line=line, key="question")
    texts = isinstance(options, list) and all(isinstance(each, str) for each in options)
    if not texts or not 2 <= len(options) <= len(_LETTERS):
        rule = f"expected a list of 2 to {len(_LETTERS)} texts."
        raise ConfigError(rule, file=file, line=line, key="choices")
    letters = list(_LETTERS[: len(options)])
    place = letters.index(answer) if answer in letters else answer
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(options):
        rule, hint = f"{answer!r} is no answer.", f"Expected {', '.join(letters)}."
        raise ConfigError(rule, file=file, line=line, key="answer", hint=hint)
    subject = file.stem
    for split in ("_dev", "_val", "_test"):
        subject = subject.removesuffix(split)
    return Question(
        text=asked,
        options=tuple(options),
        answer=place,
        subject=subject.replace("_", " "),
        language=language,
        place=f"{file}:{line}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question as tokens.

    Attributes:
        inputs: of each option the ids that the model is given; those of one letter each are equal.
        targets: of each option the ids that are scored, the last of them predicted by the last input.
    """

    inputs: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
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
        one = _asked(question, shown, encode)
        if (longest := max(map(len, one.inputs))) > config.context:
            raise ConfigError(
                f"{question.place}: {longest} tokens with {shots} examples, the model's context is {config.context}.",
                hint="Show fewer examples.",
            )
        found.append(one)
    return found


def _asked(question: Question, shown: Sequence[Question], encode: Encode) -> AskedQuestion:
    parts = [f"{_words(each)} {_LETTERS[each.answer]}\n\n" for each in shown]
    context = _DESCRIPTION[question.language].format(subject=question.subject) + "".join(parts) + _words(question)
    before = encode(context)
    # tokens may join across the border: what is scored is all behind the context's own tokens
    whole = [encode(f"{context} {letter}") for letter in _LETTERS[: len(question.options)]]
    return AskedQuestion(
        inputs=tuple(tuple(ids[:-1]) for ids in whole),
        targets=tuple(tuple(ids[min(len(before), len(ids) - 1) :]) for ids in whole),
        answer=question.answer,
    )


def _words(question: Question) -> str:
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(_LETTERS, question.options, strict=False))
    return f"{question.text.strip()}\n{listed}\n{_ANSWER[question.language]}"


def answers(name: str, questions: Sequence[AskedQuestion], forward: Forward) -> Answers:
    """[questions] the option that the model finds most likely; the first of equal ones."""
    by_input: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, question in enumerate(questions):
        for option, ids in enumerate(question.inputs):
            by_input.setdefault(ids, []).append((number, option))
    scores = np.full((len(questions), max(len(each.inputs) for each in questions)), -np.inf)
    parts = np.cumsum([len(ids) for ids in by_input]) // _TOKENS_AT_ONCE
    for number_of_part in dict.fromkeys(parts.tolist()):
        part = [ids for ids, of in zip(by_input, parts, strict=True) if of == number_of_part]
        for ids, logits in zip(part, forward([torch.tensor([ids]) for ids in part]), strict=True):
            for number, option in by_input[ids]:
                targets = questions[number].targets[option]
                scores[number, option] = _likelihood(logits, targets, f"{name}: question {number}")
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def _likelihood(logits: torch.Tensor, targets: Sequence[int], where: str) -> float:
    """Σ log p of the targets, from the last rows of [1, tokens, vocabulary]."""
    rows = logits[0, -len(targets) :].to(torch.float64)
    if not bool(torch.isfinite(rows).all()):
        raise MeasureError(f"{where} has logits that are NaN or infinite.")
    return float(torch.log_softmax(rows, dim=1).gather(1, torch.tensor(targets)[:, None]).sum())


def _right(questions: Sequence[AskedQuestion], given: Answers) -> npt.NDArray[np.bool_]:
    right: npt.NDArray[np.bool_] = given == np.array([each.answer for each in questions])
    return right


def compare_answers(questions: Sequence[AskedQuestion], reference: Answers, given: Answers) -> ChoiceComparison:
    """A model's answers against the float model's."""
    ours, theirs = _right(questions, reference), _right(questions, given)
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
    right = np.stack([_right(questions, each) for each in given])
    return all_pairs(right.astype(np.float64), np.ones(len(questions)))


def chance(questions: Sequence[AskedQuestion]) -> float:
    """The share that guessing gets right."""
    return float(np.mean([1 / len(each.inputs) for each in questions]))


def accuracy(questions: Sequence[AskedQuestion], given: Answers) -> Estimate:
    """The share of right answers, with Wilson's 95 % interval."""
    from scipy import stats  # half a second that whoever asks no question need not spend

    right = int(_right(questions, given).sum())
    interval = stats.binomtest(right, len(questions)).proportion_ci(method="wilson")
    return Estimate(value=right / len(questions), low=float(interval.low), high=float(interval.high))
