"""Generated models through inspect, init, plan and a sweep of four candidates, as a user runs them.

    python -m benchmarks.strange [--seed 0] [--count 50] [--first 0] [--last 49] [--target onnxruntime] [--keep FOLDER]

The models are a grid over opset, axes, inputs, outputs and subgraphs; another seed gives other combinations and
sizes. A row a model: the exit code of each command, seconds, what
the sweep says of its INT8 candidates, and how far their outputs are from the float model's by a computation of its own:
ONNX Runtime alone on the exported file and the file that was given. A row is wrong where a traceback was printed, a
refusal came late or names no remedy, every candidate or every one of a scheme failed, or what was promised contradicts
what was computed: a perfect score beside outputs that differ, a broken one beside equal outputs, or a share of equal
answers that is far from the share counted here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.strange.apart import NOTHING_SHOWN, contradictions
from benchmarks.strange.case import Case, drawn_case
from benchmarks.strange.models import draw_specifications

TIMEOUT_S = 400
PARTS = {"train": slice(0, 40), "validation": slice(40, 140), "unseen": slice(140, 160)}
JUDGED = slice(PARTS["validation"].start, PARTS["unseen"].stop)
UNMOVED = "whatever is done to the float model's outputs"
"""As the metric's self-test refuses one that cannot move."""
ENDED = (0, 3, 4)
"""Exit codes of a sweep that came to its end, with or without a recommendation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One command."""

    code: int
    seconds: float
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=1 << 30)
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="onnxruntime")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp(prefix="strange-"))
    wrong = blind = 0
    for number, (name, write) in enumerate(_files(given.count, given.seed)):
        if not given.first <= number <= given.last or given.only not in name:
            continue
        folder = root / name
        (folder / "given").mkdir(parents=True)
        row, faults = carry_through(write(folder / "given"), folder, given.target)
        print(row, flush=True)
        for fault in faults:
            print(f"    WRONG: {fault}", flush=True)
        wrong += len(faults)
        blind += NOTHING_SHOWN in row
    print(f"{wrong} faults; {blind} sweeps that judged no INT8 candidate and show nothing; files in {root}")
    sys.exit(1 if wrong else 0)


def _files(count: int, seed: int):  # type: ignore[no-untyped-def]
    """(name, what writes the case into a folder)."""
    for specification in draw_specifications(count, seed):
        yield specification.name, lambda folder, one=specification: drawn_case(one, folder)


def carry_through(case: Case, folder: Path, target: str) -> tuple[str, list[str]]:
    """The row of one model, and what is wrong with it."""
    for name, part in PARTS.items():
        np.savez(folder / f"{name}.npz", **{n: a[part] for n, a in case.samples.items()})
    data = [f"--data={folder / name}.npz" for name in ("train", "validation")]
    options = [f"--constant={name}={value}" for name, value in case.constants.items()]
    faults: list[str] = []
    codes: list[str] = []

    def run(*arguments: str) -> Ran:
        done = workbench(*arguments, cwd=folder)
        codes.append(f"{arguments[0]} {done.code} ({done.seconds:.0f} s)")
        (folder / f"{arguments[0]}.log").write_text(done.text)
        if "Traceback (most recent call last)" in done.text:
            faults.append(f"{arguments[0]}: traceback: {done.text.strip().splitlines()[-1][:200]}")
        if done.code not in (0, 1, 2, 3, 4, 5):
            faults.append(f"{arguments[0]}: exit code {done.code}")
        faults.extend(f"{arguments[0]}: a warning leaks: {line[:160]}" for line in _warnings(done.text))
        return done

    def ended(words: str, *more: str) -> tuple[str, list[str]]:
        return f"{case.name}: {', '.join(codes)}: {words}", [*faults, *more]

    looked = run("inspect", str(case.model), *options)
    init = ("init", str(case.model), *data, "--to=.", "--name=m", f"--target={target}", *options)
    made = run(*init)
    told = answers(made.text, case) if made.code != 0 else []
    if told:  # it cannot know what the output is: say it, as it asks
        made = run(*init, *told)
    if made.code != 0:
        late = [] if case.refused is not False else ["refused, and should not be"]
        late += ["inspect says nothing against it"] if looked.code != 0 and not looked.text.strip() else []
        return ended("refused: " + _last(made.text), *late, *_unhelpful(made))
    planned = run("plan", "experiments/m.yaml")
    if planned.code != 0:
        return ended("refused: " + _last(planned.text), "refused by plan, not by init", *_unhelpful(planned))
    if not case.untouched:
        _widen(folder / "experiments" / "m.yaml")
    swept = run("sweep", "experiments/m.yaml", "--trials=4", "--timeout=240s")
    if swept.code not in ENDED and UNMOVED in swept.text:  # known once the float model was scored, and not before
        return ended("refused: " + _last(swept.text))
    if swept.code not in ENDED:
        return ended("refused: " + _last(swept.text), "refused by sweep, not before", *_unhelpful(swept))
    shown = workbench("show", "experiments/m.yaml", "--json", cwd=folder)
    if shown.code not in ENDED:
        return ended(_last(swept.text), f"show: {shown.code}: {_last(shown.text)}")

    def exported(candidate: str, to: Path) -> Path | None:
        done = workbench(
            *("export", "experiments/m.yaml", f"--to={to}", f"--candidate={candidate}", "--no-register"), cwd=folder
        )
        found = sorted(to.rglob("*.onnx"))
        if done.code != 0 or not found:
            print(f"    export {done.code}: {_last(done.text)}")
            return None
        return found[0]

    words, found = contradictions(json.loads(shown.text), case, JUDGED, folder, exported)
    refusal = ["went through, and should be refused"] if case.refused else []
    return ended(words, *found, *refusal)


def answers(text: str, case: Case) -> list[str]:
    """`--output` for every output that `init` asks about, which it names in quotes."""
    asked = " ".join(re.split(r"nothing tells what", " ".join(text.split()))[1:])
    return [f"--output={name}={meaning}" for name, meaning in case.answers.items() if f"'{name}' (" in asked]


def _widen(experiment: Path) -> None:
    """So that every candidate is measured whole, however far off: only such a one can be exported and looked at.

    Without `service:`, whose loads take most of the time and say nothing of the model.
    """
    text = re.sub(r"^( +(?:accuracy_drop(?:_pp)?): ).*$", r"\g<1>1000", experiment.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^service:\n(?:[ #].*\n)*", "", text, flags=re.MULTILINE)
    experiment.write_text(re.sub(r"^seed:", "smoke_cosine: -1.0\nseed:", text, flags=re.MULTILINE))


def workbench(*arguments: str, cwd: Path) -> Ran:
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if arguments[-1] == "--json" else subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            env={**os.environ, "COLUMNS": "160"},
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(code=124, seconds=TIMEOUT_S, text="no end")
    return Ran(code=done.returncode, seconds=time.perf_counter() - began, text=done.stdout)


def _warnings(text: str) -> list[str]:
    """Lines that a library printed past us."""
    return [line for line in text.splitlines() if re.search(r"\w+Warning: |\[W:onnxruntime|\[E:onnxruntime", line)]


def _unhelpful(ran: Ran) -> list[str]:
    """A refusal says the fact in a sentence, and the next step."""
    words = ran.text.strip()
    if len(words.split()) < 8:
        return [f"refused without a word: {words[-200:]}"]
    return []


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[:420] if lines else "(nothing)"


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    main()
