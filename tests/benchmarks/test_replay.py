"""The replay of search strategies over a small table."""

from pathlib import Path

import numpy as np

from benchmarks.recorded.replay import replay, table_of
from benchmarks.recorded.tables import ATC_RUNS, Table, choice_places, load_table, save_table
from workbench.search.outlook import compiled_files
from workbench.space.reader import read_space
from workbench.space.space import build, combinations

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
            "constraints": {"accuracy_drop_pp": 0.5},
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


DEVICE_SPACE = """version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {when: {quantization.scheme: [static]}, choices: [mse, minmax, kl]}
  quantization.activation_symmetric: {when: {quantization.scheme: [static]}, choices: [true]}
  quantization.weight_granularity: {when: {quantization.scheme: [static]}, choices: [tensor]}
  quantization.attention_matmul: {when: {quantization.scheme: [static]}, choices: [false, true]}
  quantization.keep_float: {when: {quantization.scheme: [static]}, choices: [0]}
  precision.mode: {choices: [force_fp16]}
  compile.sequence_bins: {choices: ["64", "32 64"]}
  compile.batches: {choices: ["1 8"]}
  serving.batch: {choices: [1]}
"""


def device_table(folder: Path) -> Table:
    """Made up: what a candidate costs is how many files its set has."""
    (folder / "space.yaml").write_text(DEVICE_SPACE)
    space = read_space(folder / "space.yaml")
    every = list(combinations(space))
    recipes = [tuple(v for n, v in a.items() if n.startswith("quantization.")) for a in every]
    structures = [a.get("quantization.attention_matmul") for a in every]
    of_recipes, of_structures = list(dict.fromkeys(recipes)), list(dict.fromkeys(structures))
    numbers, of_every = np.arange(len(every)), np.array([of_structures.index(s) for s in structures])
    return Table(
        meta={
            "name": "device",
            "space": DEVICE_SPACE,
            "objectives": ["service_throughput_per_s", "accuracy"],
            "constraints": {"accuracy_drop_pp": 0.5},
            "samples": 1000,
            "cost": ATC_RUNS,
            "modelled": "made up",
            "structures": of_every.tolist(),
        },
        choices=np.array([choice_places(space, a) for a in every], dtype=np.int8),
        numerics=np.array([of_recipes.index(r) for r in recipes]),
        time=numbers,
        accuracy=0.9 - 0.001 * np.arange(len(of_recipes)),
        drop_pp=0.1 * np.arange(len(of_recipes)),
        drop_error=np.full(len(of_recipes), 0.3),
        throughput_per_s=100.0 + numbers % 2 + 10 * of_every,
        p99_ms=np.full(len(every), 20.0),
        noise=np.zeros(1),
        rounds=np.zeros((len(every), 1)),
        each_s=np.array([float(len(compiled_files(build(space, a)))) for a in every]),
        numerics_s=np.zeros(len(of_recipes)),
        time_s=np.zeros(len(every)),
    )


def test_on_a_device_files_that_sets_share_are_compiled_once_and_few_of_a_set_that_waits(tmp_path: Path) -> None:
    table = device_table(tmp_path)
    space = read_space(tmp_path / "space.yaml")
    files = {file for a in combinations(space) for file in compiled_files(build(space, a))}
    whole = table.each_s.sum()
    costs = {
        name: replay(table, name, 0, enough=float("inf")).steps[-1].cost * whole
        for name in ("ours", "deferred", "random")
    }
    assert costs["random"] == whole
    assert costs["ours"] == len(files) < whole
    assert costs["deferred"] < costs["ours"]
