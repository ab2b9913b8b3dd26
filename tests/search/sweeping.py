"""Sweeps for the tests of this folder, in this process and in one that can be killed."""

import subprocess
import sys
from pathlib import Path

from workbench.evaluation.journal import Journal
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.values.candidate import Candidate
from workbench.values.results import Evaluation

ROOT = Path(__file__).parents[2]

SMALL_SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [dynamic]}}
  compile.graph_optimization: {choices: [all, basic]}
  serving.intra_op_threads: {choices: [1, 2]}
forbid:
  - {quantization.scheme: [dynamic], compile.graph_optimization: [basic], reason: stays in float}
"""

RUNNER = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that runs the tests with `&` would have it ignored
from tests.search.sweeping import silent
from workbench.evaluation.bench import open_bench
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.worker_pool import Workers
from workbench.inputs.experiment import read_experiment
from workbench.evaluation.sweep_folders import exclusive, open_journal
from workbench.evaluation.store import Store
from workbench.search.sweep import run_sweep
question = read_experiment(pathlib.Path(sys.argv[1]))
journal = open_journal(question.workspace, question.name, question.identity)
def report(candidate, stage):
    print(candidate.quantization.scheme, stage, flush=True)
with exclusive(journal):
    store = Store(question.workspace / ".workbench" / "store")
    bench = open_bench(question, journal, store, report)
    with ChildProcess(question, bench) as executor:
        run_sweep(question, bench, workers=Workers(cards=(executor,)))
"""


def silent(candidate: Candidate, stage: str) -> None:
    """A report nobody reads."""


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[Evaluation, bool]] = []

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        self.seen.append((evaluation, reused))


def journal_of(experiment: Path) -> Journal:
    question = read_experiment(experiment)
    return open_journal(question.workspace, question.name, question.identity)


def start(experiment: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(experiment)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
