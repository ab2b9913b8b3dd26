"""The two consoles of the command line: results go to `out`, messages to `err`."""

from __future__ import annotations

import os
import sys

from rich.console import Console

# A pipe or a file has no width; 80 columns would break every node name of a model.
out = Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "160")))
err = Console(stderr=True)
