"""What a comparison with the compiled model on its device found: the first bad operator, its cause, what mends it."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.written.cells import heading, label, number, paragraph, table
from workbench.report.written.document import Block, Cell, Commands, Paragraph, Table
from workbench.report.written.texts import say
from workbench.study.device_findings import Cause, DeviceFindings, Fault, FirstBad, SingleOperator

_TITLE = "The first bad operator on the device"
_ERROR = "error"
_CAUSES: dict[Cause, str] = {
    "range": "numbers that float16 cannot hold",
    "integers": "its INT8 layers: scales or weights",
    "rounding": "rounding of its types",
}


_FAULTS: dict[Fault, str] = {
    "operator": "the operator itself is at fault",
    "inputs": "its inputs are at fault",
    "both": "both are at fault, the operator and its inputs",
    "neither": "neither is at fault",
}

_MOST_NODES = 6


def bad_operator(found: DeviceFindings | None) -> Iterator[Block]:
    """Nothing where no compiled model was dumped."""
    if found is None:
        return
    yield heading(_TITLE)
    yield paragraph(
        "The compiled model dumped every operator on its device ({about}, {n} operators), beside the float model.",
        about=found.about,
        n=found.operators,
    )
    if found.emulated:
        yield paragraph("The values are an emulator's, not a device's.", kind="warning")
    if found.first_bad is None:
        yield paragraph("No operator's result is beyond the limits.")
    else:
        yield _table(found.first_bad)
        lines = tuple(line for mend in found.first_bad.mends for line in (f"# {mend.setting}", *mend.lines))
        if lines:
            yield paragraph("what mends it")
            yield Commands(lines=lines)
    if found.single is not None:
        yield _single(found.single)


def _table(bad: FirstBad) -> Table:
    nodes = "\n".join(bad.nodes[:_MOST_NODES]) + ("\n…" if len(bad.nodes) > _MOST_NODES else "")
    wrong = say("{n} elements are NaN or infinite", n=bad.not_finite) if bad.not_finite else f"{bad.relative_error:.2%}"
    cause = say(_CAUSES[bad.cause])
    if bad.scales:
        one = bad.scales[0]
        values = {"low": number(one.low), "high": number(one.high), "most": number(one.magnitude)}
        cause += say(
            "; the scale of {tensor} holds {low} to {high}, and the float model reaches {most}",
            tensor=one.tensor,
            **values,
        )
    rows = (
        ("operator", f"{bad.operator} ({bad.op_type})"),
        ("types", bad.types),
        ("covers", nodes or "–"),
        ("its result", bad.tensor),
        (_ERROR, wrong),
        ("cause", cause),
    )
    return table(
        _TITLE,
        "item|value",
        [(label(name), Cell(text=value, state="missed" if name is _ERROR else "plain")) for name, value in rows],
    )


def _single(one: SingleOperator) -> Paragraph:
    words = say("{operator}: {fault}", operator=one.operator, fault=say(_FAULTS[one.fault]))
    return Paragraph(text=f"{say('That operator by itself')}: {words}")
