"""Programs that play an atc: shell scripts for what no emulator of the vendor's would do."""

from __future__ import annotations

import textwrap
from pathlib import Path

PREAMBLE = """\
#!/bin/sh
mode=0
for word in "$@"; do
  case "$word" in
    --mode=*) mode="${word#*=}" ;;
    --output=*) output="${word#*=}" ;;
    --json=*) json="${word#*=}" ;;
    --om=*) om="${word#*=}" ;;
    --model=*) model="${word#*=}" ;;
    --input_shape=*) shape="${word#*=}" ;;
    --check_report=*) report="${word#*=}" ;;
  esac
done
echo "ATC start working now, please wait for a moment."
if [ "$mode" = 1 ]; then
  echo '{"graph": [{"op": [{"type": "Data"}, {"type": "MatMulV2", "input_desc": []}]}]}' > "$json"
  echo "ATC run success, welcome to the next use."
  exit 0
fi
"""
SUCCESS = 'echo "ATC run success, welcome to the next use."\n'


def play_atc(folder: Path, body: str) -> dict[str, str]:
    """Write `folder/bin/atc`, which does `body` in mode 0, and return an environment that finds it."""
    program = folder / "bin" / "atc"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PREAMBLE + textwrap.dedent(body))
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(folder)}
