"""What the benchmark of predictions sees, keeps in a file between its slices, and judges."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import decode, encode
from workbench.values.measurement import BatchCurve, Estimate
from workbench.values.service import HostCosts, ServiceSettings

LIMITS = {"throughput": 0.10, "p50": 0.15, "p99": 0.25}
"""Of a prediction's error, and of its interval's half width."""
HELD = 0.90
"""Share of settings whose measurements are to lie within the predicted interval, in all of their first quiet runs."""
DISTURBED = 0.25
"""Processors that others kept busy; a run with more says nothing about the prediction."""
QUIET_RUNS = 2
"""Of every setting, before `--until-quiet` is content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `share` of the service's capacity where arrivals are Poisson."""

    batch: int
    timeout_ms: float
    workers: int
    clients: int | None = None
    share: float | None = None
    bins: bool = True

    @property
    def settings(self) -> ServiceSettings:
        return ServiceSettings(max_batch_size=self.batch, batch_timeout_ms=self.timeout_ms, workers=self.workers)

    def __str__(self) -> str:
        load = f"{self.clients} clients" if self.clients else f"Poisson {self.share:.0%}"
        return f"{self.settings}, {'bins' if self.bins else 'one length'}, {load}"


SETTINGS = (
    Setting(batch=1, timeout_ms=0, workers=1, clients=1),
    Setting(batch=1, timeout_ms=0, workers=1, clients=16),
    Setting(batch=1, timeout_ms=0, workers=2, clients=16),
    Setting(batch=4, timeout_ms=0, workers=1, clients=16),
    Setting(batch=4, timeout_ms=5, workers=1, clients=16),
    Setting(batch=4, timeout_ms=0, workers=2, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=1),
    Setting(batch=16, timeout_ms=0, workers=1, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=100),
    Setting(batch=16, timeout_ms=20, workers=1, clients=100),
    Setting(batch=16, timeout_ms=5, workers=2, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=100, bins=False),
    Setting(batch=1, timeout_ms=0, workers=1, share=0.5, bins=False),
    Setting(batch=16, timeout_ms=5, workers=1, share=0.5),
    Setting(batch=16, timeout_ms=5, workers=1, share=0.8),
    Setting(batch=4, timeout_ms=0, workers=2, share=0.8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    throughput: float
    p50: float
    p99: float
    mean_batch: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    throughput: Estimate
    p50: Estimate
    p99: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load. `speed`: how long the same calls took, over how long they took for the curve; `others`: processors
    that foreign processes kept busy; `together`: what two sessions of the model do in one time, relative to one alone;
    `speeds`, `togethers`: before and after the load; `promised`: the intervals for such a measurement."""

    measured: Figures
    predicted: Figures
    load: str
    speed: float
    others: float
    requests: int
    client_share: float
    together: float
    speeds: tuple[float, ...] = ()
    togethers: tuple[float, ...] = ()
    promised: Promised | None = None

    @property
    def quiet(self) -> bool:
        return self.others < DISTURBED


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything a later slice needs to go on.

    Attributes:
        quiet: whether the machine was, while host costs and curve were measured.
        yardstick_ms: the yardstick's calls as the curve has them.
        passes: begun ones; they seed the order and the load.
        runs: by the setting's words.
    """

    machine: Toolchain
    scheme: str
    host: HostCosts
    curve: BatchCurve
    quiet: bool
    yardstick_ms: float
    passes: int
    runs: Mapping[str, tuple[Run, ...]]

    def of(self, setting: Setting) -> tuple[Run, ...]:
        return self.runs.get(str(setting), ())


def without_quiet_runs(record: Record, settings: Sequence[Setting]) -> list[Setting]:
    """Settings that lack some of their `QUIET_RUNS`."""
    return [s for s in settings if sum(run.quiet for run in record.of(s)) < QUIET_RUNS]


def read_record(path: Path, machine: Toolchain, scheme: str) -> Record | None:
    """None where there is none to go on with: no file, or one that was predicted on a busy machine."""
    if not path.is_file():
        print(f"{path} is not there: begins anew", flush=True)
        return None
    found = decode(Record, json.loads(path.read_text(encoding="utf-8"))["record"])
    if (found.machine, found.scheme) != (machine, scheme):
        sys.exit(
            f"{path} is of {found.scheme} on {found.machine}, not of {scheme} on {machine}; name another with --to."
        )
    if not found.quiet:
        print(f"{path} rests on costs that were measured on a busy machine: begins anew", flush=True)
        return None
    return found


def write_record(path: Path, record: Record, settings: Sequence[Setting]) -> None:
    lines, rows = table(record, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(
        json.dumps({"rows": rows, "summary": lines, "record": encode(record)}, indent=1) + "\n", encoding="utf-8"
    )
    temporary.replace(path)


def table(record: Record, settings: Sequence[Setting]) -> tuple[list[str], list[dict[str, Any]]]:
    """Lines to print, and the same as data. Medians over quiet runs; only settings that have such are judged."""
    head = f"{'setting':62} {'requests/s':>19} {'P50 ms':>21} {'P99 ms':>21} {'batch':>11} {'speed':>5} {'others':>6}"
    lines, rows, within = [head], [], dict.fromkeys(LIMITS, 0)
    judged = 0
    for setting in settings:
        runs = record.of(setting)
        quiet = [run for run in runs if run.quiet]
        row: dict[str, Any] = {"setting": str(setting), "passes": len(runs), "quiet_passes": len(quiet)}
        rows.append(row)
        if not runs:
            lines.append(f"{setting!s:62} not run")
            continue
        judged += bool(quiet)
        used = quiet or runs
        cells = []
        for name, limit in LIMITS.items():
            predicted = median(getattr(run.predicted, name) for run in used)
            measured = median(getattr(run.measured, name) for run in used)
            error = predicted / measured - 1
            good = abs(error) <= limit
            within[name] += good and bool(quiet)
            row[name] = {"predicted": predicted, "measured": measured, "error": error, "within": good}
            cells.append(f"{predicted:7.1f} {measured:7.1f} {error:+5.0%}{' ' if good else '!'}")
        batches = [run.measured.mean_batch for run in used if run.measured.mean_batch is not None]
        row["mean_batch"] = {
            "predicted": median(run.predicted.mean_batch or 0.0 for run in used),
            "measured": median(batches) if batches else None,
        }
        row["speed"], row["others"] = median(run.speed for run in used), median(run.others for run in used)
        batch = f"{row['mean_batch']['predicted']:5.1f} {row['mean_batch']['measured'] or 0:5.1f}"
        mark = "" if quiet else " disturbed: not judged"
        lines.append(f"{setting!s:62} {' '.join(cells)} {batch} {row['speed']:5.2f} {row['others']:6.2f}{mark}")
    lines.append("each: predicted, measured, error of the prediction; ! beyond its limit")
    never = len(settings) - judged
    for name, limit in LIMITS.items():
        lines.append(f"{name} within {limit:.0%}: {within[name]} of {judged} with quiet runs; {never} never had one")
    lines += coverage(record, settings)
    if not record.quiet:
        lines.append("host costs or the curve were measured on a busy machine: every prediction inherits it")
    return lines, rows


def coverage(record: Record, settings: Sequence[Setting]) -> list[str]:
    """How often intervals held the measurement, and how wide they were: each quiet run by its own prediction.

    A setting counts as held when its first `QUIET_RUNS` quiet runs all are, so that running on cannot improve it.
    """
    runs = {str(s): [r for r in record.of(s) if r.quiet and r.promised is not None][:QUIET_RUNS] for s in settings}
    runs = {words: found for words, found in runs.items() if found}
    if not runs:
        return ["intervals: no quiet run to judge them by"]
    lines = []
    for name, limit in LIMITS.items():
        held = {words: [_holds(run, name) for run in found] for words, found in runs.items()}
        widths = [_half_width(run, name) for found in runs.values() for run in found]
        within = sum(median(_half_width(run, name) for run in found) <= limit for found in runs.values())
        passes = [
            f"pass {number + 1}: {sum(of[number] for of in held.values() if len(of) > number)}"
            f" of {sum(len(of) > number for of in held.values())}"
            for number in range(QUIET_RUNS)
        ]
        all_ = sum(all(of) for of in held.values())
        verdict = "kept" if all_ >= HELD * len(held) else "MISSED"
        lines.append(
            f"{name} intervals hold {all_} of {len(held)} settings (goal {HELD:.0%}: {verdict}; {', '.join(passes)}); "
            f"half width: median {median(widths):.1%}, largest {max(widths):.1%}; within {limit:.0%} in {within} of "
            f"{len(held)}"
        )
        lines += [
            f"  not held: {words}: {_beside(found, name)}" for words, found in runs.items() if not all(held[words])
        ]
    whole = sum(len(found) == QUIET_RUNS for found in runs.values())
    return [*lines, f"settings with {QUIET_RUNS} quiet runs: {whole} of {len(settings)}"]


def _interval(run: Run, name: str) -> Estimate:
    assert run.promised is not None  # others are left out
    found: Estimate = getattr(run.promised, name)
    return found


def _holds(run: Run, name: str) -> bool:
    return _interval(run, name).low <= float(getattr(run.measured, name)) <= _interval(run, name).high


def _half_width(run: Run, name: str) -> float:
    found = _interval(run, name)
    return (found.high - found.low) / (2 * found.value)


def _beside(runs: Sequence[Run], name: str) -> str:
    return "; ".join(
        f"{getattr(run.measured, name):.1f} beside {_interval(run, name).value:.1f} "
        f"[{_interval(run, name).low:.1f}, {_interval(run, name).high:.1f}]"
        for run in runs
    )
