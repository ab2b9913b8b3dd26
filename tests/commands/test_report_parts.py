"""`workbench report --baseline`: from a sweep to a report with all of its parts, by one command."""

from pathlib import Path

from tests.tiny import EXPERIMENT, SPACE, workbench, write_workspace
from workbench.values.exit_codes import USER

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
