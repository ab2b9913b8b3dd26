"""What a comparison with the compiled model on its device found: the first bad operator, its cause, what mends it."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.written.cells import number, text
from workbench.report.written.document import Block, Cell, Commands, Heading, Language, Paragraph, Table
from workbench.report.written.texts import Text
from workbench.study.device_findings import Cause, DeviceFindings, Fault, FirstBad, SingleOperator

_TITLE = Text(zh="设备上的首个异常算子", en="The first bad operator on the device")
_RAN = Text(
    zh="编译后的模型在设备上逐算子转储（{about}，共 {n} 个算子），与浮点模型比较。",
    en="The compiled model dumped every operator on its device ({about}, {n} operators), beside the float model.",
)
_EMULATED = Text(zh="数值由仿真器计算，不是真实设备的输出。", en="The values are an emulator's, not a device's.")
_NONE = Text(zh="没有算子的输出超限。", en="No operator's result is beyond the limits.")
_HEADS = Text(zh="项目|内容", en="item|value")
_OPERATOR, _TYPES = Text(zh="算子", en="operator"), Text(zh="数据类型", en="types")
_NODES, _TENSOR = Text(zh="覆盖的浮点节点", en="covers"), Text(zh="异常张量", en="its result")
_ERROR = Text(zh="误差", en="error")
_WRONG = Text(zh="{n} 个元素为 NaN 或无穷大", en="{n} elements are NaN or infinite")
_CAUSE, _MENDS = Text(zh="原因", en="cause"), Text(zh="处理办法", en="what mends it")
_CAUSES: dict[Cause, Text] = {
    "range": Text(zh="数值超出 float16 的表示范围", en="numbers that float16 cannot hold"),
    "integers": Text(zh="INT8 层的量化因子或权重", en="its INT8 layers: scales or weights"),
    "rounding": Text(zh="数据类型的舍入误差", en="rounding of its types"),
}
_SCALE = Text(
    zh="；张量 {tensor} 的量化范围为 {low} 至 {high}，浮点模型达到 {most}",
    en="; the scale of {tensor} holds {low} to {high}, and the float model reaches {most}",
)
_SINGLE = Text(zh="单算子复核", en="That operator by itself")
_FAULTS: dict[Fault, Text] = {
    "operator": Text(zh="算子自身有误：相同输入下与 float32 结果不同", en="the operator itself is at fault"),
    "inputs": Text(zh="其输入有误：相同输入下 float32 同样偏离", en="its inputs are at fault"),
    "both": Text(zh="算子与其输入均有误", en="both are at fault, the operator and its inputs"),
    "neither": Text(zh="均在限内", en="neither is at fault"),
}
_ABOUT = Text(zh="{operator}：{fault}", en="{operator}: {fault}")
_MOST_NODES = 6


def bad_operator(found: DeviceFindings | None, language: Language) -> Iterator[Block]:
    """Nothing where no compiled model was dumped."""
    if found is None:
        return
    yield Heading(text=_TITLE(language))
    yield Paragraph(text=_RAN(language, about=found.about, n=found.operators))
    if found.emulated:
        yield Paragraph(text=_EMULATED(language), kind="warning")
    if found.first_bad is None:
        yield Paragraph(text=_NONE(language))
    else:
        yield _table(found.first_bad, language)
        lines = tuple(line for mend in found.first_bad.mends for line in (f"# {mend.setting}", *mend.lines))
        if lines:
            yield Paragraph(text=_MENDS(language))
            yield Commands(lines=lines)
    if found.single is not None:
        yield _single(found.single, language)


def _table(bad: FirstBad, language: Language) -> Table:
    nodes = "\n".join(bad.nodes[:_MOST_NODES]) + ("\n…" if len(bad.nodes) > _MOST_NODES else "")
    wrong = _WRONG(language, n=bad.not_finite) if bad.not_finite else f"{bad.relative_error:.2%}"
    cause = _CAUSES[bad.cause](language)
    if bad.scales:
        one = bad.scales[0]
        values = {"low": number(one.low), "high": number(one.high), "most": number(one.magnitude)}
        cause += _SCALE(language, tensor=one.tensor, **values)
    rows = (
        (_OPERATOR, f"{bad.operator} ({bad.op_type})"),
        (_TYPES, bad.types),
        (_NODES, nodes or "–"),
        (_TENSOR, bad.tensor),
        (_ERROR, wrong),
        (_CAUSE, cause),
    )
    return Table(
        caption=_TITLE(language),
        heads=tuple(_HEADS(language).split("|")),
        rows=tuple(
            (text(name(language)), Cell(text=value, state="missed" if name is _ERROR else "plain"))
            for name, value in rows
        ),
    )


def _single(one: SingleOperator, language: Language) -> Paragraph:
    words = _ABOUT(language, operator=one.operator, fault=_FAULTS[one.fault](language))
    return Paragraph(text=f"{_SINGLE(language)}: {words}")
