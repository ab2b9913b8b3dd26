"""How long it takes until a question is answered: the quickstart, the same again, a larger model, plan against fact.

    python -m benchmarks.time_to_answer                          # all parts, some 20 minutes on two processors
    python -m benchmarks.time_to_answer quickstart again         # some of them; `again` needs a finished quickstart
    python -m benchmarks.time_to_answer --workspace DIR --before DIR_OF_AN_EARLIER_QUICKSTART

The parts run the commands that users run, in a fresh workspace (installing is over), one after the other; their output
goes to `WORKSPACE/PART.log` with the second of each line. One table at the end gives the figures beside their goals,
and what else the machine was doing. `--before` names the workspace of another quickstart, whose front is held against
this one's: hypervolume over requests per second and points of accuracy lost, both measured on held-out data under load.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.recorded.questions import BANKING77 as BENCH
from benchmarks.recorded.questions import MANIFEST, ROOT
from benchmarks.recorded.replay import hypervolume
from workbench.api.opening import journal_of, summary_of
from workbench.evaluation.noise import Counters, read_counters
from workbench.inputs.experiment import read_experiment
from workbench.report import Summary
from workbench.values.metrics import metrics

PARTS = ("quickstart", "again", "banking77")
QUICKSTART, FIRST_INT8, AGAIN, BANKING77, PLAN = 240.0, 60.0, 10.0, 600.0, 0.30
"""The goals: seconds, and how far a plan may be off."""
CANDIDATES = 60
WORST_DROP_PP = 1.0
"""The corner that hypervolumes are measured from: no request a second, and so many points of accuracy lost."""
EXPERIMENT = """version: 1
name: banking77
about: MiniLM-L6 on Banking77, maximum length 64, batch 1
model: {bench}/minilm_l6_banking77.onnx
dataset: ../calibration/banking77.yaml
search_space: {root}/search_spaces/onnxruntime.yaml
calibration: {{samples: 128, batch: 8}}
objectives: [service_throughput_per_s, accuracy]
constraints: {{accuracy_loss_pp: 0.5}}
budget: {budget}
service: {{concurrency: 16, p99_ms: 1000, curve: 3s, confirm: 5s}}
validation: {{samples: 600}}
measure: {{calls: 100, short_calls: 30}}
"""
_PLANNED = re.compile(r"Planned .*, took .* \(([+-]\d+) %\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    goal: str
    met: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended, and the second at which it wrote each line."""

    seconds: float
    lines: tuple[tuple[float, str], ...]

    def first(self, beginning: str) -> float | None:
        return next((at for at, line in self.lines if line.strip().startswith(beginning)), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all of them")
    parser.add_argument("--workspace", type=Path, help="default: a temporary folder")
    parser.add_argument("--bench", type=Path, default=BENCH)
    parser.add_argument("--before", type=Path, help="workspace of an earlier quickstart")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    workspace = options.workspace or Path(tempfile.mkdtemp(prefix="workbench-answer-"))
    workspace.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if part in options.parts or not options.parts]
    work: dict[str, Callable[[], list[Row]]] = {
        "quickstart": lambda: quickstart(workspace, options.before),
        "again": lambda: again(workspace),
        "banking77": lambda: banking77(workspace, options.bench),
    }
    rows, before, began = [], read_counters(), time.perf_counter()
    load = os.getloadavg()[0]
    for part in chosen:
        rows += work[part]()
    print(f"\nWorkspace: {workspace}\n{machine_words(before, read_counters(), load, time.perf_counter() - began)}\n")
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("what", "figure", "goal")]
    for row in rows:
        verdict = "" if row.met is None else "met" if row.met else "MISSED"
        cells = (row.what.ljust(widths[0]), row.figure.rjust(widths[1]), row.goal.ljust(widths[2]), verdict)
        print("  ".join(cells).rstrip())


def quickstart(workspace: Path, before: Path | None) -> list[Row]:
    """What `make quickstart` does once everything is installed."""
    for folder in ("experiments", "search_spaces", "calibration"):
        shutil.copytree(ROOT / folder, workspace / folder, dirs_exist_ok=True)
    shutil.rmtree(workspace / ".workbench", ignore_errors=True)
    shutil.rmtree(workspace / "mlruns", ignore_errors=True)
    example = run(["example", "loan-intent-mini"], workspace, "example")
    swept = run(["sweep", "experiments/loan-intent-mini.yaml"], workspace, "quickstart")
    total_s = example.seconds + swept.seconds
    summary = _summary(workspace / "experiments" / "loan-intent-mini.yaml", workspace)
    rows = [
        Row(what="quickstart: the example, training included", figure=f"{example.seconds:.0f} s", goal=""),
        Row(what="quickstart: the sweep", figure=f"{swept.seconds:.0f} s", goal=""),
        within("quickstart: all of it", total_s, QUICKSTART),
        within("quickstart: INT8 beside float, provisional", swept.first("provisional"), FIRST_INT8),
        *planned("quickstart", swept),
        Row(what="quickstart: candidates", figure=str(len(summary.evaluations)), goal=""),
    ]
    now = front_volume(summary)
    if before is None:
        return [*rows, Row(what="quickstart: hypervolume of the front", figure=f"{now:.0f}", goal="")]
    then = front_volume(_summary(before / "experiments" / "loan-intent-mini.yaml", before))
    goal = f"at least {then:.0f}, as before"
    return [*rows, Row(what="quickstart: hypervolume of the front", figure=f"{now:.0f}", goal=goal, met=now >= then)]


