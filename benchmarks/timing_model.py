"""The emulator's times against operators that were timed on cards of this kind, cross-validated. Run by hand.

    python -m benchmarks.timing_model [FOLDER] [--constants] [--rows]

Without FOLDER: the rows that the constants are fitted on (../shared), refitted without the rows that are judged: other
shapes of the same operators, then whole operators of which the fit saw nothing. Beside each the null model, a roofline
of three parameters fitted to the same rows. With a FOLDER of rows that nothing was fitted on (CSV files of the same
columns), the shipped constants are judged as they are. `--constants` prints the refitted ones.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from benchmarks.measured_operators import Case, read_cases, work_us
from workbench.values.modelled_times.device_data import DeviceData, Kind, load_device_data

FITTED_ON = Path(__file__).resolve().parents[2] / "shared" / "bench" / "device_facts" / "fit"
Floats = npt.NDArray[np.float64]
Name = tuple[str, str]
"""(kind, constant); the kind is empty for those that all share."""
_SHARED = (
    *("memory_efficiency", "kernel_launch_us", "full_launches", "cube_efficiency_float16", "cube_efficiency_int8"),
    "core_load_bytes_per_cycle",
)
_OF_A_KIND = ("launches", "instructions", "row_instructions", "in_pieces", "of_cube")
_FOLDS, _STEPS, _ROBUST, _PRIOR = 5, 12, 0.15, 0.1
_PEAK_US_PER_TFLOP, _PEAK_US_PER_MB = 1e6 / 295, 1 / 1.6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, help="CSV files of measured operators; default: those fitted on"
    )
    parser.add_argument("--constants", action="store_true", help="print the constants that all rows give")
    parser.add_argument("--rows", action="store_true", help="print every row with its error")
    chosen = parser.parse_args(arguments)
    folder = chosen.folder or FITTED_ON
    if not folder.is_dir():
        print(f"{folder} is not there, so nothing was compared; give a folder of measured operators.")
        return 0
    cases = read_cases(folder)
    if chosen.constants:
        for (kind, name), value in fitted_constants(cases).items():
            print(f"{kind or 'all':22} {name:26} {value:.4g}")
        return 0
    if chosen.folder:
        _table("shipped constants", cases, _log_errors(cases, shipped), _null_errors(cases, [cases]), chosen.rows)
        return 0
    for title, groups in (("other shapes of the same operators", _by_shape), ("other operators", _by_file)):
        folds = groups(cases)
        ours, null = _crossed(cases, folds, fit), _crossed(cases, folds, null_model)
        _table(title, cases, ours, null, chosen.rows, unseen=groups is _by_file)
    return 0


_device = functools.cache(load_device_data)
Model = Callable[[Case], float]
"""Microseconds of a call."""


def shipped(case: Case) -> float:
    device = _device(case.soc)
    return sum(work_us(work, device) for work in case.works)


def fit(cases: Sequence[Case]) -> Model:
    """The model with constants that these rows give; kinds that no row has take what those with rows have in common."""
    found = fitted_constants(cases)
    seen = {name for case in cases for work in case.works for name in (work.kind, *work.fused)}
    kinds = _device("Ascend910B3").kinds
    for kind, name in found:
        if kind and kind not in seen:
            like = kinds[kind].like
            alike = [
                value
                for (other, one), value in found.items()
                if one == name
                and other in seen
                and (like in (other, kinds[other].like) if like else not kinds[other].like)
            ]
            found[kind, name] = found[like, name] if (like, name) in found and like in seen else median(alike or [1.0])
    return lambda case: _call_us(case, with_constants(_device(case.soc), found))


def fitted_constants(cases: Sequence[Case]) -> dict[Name, float]:
    """Least squares of logarithms, robust, held lightly by the shipped values."""
    start = _device("Ascend910B3")
    names = _names(start)
    values = np.log([_value(start, name) for name in names])
    by_kind = defaultdict(list)
    for index, case in enumerate(cases):
        for kind in {work.kind for work in case.works} | {name for work in case.works for name in work.fused}:
            by_kind[kind].append(index)

    def errors(logs: Floats, chosen: Sequence[int]) -> Floats:
        found = dict(zip(names, np.exp(logs), strict=True))
        device = {soc: with_constants(_device(soc), found) for soc in {cases[i].soc for i in chosen}}
        return np.array([np.log(_call_us(cases[i], device[cases[i].soc]) / cases[i].time_us) for i in chosen])

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([errors(logs, range(len(cases))), _PRIOR * (logs - values)])

    def slopes(logs: Floats) -> Floats:
        found, here = np.zeros((len(cases) + len(names), len(names))), errors(logs, range(len(cases)))
        found[len(cases) :] = _PRIOR * np.eye(len(names))
        for column, (kind, _) in enumerate(names):
            touched = by_kind[kind] if kind else range(len(cases))
            moved = logs + 0.01 * (np.arange(len(names)) == column)
            if touched:
                found[list(touched), column] = (errors(moved, touched) - here[list(touched)]) / 0.01
        return found

    best = least_squares(residuals, values, jac=slopes, loss="soft_l1", f_scale=_ROBUST, max_nfev=_STEPS).x
    return dict(zip(names, map(float, np.exp(best)), strict=True))


def with_constants(device: DeviceData, found: dict[Name, float]) -> DeviceData:
    shared: dict[str, Any] = {name: value for (kind, name), value in found.items() if not kind}
    half = shared["cube_efficiency_float16"]
    kinds: dict[str, Kind] = {}
    for kind, data in device.kinds.items():
        own: dict[str, Any] = {
            name: found.get((kind, name), getattr(kinds.get(data.like, data), name)) for name in _OF_A_KIND
        }
        kinds[kind] = replace(data, **own)
    return replace(device, kinds=kinds, cube_efficiency_bfloat16=half, cube_efficiency_float32=half, **shared)


def _names(device: DeviceData) -> list[Name]:
    """What is fitted: of a kind, what the file gives it."""
    own = [
        (kind, name)
        for kind, data in device.kinds.items()
        for name in _OF_A_KIND
        if getattr(data, name) not in (None, 0, 1)
        and not (data.like and getattr(data, name) == getattr(device.kinds[data.like], name))
    ]
    return [("", name) for name in _SHARED] + own


def _value(device: DeviceData, name: Name) -> float:
    return float(getattr(device.kinds[name[0]] if name[0] else device, name[1]))


def _call_us(case: Case, device: DeviceData) -> float:
    return sum(work_us(work, device) for work in case.works)


def null_model(cases: Sequence[Case]) -> Model:
    """start + max(flops / rate, bytes / rate), three parameters for all rows."""

    def call_us(logs: Floats, case: Case) -> float:
        start, compute, memory = np.exp(logs)
        flops = sum(
            2e-12 * b * m * k * n / (2 if work.dtype == "int8" else 1)
            for work in case.works
            for b, m, k, n in work.products
        )
        moved = sum(work.read_far + work.read_near + work.written for work in case.works) / 1e6
        return float(start + max(compute * _PEAK_US_PER_TFLOP * flops, memory * _PEAK_US_PER_MB * moved))

    def residuals(logs: Floats) -> Floats:
        return np.array([np.log(call_us(logs, case) / case.time_us) for case in cases])

    best = least_squares(residuals, np.log([8.0, 1.5, 1.5]), loss="soft_l1", f_scale=_ROBUST).x
    return lambda case: call_us(best, case)


def _by_shape(cases: Sequence[Case]) -> list[int]:
    """[cases] folds: equal shapes are in one, and each operator is in all of them."""
    places: dict[str, dict[str, int]] = defaultdict(dict)
    return [places[case.file].setdefault(case.shape, len(places[case.file])) % _FOLDS for case in cases]


def _by_file(cases: Sequence[Case]) -> list[int]:
    files = list(dict.fromkeys(case.file for case in cases))
    return [files.index(case.file) for case in cases]


def _crossed(cases: Sequence[Case], folds: Sequence[int], fitting: Callable[[Sequence[Case]], Model]) -> Floats:
    """[cases] log(modelled / measured), each by a model that saw nothing of its fold."""
    found = np.zeros(len(cases))
    for fold in sorted(set(folds)):
        model = fitting([case for case, own in zip(cases, folds, strict=True) if own != fold])
        for index, case in enumerate(cases):
            if folds[index] == fold:
                found[index] = np.log(model(case) / case.time_us)
    return found


def _log_errors(cases: Sequence[Case], model: Model) -> Floats:
    return np.array([np.log(model(case) / case.time_us) for case in cases])


def _null_errors(cases: Sequence[Case], _: object) -> Floats:
    return _log_errors(cases, null_model(read_cases(FITTED_ON) if FITTED_ON.is_dir() else cases))


def _table(title: str, cases: Sequence[Case], ours: Floats, null: Floats, rows: bool, *, unseen: bool = False) -> None:
    """`unseen`: the intervals are those of operators of which no case was timed."""
    device = _device("Ascend910B3")
    limits = np.array([_limit(case.error_class, device, unseen=unseen) for case in cases])
    names = np.array([case.error_class for case in cases])
    print(f"\n{title}: {len(cases)} rows")
    print(f"{'':60}null model\n{'class':19}   rows  median    p90    p95   bias  in 95 %  median    p90")
    for name in [*sorted(set(names)), "all"]:
        chosen = (names == name) | (name == "all")
        own, other, inside = ours[chosen], null[chosen], np.abs(ours[chosen]) <= limits[chosen]
        bias = np.exp(np.median(own))
        print(
            f"{name:20} {chosen.sum():5} {_median(own):7.1%} {_tail(own):6.2f} {_tail(own, 0.95):6.2f} {bias:6.2f} "
            f"{inside.mean():8.0%} {_median(other):7.1%} {_tail(other):6.2f}"
        )
    measured = np.log([case.time_us for case in cases])
    ranks = [spearmanr(measured, measured + errors).statistic for errors in (ours, null)]
    print(f"rank correlation {ranks[0]:.3f}, of the null model {ranks[1]:.3f}")
    _print_gain(cases, ours)
    if rows:
        for case, error in sorted(zip(cases, ours, strict=True), key=lambda pair: -abs(pair[1])):
            print(f"{case.file:40} {case.name:36} {case.time_us:10.1f} {np.exp(error):7.2f}")


def _print_gain(cases: Sequence[Case], errors: Floats) -> None:
    """What the model makes of INT8 beside halves: products of the same sides, else of sides within a factor of two."""
    sides = {
        dtype: [
            (np.log(np.array(case.works[0].products[0], dtype=float)), error)
            for case, error in zip(cases, errors, strict=True)
            if case.error_class == error_class and len(case.works[0].products) == 1
        ]
        for dtype, error_class in (("int8", "matmul_int8"), ("half", "matmul"))
    }
    found, equal = [], 0
    for size, error in sides["int8"]:
        near = sorted((float(np.abs(size - other).max()), own) for other, own in sides["half"])
        if near and near[0][0] <= np.log(2) + 1e-9:
            equal += near[0][0] == 0
            found.append(error - near[0][1])
    if found:
        print(f"INT8 over halves: {_median(np.array(found)):.1%} off in {len(found)} pairs ({equal} of equal sides)")


def _limit(error_class: str, device: DeviceData, *, unseen: bool) -> float:
    """Logarithm of the factor that holds 95 %, of a kernel by itself."""
    parts = {part for error in device.errors.values() for part in error.moves}
    own = f"{error_class}_others" if unseen and f"{error_class}_others" in parts else error_class
    found = [
        error for error in device.errors.values() if own in error.moves and error.about != device.errors["fusion"].about
    ]
    return float(np.linalg.norm([np.log(error.factor_95) for error in found]))


def _median(errors: Floats) -> float:
    return float(np.median(np.abs(np.exp(errors) - 1)))


def _tail(errors: Floats, share: float = 0.9) -> float:
    return float(np.exp(np.quantile(np.abs(errors), share)))


if __name__ == "__main__":
    sys.exit(main())
