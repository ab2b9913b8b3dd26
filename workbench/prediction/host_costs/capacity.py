"""How much work several busy threads of this host do together, relative to one alone.

Hyper-threads, shared caches, clock limits and the hypervisor's other guests make two processors less than twice one.
Copies of a matrix product, the work of models, run in processes of their own (`busy`), together and alone in turns.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

import numpy as np

from workbench.values.errors import ToolchainError

ROUNDS = 5
SLICE_S = 0.1
MOST_COPIES = 32
"""Beyond it the last figure holds: nobody serves one card or one CPU model with more busy threads."""
_END_S = 10.0
_BUSY = Path(__file__).with_name("busy.py")
"""Started by its file: `-m` would import this package, and all that serving needs, into every copy."""


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Work of 1, 2, … copies in one time, relative to one copy; what lies between the levels timed is interpolated.

    Attributes:
        together: medians over rounds that time all levels, never falling.
        spread: relative standard deviation of each, from round to round: a load meets other moments than these.
    """

    together: tuple[float, ...]
    spread: tuple[float, ...]


def measure_capacity(copies: int | None = None, *, rounds: int = ROUNDS, slice_s: float = SLICE_S) -> Capacity:
    """What processors do together, by a matrix product in processes of its own.

    Takes about `rounds` times `slice_s` times the number of levels, which are the powers of two up to `copies`.

    Args:
        copies: how many at most; as many as there are processors when None, but 32 at most.

    Raises:
        ToolchainError: a copy cannot be started, or died.
    """
    most = min(copies or processors(), MOST_COPIES)
    levels = sorted({1, most, *(2**i for i in range(most.bit_length()) if 2**i < most)})
    ratios: dict[int, list[float]] = {level: [] for level in levels}
    with _busy_copies(most) as children:
        for number in range(rounds):
            rates = {level: _rate(children[:level], slice_s) for level in _in_turn(levels, number)}
            for level in levels:
                ratios[level].append(rates[level] / rates[1])
    known = np.maximum.accumulate([max(median(ratios[level]), 1.0) for level in levels])
    every = np.arange(1, most + 1)
    return Capacity(
        together=tuple(float(x) for x in np.interp(every, levels, known)),
        spread=tuple(float(x) for x in np.interp(every, levels, [spread_of(ratios[level]) for level in levels])),
    )


def spread_of(ratios: Sequence[float]) -> float:
    """Relative standard deviation; robust, as a round in which somebody else had a processor says nothing of others."""
    logs = np.log(ratios)
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def _in_turn(levels: list[int], number: int) -> list[int]:
    """Ascending in one round, descending in the next: steady drift costs all levels the same."""
    return levels if number % 2 == 0 else levels[::-1]


def _rate(children: list[subprocess.Popen[str]], slice_s: float) -> float:
    """Products per second of these copies together, each over its own slice of the clock."""
    for child in children:
        _pipe(child.stdin).write(f"{slice_s}\n")
        _pipe(child.stdin).flush()
    total = 0.0
    for child in children:
        line = _pipe(child.stdout).readline()
        if not line:
            raise ToolchainError("a process that measures what processors do together died; its words stand above.")
        total += float(line)
    return total


@contextlib.contextmanager
def _busy_copies(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Children that wait for work; they end with their standard input, so with this process too."""
    one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    children: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            children.append(
                subprocess.Popen(
                    [sys.executable, "-P", str(_BUSY)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **one_thread},
                )
            )
        _rate(children, 0.0)  # all have started
        yield children
    finally:
        for child in children:
            with contextlib.suppress(BrokenPipeError):
                _pipe(child.stdin).close()
        for child in children:
            try:
                child.wait(timeout=_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            _pipe(child.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # both ends are pipes
    return stream
