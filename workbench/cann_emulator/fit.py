"""Refit the time model to an msprof op_summary of a device.

    python -m workbench.cann_emulator.fit op_summary.csv --om model.om --to file.yaml

The kernels of the model are matched with the rows by name, else, where a type occurs as often in both, by type and
order. Efficiencies and the launch cost are then moved, one after the other, until the durations fit best. A parameter
that no matched kernel depends on is left as it is and is not written.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.cann_emulator.om import Kernel, NotAnOm, OfflineModel, load_om
from workbench.cann_emulator.timing import kernel_works, timed
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import DeviceData, load_device_data, with_parameters
from workbench.values.modelled_times.kernels import KernelWork
from workbench.values.system.files import temporary_beside

_NAME, _TYPE, _DURATION, _WAIT = "Op Name", "OP Type", "Task Duration(us)", "Task Wait Time(us)"
_MODEL = "Model Name"
_LEAST_EFFICIENCY, _MOST_EFFICIENCY = 0.005, 1.0
_LONGEST_LAUNCH_US = 100.0
_SWEEPS = 12
_STEPS = 40
"""Of one golden-section search: the interval shrinks by 0.618 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel's rows of an op_summary, over all iterations; the duration is their median."""

    name: str
    op_type: str
    duration_us: float
    wait_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted parameters and how well they do.

    Attributes:
        parameters: of `DeviceData`, those with evidence.
        matched, unmatched: kernels of the model with and without a row.
        before, after: median over kernels of |modelled / measured - 1|.
        total_before, total_after: modelled time of all matched kernels over the measured.
    """

    device: DeviceData
    parameters: Mapping[str, float]
    matched: int
    unmatched: tuple[str, ...]
    before: float
    after: float
    total_before: float
    total_after: float


def read_op_summary(path: Path, model: str = "") -> tuple[Row, ...]:
    """Rows of an op_summary CSV, one for each operator, in order of their first task.

    Columns are found by their header (pyacl.md §5.4). Rows without a duration (`N/A`) are left out.

    Args:
        model: whose rows are taken where the run had several, as a set of files for several lengths has: their
            operators have the same names, and other durations. As ATC's --output was called [inferred].

    Raises:
        ConfigError: the file cannot be read, lacks a column, holds no row with a duration, or those of several models
            and none of that name.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}.", file=path) from error
    reader = csv.DictReader(io.StringIO(text))
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        rows = list(reader)
    except csv.Error as error:
        raise ConfigError(f"not valid CSV: {error}.", file=path, line=reader.line_num) from error
    for column in (_NAME, _TYPE, _DURATION):
        if column not in header:
            raise ConfigError(
                f"has no column {column!r}.",
                file=path,
                hint="Give msprof's op_summary_*.csv, collected with --task-time=l1 (the default).",
            )
    timed_rows = [row for row in rows if (_number(row.get(_DURATION)) or 0.0) > 0]
    if not timed_rows:
        raise ConfigError("holds no operator with a duration.", file=path)
    durations: dict[str, list[float]] = defaultdict(list)
    waits: dict[str, list[float]] = defaultdict(list)
    types: dict[str, str] = {}
    for row in _of_one_model(timed_rows, model, path):
        name = _cell(row, _NAME)
        types.setdefault(name, _cell(row, _TYPE))
        durations[name].append(float(_cell(row, _DURATION)))
        if (wait := _number(row.get(_WAIT))) is not None:
            waits[name].append(wait)
    return tuple(
        Row(
            name=name,
            op_type=types[name],
            duration_us=statistics.median(values),
            wait_us=statistics.median(waits[name]) if waits[name] else None,
        )
        for name, values in durations.items()
    )


