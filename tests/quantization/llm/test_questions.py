"""Files of questions: the benchmarks' own forms, and errors that name file, line and rule."""

from pathlib import Path

import pytest

from workbench.quantization.llm.choices import Question, read_questions
from workbench.values.errors import ConfigError

MMLU = '"Find all c in Z_3, such that x^2 + c is a field.",0,1,2,3,B\n"Two\nlines",a,"b, c",d,,D\n'
C_EVAL = "id,question,A,B,C,D,answer,explanation\n0,使用公网地址的是____。,甲,乙,丙,丁,C,因为\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_mmlu_files_have_no_header_and_their_name_is_the_subject(tmp_path: Path) -> None:
    file = write(tmp_path / "abstract_algebra_test.csv", MMLU)
    first, second = read_questions([file])
    assert first == Question(
        text="Find all c in Z_3, such that x^2 + c is a field.",
        options=("0", "1", "2", "3"),
        answer=1,
        subject="abstract algebra",
        language="en",
        place=f"{file}:1",
    )
    assert (second.text, second.options, second.answer) == ("Two\nlines", ("a", "b, c", "d", ""), 3)
    assert second.place.endswith(":3")


def test_c_eval_files_have_a_header_and_are_chinese(tmp_path: Path) -> None:
    (found,) = read_questions([write(tmp_path / "computer_network_val.csv", "\ufeff" + C_EVAL)])
    assert (found.language, found.answer, found.options) == ("zh", 2, ("甲", "乙", "丙", "丁"))
    assert found.subject == "computer network"


def test_columns_of_cmmlu_are_found_by_their_names(tmp_path: Path) -> None:
    text = ",Question,A,B,C,D,Answer\n0,问,甲,乙,丙,丁,A\n"
    (found,) = read_questions([write(tmp_path / "agronomy.csv", text)])
    assert (found.text, found.answer, found.language) == ("问", 0, "zh")


def test_lines_of_json_may_have_more_or_less_than_four_options(tmp_path: Path) -> None:
    lines = [
        '{"question": "q", "choices": ["x", "y"], "answer": 1}',
        "",
        '{"question": "q", "choices": ["1", "2", "3", "4", "5"], "answer": "E"}',
    ]
    a, b = read_questions([write(tmp_path / "mine.jsonl", "\n".join(lines))])
    assert (a.options, a.answer, a.subject, a.language) == (("x", "y"), 1, "mine", "en")
    assert (len(b.options), b.answer) == (5, 4)


def test_a_folder_is_its_files_by_name(tmp_path: Path) -> None:
    write(tmp_path / "b_test.csv", MMLU)
    write(tmp_path / "a_test.csv", MMLU)
    write(tmp_path / "readme.txt", "no questions")
    assert [each.subject for each in read_questions([tmp_path])] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "q,1,2,3,4,B\nq,1,2,3,B\n", r"a\.csv:2: has 5 columns, expected 6"),
        ("a.csv", "q,1,2,3,4,E\n", r"a\.csv:1: answer: 'E' is no answer"),
        ("a.csv", "q,1,2,3,4,1\n", r"a\.csv:1: answer: '1' is no answer"),
        ("a.csv", " ,1,2,3,4,A\n", r"a\.csv:1: question: ' ' is no question"),
        ("a.csv", 'q,"1" x,2,3,4,A\n', r"a\.csv:1: is no CSV"),
        ("a.csv", "id,question,A,B,C,D\n0,q,1,2,3,4\n", r"a\.csv: has no column 'answer'.*val files"),
        ("a.csv", "id,question,A,B,C,answer\n", r"a\.csv: has no column 'd'"),
        ("a.csv", "", "0 questions"),
        ("a.txt", "q", "not valid JSON"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: holds no JSON object"),
        ("a.jsonl", '{"question": "q", "choices": "ab", "answer": 0}', r"a\.jsonl:1: choices: expected a list"),
        ("a.jsonl", '{"question": "q", "choices": ["a"], "answer": 0}', "expected a list"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"], "answer": 2}', "2 is no answer"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"], "answer": true}', "True is no answer"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"]}', "None is no answer"),
        ("a.jsonl", '{"question": 3, "choices": ["a", "b"], "answer": 0}', "3 is no question"),
    ],
)
def test_bad_files_are_refused_with_file_line_and_rule(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_questions([write(tmp_path / name, text)])


def test_bytes_that_are_no_text_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"q,1,2,\xff,4,A\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_questions([tmp_path / "a.csv"])
    with pytest.raises(ConfigError, match=r"b\.csv"):
        read_questions([tmp_path / "b.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="0 questions"):
        read_questions([tmp_path / "empty"])
