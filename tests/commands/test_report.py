"""`workbench plan-capacity` and `workbench report`: from a journal or a bundle and other commands' documents to tables,
JSON and files, and what they refuse; and `report --baseline`, which makes all of its parts."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import docx
import pytest

from tests.commands.running import run
from tests.evaluations import evaluation
from tests.prediction.fleets import served
from tests.report.written.materials import AGREEMENT, LOAD, VERDICT
from tests.tiny import EXPERIMENT, SPACE, workbench, write_workspace
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import USER

plan = partial(run, "plan-capacity")


@pytest.fixture(scope="module")
def served_experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep whose journal holds a float baseline of 20 ms and an INT8 candidate of 8 ms a call."""
    question = EXPERIMENT + "service: {concurrency: 100, p99_ms: 80}\n"
    choices = SPACE + "service: {max_batch_size: [1, 8], batch_timeout_ms: [0], workers: [1]}\n"
    file = write_workspace(tmp_path_factory.mktemp("served"), experiment=question, space=choices)
    asked = read_experiment(file)
    journal = open_journal(asked.workspace, asked.name, asked.identity)
    journal.write(replace(served({1: 20.0, 8: 60.0}), candidate=asked.baseline))
    quick = evaluation(scheme="static", drop_pp=0.1, p50_ms=1.6, speedup=2.5)
    measured = served({1: 8.0, 8: 24.0}).measurement.service
    journal.write(replace(quick, measurement=replace(quick.measurement, service=measured)))
    return file


def test_the_front_and_the_baseline_stand_in_a_table_and_in_json_with_what_they_rest_on(
    served_experiment: Path,
) -> None:
    asked = ("--qps", 1000, "--p99-ms", 100, "--headroom", "0.5")
    shown = plan(served_experiment, *asked)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    for fact in ("PREDICTED for 1,000 requests/s", "float baseline", "INT8 static", "50% headroom", "P50 / P99 ms"):
        assert fact in words
    assert "server processes scale linearly" in words
    told = json.loads(plan(served_experiment, *asked, "--json").stdout)
    assert (told["version"], told["unit"], told["demand"]["headroom"]) == (1, "server process", 0.5)
    quick, slow = told["members"]
    assert (quick["baseline"], slow["baseline"]) == (False, True)
    assert 0 < quick["cards"] < slow["cards"]
    assert quick["settings"]["max_batch_size"] == 8
    assert quick["planned"]["p99_ms"]["value"] <= 100


def test_what_cannot_be_planned_is_refused(served_experiment: Path) -> None:
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        (("--p99-ms", 100, "--qps", 10, "--headroom", "much"), "'much' is no share"),
        (("--p99-ms", 0, "--qps", 10), "p99_ms"),
        (("--p99-ms", 100, "--qps", 10, "--candidate", "ffff"), "no candidate"),
    )
    for arguments, message in cases:
        error = plan(served_experiment, *arguments).exception
        assert isinstance(error, ConfigError)
        assert message in str(error)