def fit(rows: Sequence[Row], model: OfflineModel, *, gear: int = 0, device: DeviceData | None = None) -> Fit:
    """Parameters with which the model's kernels take what the rows say.

    Deterministic. The launch cost is what durations have in common plus the median wait between tasks.

    Raises:
        ConfigError: fewer than three kernels of the model are among the rows.
    """
    start = device or load_device_data(model.soc_version)
    kernels = [kernel for kernel in model.gears[gear].kernels if kernel.core != "none"]
    works = dict(zip((kernel.name for kernel in kernels), kernel_works(model, gear, start), strict=True))
    pairs = _matched(kernels, rows)
    if len(pairs) < 3:
        raise ConfigError(
            f"only {len(pairs)} of the model's {len(kernels)} kernels are among the rows.",
            hint="Profile the same model: names and types of its operators must occur in the summary.",
        )
    samples = [(kernel, works[kernel.name], row.duration_us) for kernel, row in pairs]
    fitted = start
    names = [name for name in _parameters(samples) if _matters(name, samples, start)]
    for _ in range(_SWEEPS):
        for name in names:
            fitted = _improved(fitted, name, samples)
    evident = [name for name in names if _matters(name, samples, fitted)]
    final = with_parameters(start, {name: getattr(fitted, name) for name in evident})
    waits = [row.wait_us for _, row in pairs if row.wait_us is not None]
    parameters = {name: float(getattr(final, name)) for name in evident}
    if waits and "kernel_launch_us" in parameters:
        parameters["kernel_launch_us"] += max(0.0, statistics.median(waits))
    found = {kernel.name for kernel, _ in pairs}
    return Fit(
        device=with_parameters(final, parameters),
        parameters=parameters,
        matched=len(pairs),
        unmatched=tuple(kernel.name for kernel in kernels if kernel.name not in found),
        before=_median_error(samples, start),
        after=_median_error(samples, final),
        total_before=_total_ratio(samples, start),
        total_after=_total_ratio(samples, final),
    )


def override_text(result: Fit, origin: str) -> str:
    """The file that CANN_EMULATOR_DEVICE_DATA names, as YAML."""
    lines = [
        "# Written by `workbench emulator fit`; put over the shipped device data by CANN_EMULATOR_DEVICE_DATA.",
        f"# {result.matched} kernels; median error {result.before:.1%} before, {result.after:.1%} after.",
        "version: 1",
        f"soc_version: {result.device.soc_version}",
        f"fitted_to: {json.dumps(origin)}",
        "parameters:",
    ]
    lines += [
        f"  {name}: {{value: {value!r}, kind: measured, origin: {json.dumps(origin)}}}"
        for name, value in sorted(result.parameters.items())
    ]
    return "\n".join(lines) + "\n"


def _of_one_model(rows: Sequence[Mapping[str, str]], model: str, path: Path) -> Sequence[Mapping[str, str]]:
    names = {_cell(row, _MODEL) for row in rows} - {"", "N/A"}
    if len(names) < 2:
        return rows
    if model not in names:
        raise ConfigError(
            f"holds the rows of {len(names)} models ({', '.join(sorted(names))}), and none of {model!r}.",
            file=path,
            hint="Give --om the file of one of them, under the name that it has here.",
        )
    return [row for row in rows if _cell(row, _MODEL) == model]


def _cell(row: Mapping[str, str], column: str) -> str:
    return (row.get(column) or "").strip()


Sample = tuple[Kernel, KernelWork, float]


def _matched(kernels: Sequence[Kernel], rows: Sequence[Row]) -> list[tuple[Kernel, Row]]:
    by_name = {row.name: row for row in rows}
    pairs = [(kernel, by_name[kernel.name]) for kernel in kernels if kernel.name in by_name]
    taken = {row.name for _, row in pairs}
    left = [kernel for kernel in kernels if kernel.name not in taken]
    for op_type in dict.fromkeys(kernel.op_type for kernel in left):
        mine = [kernel for kernel in left if kernel.op_type == op_type]
        theirs = [row for row in rows if row.op_type == op_type and row.name not in taken]
        if len(mine) == len(theirs):
            pairs += zip(mine, theirs, strict=True)
    return pairs


