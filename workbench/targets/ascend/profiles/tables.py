"""msprof's CSV tables, row by row, by the names of their columns whatever the version called them (pyacl.md §5.4).

A profile of a long run has gigabytes: rows are read one at a time and `MOST_ROWS` of them at most. Cells may be quoted,
padded with tabs, or `N/A` where a switch was off.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workbench.values.errors import MeasureError

MOST_ROWS = 2_000_000
"""Of all tables of a profile together."""
_LONGEST_NAME = 300
_MOST_NS = 1 << 62
_NUMBER = re.compile(r"(\d{1,18})(?:\.(\d+))?$")

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "device": ("device_id", "device id"),
    "model_id": ("model id",),
    "stream": ("stream id", "stream_id"),
    "execution": ("infer id", "step id"),
    "name": ("op name", "name", "kernel_name"),
    "op_type": ("op type", "type"),
    "task_type": ("task type", "accelerator core", "core type", "kernel_type"),
    "start": ("task start time(us)", "task start time", "start time(us)", "task_start(us)"),
    "duration": ("task duration(us)", "duration(us)", "task_time(us)"),
    "input_shapes": ("input shapes",),
    "input_types": ("input data types",),
    "input_formats": ("input formats",),
    "output_shapes": ("output shapes",),
    "int8_ratio": ("aic_mac_int8_ratio", "mac_int8_ratio"),
    "active_percent": ("cube_utilization(%)",),
}
"""What is read → the names it has had, lower case, by version, and in the tables that torch_npu makes of them."""


@dataclass(slots=True)
class Reading:
    """What reading met; the rows that may still be read are `left`."""

    left: int
    skipped: int = 0
    unfinished: int = 0
    cut: bool = False

    def notes(self) -> tuple[str, ...]:
        found = []
        if self.cut:
            found.append(f"the tables are longer: the first {MOST_ROWS:,} rows were read")
        if self.skipped:
            found.append(f"{self.skipped:,} rows have no time that can be read and were left out")
        if self.unfinished:
            found.append("a table ends within a row, as of a run that was cut off; that row was left out")
        return tuple(found)


class Row:
    """One row; `cell` is empty for `N/A` and where the table lacks the column."""

    __slots__ = ("_cells", "_places")

    def __init__(self, places: Mapping[str, int], cells: Sequence[str]) -> None:
        self._places, self._cells = places, cells

    def cell(self, column: str) -> str:
        place = self._places.get(column, -1)
        if not 0 <= place < len(self._cells):
            return ""
        text = self._cells[place].strip().strip("\"'").strip()
        return "" if text.upper() == "N/A" else text

    def name(self, column: str) -> str:
        """A cell that is shown, cut where no operator's name would end."""
        return self.cell(column)[:_LONGEST_NAME]

    def ns(self, column: str) -> int | None:
        """Microseconds as whole nanoseconds: a start of the epoch has more digits than a float; None for no number."""
        found = _NUMBER.match(self.cell(column))
        if found is None:
            return None
        value = int(found[1]) * 1000 + int(f"{found[2] or ''}000"[:3])
        return value if value < _MOST_NS else None

    def number(self, column: str) -> float | None:
        try:
            value = float(self.cell(column))
        except ValueError:
            return None
        return value if -1e18 < value < 1e18 else None


def rows(file: Path, reading: Reading) -> Iterator[Row]:
    """The rows of a table.

    Raises:
        MeasureError: it cannot be read, or is no table.
    """
    try:
        with file.open("rb") as content:
            content.seek(max(0, content.seek(0, 2) - 1))
            cut_off = content.read() not in (b"", b"\n", b"\r")
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
            table = csv.reader(text)
            header = [" ".join(name.lower().split()) for name in next(table, [])]
            places = {
                column: header.index(name)
                for column, names in COLUMNS.items()
                for name in reversed(names)
                if name in header
            }
            for cells in table:
                if reading.left <= 0:
                    reading.cut = True
                    return
                reading.left -= 1
                if cut_off and len(cells) < len(header):
                    reading.unfinished += 1
                else:
                    yield Row(places, cells)
    except (csv.Error, OSError) as error:
        raise MeasureError(f"{file} is no table of msprof: {error}.") from error


def tables(folders: Iterable[Path], pattern: str) -> list[Path]:
    """Files of that name below the folders, in order, each once."""
    return sorted({file for folder in folders for file in islice(folder.rglob(pattern), 10_000)})
