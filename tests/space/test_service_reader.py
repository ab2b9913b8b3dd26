"""The two keys `service:`, read from real files."""

from pathlib import Path

import pytest

from workbench.space.service_reader import read_choices, read_question, read_trace
from workbench.values.documents.canonical import encode
from workbench.values.documents.yaml_reader import read_yaml
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad, ServiceSettings


def written(folder: Path, text: str) -> Path:
    file = folder / "file.yaml"
    file.write_text(f"version: 1\n{text}", encoding="utf-8")
    return file


def question_of(folder: Path, text: str) -> object:
    with read_yaml(written(folder, text)) as top:
        return read_question(top)


def choices_of(folder: Path, text: str) -> object:
    with read_yaml(written(folder, text)) as top:
        return read_choices(top)[0]


def test_a_question_is_read_with_its_load_limit_and_host(tmp_path: Path) -> None:
    (tmp_path / "arrivals.txt").write_text("10.0\n10.5\n\n12\n", encoding="utf-8")
    loop = question_of(tmp_path, "service: {concurrency: 100, p99_ms: 60, confirm: 5s}\n")
    trace = question_of(tmp_path, "service: {trace: arrivals.txt}\n")
    host = "host: {request_ms: 0.5, cores: 3, origin: a colleague}"
    assumed = question_of(tmp_path, f"service:\n  rate: 500\n  {host}\n").host

    assert (loop.load, loop.p99_ms, loop.confirm_s) == (ServiceLoad(concurrency=100), 60.0, 5.0)
    assert question_of(tmp_path, "service: {rate: highest, p99_ms: 60}\n").load is None, "it is no load but a question"
    assert trace.load == ServiceLoad(arrivals="trace", trace_s=(0.0, 0.5, 2.0)), "a trace begins at zero"
    assert assumed.origin == "assumed in file.yaml: a colleague"
    assert assumed.capacity == (1.0, 2.0, 3.0)
    for text, seconds in (("0", 0.0), ("0s", 0.0), ("3", 3.0), ("1m", 60.0)):
        assert question_of(tmp_path, f"service: {{concurrency: 100, confirm: {text}}}\n").confirm_s == seconds
    assert question_of(tmp_path, "") is choices_of(tmp_path, "") is None


def test_a_wrong_question_names_file_line_and_key(tmp_path: Path) -> None:
    for text, words in (
        ("service: {}\n", "expected one of concurrency, rate and trace, got none"),
        ("service: {concurrency: 8, rate: 9}\n", "service.rate: expected one of .* got concurrency, rate"),
        ("service: {concurrency: 0}\n", "service.concurrency: 0 is less than 1"),
        ("service: {rate: fast}\n", "service.rate: expected a number"),
        ("service: {rate: highest}\n", "service.p99_ms.*the highest rate is sought"),
        ("service: {concurrency: 8, goal: both}\n", "service.goal: 'both' is not allowed"),
        ("service: {concurrency: 8, p99_ms: 0}\n", "service.p99_ms: 0 is not above 0"),
        ("service: {concurrency: 8, p98_ms: 4}\n", "service.p98_ms: unknown key.*p99_ms"),
        ("service: {concurency: 8}\n", "service.concurency: unknown key.*'concurrency'"),
        ("service: {trace: gone.txt}\n", "service.trace: .*gone.txt does not exist"),
        ("service:\n  rate: 5\n  host: {request_ms: 1}\n", "service.host.origin: missing"),
        ("service:\n  rate: 5\n  host: {request_ms: 1, cores: 0.5, origin: x}\n", "service.host.cores: 0.5 is less"),
    ):
        with pytest.raises(ConfigError, match=words if words.startswith("expected") else rf"file.yaml:\d+: {words}"):
            question_of(tmp_path, text)


def test_choices_without_batching_have_no_timeout_and_what_runs_today_is_one_of_them(tmp_path: Path) -> None:
    text = "service: {max_batch_size: [1, 8], batch_timeout_ms: [0, 2.5], workers: [1]TODAY}\n"
    plain = choices_of(tmp_path, text.replace("TODAY", ""))
    today = "today: {max_batch_size: 8, batch_timeout_ms: 2.5, workers: 1}"
    found = choices_of(tmp_path, text.replace("TODAY", f", {today}"))

    slow = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.5)
    assert plain.settings() == found.settings() == (ServiceSettings(), ServiceSettings(max_batch_size=8), slow)
    assert (plain.untuned, found.untuned) == (ServiceSettings(), slow)
    assert "today" not in encode(plain), "spaces without it keep their digests"


def test_wrong_choices_name_file_line_and_key(tmp_path: Path) -> None:
    for text, words in (
        (
            "service: {workers: [1], today: {max_batch_size: 1, batch_timeout_ms: 0, workers: 2}}\n",
            "service.today.workers: 2 is not among 1",
        ),
        ("service: {today: {max_batch_size: 1, batch_timeout_ms: 0}}\n", "service.today.workers: "),
        ("service: {max_batch_size: [0]}\n", "service.max_batch_size: 0 is less than 1"),
        ("service: {max_batch_size: [4, 4]}\n", "service.max_batch_size: .*different numbers"),
        ("service: {max_batch_size: []}\n", "service.max_batch_size: .*different numbers"),
        ("service: {workers: [1, 1000]}\n", "service.workers: .*up to 256"),
        ("service: {batch_timeout_ms: [true]}\n", "service.batch_timeout_ms: expected a list of different numbers"),
        ("service: {batch_timeout_ms: [-1]}\n", "service.batch_timeout_ms: .*from 0 to 10000"),
        ("service: {batch_timeout_ms: 5}\n", "service.batch_timeout_ms: expected a list"),
        ("service: {timeout: [1]}\n", "service.timeout: unknown key"),
    ):
        with pytest.raises(ConfigError, match=rf"file.yaml:\d+: {words}"):
            choices_of(tmp_path, text)


def test_a_broken_trace_names_its_line(tmp_path: Path) -> None:
    for text, words in (
        ("1\nx\n", "trace.txt:2: 'x' is no time"),
        ("2\n1\n", "trace.txt:2: '1' comes before 2"),
        ("1\n", "fewer than two"),
    ):
        file = tmp_path / "trace.txt"
        file.write_text(text, encoding="utf-8")

        with pytest.raises(ConfigError, match=words):
            read_trace(file)