def _parameters(samples: Iterable[Sample]) -> list[str]:
    dtypes = {work.dtype for _, work, _ in samples if work.products}
    return [
        "kernel_launch_us",
        *(f"cube_efficiency_{dtype}" for dtype in sorted(dtypes)),
        "vector_efficiency",
        "memory_efficiency",
        "aicpu_launch_us",
    ]


def _matters(name: str, samples: Sequence[Sample], device: DeviceData) -> bool:
    other = with_parameters(device, {name: getattr(device, name) * 0.9 + (0.1 if name.endswith("_us") else 0.0)})
    return any(timed(k, w, device).duration_us != timed(k, w, other).duration_us for k, w, _ in samples)


def _improved(device: DeviceData, name: str, samples: Sequence[Sample]) -> DeviceData:
    """The best value of one parameter, by golden section over its logarithm."""
    if name.endswith("_us"):
        low, high = math.log(0.05), math.log(_LONGEST_LAUNCH_US * (10 if name.startswith("aicpu") else 1))
    else:
        low, high = math.log(_LEAST_EFFICIENCY), math.log(_MOST_EFFICIENCY)
    ratio = (math.sqrt(5) - 1) / 2

    def cost(position: float) -> float:
        return _cost(samples, with_parameters(device, {name: math.exp(position)}))

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = cost(right)
    best = (low + high) / 2
    return with_parameters(device, {name: math.exp(best)}) if cost(best) < _cost(samples, device) else device


def _cost(samples: Sequence[Sample], device: DeviceData) -> float:
    """Relative errors, those of long kernels counting more: the sum must come out as well as each."""
    total = sum(measured for _, _, measured in samples)
    return sum(
        (measured / total + 1 / len(samples)) * math.log(timed(kernel, work, device).duration_us / measured) ** 2
        for kernel, work, measured in samples
    )


def _median_error(samples: Sequence[Sample], device: DeviceData) -> float:
    return statistics.median(abs(timed(k, w, device).duration_us / measured - 1) for k, w, measured in samples)


def _total_ratio(samples: Sequence[Sample], device: DeviceData) -> float:
    return sum(timed(k, w, device).duration_us for k, w, _ in samples) / sum(measured for _, _, measured in samples)


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the override file; 0, or 1 with a message where nothing could be fitted."""
    parser = argparse.ArgumentParser(prog="workbench emulator fit", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("csv", type=Path, help="msprof's op_summary_*.csv of a run on the device")
    parser.add_argument("--om", type=Path, required=True, help="the same model, compiled by the emulated atc")
    parser.add_argument("--gear", type=int, default=0, help="index of the gear that was run")
    parser.add_argument("--to", type=Path, required=True, help="file to write")
    chosen = parser.parse_args(arguments)
    try:
        model = load_om(chosen.om)
        if not 0 <= chosen.gear < len(model.gears):
            raise ConfigError(f"{chosen.gear} is no gear; the model has {len(model.gears)}.", key="--gear")
        result = fit(read_op_summary(chosen.csv, chosen.om.stem), model, gear=chosen.gear)
        digest = hashlib.sha256(chosen.csv.read_bytes()).hexdigest()[:12]
        with temporary_beside(chosen.to) as draft:
            text = override_text(result, f"{chosen.csv.name} (sha256 {digest}), {result.matched} kernels")
            draft.write_text(text, encoding="utf-8")
    except (ConfigError, NotAnOm, OSError) as error:
        print(f"{chosen.om if isinstance(error, NotAnOm) else 'error'}: {error}", file=sys.stderr)
        return 1
    print(f"{result.matched} kernels matched, {len(result.unmatched)} not")
    print(f"median error of a kernel: {result.before:.1%} before, {result.after:.1%} after")
    print(
        f"modelled over measured, all matched kernels: {result.total_before:.2f} before, {result.total_after:.2f} after"
    )
    for name, value in result.parameters.items():
        print(f"{name}: {value:.4g}")
    print(f"CANN_EMULATOR_DEVICE_DATA={chosen.to.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