def test_a_sweep_without_batch_curves_is_refused_with_what_to_write(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    question = read_experiment(file)
    open_journal(question.workspace, question.name, question.identity).write(
        replace(served({1: 5.0}), candidate=question.baseline)
    )

    error = plan(file, "--qps", 10, "--p99-ms", 50).exception

    assert isinstance(error, ConfigError)
    assert "has no `service:` section" in str(error)
    assert "Add service: {concurrency: 100" in str(error)


def test_a_sweep_alone_gives_a_whole_report_in_chinese(served_experiment: Path, tmp_path: Path) -> None:
    done = run("report", served_experiment, "--to", tmp_path / "out" / "report.docx")

    assert done.exit_code == 0, done.output
    said = "\n".join(p.text for p in docx.Document(str(tmp_path / "out" / "report.docx")).paragraphs)
    assert "模型迁移与 INT8 优化验收报告" in said
    assert "推荐方案：INT8 静态量化" in said
    assert "未做输出比对" in said


def test_every_document_of_other_commands_is_taken_up(served_experiment: Path, tmp_path: Path) -> None:
    planned = run("plan-capacity", served_experiment, "--qps", 450, "--price-per-hour", 2, "--json").stdout
    documents = {
        "capacity.json": json.loads(planned),
        "verdict.json": VERDICT.to_json(),
        "agreement.json": AGREEMENT.to_json(),
        "load-closed-100.json": LOAD.to_json(),
    }
    for name, body in documents.items():
        (tmp_path / name).write_text(json.dumps(encode(body)), encoding="utf-8")
    page = tmp_path / "report.html"

    done = run(
        *("report", served_experiment, "--lang", "en", "--to", page, "--verdict", tmp_path / "verdict.json"),
        *("--agreement", tmp_path / "agreement.json", "--load", tmp_path, "--capacity", tmp_path / "capacity.json"),
    )

    assert done.exit_code == 0, done.output
    said = page.read_text(encoding="utf-8")
    for fact in (
        "A100 + Triton",
        "0.999120",
        "100 clients, closed loop",
        "450 requests/s",
        "2 an hour for each process",
    ):
        assert fact in said
    assert "not compared (workbench agreement)" not in said
    assert "--verdict" in said


def test_what_is_no_such_document_is_refused_before_anything_is_written(
    served_experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the files are named relative to where one stands
    (tmp_path / "junk.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for asked, message in (
        ("--to report.pdf", "none of .docx, .html"),
        ("--to r.html --candidate ffff", "no candidate"),
        ("--to r.html --verdict junk.json", "is no verdict"),
        ("--to r.html --agreement junk.json", "no agreement"),
        ("--to r.html --load junk.json", "no result of a load"),
        ("--to r.html --load empty", "holds no load-"),
        ("--to r.html --layers junk.json", "no comparison"),
        ("--to r.html --capacity junk.json", "no plan of capacity"),
    ):
        error = run("report", served_experiment, *asked.split()).exception
        assert isinstance(error, ConfigError)
        assert message in str(error)
        assert not (tmp_path / "r.html").exists()


FIGURES = """
version: 1
name: the old platform
source: a test
loads: [{concurrency: 2, throughput_per_s: 1, p99_ms: 10000}]
limits: {throughput_at_least_percent: 80, p99_at_most_percent: 120}
"""


def test_one_command_makes_the_parts_of_a_report_and_keeps_those_that_are_there(tmp_path: Path) -> None:
    question = EXPERIMENT.replace("trials: 6", "trials: 2") + "service: {concurrency: 2, p99_ms: 9000, confirm: 0}\n"
    choices = SPACE + "service: {max_batch_size: [1, 4], batch_timeout_ms: [0], workers: [1]}\n"
    file = write_workspace(tmp_path, experiment=question, space=choices)
    assert workbench("sweep", file).returncode == 0
    figures, page = tmp_path / "old.yaml", tmp_path / "report.html"
    figures.write_text(FIGURES, encoding="utf-8")
    asked = ("report", file, "--baseline", figures, "--qps", 5, "--lang", "en", "--to", page)

    done = workbench(*asked)

    assert done.returncode == 0, done.stderr
    (parts,) = (tmp_path / "report-parts").iterdir()
    said = page.read_text(encoding="utf-8")
    assert "the old platform" in said
    assert {"bundle", "load", "agreement.json", "capacity.json"} <= {one.name for one in parts.iterdir()}
    before = {one: one.stat().st_mtime_ns for one in parts.rglob("*.json")}
    again = workbench(*asked)
    assert again.returncode == 0, again.stderr
    assert {one: one.stat().st_mtime_ns for one in parts.rglob("*.json")} == before
    assert workbench("report", parts / "bundle", "--baseline", figures, "--to", page).returncode == USER
    assert workbench("report", file, "--qps", 5, "--to", page).returncode == USER
    figures.write_text(FIGURES.replace("10000", "9000"), encoding="utf-8")
    assert workbench(*asked).returncode == 0
    assert len(list((tmp_path / "report-parts").iterdir())) == 2, "other figures are judged by a load of their own"
