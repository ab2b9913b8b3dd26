"""Both samplers, with one, two and three objectives."""

from pathlib import Path

import pytest

from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.inputs.experiment import read_experiment
from workbench.search.front import front_of
from workbench.search.sweep import run_sweep


@pytest.mark.parametrize(
    ("sampler", "objectives"),
    [
        ("auto", "[latency_p50_ms]"),
        ("auto", "[latency_p50_ms, accuracy]"),
        ("auto", "[speedup, size_mb, accuracy]"),
        ("random", "[throughput_per_s, accuracy]"),
    ],
)
def test_every_sampler_searches_with_one_two_or_three_objectives(
    tmp_path: Path, warm_store: Path, sampler: str, objectives: str
) -> None:
    text = EXPERIMENT.replace("[latency_p50_ms, accuracy]", objectives) + f"sampler: {sampler}\n"
    question = read_experiment(write_workspace(tmp_path, experiment=text))
    bench = bench_of(question, warm_store)

    said: list[str] = []
    end = run_sweep(question, bench, trials=6, trying=lambda candidate, why: said.append(why))

    assert end.new == 6
    assert any(words.startswith("expected ") for words in said) == (sampler == "auto")
    assert front_of(question, bench.journal.evaluations())