def again(workspace: Path) -> list[Row]:
    found = run(["sweep", "experiments/loan-intent-mini.yaml"], workspace, "again")
    measured = next((line for _, line in found.lines if " candidates evaluated, " in line), "")
    rows = [within("the same again, from the store", found.seconds, AGAIN)]
    if not measured.startswith("0 candidates evaluated"):
        rows.append(Row(what="the same again: it went on", figure=measured.split(" (")[0][:40], goal="0 evaluated"))
    return rows


def banking77(workspace: Path, bench: Path) -> list[Row]:
    place = workspace / "banking77"
    budget = f"{{trials: {CANDIDATES}, timeout: {BANKING77:.0f}s}}"
    if not (bench / "minilm_l6_banking77.onnx").exists():
        raise SystemExit(f"{bench} does not hold the benchmark; name its folder with --bench")
    said = {"bench": bench.resolve(), "root": ROOT, "budget": budget}
    for folder, text in (("calibration", MANIFEST), ("experiments", EXPERIMENT)):
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / "banking77.yaml").write_text(text.format(**said), encoding="utf-8")
    experiment = place / "experiments/banking77.yaml"
    shutil.rmtree(place / ".workbench", ignore_errors=True)
    swept = run(["sweep", str(experiment), "--workspace", str(place)], workspace, "banking77")
    summary = _summary(experiment, place)
    done = len(summary.evaluations)
    return [
        within("Banking77 with a service", swept.seconds, BANKING77),
        Row(
            what="Banking77: candidates",
            figure=str(done),
            goal=f"{CANDIDATES} of them",
            met=done >= CANDIDATES,
        ),
        within("Banking77: INT8 beside float, provisional", swept.first("provisional"), FIRST_INT8),
        *planned("Banking77", swept),
    ]


def run(arguments: Sequence[str], workspace: Path, name: str) -> Ran:
    """A command of the workbench; what it says is kept, and shown line by line.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-u", "-m", "workbench", *arguments]
    # a user who has measured nothing yet
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(workspace / "cache")}
    lines: list[tuple[float, str]] = []
    began = time.perf_counter()
    with (workspace / f"{name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=workspace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None  # it is a pipe
        for line in process.stdout:
            lines.append((time.perf_counter() - began, line.rstrip("\n")))
            log.write(f"{lines[-1][0]:7.1f}  {line}")
            print(f"{lines[-1][0]:7.1f}  {line}", end="", flush=True)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}; see {log.name}")
    return Ran(seconds=time.perf_counter() - began, lines=tuple(lines))


def within(what: str, seconds: float | None, goal_s: float) -> Row:
    figure = "never" if seconds is None else f"{seconds:.1f} s"
    return Row(what=what, figure=figure, goal=f"at most {goal_s:.0f} s", met=seconds is not None and seconds <= goal_s)


def planned(name: str, swept: Ran) -> list[Row]:
    found = next((match for _, line in swept.lines if (match := _PLANNED.search(line))), None)
    if found is None:
        return [Row(what=f"{name}: plan against fact", figure="not said", goal=f"within {PLAN:.0%}", met=False)]
    off = int(found[1]) / 100
    return [
        Row(what=f"{name}: fact against plan", figure=f"{off:+.0%}", goal=f"within {PLAN:.0%}", met=abs(off) <= PLAN)
    ]


def front_volume(summary: Summary) -> float:
    """Requests per second times points of accuracy, of what was measured under load on held-out data."""
    points = []
    for member in summary.front:
        service = member.confirmation.measurement.service if member.confirmation is not None else None
        if member.confirmation is not None and service is not None and service.confirmed is not None:
            drop_pp = metrics(member.confirmation).get("accuracy_loss_pp", 0.0)
            points.append([-service.confirmed.throughput_per_s.value, drop_pp])
    return hypervolume(points, [0.0, WORST_DROP_PP]) if points else 0.0


def machine_words(before: Counters, after: Counters, load: float, seconds: float) -> str:
    others = max(0.0, after.busy_s - before.busy_s - _own_s()) / max(seconds, 1e-9)
    stolen = (after.stolen_s - before.stolen_s) / max(seconds, 1e-9)
    return (
        f"Machine: {after.cpus} processors, load {load:.2f} before it began, in {seconds:.0f} s others kept "
        f"{others:.2f} processors busy and a hypervisor took {stolen:.2f}."
    )


def _own_s() -> float:
    """Processor seconds of this process and of all its ended children."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _summary(experiment: Path, workspace: Path) -> Summary:
    question = read_experiment(experiment, workspace)
    return summary_of(question, journal_of(question))


if __name__ == "__main__":
    main()
