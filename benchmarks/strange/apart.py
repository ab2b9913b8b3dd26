"""What a sweep says of its INT8 candidates, held against a computation that does not use the product."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from benchmarks.strange.case import Case

Array = npt.NDArray[Any]

APART = 0.05
"""Relative distance of outputs from which a perfect score is a contradiction."""
SHARE = 0.2
"""Between a share of equal answers of some of the samples that the sweep scored, and that of all counted here."""
KINDS = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
NOTHING_SHOWN = "no INT8"
_OTHER = re.compile(
    r"_ms|_per_s|_mb|_s$|samples|speedup|ops|left|drift|noise|throughput|startup|memory|low$|high$|drop"
)


def contradictions(
    shown: Any, case: Case, judged: slice, folder: Path, exported: Callable[[str, Path], Path | None]
) -> tuple[str, list[str]]:
    """Words about the INT8 candidates, and where what is said of them contradicts what is computed here.

    Args:
        judged: samples that outputs are computed for: those that the sweep scored, of which a claimed share is one, and
            others.
        exported: (candidate, folder) → the file that ships, None where it cannot be had.
    """
    said: list[str] = []
    rows = {row["id"]: row for row in shown["candidates"]}
    faults = _broken(shown)
    float_row = rows.get(shown["baseline"])
    if float_row is None or "accuracy" not in float_row["metrics"]:
        return "the float baseline was not judged", [f"no baseline: {shown['stops']} {shown['failures']}"]
    for name, row in rows.items():
        if row["parameters"].get("quantization.scheme") in (None, "none") or "accuracy" not in row["metrics"]:
            continue
        moved = _moved(float_row["metrics"], row["metrics"])
        file = exported(name, folder / f"bundle-{name[:12]}")
        if file is None:
            continue
        apart, same = _compared(file, case, {n: a[judged] for n, a in case.samples.items()})
        primary = f"{row['metrics']['accuracy']:.4f} ({', '.join(sorted(moved)) or 'nothing moved'})"
        said.append(f"{row['parameters']['quantization.scheme']}: {primary}, computed apart {apart:.3g}, same {same}")
        if np.isnan(apart):
            faults.append(f"{name[:12]}: an output of the file that ships, or of the one that was given, is no number")
        if apart > APART and not moved:
            faults.append(f"{name[:12]}: outputs are {apart:.3g} apart, and every figure says they are the same")
        if apart < 1e-5 and row["metrics"].get("accuracy_drop_pp", 0) > 1:
            faults.append(f"{name[:12]}: outputs are the same, and a drop is claimed")
        claimed = row["metrics"].get("exact_match", row["metrics"].get("top1_agreement"))
        if claimed is not None and len(same) == 1 and abs(claimed - next(iter(same.values()))) > SHARE:
            faults.append(f"{name[:12]}: {claimed:.3f} of answers are said to be the same, and {same} are")
    return "; ".join(said) or f"{NOTHING_SHOWN}: {shown['stops']} {shown['failures']}", faults


def _broken(shown: Any) -> list[str]:
    """That all candidates failed, or all of one scheme: nothing in these models is a reason for it."""
    fates: dict[str, set[str]] = {}
    for row in shown["candidates"]:
        fates.setdefault(row["parameters"].get("quantization.scheme") or "none", set()).add(row["standing"])
    return [
        f"every candidate of scheme {scheme} failed: {shown['failures']}"
        for scheme, found in sorted(fates.items())
        if found == {"failed"}
    ]


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Figures about outputs that differ from the float model's."""
    return {
        name
        for name in before.keys() & after.keys()
        if not _OTHER.search(name) and isinstance(before[name], float | int) and abs(before[name] - after[name]) > 1e-6
    }


def _compared(file: Path, case: Case, unseen: Mapping[str, Array]) -> tuple[float, dict[str, float]]:
    """Relative distance of the exported file's outputs from the given file's, over unseen samples one by one; and by
    output the share of answers that are the same: of whole samples for whole numbers, of largest positions for others.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs, ours = (onnxruntime.InferenceSession(str(f), options) for f in (case.model, file))
    types = {i.name: KINDS[i.type] for i in ours.get_inputs()}
    errors, sizes = 0.0, 0.0
    same: dict[str, list[float]] = {}
    for row in range(len(next(iter(unseen.values())))):
        feeds = {n: np.repeat(a[row : row + 1], case.rows, axis=0) for n, a in unseen.items()}
        given = {n: case.as_given(n, a) for n, a in feeds.items()}
        given.update({n: np.asarray(v) for n, v in case.constants.items()})
        given = {i.name: given[i.name] for i in theirs.get_inputs() if i.name in given}
        fed = {n: feeds[n].astype(kind) for n, kind in types.items()}
        expected = dict(zip([o.name for o in theirs.get_outputs()], theirs.run(None, given), strict=True))
        found = dict(zip([o.name for o in ours.get_outputs()], ours.run(None, fed), strict=True))
        for name, array in expected.items():
            if name not in found:
                continue
            a, b = (x.astype(np.float64) for x in (array, found[name]))
            whole = array.dtype.kind in "iub"
            if a.size != b.size:
                errors = float("inf")
                same.setdefault(name, []).extend([0.0] * whole)
                continue
            if a.ndim:
                equal = np.array_equal(a.ravel(), b.ravel()) if whole else None
                if equal is None and a.shape == b.shape and a.shape[-1] > 1:
                    equal = float(np.mean(a.argmax(-1) == b.argmax(-1)))
                if equal is not None:
                    same.setdefault(name, []).append(float(equal))
            a, b = (np.sort(x.ravel()) if case.rows > 1 else x.ravel() for x in (a, b))
            errors, sizes = errors + float(((a - b) ** 2).sum()), sizes + float((a**2).sum())
    distance = float(np.sqrt(errors / sizes)) if sizes else float(np.sqrt(errors))
    return distance, {n: round(float(np.mean(v)), 3) for n, v in same.items()}
