"""`python -m workbench.cann_emulator.atc ARGS`: what `<root>/bin/atc` starts."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from workbench.cann_emulator.atc.main import main

if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        # a path need not be text in the locale's encoding; it is printed back as the bytes it came as
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")
    raise SystemExit(main(sys.argv[1:]))
