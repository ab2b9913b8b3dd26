"""What a sweep would take: what its candidates share is counted once, and a fraction of nothing is nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny import write_workspace
from workbench.evaluation.reuse import AUDITED
from workbench.inputs.experiment import read_experiment
from workbench.search.effort import FULL
from workbench.search.forecast import Cost, Distinct, curve_s, distinct_among, search_cost

SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax, mse, percentile], when: {quantization.scheme: [static]}}
  quantization.percentile: {choices: [99.9, 99.99], when: {quantization.algorithm: [percentile]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  serving.intra_op_threads: {choices: [1, 2]}
service: {max_batch_size: [1, 4], batch_timeout_ms: [0], workers: [1]}
"""
COST = Cost(opening_s=1.0, samples_s=4.0, short_s=1.0, calls_s=2.0, memory_s=1.0, curve_s=6.0, simulation_s=1.0)


def test_what_candidates_share_is_counted_once(tmp_path: Path) -> None:
    found = distinct_among(read_experiment(write_workspace(tmp_path, space=SPACE)), 100)

    # float and four static recipes, each on one thread and on two; recipes differ in scales alone
    assert found == Distinct(candidates=10, outputs=5, structures=4, compiler_runs=5, rows=1.0)


def test_a_candidate_of_many_alike_costs_less() -> None:
    alone = Distinct(candidates=10, outputs=10, structures=10, compiler_runs=10)
    alike = replace(alone, outputs=5, structures=5)

    assert COST.searched_s(FULL, alone) == pytest.approx(16.0)
    assert COST.searched_s(FULL, alike) == pytest.approx(1.0 + 2.0 + (1 - 0.5 * (1 - AUDITED)) * 10.0 + 1.0)
    assert COST.searched_s(FULL, replace(alone, candidates=0)) == 0.0


def test_costs_follow_from_one_call(tmp_path: Path) -> None:
    served = read_experiment(write_workspace(tmp_path, space=SPACE))
    slow, fast = (search_cost(served, ms, 1.0, timed=True) for ms in (20.0, 2.0))

    assert slow.samples_s == pytest.approx(10 * fast.samples_s)
    assert (fast.curve_s, fast.simulation_s) == (0.0, 0.0)  # the experiment asks for no service
    modelled = search_cost(served, 20.0, 1.0, timed=False)
    assert (modelled.short_s, modelled.calls_s, modelled.curve_s) == (0.0, 0.0, 0.0)
    assert curve_s(served, 20.0) == 0.0
