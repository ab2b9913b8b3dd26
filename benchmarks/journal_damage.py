"""Damage to a finished sweep, as its user meets it: every file of a journal, every kind of damage, the real commands.

    python -m benchmarks.journal_damage EXPERIMENT [--seed N] [--limit FILES]

Sweeps the experiment in a workspace of its own, then, file after file, damages a copy and runs `show`, `export` and
`sweep`. A command must not end in a traceback; `show` must name the file; the sweep must leave nothing damaged and as
many evaluations as before. Ends with exit code 1 where one of these fails.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ("flipped", "cut", "emptied", "deleted")
SKIPPED = ("lock", "evaluation.lock")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=10_000, help="so many files, drawn from all")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="journal-damage-") as folder:
        sound, harmed = Path(folder) / "sound", Path(folder) / "harmed"
        made = run("sweep", given.experiment, sound)
        if made.returncode != 0:
            print(made.stderr)
            return 1
        names = [p.relative_to(sound) for p in sound.glob(".workbench/sweeps/*/*/**/*") if p.is_file()]
        names = sorted(name for name in names if name.name not in SKIPPED)
        failed = tried = 0
        for name in rng.sample(names, min(given.limit, len(names))):
            for kind in KINDS:
                shutil.rmtree(harmed, ignore_errors=True)
                shutil.copytree(sound, harmed)
                harm(harmed / name, kind, rng)
                problems = problems_of(given.experiment, harmed, Path(*name.parts[4:]).as_posix())
                tried, failed = tried + 1, failed + bool(problems)
                print(f"{name} {kind}: {'; '.join(problems) or 'ok'}", flush=True)
    print(f"{tried} damages, {failed} of them not met as they should be")
    return 1 if failed else 0


def harm(path: Path, kind: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
        return
    if kind == "flipped":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[rng.randrange(1, len(data) - 1) :]
    else:
        data.clear()
    path.write_bytes(data)


def problems_of(experiment: Path, workspace: Path, file: str) -> list[str]:
    shown = run("show", experiment, workspace)
    exported = run("export", experiment, workspace, "--to", str(workspace / "bundle"), "--no-register")
    swept = run("sweep", experiment, workspace)
    after = run("show", experiment, workspace)
    found = [f"{n} ended in a traceback" for n, d in (("show", shown), ("export", exported)) if "Traceback" in d.stderr]
    said = "".join((shown.stdout + shown.stderr).split())
    if file not in said:
        found.append("show does not name it")
    if file not in "".join(exported.stderr.split()):
        found.append("export does not name it")
    if swept.returncode != 0:
        found.append(f"the sweep ended with {swept.returncode}: {swept.stderr.strip().splitlines()[-1:]}")
    if "DAMAGED" in after.stdout:
        found.append("the sweep left damage")
    return found


def run(command: str, experiment: Path, workspace: Path, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "workbench", command, str(experiment), "--workspace", str(workspace), *more]
    return subprocess.run(line, capture_output=True, text=True, timeout=1800, check=False)


if __name__ == "__main__":
    raise SystemExit(main())
