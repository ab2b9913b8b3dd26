"""What modelled times rest on, for the acceptance report."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.modelled import again, modelled_errors
from workbench.report.summary import Summary
from workbench.report.written.cells import text
from workbench.report.written.document import Block, Cell, Commands, Heading, Language, Table
from workbench.report.written.texts import Text

_TITLE = Text(zh="仿真时间的误差来源", en="What modelled times rest on")
_HEADS = Text(
    zh="序号|部分|占时间的比例|95 % 误差倍数|依据", en="no.|part|share of the time|95 % within a factor of|found on"
)
_IN_CHINESE = {
    "matrix_float16": "float16 矩阵乘（并随之影响 INT8）",
    "int8_gain": "相同形状的矩阵乘由 INT8 带来的提速",
    "matrix_float32": "float32 矩阵乘",
    "vector": "softmax",
    "norm": "归一化（layer norm、RMS norm 等）",
    "quantize": "量化与反量化",
    "gelu": "GELU",
    "attention": "融合注意力",
    "transpose": "转置与格式转换",
    "movement": "拼接、切片、查表",
    "fusion": "编译器在矩阵乘之外融合掉或保留的计算",
    "far_memory": "等待片外内存（HBM）的算子",
    "near_memory": "逐元素算子、类型转换与拷贝",
    "kernel_launch": "设备上启动一个算子的开销",
    "aicpu_task": "在 AI CPU 上执行的算子",
    "execute_launch": "一次模型执行中算子之外的等待",
    "gear": "选择分档的开销",
    "copy_latency": "拷贝少量数据的时延",
    "copy_bandwidth": "主机与卡之间的拷贝带宽",
}
"""What a target calls open of its times; one that is not known here is said in the target's own words."""


def on_the_model(summary: Summary | None, source: str, language: Language) -> Iterator[Block]:
    """Nothing where times were measured.

    Args:
        source: of the sweep, as commands take it.
    """
    found = () if summary is None else modelled_errors(summary)
    if not found:
        return
    yield Heading(text=_TITLE(language))
    yield Table(
        caption=_TITLE(language),
        heads=tuple(_HEADS(language).split("|")),
        rows=tuple(
            (
                Cell(text=str(index), figure=True),
                text(_IN_CHINESE.get(one.unknown, one.about) if language == "zh" else one.about),
                Cell(text=f"{one.share:.0%}", figure=True),
                Cell(text=f"{one.factor_95:.2f}", figure=True),
                text(one.source),
            )
            for index, one in enumerate(found, 1)
        ),
    )
    yield Commands(lines=(*dict.fromkeys(one.command for one in found), again(source)))
