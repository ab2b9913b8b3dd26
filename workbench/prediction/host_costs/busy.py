"""A process that multiplies matrices on demand: `python busy.py`, which imports nothing of the workbench.

One line in, seconds to be busy; one line out, products per second. Ends with its standard input.
"""

from __future__ import annotations

import sys
import time

import numpy as np

_ROWS, _WIDTH = 64, 384
"""A product of an encoder of MiniLM's width over 64 tokens."""
_CALLS = 5
"""Between two looks at the clock."""


def main() -> None:
    """Answer every line until there is no more."""
    generator = np.random.default_rng(0)
    left = generator.normal(size=(_ROWS, _WIDTH)).astype(np.float32)
    right = generator.normal(size=(_WIDTH, _WIDTH)).astype(np.float32)
    for line in sys.stdin:
        slice_s, calls, start = float(line), 0, time.perf_counter()
        while True:
            for _ in range(_CALLS):
                left @ right
            calls += _CALLS
            passed = time.perf_counter() - start
            if passed >= slice_s:
                break
        sys.stdout.write(f"{calls / passed}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
