"""50 generated models through inspect, init, plan and a sweep of two candidates, as a user runs them.

    python -m benchmarks.strange [--count 50] [--first 0] [--target onnxruntime] [--keep FOLDER]

A row a model: the exit code of each command, seconds, what the sweep says of its INT8 candidate, and how far that
candidate's outputs are from the float model's by a computation of its own: ONNX Runtime alone on the exported file and
the file that was given. A row is wrong where a traceback was printed, a refusal names no remedy, or what was promised
contradicts what was computed: a perfect score beside outputs that differ, or a broken one beside equal outputs.
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
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from benchmarks.strange.models import Specification, draw_specifications, write_model

Array = npt.NDArray[Any]

TIMEOUT_S = 400
_PARTS = {"train": slice(0, 40), "validation": slice(40, 140), "unseen": slice(140, 160)}
_KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
_OTHER = re.compile(
    r"_ms|_per_s|_mb|_s$|samples|speedup|ops|left|drift|noise|throughput|startup|memory|low$|high$|drop"
)
APART = 0.05
"""Relative distance of outputs from which a perfect score is a contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One command."""

    code: int
    seconds: float
    text: str

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=1 << 30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="onnxruntime")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp(prefix="strange-"))
    wrong = []
    for specification in draw_specifications(given.count, given.seed):
        if not given.first <= specification.seed <= given.last:
            continue
        row, faults = carry_through(specification, root / specification.name, given.target)
        print(row, flush=True)
        for fault in faults:
            print(f"    WRONG: {fault}", flush=True)
        wrong += faults
    print(f"{len(wrong)} faults; files in {root}")
    sys.exit(1 if wrong else 0)


def carry_through(s: Specification, folder: Path, target: str) -> tuple[str, list[str]]:
    """The row of one model, and what is wrong with it."""
    (folder / "given").mkdir(parents=True)
    model, samples, constants = write_model(s, folder / "given")
    fed = {n: a.astype(_fed(model)[n]) for n, a in samples.items()}
    for name, part in _PARTS.items():
        np.savez(folder / f"{name}.npz", **{n: a[part] for n, a in fed.items()})
    data = [f"--data={folder / name}.npz" for name in ("train", "validation")]
    options = [f"--constant={name}={value}" for name, value in constants.items()]
    faults: list[str] = []
    codes: list[str] = []

    def run(*arguments: str) -> Ran:
        done = _workbench(*arguments, cwd=folder)
        codes.append(f"{arguments[0]} {done.code} ({done.seconds:.0f} s)")
        (folder / f"{arguments[0]}.log").write_text(done.text)
        if done.traceback:
            faults.append(f"{arguments[0]}: traceback: {done.text.strip().splitlines()[-1][:200]}")
        if done.code not in (0, 1, 2, 3, 4, 5):
            faults.append(f"{arguments[0]}: exit code {done.code}")
        return done

    run("inspect", str(model), *options)
    made = run("init", str(model), *data, "--to=.", "--name=m", f"--target={target}", *options)
    asked = [line for line in made.text.splitlines() if "--output" in line]
    if made.code != 0 and asked:  # it cannot know what the output is: say it, as it asks
        meanings = {"y": "values", "found": "values", "probability": "probabilities", "ids_out": "ids"}
        told = [
            f"--output={name}={meaning}" for name, meaning in meanings.items() if any(name in line for line in asked)
        ]
        made = run("init", str(model), *data, "--to=.", "--name=m", f"--target={target}", *options, *told)
    if made.code != 0:
        return _row(s, codes, "refused: " + _last(made.text)), faults + _unhelpful(made)
    planned = run("plan", "experiments/m.yaml")
    if planned.code != 0:
        return _row(s, codes, "refused: " + _last(planned.text)), [
            *faults,
            "refused by plan, not by init",
            *_unhelpful(planned),
        ]
    _widen(folder / "experiments" / "m.yaml")
    swept = run("sweep", "experiments/m.yaml", "--trials=4", "--timeout=120s")
    shown = _workbench("show", "experiments/m.yaml", "--json", cwd=folder)
    if swept.code not in (0, 3, 4):
        return _row(s, codes, "refused: " + _last(swept.text)), [
            *faults,
            "refused by sweep, not before",
            *_unhelpful(swept),
        ]
    if shown.code not in (0, 3, 4):
        return _row(s, codes, _last(swept.text)), [*faults, f"show: {shown.code}: {_last(shown.text)}"]
    unseen = {n: a[_PARTS["unseen"]] for n, a in fed.items()}
    words, found = _judged(json.loads(shown.text), s, folder, model, unseen, constants)
    return _row(s, codes, words), faults + found


def _judged(
    shown: Any, s: Specification, folder: Path, model: Path, unseen: dict[str, Array], constants: dict[str, Any]
) -> tuple[str, list[str]]:
    """Words about the INT8 candidates, and contradictions between what is said of them and a computation of its own."""
    said, faults = [], []
    rows = {row["id"]: row for row in shown["candidates"]}
    float_row = rows.get(shown["baseline"])
    if float_row is None or "accuracy" not in float_row["metrics"]:
        return "the float baseline was not judged", [f"no baseline: {shown['stops']} {shown['failures']}"]
    for name, row in rows.items():
        if row["parameters"].get("quantization.scheme") in (None, "none") or "accuracy" not in row["metrics"]:
            continue
        moved = _moved(float_row["metrics"], row["metrics"])
        apart = _apart(name, s, folder, model, unseen, constants)
        primary = f"{row['metrics']['accuracy']:.4f} ({', '.join(sorted(moved)) or 'nothing moved'})"
        said.append(f"{row['parameters']['quantization.scheme']}: {primary}, computed apart {apart:.3g}")
        if apart > APART and not moved:
            faults.append(f"{name[:12]}: outputs are {apart:.3g} apart, and every figure says they are the same")
        if apart < 1e-5 and row["metrics"].get("accuracy_drop_pp", 0) > 1:
            faults.append(f"{name[:12]}: outputs are the same, and a drop is claimed")
    return "; ".join(said) or f"no INT8: {shown['stops']} {shown['failures']}", faults


def _widen(experiment: Path) -> None:
    """So that every candidate is measured whole, however far off: only such a one can be exported and looked at.

    Without `service:`, whose loads take most of the time and say nothing of the model.
    """
    text = re.sub(r"^( +(?:accuracy_drop(?:_pp)?): ).*$", r"\g<1>1000", experiment.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^service:\n(?:[ #].*\n)*", "", text, flags=re.MULTILINE)
    experiment.write_text(re.sub(r"^seed:", "smoke_cosine: -1.0\nseed:", text, flags=re.MULTILINE))


def _moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Figures about outputs that differ from the float model's."""
    return {
        name
        for name in before.keys() & after.keys()
        if not _OTHER.search(name) and isinstance(before[name], float | int) and abs(before[name] - after[name]) > 1e-6
    }


