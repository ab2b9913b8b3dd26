"""Refit the time model to an msprof op_summary of a device.

    workbench emulator fit op_summary.csv --om model.om --to file.yaml

Kernels of the model are matched with rows by name, else, where a type occurs as often in both, by type and order. Then
efficiencies and the launch cost are moved, one after the other, until the durations fit best. A parameter that no
matched kernel depends on is left as it is and is not written.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.cann_emulator.om import NotAnOm, OfflineModel, load_om
from workbench.cann_emulator.timing import kernel_works, launched, timed
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import DeviceData, load_device_data, with_parameters
from workbench.values.system.files import temporary_beside

_NAME, _TYPE, _DURATION, _WAIT, _MODEL = "Op Name", "OP Type", "Task Duration(us)", "Task Wait Time(us)", "Model Name"
_SWEEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel's rows of an op_summary, over all iterations; the times are medians."""

    op_type: str
    duration_us: float
    wait_us: float | None = None


def read_op_summary(path: Path, model: str = "") -> dict[str, Row]:
    """Operator → its rows of an op_summary CSV, in order of their first task.

    Columns are found by their header (pyacl.md §5.4). Rows without a duration (`N/A`) are left out.

    Args:
        model: whose rows are taken where the run had several, as a set of files for several lengths has: their
            operators have the same names, and other durations. As ATC's --output was called [inferred].

    Raises:
        ConfigError: the file cannot be read, lacks a column, holds no row with a duration, or those of several models
            and none of that name.
    """
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        rows = [{key: (text or "").strip() for key, text in row.items() if key} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot be read: {error}.", file=path) from error
    for column in (_NAME, _TYPE, _DURATION):
        if column not in reader.fieldnames:
            hint = "Give msprof's op_summary_*.csv, collected with --task-time=l1 (the default)."
            raise ConfigError(f"has no column {column!r}.", file=path, hint=hint)
    rows = [row for row in rows if (_number(row[_DURATION]) or 0.0) > 0]
    if not rows:
        raise ConfigError("holds no operator with a duration.", file=path)
    names = {row.get(_MODEL, "") for row in rows} - {"", "N/A"}
    if len(names) > 1:
        if model not in names:
            said = f"holds the rows of {len(names)} models ({', '.join(sorted(names))}), and none of {model!r}."
            hint = "Give --om the file of one of them, under the name that it has here."
            raise ConfigError(said, file=path, hint=hint)
        rows = [row for row in rows if row[_MODEL] == model]
    of_name: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        of_name[row[_NAME]].append(row)
    found = {}
    for name, mine in of_name.items():
        waits = [wait for row in mine if (wait := _number(row.get(_WAIT, ""))) is not None]
        durations = statistics.median(float(row[_DURATION]) for row in mine)
        wait_us = statistics.median(waits) if waits else None
        found[name] = Row(op_type=mine[0][_TYPE], duration_us=durations, wait_us=wait_us)
    return found


def fit(rows: Mapping[str, Row], model: OfflineModel, gear: int = 0) -> tuple[dict[str, float], list[str]]:
    """Parameters of `DeviceData` with which the model's kernels take what the rows say, and what to tell of the fit.

    Deterministic. The launch cost is what durations have in common plus the median wait between tasks.

    Raises:
        ConfigError: fewer than three kernels of the model are among the rows.
    """
    from scipy.optimize import minimize_scalar  # takes a quarter of a second

    start = load_device_data(model.soc_version)
    kernels = launched(model, gear)
    pairs = {kernel.name: rows[kernel.name] for kernel in kernels if kernel.name in rows}
    for op_type in {kernel.op_type for kernel in kernels}:
        mine = [k.name for k in kernels if k.op_type == op_type and k.name not in rows]
        theirs = [r for name, r in rows.items() if r.op_type == op_type and name not in pairs]
        if len(mine) == len(theirs):
            pairs.update(zip(mine, theirs, strict=True))
    works = zip(kernels, kernel_works(model, gear, start), strict=True)
    samples = [(k, work, pairs[k.name].duration_us) for k, work in works if k.name in pairs]
    if len(samples) < 3:
        said = f"only {len(samples)} of the model's {len(kernels)} kernels are among the rows."
        hint = "Profile the same model: names and types of its operators must occur in the summary."
        raise ConfigError(said, hint=hint)
    total = sum(measured for *_, measured in samples)

    def modelled(device: DeviceData) -> list[float]:
        return [timed(kernel, work, device).duration_us for kernel, work, _ in samples]

    def cost(device: DeviceData) -> float:
        """Relative errors, those of long kernels counting more: the sum must come out as well as each."""
        return sum(
            (measured / total + 1 / len(samples)) * math.log(us / measured) ** 2
            for us, (*_, measured) in zip(modelled(device), samples, strict=True)
        )

    def matters(name: str, device: DeviceData) -> bool:
        other = getattr(device, name) * 0.9 + (0.1 if name.endswith("_us") else 0.0)
        return modelled(device) != modelled(with_parameters(device, {name: other}))

    def told(device: DeviceData) -> tuple[float, float]:
        """Median error of a kernel; modelled time of all over the measured."""
        ours = modelled(device)
        errors = [abs(us / measured - 1) for us, (*_, measured) in zip(ours, samples, strict=True)]
        return statistics.median(errors), sum(ours) / total

    dtypes = sorted({work.dtype for _, work, _ in samples if work.products})
    every = ["kernel_launch_us", *(f"cube_efficiency_{dtype}" for dtype in dtypes)]
    names = [n for n in (*every, "vector_efficiency", "memory_efficiency", "aicpu_launch_us") if matters(n, start)]
    fitted = start
    for name in names * _SWEEPS:
        low, high = (0.05, 1000.0 if name.startswith("aicpu") else 100.0) if name.endswith("_us") else (0.005, 1.0)

        def at(position: float, name: str = name, device: DeviceData = fitted) -> float:
            return cost(with_parameters(device, {name: math.exp(position)}))

        best = minimize_scalar(at, bounds=(math.log(low), math.log(high)), method="bounded")
        if best.fun < cost(fitted):
            fitted = with_parameters(fitted, {name: math.exp(best.x)})
    parameters = {name: float(getattr(fitted, name)) for name in names if matters(name, fitted)}
    final = with_parameters(start, parameters)
    if "kernel_launch_us" in parameters and (waits := [r.wait_us for r in pairs.values() if r.wait_us is not None]):
        parameters["kernel_launch_us"] += max(0.0, statistics.median(waits))
    (before, ratio), (after, new_ratio) = told(start), told(final)
    return parameters, [
        f"{len(samples)} of {len(kernels)} kernels matched",
        f"median error of a kernel: {before:.1%} before, {after:.1%} after",
        f"modelled over measured, all matched kernels: {ratio:.2f} before, {new_ratio:.2f} after",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file for CANN_EMULATOR_DEVICE_DATA; 0, or 1 with a message where nothing could be fitted."""
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
        parameters, told = fit(read_op_summary(chosen.csv, chosen.om.stem), model, chosen.gear)
        digest = hashlib.sha256(chosen.csv.read_bytes()).hexdigest()[:12]
        origin = json.dumps(f"{chosen.csv.name} (sha256 {digest}), {told[0].removesuffix(' matched')}")
        lines = [
            "# Written by `workbench emulator fit`; put over the shipped device data by CANN_EMULATOR_DEVICE_DATA.",
            *(f"# {line}" for line in told),
            *("version: 1", f"soc_version: {model.soc_version}", f"fitted_to: {origin}", "parameters:"),
            *(f"  {n}: {{value: {v!r}, kind: measured, origin: {origin}}}" for n, v in sorted(parameters.items())),
        ]
        with temporary_beside(chosen.to) as draft:
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except (ConfigError, NotAnOm, OSError) as error:
        print(f"{chosen.om if isinstance(error, NotAnOm) else 'error'}: {error}", file=sys.stderr)
        return 1
    print("\n".join([*told, *(f"{name}: {value:.4g}" for name, value in parameters.items())]))
    print(f"CANN_EMULATOR_DEVICE_DATA={chosen.to.resolve()}")
    return 0


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    sys.exit(main())
