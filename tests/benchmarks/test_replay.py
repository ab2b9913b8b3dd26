"""The replay of search strategies over a small table."""

from pathlib import Path

import numpy as np

from benchmarks.recorded.replay import replay, table_of
from benchmarks.recorded.tables import Table, choice_places, load_table, save_table
from workbench.space.reader import read_space
from workbench.space.space import combinations

SPACE = """version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {when: {quantization.scheme: [static]}, choices: [mse, minmax, kl]}
  quantization.activation_symmetric: {when: {quantization.scheme: [static]}, choices: [false, true]}
  quantization.weight_granularity: {when: {quantization.scheme: [static]}, choices: [channel, tensor]}
  quantization.attention_matmul: {when: {quantization.scheme: [static]}, choices: [false, true]}
  quantization.keep_float: {when: {quantization.scheme: [static]}, choices: [0]}
  compile.graph_optimization: {choices: [all, extended]}
  compile.fusions.BiasGeluFusion: {choices: ["on", "off"]}
  serving.intra_op_threads: {choices: [2, 1]}
presets:
  - {name: float}
  - {name: int8, quantization.scheme: static}
"""


def small_table(folder: Path) -> Table:
    """Made up: scores follow the recipe, times the granularity, attention and threads; the level changes nothing."""
    (folder / "space.yaml").write_text(SPACE)
    space = read_space(folder / "space.yaml")
    every = list(combinations(space))
    numerics = [tuple(v for n, v in a.items() if n.startswith("quantization.")) for a in every]
    time = [
        (a["quantization.scheme"], a.get("quantization.attention_matmul"), a["serving.intra_op_threads"]) for a in every
    ]
    of_numerics, of_time = list(dict.fromkeys(numerics)), list(dict.fromkeys(time))
    rng = np.random.default_rng(0)
    accuracy = 0.9 + 0.001 * rng.permutation(len(of_numerics))
    serves = np.array(
        [100.0 * (1.3 if t[0] == "static" else 1) * (2 if t[1] else 1) * (0.9 if t[2] == 2 else 1) for t in of_time]
    )
    timed = np.array([of_time.index(t) for t in time])
    return Table(
        meta={
            "name": "small",
            "space": SPACE,
            "objectives": ["service_throughput_per_s", "accuracy"],
            "constraints": {"accuracy_loss_pp": 0.5},
            "samples": 1000,
        },
        choices=np.array([choice_places(space, a) for a in every], dtype=np.int8),
        numerics=np.array([of_numerics.index(n) for n in numerics]),
        time=timed,
        accuracy=accuracy,
        drop_pp=100 * (accuracy[0] - accuracy),
        drop_error=np.full(len(of_numerics), 0.3),
        throughput_per_s=serves,
        p99_ms=np.full(len(of_time), 20.0),
        noise=rng.normal(0, 0.02, 40),
        rounds=np.zeros((len(of_time), 1)),
        each_s=np.full(len(every), 2.0),
        numerics_s=np.full(len(of_numerics), 4.0),
        time_s=np.full(len(of_time), 14.0),
    )


def test_a_strategy_that_shares_classes_reaches_the_front_for_less_than_one_that_draws(tmp_path: Path) -> None:
    save_table(small_table(tmp_path), tmp_path / "small.npz")
    table = load_table(tmp_path / "small.npz")
    runs = {name: [replay(table, name, seed, noise=True, most=48) for seed in range(2)] for name in ("ours", "random")}
    for name, found in runs.items():
        for run in found:
            costs = [step.cost for step in run.steps]
            assert costs == sorted(costs), name
            assert all(0 <= step.volume <= 1 + 1e-9 for step in run.steps), name
    ours, drawn = ([run.cost_to(0.95) for run in runs[name]] for name in ("ours", "random"))
    assert sum(ours) < sum(drawn)
    assert "random" in table_of(runs, (0.05,))


def test_a_run_is_decided_by_its_seed(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    assert replay(table, "ours", 3, most=10).steps == replay(table, "ours", 3, most=10).steps
