"""Sentences about a compiled model on its device: the first bad operator, its cause, the lines that mend it."""

from __future__ import annotations

from workbench.study.device_findings import Alone, DeviceFindings, FirstBad, SingleOperator

_SHOWN_NODES = 4
_LARGEST_HALF = 65504


def device_words(found: DeviceFindings) -> tuple[str, ...]:
    """Lines behind a comparison's verdict."""
    lines = []
    if found.emulated:
        lines.append("EMULATED: the values are computed by an emulator of the device, not measured on one.")
    lines.append(f"{found.operators} operators ran; the device's own files are in {found.folder}.")
    if found.first_bad is None:
        lines.append("No operator's result is beyond the limits.")
    else:
        lines += _first_bad(found.first_bad)
    if found.single is not None:
        lines += _single(found.single)
    return tuple(lines)


def _first_bad(bad: FirstBad) -> list[str]:
    wrong = f"{bad.not_finite} elements are NaN or infinite" if bad.not_finite else f"error {bad.relative_error:.2%}"
    lines = [
        "",
        f"First bad operator: {bad.operator} ({bad.op_type}, {bad.types})",
        f"  covers {_listed(bad.nodes)}",
        f"  its result {bad.tensor}: {wrong}; largest value of the float model {bad.magnitude:.4g}",
        f"  cause: {_cause(bad)}",
    ]
    if bad.mends:
        lines.append("  what mends it (then compile again, and compare again):")
    for mend in bad.mends:
        lines.append(f"    {mend.setting}: {mend.what}")
        lines += [f"      {line}" for line in mend.lines]
    lines.append("  inputs and outputs as NPY:")
    lines += [f"    {file}" for file in bad.files]
    return lines


def _cause(bad: FirstBad) -> str:
    if bad.cause == "integers":
        return _integers(bad)
    if bad.cause == "rounding":
        return f"rounding of its types ({bad.types}), its own or of what it was given; --single-op {bad.operator} tells"
    if bad.magnitude > _LARGEST_HALF:
        return f"float16 ends at {_LARGEST_HALF}, and the float model has larger numbers here"
    return f"float16 ends at {_LARGEST_HALF}: something inside the operator, or in what it reads, is beyond"


def _integers(bad: FirstBad) -> str:
    if not bad.scales:
        return (
            "its INT8 layers: no scale of an activation loses these values, so their weights or what they are given do"
        )
    scale = bad.scales[0]
    layers = _listed(tuple(dict.fromkeys(each.layer for each in bad.scales)))
    return (
        f"the INT8 scale of {scale.tensor}, which {layers} computes with: it holds {scale.low:.4g} to {scale.high:.4g} "
        f"and the float model reaches {scale.magnitude:.4g} ({scale.relative_error:.1%} of the signal is lost)"
    )


def _single(one: SingleOperator) -> list[str]:
    verdicts = {
        "operator": "the operator itself is at fault: on the same inputs float32 gives something else",
        "inputs": "its inputs are at fault: float32 on the same inputs is as wrong, so look at what makes them",
        "both": "both are at fault, the operator and what it was given; mend what makes its inputs first",
        "neither": "neither is at fault: its result is within the limit",
    }
    lines = ["", f"{one.operator} by itself ({one.op_type}, {one.types}; covers {_listed(one.nodes)})"]
    lines.append(f"  on the device's own inputs, {one.tensor} against float32:")
    lines += [f"    {run.about:12} {_run(run)}" for run in one.runs]
    lines.append(f"  float32 on these inputs against the float model: {one.inputs_error:.3%} (what its inputs bring)")
    lines.append(f"  in the model, against the float model: {one.whole_error:.3%}; limit {one.limit:.3g}")
    lines.append(f"  verdict: {verdicts[one.fault]}")
    half = next((run for run in one.runs if run.about == "float16"), None)
    if one.fault in ("operator", "both") and half is not None and half.relative_error is not None:
        alike = half.relative_error >= one.limit
        lines.append(
            "  float16 alone is beyond the limit too: keep its nodes in float32"
            if alike
            else "  float16 alone would be within the limit: its INT8 form is what is wrong"
        )
    lines.append("  values as NPY:")
    return lines + [f"    {file}" for file in one.files]


def _run(run: Alone) -> str:
    if run.failed:
        return f"did not run: {run.failed}"
    broken = f", {run.not_finite} elements NaN or infinite" if run.not_finite else ""
    return (
        "the reference" if run.relative_error == 0.0 and run.about == "float32" else f"{run.relative_error:.3%}{broken}"
    )


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "no node of the float model"
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    return ", ".join(names[:_SHOWN_NODES]) + more
