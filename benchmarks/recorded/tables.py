"""A recorded table: every candidate of a space, composed of measured classes, and what each class cost.

A candidate's accuracy is its numerics class's, its service its time class's. The file is an `.npz` without pickles, of
some tens of kilobytes; `meta` is JSON with the experiment, the space and where and when it was recorded.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.space.space import Assignment, SearchSpace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Attributes:
    choices: [n, parameters], the place of each choice, -1 where a parameter does not apply.
    numerics, time: [n], of each candidate the number of its class.
    accuracy, drop_pp, drop_error: of each numerics class; the error is the standard error of the drop.
    throughput_per_s, p99_ms: of each time class, at its best service settings; NaN where none keeps the limit on P99.
    noise: logarithms of how far one measurement of a time class lay from another, as recorded.
    rounds: [time classes, rounds], logarithms of each round's times over the class's own medians.
    each_s, numerics_s, time_s: what every candidate costs, what measuring a numerics class adds, and a time class.
    """

    meta: dict[str, Any]
    choices: npt.NDArray[np.int8]
    numerics: Ints
    time: Ints
    accuracy: Floats
    drop_pp: Floats
    drop_error: Floats
    throughput_per_s: Floats
    p99_ms: Floats
    noise: Floats
    rounds: Floats
    each_s: Floats
    numerics_s: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.choices)

    def places(self, space: SearchSpace) -> dict[tuple[int, ...], int]:
        """Choices of a candidate, as `choice_places` gives them → its number."""
        assert self.choices.shape[1] == len(space.parameters), "a table and its space"
        return {tuple(int(c) for c in row): n for n, row in enumerate(self.choices)}


def choice_places(space: SearchSpace, assignment: Assignment) -> tuple[int, ...]:
    """The place of each parameter's choice, -1 where it does not apply."""
    return tuple(p.choices.index(assignment[p.name]) if p.name in assignment else -1 for p in space.parameters)


def save_table(table: Table, path: Path) -> None:
    arrays = {f.name: getattr(table, f.name) for f in fields(table) if f.name != "meta"}
    held = io.BytesIO()
    meta = np.frombuffer(json.dumps(table.meta, sort_keys=True).encode(), dtype=np.uint8)
    np.savez_compressed(
        held, meta=meta, **{n: a.astype(np.float32) if a.dtype == float else a for n, a in arrays.items()}
    )
    path.write_bytes(held.getvalue())


def load_table(path: Path) -> Table:
    with np.load(path, allow_pickle=False) as held:
        arrays = {f.name: held[f.name] for f in fields(Table) if f.name != "meta"}
        meta = json.loads(bytes(held["meta"]))
    made = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in arrays.items()}
    return Table(meta=meta, **made)