def _apart(
    candidate: str, s: Specification, folder: Path, model: Path, unseen: dict[str, Array], constants: dict[str, Any]
) -> float:
    """Relative distance of the exported file's outputs from the given file's, over unseen samples one by one."""
    bundle = folder / f"bundle-{candidate[:12]}"
    done = _workbench(
        *("export", "experiments/m.yaml", f"--to={bundle}", f"--candidate={candidate}", "--no-register"), cwd=folder
    )
    files = sorted(bundle.rglob("*.onnx"))
    if done.code != 0 or not files:
        print(f"    export {done.code}: {_last(done.text)}")
        return float("nan")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs, ours = (onnxruntime.InferenceSession(str(f), options) for f in (model, files[0]))
    repeats = 4 if s.batch == "four" else 1
    errors, sizes = 0.0, 0.0
    for row in range(len(next(iter(unseen.values())))):
        feeds = {n: np.repeat(a[row : row + 1], repeats, axis=0) for n, a in unseen.items()}
        given = {n: _as_given(n, a, s) for n, a in feeds.items()}
        given.update({n: np.asarray(v) for n, v in constants.items()})
        fed = {i.name: feeds[i.name].astype(_KINDS[i.type]) for i in ours.get_inputs()}
        expected = dict(zip([o.name for o in theirs.get_outputs()], theirs.run(None, given), strict=True))
        found = dict(zip([o.name for o in ours.get_outputs()], ours.run(None, fed), strict=True))
        for name, array in expected.items():
            a, b = (
                np.sort(x.ravel().astype(np.float64)) if repeats > 1 else x.ravel().astype(np.float64)
                for x in (array, found[name])
            )
            if a.size != b.size:
                return float("inf")
            errors, sizes = errors + float(((a - b) ** 2).sum()), sizes + float((a**2).sum())
    return float(np.sqrt(errors / sizes)) if sizes else float(np.sqrt(errors))


def _as_given(name: str, array: Array, s: Specification) -> Array:
    """A batch [n, ...] as the given file takes it: without a batch, or with one on the second axis."""
    if s.batch == "absent":
        return array[0]
    return np.moveaxis(array, 0, 1) if name in ("state", "sequence") else array


def _workbench(*arguments: str, cwd: Path) -> Ran:
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


def _fed(model: Path) -> dict[str, Any]:
    """Input → NumPy type."""
    names = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.FLOAT16: np.float16, onnx.TensorProto.INT64: np.int64}
    graph = onnx.load(model, load_external_data=False).graph
    return {value.name: names[value.type.tensor_type.elem_type] for value in graph.input}


def _unhelpful(ran: Ran) -> list[str]:
    return (
        []
        if "error" in ran.text.lower() or "hint" in ran.text.lower()
        else [f"refused without a word: {ran.text[-200:]}"]
    )


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-2:])[:260] if lines else "(nothing)"


def _row(s: Specification, codes: list[str], words: str) -> str:
    return f"{s.name}: {', '.join(codes)}: {words}"


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    main()
