"""A process of its own for evaluations: the same results and errors; what happens to it happens to it alone."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import MOST_CALLS, Experiment, read_experiment
from workbench.search.executors.base import TimeUp, decode_error, encode_error
from workbench.search.executors.child import ChildProcess
from workbench.search.pipeline import evaluate
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.errors import CompileError, ConfigError, CrashError, ToolchainError

ROOT = Path(__file__).parents[3]
STAGES: list[str] = []


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return read_experiment(write_workspace(tmp_path_factory.mktemp("child")))


@pytest.fixture(scope="module")
def bench(question: Experiment) -> Iterator[Bench]:
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")
    yield open_bench(question, journal, store, lambda candidate, stage: STAGES.append(stage))
    store.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Experiment, Bench]]:
    """Whatever happens to an evaluation of this happens before its end: it times calls for minutes."""
    text = EXPERIMENT.replace("{calls: 60,", f"{{calls: {MOST_CALLS},")
    question = read_experiment(write_workspace(tmp_path_factory.mktemp("lasting"), experiment=text))
    bench = bench_of(question)
    yield question, bench
    bench.store.close()


def test_a_child_evaluates_as_this_process_does_and_ignores_what_ends_the_sweep(
    question: Experiment, bench: Bench
) -> None:
    STAGES.clear()
    with ChildProcess(question, bench) as executor:
        assert executor.probe() > 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(executor.pid, number)  # a terminal and a service manager mean the sweep, which ends the child
        theirs = executor.evaluate(Task(candidate=question.baseline))
        stages = STAGES.copy()
        timed = executor.time(question.baseline)
        child = psutil.Process(executor.pid)
    STAGES.clear()
    ours = evaluate(question, question.baseline, bench)

    assert (theirs.status, theirs.stage_reached) == ("complete", "latency_full")
    assert theirs.measurement.accuracy == ours.measurement.accuracy
    assert stages == STAGES
    assert bench.journal.latency(question.baseline.id, "validation").exists()
    assert timed.samples >= question.measure.short_calls
    assert not child.is_running()


def test_a_child_that_dies_is_named_with_stage_and_signal_and_replaced(lasting: tuple[Experiment, Bench]) -> None:
    question, bench = lasting
    died: list[psutil.Process] = []

    def report(candidate: Candidate, stage: str) -> None:
        if stage == "smoke":
            died.append(psutil.Process(executor.pid))
            died[0].send_signal(signal.SIGABRT)

    with ChildProcess(question, replace(bench, report=report)) as executor:
        with pytest.raises(CrashError, match="SIGABRT, a crash inside a compiler or runtime") as crash:
            executor.evaluate(Task(candidate=question.baseline))
        assert executor.probe() > 0
        second = psutil.Process(executor.pid)
        assert second != died[0]
        second.kill()  # with nothing to do: nobody's fault, and nobody notices
        second.wait(timeout=300)
        assert executor.probe() > 0

    assert crash.value.stage == "smoke"
    assert "Fatal Python error: Aborted" in crash.value.log_path.read_text(encoding="utf-8")


def test_an_experiment_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    question = read_experiment(file)
    bench = bench_of(question)
    file.write_text(file.read_text(encoding="utf-8").replace("loss_pp: 2.0", "loss_pp: 1.0"), encoding="utf-8")

    with ChildProcess(question, bench) as executor, pytest.raises(ConfigError, match=r"was changed while the sweep"):
        executor.evaluate(Task(candidate=question.baseline))


def test_a_child_does_not_outlive_a_killed_parent(question: Experiment, bench: Bench) -> None:
    code = """
import sys, time, pathlib
from workbench.evaluation.bench import open_bench
from workbench.search.executors.child import ChildProcess
from workbench.inputs.experiment import read_experiment
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
question = read_experiment(pathlib.Path(sys.argv[1]))
bench = open_bench(question, Journal(root=pathlib.Path(sys.argv[2])), Store(pathlib.Path(sys.argv[3])), print)
with ChildProcess(question, bench) as executor:
    print(executor.pid, flush=True)
    time.sleep(1000)
"""
    places = [str(question.path), str(bench.journal.root), str(bench.store.root)]
    with subprocess.Popen([sys.executable, "-c", code, *places], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    deadline = time.monotonic() + 90
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_candidate_in_flight_at_the_end_of_the_time_is_ended_and_the_next_task_is_done(
    lasting: tuple[Experiment, Bench],
) -> None:
    question, bench = lasting
    with ChildProcess(question, bench) as executor:
        assert executor.probe() > 0
        with pytest.raises(TimeUp):  # at whichever stage it was
            executor.evaluate(Task(candidate=question.baseline), until=time.perf_counter() + 0.05)
        assert executor.probe(until=time.perf_counter() + 600) > 0


def arrived(error: Exception) -> Exception:
    """As the sweep sees it, raised with a traceback there and sent as text."""
    try:
        raise error
    except Exception as raised:
        return decode_error(json.loads(json.dumps(encode_error(raised))))


def test_errors_raised_on_purpose_keep_class_words_and_facts() -> None:
    wrong = arrived(ConfigError("is wrong.", file="x.yaml", line=3, key="a.b", hint="Mend it."))
    refused = arrived(CompileError("no.", transient=True))

    assert isinstance(wrong, ConfigError)
    assert str(wrong) == "x.yaml:3: a.b: is wrong. Mend it."
    assert (wrong.file, wrong.line, wrong.key) == ("x.yaml", 3, "a.b")
    assert isinstance(arrived(ToolchainError("no device.")), ToolchainError)
    assert isinstance(refused, CompileError)
    assert refused.transient


def test_mistakes_bring_their_class_words_and_traceback_and_a_full_disk_stays_one() -> None:
    for error, words in ((KeyError("x"), "KeyError: x"), (np.linalg.LinAlgError("singular"), "LinAlgError: singular")):
        found = arrived(error)
        assert isinstance(found, RuntimeError)
        assert str(found) == words
        assert "test_child.py" in found.__notes__[0]
    full = arrived(OSError(errno.ENOSPC, "No space left on device", "/x"))
    assert isinstance(full, OSError)
    assert (full.errno, full.filename) == (errno.ENOSPC, "/x")
