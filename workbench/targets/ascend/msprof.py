"""Where the time goes: msprof run on a program, and its tables of operators read by the names of their columns.

Columns and files: pyacl.md §5.4. Cells may be quoted, padded with tabs, or `N/A` where a switch was off.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.program import run_program
from workbench.targets.ascend.visible_devices import VARIABLE
from workbench.values.errors import MeasureError, ToolchainError

TIMEOUT_S = 900.0

_CONVERSIONS = {"cast", "transdata", "transpose", "transposed", "reformat"}
_QUANTIZATION = {"ascendquant", "ascenddequant", "ascendantiquant", "quantize", "dequantize", "ascendrequant"}
_PRODUCTS = re.compile(r"matmul|conv|fullyconnection|gemm", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One type of operator over the whole run.

    Attributes:
        share: of the time of all operators, 0..1.
        int8: True when one of its calls takes INT8.
    """

    op_type: str
    core: str
    calls: int
    total_us: float
    share: float
    int8: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeByOperator:
    """An op_summary or op_statistic, by type of operator, the costliest first.

    Attributes:
        conversion_share: Cast, TransData, Transpose: time that computes nothing.
        quantization_share: AscendQuant, AscendDequant and their kin where they were not fused.
        product_share: matrix products and convolutions.
        int8_share: of the time of those products, what ran on INT8; None where the table has no data types.
        files: tables that were read.
    """

    operators: tuple[OperatorTime, ...]
    total_us: float
    conversion_share: float
    quantization_share: float
    product_share: float
    int8_share: float | None
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    op_type: str
    core: str
    calls: int
    duration_us: float
    int8: bool | None


