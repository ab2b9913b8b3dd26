"""Figures of whole sweeps: wall time, overhead, the winner, and whether a second sweep ranks alike.

    python -m benchmarks.sweep loan                      # the quickstart's experiment, built if it is missing
    python -m benchmarks.sweep banking77 --trials 60     # --bench DIR, default ../shared/bench/banking77
    python -m benchmarks.sweep banking77 --trials 30 --twice

Everything is written below `--workspace` (a temporary folder by default); the sources are only read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy.stats import kendalltau

from workbench.evaluation.journal import Journal
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs.experiment import read_experiment
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

ROOT = Path(__file__).resolve().parents[1]

MANIFEST = """version: 1
task: classification
files: {{calibration: {bench}/calibration.csv, validation: {bench}/validation.csv}}
columns: {{text: text, label: label}}
labels: {bench}/labels.json
tokenizer: {bench}/tokenizer.json
max_length: 64
bins: [8, 16, 24, 32, 48, 64]
"""
EXPERIMENT = """version: 1
name: banking77
about: MiniLM-L6 on Banking77, maximum length 64, batch 1
model: {bench}/minilm_l6_banking77.onnx
dataset: ../calibration/banking77.yaml
search_space: {root}/search_spaces/onnxruntime.yaml
calibration: {{samples: 128, batch: 8}}
objectives: [{objective}, accuracy]
constraints: {{accuracy_drop_pp: 0.5}}
budget: {budget}
{more}"""
TIMED = "measure: {calls: 1000, short_calls: 100}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["loan", "banking77"])
    parser.add_argument("--bench", type=Path, default=ROOT.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--twice", action="store_true", help="sweep again from scratch and compare the rankings")
    options = parser.parse_args()
    workspace = options.workspace or Path(tempfile.mkdtemp(prefix="workbench-bench-"))
    experiment = write_banking77(workspace, options.bench) if options.which == "banking77" else _loan()
    home = workspace if options.which == "banking77" else ROOT
    arguments = ["sweep", str(experiment), "--workspace", str(home)]
    if options.trials:
        arguments += ["--trials", str(options.trials)]

    first_s = _run([*arguments, "--fresh"])
    first = _journal(experiment, home)
    again_s = _run(arguments)
    print(f"\n{'sweep':<28}{first_s:>9.1f} s\n{'the same again, all cached':<28}{again_s:>9.1f} s")
    _say_overhead(first, first_s)
    if options.twice:
        _run([*arguments, "--fresh"])
        _say_ranking(first, _journal(experiment, home))


def _run(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "workbench", *arguments], check=True)
    return time.perf_counter() - began


def _journal(experiment: Path, workspace: Path) -> Journal:
    question = read_experiment(experiment, workspace)
    journal = current_journal(question.workspace, question.name)
    assert journal is not None, "the sweep has just run"
    return journal


def _say_overhead(journal: Journal, wall_s: float) -> None:
    """Share of the wall time that no stage of any evaluation accounts for (imports and MLflow included)."""
    everything = [*journal.evaluations().values(), *journal.evaluations("holdout").values()]
    stages: dict[str, float] = {}
    for evaluation in everything:
        for timing in evaluation.stages:
            stages[timing.stage] = stages.get(timing.stage, 0.0) + timing.seconds
    for stage, seconds in sorted(stages.items(), key=lambda item: -item[1]):
        print(f"  {stage:<26}{seconds:>9.1f} s {100 * seconds / wall_s:>6.1f} %")
    outside = wall_s - sum(stages.values())
    print(f"  {'outside of any stage':<26}{outside:>9.1f} s {100 * outside / wall_s:>6.1f} %")


def _say_ranking(first: Journal, second: Journal) -> None:
    a, b = _complete(first), _complete(second)
    shared = sorted(set(a) & set(b))
    names = ("speedup", "latency_p50_ms")
    print(f"\n{len(a)} and {len(b)} complete candidates, {len(shared)} in both")
    for name in names:
        tau = kendalltau([metrics(a[i])[name] for i in shared], [metrics(b[i])[name] for i in shared])
        print(f"  Kendall's tau of {name:<16} {tau.statistic:.3f} (p = {tau.pvalue:.2g})")


def _complete(journal: Journal) -> dict[str, Evaluation]:
    return {i: e for i, e in journal.evaluations().items() if e.status == "complete"}


def write_banking77(
    workspace: Path,
    bench: Path,
    *,
    objective: str = "latency_p50_ms",
    budget: str = "{trials: 60, timeout: 40m}",
    more: str = TIMED,
) -> Path:
    """The experiment file, beside its manifest.

    Raises:
        SystemExit: the benchmark's files are not there.
    """
    if not (bench / "minilm_l6_banking77.onnx").exists():
        raise SystemExit(f"{bench} does not hold the benchmark; name its folder with --bench")
    said = {"bench": bench.resolve(), "root": ROOT, "objective": objective, "budget": budget, "more": more}
    for folder, name, text in (
        ("calibration", "banking77.yaml", MANIFEST),
        ("experiments", "banking77.yaml", EXPERIMENT),
    ):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
        (workspace / folder / name).write_text(text.format(**said), encoding="utf-8")
    return workspace / "experiments" / "banking77.yaml"


def _loan() -> Path:
    subprocess.run([sys.executable, "-m", "workbench", "example", "loan-intent-mini"], check=True, cwd=ROOT)
    return ROOT / "experiments" / "loan-intent-mini.yaml"


if __name__ == "__main__":
    main()
