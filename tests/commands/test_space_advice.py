"""`workbench space --advise`: what a sweep says of its space, and the narrowed space as a file."""

from dataclasses import replace
from pathlib import Path

from tests.evaluations import TOOLCHAIN, evaluation
from tests.tiny import workbench, write_workspace
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report.advice import LEAST_CANDIDATES
from workbench.space.reader import read_space
from workbench.space.space import Forbidden, build, combinations


def sweep_made_up(question: Experiment, most: int = 100) -> None:
    """Every candidate of the space, at least `most`: INT8 twice as fast, and nothing else makes a difference."""
    journal = open_journal(question.workspace, question.name, question.identity)
    for assignment in [question.baseline_assignment, *combinations(question.space)][:most]:
        try:
            candidate = build(question.space, assignment)
        except Forbidden:
            continue
        float_one = candidate.id == question.baseline.id
        speedup = 1.0 if candidate.quantization.scheme == "none" else 2.0
        found = evaluation(scheme="none" if float_one else "static", drop_pp=0.1, p50_ms=4 / speedup, speedup=speedup)
        journal.write(replace(found, candidate=candidate, toolchain=TOOLCHAIN))


def test_the_narrowed_space_is_written_beside_the_first_with_what_was_taken_out(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    sweep_made_up(read_experiment(file))

    said = workbench("space", "--advise", file).stdout

    written = tmp_path / "search_spaces" / "tiny-narrowed.yaml"
    assert "serving.intra_op_threads: no difference beyond noise in" in said
    assert f"wrote {written}" in said.replace("\n", "")
    kept = {p.name: p.choices for p in read_space(written).parameters}
    assert kept["serving.intra_op_threads"] == (1,)
    assert kept["quantization.scheme"][0] == "none"

    again = workbench("space", "--advise", file)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_with_few_candidates_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    sweep_made_up(read_experiment(file), most=LEAST_CANDIDATES - 2)

    said = workbench("space", "--advise", file).stdout

    assert "too few to say which dimensions matter" in said
    assert "nothing to leave out; wrote nothing" in said
    assert list((tmp_path / "search_spaces").glob("*narrowed*")) == []
