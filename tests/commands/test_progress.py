"""What a running sweep says: why a candidate is tried, and in time what is known so far, without flooding a log."""

import io

import pytest
from rich.console import Console

from tests.evaluations import candidate, evaluation
from tests.tiny import write_workspace
from workbench.commands.progress import Progress
from workbench.inputs.experiment import Experiment, read_experiment


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return read_experiment(write_workspace(tmp_path_factory.mktemp("workspace")))


def plain(question: Experiment) -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    return Progress(question, 6, Console(file=stream, width=160), limit_s=300.0), stream


def test_a_log_says_what_stands_after_the_first_few_candidates_and_not_after_each(question: Experiment) -> None:
    progress, stream = plain(question)
    with progress:
        progress.begin()
        for number, (threads, scheme, speedup) in enumerate(
            [(1, "none", 1.0), (2, "none", 1.5), (1, "dynamic", 2.0), (2, "dynamic", 3.0)]
        ):
            progress.trying(candidate(threads=threads, scheme=scheme), f"reason {number}")
            for stage in ("check", "smoke", "accuracy_full", "latency_full"):
                progress.stage(candidate(threads=threads, scheme=scheme), stage)
            progress.evaluated(
                evaluation(threads=threads, scheme=scheme, speedup=speedup, p50_ms=4 / speedup, drop_pp=0.1), False
            )
    said = stream.getvalue()

    assert "reason 2" in said
    assert said.count("so far") == 1
    assert "3 of 6 candidates" in said
    assert "of at most 5 min 00 s" in said
    assert f"best  {candidate(scheme='dynamic').short_id}" in said
    assert "measured" in said
    assert "stage" not in said  # nothing was silent for long
    assert len(said.splitlines()) < 20
