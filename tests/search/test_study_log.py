"""A sweep that is killed between any two lines of Optuna's log asks what an undisturbed one asks, in its order."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.tiny import bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.asking import told_candidates
from workbench.search.executors import Task, Workers
from workbench.search.study import open_study
from workbench.search.sweep import run_sweep
from workbench.values.results import Evaluation

TRIALS = 12
"""More than the random start of the sampler, so that what was told decides what is asked."""


class Remembered:
    """An executor that knows every candidate's result: a function of the candidate, as accuracies are."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.asked: list[str] = []

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        candidate = task.candidate
        self.asked.append(candidate.id)
        digits = int(candidate.id[:6], 16)
        stamp = f"2026-01-01T00:00:{len(self.asked):02d}+00:00"
        found = evaluation(accuracy=0.9 + digits % 97 / 1000, p50_ms=1 + digits % 89 / 10, started_at=stamp)
        return replace(found, candidate=candidate, toolchain=self.bench.toolchain(candidate))


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return read_experiment(write_workspace(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def bench(question: Experiment) -> Iterator[Bench]:
    bench = bench_of(question)
    yield bench
    bench.store.close()


@pytest.fixture(scope="module")
def undisturbed(
    question: Experiment, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Journal, list[str]]:
    """A sweep that nothing happened to, and what it asked for in its order."""
    executor, whole = Remembered(bench), new_journal(tmp_path_factory.mktemp("undisturbed") / "whole", bench)
    sweep_in(whole, question, bench, executor)
    return whole, executor.asked


@pytest.mark.parametrize("known", [False, True], ids=["not kept yet", "kept and not told"])
def test_a_log_cut_anywhere_leads_to_the_same_candidates_in_the_same_order(
    question: Experiment, bench: Bench, undisturbed: tuple[Journal, list[str]], tmp_path: Path, known: bool
) -> None:
    whole, asked = undisturbed
    log = whole.study.read_bytes()
    ends = [i for i, byte in enumerate(log) if byte == ord("\n")]
    assert len(set(asked)) == TRIALS

    for number, end in enumerate(ends[known :: len(ends) // 4]):
        cut = log[: end + 1 + 11 * (number % 2)]  # every other time in the middle of a line
        journal = new_journal(tmp_path / f"cut{number}", bench)
        journal.study.write_bytes(cut)
        done = told_candidates(open_study(question, journal.study)) | (asked_for(cut) if known else set())
        journal.study.write_bytes(cut)
        for evaluated in whole.evaluations().values():
            if evaluated.candidate.id in done:
                journal.write(evaluated)
        again = Remembered(bench)

        sweep_in(journal, question, bench, again)

        assert again.asked == [i for i in asked if i not in done], f"cut after {len(cut)} bytes"


def asked_for(log: bytes) -> set[str]:
    """Candidates whose evaluation may have been kept: the log names them."""
    words = log.decode().split('"candidate": "' if '"candidate": "' in log.decode() else '"candidate":"')[1:]
    return {word[:64] for word in words if len(word) > 64}


def new_journal(root: Path, bench: Bench) -> Journal:
    root.mkdir()
    shutil.copyfile(bench.journal.root / "sweep.json", root / "sweep.json")
    return Journal(root=root)


def sweep_in(journal: Journal, question: Experiment, bench: Bench, executor: Remembered) -> None:
    run_sweep(question, replace(bench, journal=journal), trials=TRIALS, workers=Workers(cards=(executor,)))
