"""`workbench report`: from a journal or a bundle and other commands' documents to a file, and what it refuses."""

import json
from pathlib import Path

import docx
import pytest

from tests.commands.running import run
from tests.report.written.materials import AGREEMENT, LOAD, VERDICT
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError


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