def profile(
    application: Sequence[str],
    output: Path,
    *,
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> TimeByOperator:
    """Run a program under msprof and read where its device time went. It runs slower than without: time nothing else.

    Args:
        application: argument list of the program.
        output: folder for the PROF_* results; made when missing. The log is `msprof.log` in it.

    Raises:
        ToolchainError: no msprof, or ASCEND_RT_VISIBLE_DEVICES is set, which it cannot work with.
        MeasureError: the program failed, took too long, or left no table; carries the log.
    """
    surroundings = dict(os.environ if environment is None else environment)
    program = shutil.which("msprof", path=surroundings.get("PATH", os.defpath))
    if program is None:
        raise ToolchainError("msprof is not on PATH. It comes with the CANN toolkit: source its set_env.sh.")
    if surroundings.get(VARIABLE):
        raise ToolchainError(f"msprof does not work while {VARIABLE} is set. Unset it and choose the device by number.")
    output.mkdir(parents=True, exist_ok=True)
    before = {folder.name for folder in output.glob("PROF_*")}
    log = output / "msprof.log"
    command = [program, f"--application={shlex.join(application)}", f"--output={output}", "--task-time=on"]
    ended = run_program(command, environment=surroundings, timeout_s=timeout_s, log=log)
    if ended.code != 0:
        how = f"took longer than {timeout_s:g} s" if ended.code is None else f"failed with exit code {ended.code}"
        last = ended.output.strip().splitlines()[-1:] or ["no output"]
        raise MeasureError(f"msprof {how}: {last[0]}", log_path=log, transient=ended.code is None)
    fresh = [folder for folder in output.glob("PROF_*") if folder.name not in before]
    try:
        return read_profile(fresh)
    except MeasureError as error:
        raise MeasureError(f"{error} See what msprof said.", log_path=log) from error


def read_profile(folders: Iterable[Path]) -> TimeByOperator:
    """The tables below one or more PROF_* folders: op_summary where there is one, op_statistic otherwise.

    Raises:
        MeasureError: neither is there, or they hold no operator with a time.
    """
    places = list(folders)
    for pattern, read in (("op_summary_*.csv", _of_summary), ("op_statistic_*.csv", _of_statistic)):
        files = sorted(file for folder in places for file in folder.rglob(pattern))
        calls = [call for file in files for call in read(file)]
        if calls:
            return _by_operator(calls, tuple(files))
    looked = ", ".join(map(str, places)) or "no PROF_* folder"
    raise MeasureError(f"No op_summary_*.csv or op_statistic_*.csv with operators in {looked}.")


def text_of(times: TimeByOperator, top: int = 10) -> str:
    """'Where the time goes' for the terminal."""
    lines = [f"where the time goes: {times.total_us / 1000:.3f} ms on the device in {len(times.operators)} kinds"]
    width = max(len(operator.op_type) for operator in times.operators[:top])
    for operator in times.operators[:top]:
        mark = " INT8" if operator.int8 else ""
        lines.append(
            f"  {operator.op_type:<{width}}  {operator.share:6.1%}  {operator.total_us:12.1f} us  "
            f"{operator.calls:6d} calls  {operator.core}{mark}"
        )
    rest = times.operators[top:]
    if rest:
        lines.append(f"  {len(rest)} more kinds: {sum(operator.share for operator in rest):.1%}")
    lines.append(
        f"casts, layouts and transposes {times.conversion_share:.1%}, "
        f"quantize and dequantize {times.quantization_share:.1%}, matrix products {times.product_share:.1%}"
    )
    if times.int8_share is not None:
        lines.append(f"of the matrix products' time, {times.int8_share:.1%} ran on INT8")
    return "\n".join(lines)


def _of_summary(file: Path) -> list[_Call]:
    """One row for each launch of a kernel."""
    calls = []
    for row in _rows(file):
        duration = _float(_cell(row, "Task Duration(us)"))
        op_type = _cell(row, "OP Type") or _cell(row, "Op Name")
        if duration is None or not op_type:
            continue
        types = _cell(row, "Input Data Types")
        ratio = _float(_cell(row, "aic_mac_int8_ratio") or _cell(row, "mac_int8_ratio"))
        int8 = None if not types and ratio is None else "INT8" in _split(types) or bool(ratio)
        calls.append(_Call(op_type=op_type, core=_cell(row, "Task Type"), calls=1, duration_us=duration, int8=int8))
    return calls


def _of_statistic(file: Path) -> list[_Call]:
    """One row for each type of operator; no data types."""
    calls = []
    for row in _rows(file):
        total, count = _float(_cell(row, "Total Time(us)")), _float(_cell(row, "Count"))
        op_type = _cell(row, "OP Type")
        if total is None or not op_type:
            continue
        core = _cell(row, "Core Type")
        calls.append(_Call(op_type=op_type, core=core, calls=int(count or 1), duration_us=total, int8=None))
    return calls


def _by_operator(calls: Sequence[_Call], files: tuple[Path, ...]) -> TimeByOperator:
    total = sum(call.duration_us for call in calls)
    groups: dict[tuple[str, str], list[_Call]] = {}
    for call in calls:
        groups.setdefault((call.op_type, call.core), []).append(call)
    operators = [
        OperatorTime(
            op_type=op_type,
            core=core,
            calls=sum(call.calls for call in group),
            total_us=sum(call.duration_us for call in group),
            share=_part(sum(call.duration_us for call in group), total),
            int8=any(call.int8 for call in group),
        )
        for (op_type, core), group in groups.items()
    ]
    products = [call for call in calls if _PRODUCTS.search(call.op_type)]
    product_us = sum(call.duration_us for call in products)
    int8_us = sum(call.duration_us for call in products if call.int8)
    return TimeByOperator(
        operators=tuple(sorted(operators, key=lambda o: (-o.total_us, o.op_type, o.core))),
        total_us=total,
        conversion_share=_part(_time_of(calls, _CONVERSIONS), total),
        quantization_share=_part(_time_of(calls, _QUANTIZATION), total),
        product_share=_part(product_us, total),
        int8_share=_part(int8_us, product_us) if any(call.int8 is not None for call in products) else None,
        files=files,
    )


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            return [{(key or "").strip().lower(): value or "" for key, value in row.items()} for row in _dicts(lines)]
    except csv.Error as error:
        raise MeasureError(f"{file} is no table of msprof: {error}.") from error


def _dicts(lines: Iterable[str]) -> Iterable[dict[str, str]]:
    return csv.DictReader(lines, restkey="", restval="")


def _cell(row: Mapping[str, str], column: str) -> str:
    """A cell by the name of its column, whatever its case; empty for `N/A` and where the column is missing."""
    value = row.get(column.lower(), "")
    text = value.strip().strip("\"'").strip() if isinstance(value, str) else ""
    return "" if text.upper() == "N/A" else text


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _split(types: str) -> set[str]:
    """{'INT8', 'FLOAT16'} of 'DT_INT8;DT_FLOAT16;INT8'."""
    return {part.strip().strip("\"'").upper().removeprefix("DT_") for part in re.split(r"[;,\s]+", types)}


def _time_of(calls: Iterable[_Call], kinds: set[str]) -> float:
    return sum(call.duration_us for call in calls if call.op_type.lower() in kinds)


def _part(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
