"""How far modelled times rest on a clock that nobody checked against a device, and what would settle it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from workbench.report.summary import Summary
from workbench.report.written.cells import text
from workbench.report.written.document import Block, Cell, Commands, Heading, Language, Paragraph, Table
from workbench.report.written.naming import candidate_name
from workbench.report.written.texts import Text
from workbench.values.clocks.robustness import MicroBenchmark, Robustness, Share

_TITLE = Text(zh="对仿真时钟的稳健性", en="How far this rests on the emulator's clock")
_ABOUT = Text(
    zh="仿真器的时钟未经设备验证。以下结论在 {n} 个可能的时钟下重新评判：仿真器自身的参数与公开数据手册的参数，"
    "各按其不确定度扰动；各候选在同一时钟下逐一比较。",
    en="Nobody has checked the clock against a device. {n} clocks that may be right were asked: the emulator's and the "
    "data sheet's, each moved by what is not known of it; candidates are compared clock by clock.",
)
_HEADS = Text(zh="候选|方案|位于前沿的时钟占比|最优的时钟占比|说明", en="id|what|on the front|the best|about")
_HERE, _NOT_HERE = Text(zh="当前时钟下位于前沿", en="on the front by this clock"), Text(
    zh="当前时钟下不在前沿", en="not on the front by this clock"
)  # fmt: skip
_AGREE = Text(
    zh="各时钟的判断一致；真实设备可能不在这些时钟之内，须在真实设备上复测。",
    en="The clocks agree. A device may lie outside of them all: only a sweep on a real one can bear that out.",
)
_NEEDED = Text(
    zh="最不确定的一项判断仅在 {c} 的时钟下成立；须在真实设备上复测，下列微基准测试最能改变该判断：",
    en="The least certain statement holds under {c} of the clocks; only a sweep on a real device bears it out. What "
    "changes it most:",
)
_BENCHMARK_HEADS = Text(zh="序号|测定内容|改变判断的取值占比", en="no.|what it tells|another answer under")
_BENCHMARKS = Text(zh="建议的微基准测试", en="Micro-benchmarks that would tell")
_IN_CHINESE = {
    "matrix_float16": "float16 矩阵乘（并随之影响其他类型）",
    "int8_gain": "相同形状的矩阵乘由 INT8 带来的提速",
    "matrix_float32": "float32 矩阵乘",
    "vector": "向量核的计算：softmax、layer norm、GELU 等",
    "far_memory": "片外内存（HBM）的读写带宽",
    "near_memory": "片上缓存（L2）的读写带宽",
    "kernel_launch": "设备上启动一个算子的开销",
    "aicpu_task": "在 AI CPU 上执行的算子",
    "execute_launch": "一次模型执行中算子之外的等待",
    "gear": "选择分档的开销",
    "copy_latency": "拷贝少量数据的时延",
    "copy_bandwidth": "主机与卡之间的拷贝带宽",
}
"""What a target calls open of its clock; one that is not known here is said in the target's own words."""
_MOST = 8
"""Candidates that are named; one on the front of few clocks tells little."""
_WORTH_SAYING = 0.05


def on_the_clock(summary: Summary | None, source: str, language: Language) -> Iterator[Block]:
    """Nothing where times were measured.

    Args:
        source: of the sweep, as commands take it.
    """
    found = None if summary is None else summary.robustness
    if summary is None or found is None:
        return
    yield Heading(text=_TITLE(language))
    yield Paragraph(text=_ABOUT(language, n=found.clocks))
    yield _shares(summary, found, language)
    if not found.benchmarks:
        yield Paragraph(text=_AGREE(language))
        return
    yield Paragraph(text=_NEEDED(language, c=f"{found.certainty:.0%}"))
    yield Table(
        caption=_BENCHMARKS(language),
        heads=tuple(_BENCHMARK_HEADS(language).split("|")),
        rows=tuple(
            (
                Cell(text=str(index), figure=True),
                text(_tells(one, language)),
                Cell(text=f"{one.changed_under:.0%}", figure=True),
            )
            for index, one in enumerate(found.benchmarks, 1)
        ),
    )
    again = f"workbench show {shlex.quote(source)} --clock clock.json"
    yield Commands(lines=(*(one.command for one in found.benchmarks), again))


def _tells(one: MicroBenchmark, language: Language) -> str:
    return _IN_CHINESE.get(one.unknown, one.about) if language == "zh" else one.about


def _shares(summary: Summary, found: Robustness, language: Language) -> Table:
    front = {member.id for member in summary.front}
    named = [s for s in found.shares if s.candidate_id in front or s.on_front >= _WORTH_SAYING]
    nowhere = [Share(candidate_id=i, on_front=0.0, best=0.0) for i in front if found.of(i) is None]
    recommended = None if summary.recommended is None else summary.recommended.candidate_id
    shown = [*named[:_MOST], *sorted(nowhere, key=lambda s: s.candidate_id)]
    return Table(
        caption=_TITLE(language),
        heads=tuple(_HEADS(language).split("|")),
        rows=tuple(_row(summary, share, share.candidate_id in front, language) for share in shown),
        strong=tuple(i for i, share in enumerate(shown) if share.candidate_id == recommended),
    )


def _row(summary: Summary, share: Share, on_front: bool, language: Language) -> tuple[Cell, ...]:
    evaluation = summary.find(share.candidate_id)
    what = "–" if evaluation is None else candidate_name(evaluation.candidate, language)
    return (
        text(share.candidate_id[:12]),
        text(what),
        Cell(text=f"{share.on_front:.0%}", figure=True),
        Cell(text=f"{share.best:.0%}", figure=True),
        text((_HERE if on_front else _NOT_HERE)(language)),
    )
