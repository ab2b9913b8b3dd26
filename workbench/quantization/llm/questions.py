"""Questions with options, from files as the benchmarks' authors give them.

    MMLU        CSV without a header: question, A, B, C, D, answer
    C-Eval      CSV with one: id, question, A, B, C, D, answer (CMMLU's first column has no name; explanations are left)
    JSON lines  {"question": …, "choices": [… 2 to 26 …], "answer": 0 or "A"}, or A, B, C, D instead of choices

A file's subject is its name without `_dev`, `_val` or `_test`; of JSON lines a key `subject` says it by question.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import parse_json
from workbench.values.errors import ConfigError

Language = Literal["en", "zh"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_QUESTIONS = 100_000
_MOST_BYTES = 1 << 28
_FOUR = tuple(LETTERS[:4])
_ENGLISH: Language = "en"
_CHINESE: Language = "zh"
_SPLITS = ("_dev", "_val", "_test")


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
        for file in _files(path):
            for question in _questions(file):
                found.append(question)
                if len(found) > MOST_QUESTIONS:
                    raise ConfigError(f"more than {MOST_QUESTIONS} questions.", file=file)
    if not found:
        raise ConfigError("holds no question.", file=paths[0] if paths else None)
    return found


def subject_of(file: Path) -> str:
    """'abstract algebra' of abstract_algebra_test.csv."""
    stem = file.stem
    for split in _SPLITS:
        stem = stem.removesuffix(split)
    return stem.replace("_", " ")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in (".csv", ".jsonl"))
    if not found:
        raise ConfigError("holds no .csv and no .jsonl file.", file=path)
    return found


def _questions(file: Path) -> Iterator[Question]:
    if file.suffix == ".csv":
        yield from _of_table(file)
    elif file.suffix == ".jsonl":
        yield from _of_lines(file)
    else:
        raise ConfigError("is neither .csv nor .jsonl.", file=file, hint="MMLU and C-Eval files are .csv.")


def _of_table(file: Path) -> Iterator[Question]:
    with open_lines(file, limit_bytes=_MOST_BYTES, newline="") as lines:
        reader = csv.reader(lines, strict=True)
        columns: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
        width, language = 0, _ENGLISH
        try:
            for row in reader:
                if not row:
                    continue
                if not width:
                    width = 6
                    if (named := _columns(row, file, reader.line_num)) is not None:
                        columns, width = named, len(row)
                        # the first column of C-Eval and CMMLU is a number
                        language = _CHINESE if columns[0] else _ENGLISH
                        continue
                if len(row) != width:
                    raise ConfigError(
                        f"has {len(row)} columns, expected {width}.",
                        file=file,
                        line=reader.line_num,
                        hint="Is a quote missing around a text with commas?",
                    )
                yield _question(
                    [row[place] for place in columns[:-1]],
                    row[columns[-1]].strip(),
                    file,
                    reader.line_num,
                    language,
                )
        except csv.Error as error:
            raise ConfigError(f"is no CSV: {error}.", file=file, line=reader.line_num) from error


def _columns(row: Sequence[str], file: Path, line: int) -> tuple[int, ...] | None:
    """Places of question, options and answer by a header; None where the first row is a question already."""
    names = [each.strip().lower() for each in row]
    if "question" not in names:
        return None
    wanted = ("question", "a", "b", "c", "d", "answer")
    if missing := [each for each in wanted if each not in names]:
        raise ConfigError(
            f"has no column {missing[0]!r}.",
            file=file,
            line=line,
            hint="C-Eval's test files have no answers: give its val files."
            if missing[0] == "answer"
            else "Expected id, question, A, B, C, D, answer.",
        )
    return tuple(names.index(each) for each in wanted)


def _of_lines(file: Path) -> Iterator[Question]:
    with open_lines(file, limit_bytes=_MOST_BYTES) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            value = parse_json(line, file=file, line=number)
            if not isinstance(value, dict):
                raise ConfigError("holds no JSON object.", file=file, line=number)
            options = value.get("choices", [value[letter] for letter in _FOUR if letter in value])
            if not isinstance(options, list) or not all(isinstance(each, str) for each in options):
                raise ConfigError("expected a list of texts.", file=file, line=number, key="choices")
            subject = value.get("subject", subject_of(file))
            language = value.get("language", "en")
            if not isinstance(subject, str):
                raise ConfigError(f"{subject!r} is no text.", file=file, line=number, key="subject")
            if language not in ("en", "zh"):
                raise ConfigError(f"{language!r} is neither 'en' nor 'zh'.", file=file, line=number, key="language")
            texts = [value.get("question"), *options]
            yield _question(texts, value.get("answer"), file, number, language, subject)


def _question(
    texts: Sequence[Any], answer: object, file: Path, line: int, language: Language, subject: str | None = None
) -> Question:
    asked, options = texts[0], tuple(texts[1:])
    if not isinstance(asked, str) or not asked.strip():
        raise ConfigError(f"{asked!r} is no question.", file=file, line=line, key="question")
    if not 2 <= len(options) <= len(LETTERS):
        raise ConfigError(f"{len(options)} options; a question has 2 to {len(LETTERS)}.", file=file, line=line)
    letters = LETTERS[: len(options)]
    if isinstance(answer, str) and len(answer) == 1 and answer in letters:
        place = letters.index(answer)
    elif isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        place = answer
    else:
        raise ConfigError(
            f"{answer!r} is no answer.", file=file, line=line, key="answer", hint=f"Expected {', '.join(letters)}."
        )
    return Question(
        text=asked,
        options=options,
        answer=place,
        subject=subject_of(file) if subject is None else subject,
        language=language,
        place=f"{file}:{line}",
    )
