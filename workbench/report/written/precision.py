"""How far the answers of what ships lie from other ways to compute the model, layer by layer where it was compared; and
what INT8 costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from workbench.report.written.bad_operator import bad_operator
from workbench.report.written.cells import cosine, figure, judged, label, not_measured, number, text, unit_words
from workbench.report.written.criteria import note_words
from workbench.report.written.document import Block, Bullets, Cell, Heading, Language, Paragraph, Section, Table
from workbench.report.written.material import Material
from workbench.report.written.naming import PATH, SPLIT, candidate_name
from workbench.report.written.texts import Text
from workbench.study.compared import Comparison, TensorComparison
from workbench.values.evidence import Evidence, level_of
from workbench.values.fidelity import Agreement, Fidelity, FidelityPath
from workbench.values.measurement import AccuracyComparison
from workbench.values.results import Evaluation

_TITLE = Text(zh="精度比对", en="Precision compared")
_PATHS = Text(zh="各执行路径的输出比对", en="Outputs of each path")
_NO_FIDELITY = Text(
    zh="未做输出比对（workbench fidelity）：PyTorch、ONNX Runtime 与编译产物之间的余弦相似度、"
    "最大绝对误差和平均绝对误差未测。",
    en="Outputs were not compared (workbench fidelity): cosine, largest and mean absolute error between PyTorch, ONNX "
    "Runtime and the compiled files are not measured.",
)
_INTRO = Text(
    zh="相同输入（{data}）分别经各路径执行，与参考路径逐样本比较；余弦相似度取全部样本中的最差值和平均值。",
    en="The same inputs ({data}) through every path, compared with the reference sample by sample; cosine is the worst "
    "and the mean over samples.",
)
_PATH_HEADS = Text(
    zh="路径（参考）|样本数|余弦（最差）|余弦（平均）|最大绝对误差|MAE|top-1 一致率",
    en="path (reference)|n|cosine, worst|cosine, mean|max abs error|MAE|top-1 alike",
)
_NOT_FINITE = Text(
    zh="{path} 的输出 {output} 中有 {n} 个元素为 NaN 或无穷大，未计入以上误差。",
    en="{n} elements of output {output} of {path} are NaN or infinite, and in no figure above.",
)
_MISSING = Text(zh="未测项及原因", en="What is missing, and why")
_SHAPES = Text(zh="各编译规格的输出比对", en="Outputs by compiled shape")
_SHAPE_HEADS = Text(zh="规格|样本数|余弦（最差）|最大绝对误差|MAE", en="shape|samples|cosine, worst|max abs error|MAE")
_DROPS = Text(zh="各路径的精度指标", en="Scores of each path")
_DROP_HEADS = Text(
    zh="路径（参考）|指标|参考值|本路径|损失（配对）|p 值",
    en="path (reference)|metric|reference's|its own|drop, paired|p",
)
_ACCURACY = Text(zh="任务精度", en="Accuracy on the task")
_ACCURACY_HEADS = Text(
    zh="划分|样本数|指标|浮点基线|交付方案|损失 [95 % 区间]|p 值",
    en="split|samples|metric|float baseline|what ships|drop [95 %]|p",
)
_NO_ACCURACY = Text(zh="任务精度未测。", en="Accuracy on the task is not measured.")
_TEST = Text(zh="检验方法：{test}。", en="Test: {test}.")
_LAYERS = Text(zh="逐层比对", en="Layer by layer")
_NO_LAYERS = Text(
    zh="未提供逐层比对结果（workbench compare … --json，--layers）。",
    en="No comparison by layers was given (workbench compare … --json, --layers).",
)
_LAYER_HEADS = Text(
    zh="节点|算子|余弦|最大绝对误差|SQNR（dB）|新增误差|判定",
    en="node|operator|cosine|max abs|SQNR dB|added error|state",
)
_LAYER_INTRO = Text(
    zh="参考：{a}；被比较：{b}；共比较 {n} 个张量。下表为全部模型输出和新增误差最大的张量。",
    en="Reference: {a}. Compared: {b}. {n} tensors in all; below are the model's outputs and the tensors that add most "
    "error.",
)
_JUMP = Text(zh="误差突增", en="error jumps")
_WITHIN = Text(zh="在限内", en="within limits")
_BEYOND = Text(zh="超限", en="beyond limits")
_RESCALED = Text(zh="均衡所致", en="rescaled")

_INT8 = Text(zh="INT8 量化", en="INT8")
_FLOAT = Text(zh="交付方案未量化：{what}。", en="What ships is not quantized: {what}.")
_BEST_INT8 = Text(
    zh="搜索中精度损失最小的 INT8 候选为 {what}（{id}），其状态：{standing}。",
    en="The INT8 candidate with the least drop is {what} ({id}): {standing}.",
)
_STANDING: dict[str, Text] = {
    "front": Text(zh="位于帕累托前沿", en="on the Pareto front"),
    "dominated": Text(zh="满足约束，但各目标均不优于其他候选", en="meets the constraints and is dominated"),
    "infeasible": Text(zh="不满足约束", en="breaks a constraint"),
    "stopped": Text(zh="提前终止", en="stopped early"),
    "failed": Text(zh="失败", en="failed"),
}
_RECIPE = Text(zh="量化方案", en="Recipe")
_RECIPE_HEADS = Text(zh="项目|取值", en="item|value")
_WHAT = Text(zh="方案", en="recipe")
_BY = Text(zh="量化因子由谁计算", en="scales derived by")
_KINDS = Text(zh="INT8 层", en="layers in INT8")
_LEFT = Text(zh="保留浮点的敏感层", en="sensitive layers left in float")
_CONFIGURED = Text(zh="按配置文件保留浮点的层", en="layers that the configuration leaves in float")
_OUT = Text(zh="按设置不量化", en="left out by a setting")
_PRODUCTS = Text(
    zh="两个激活相乘的矩阵乘（quantization.attention_matmul: false）",
    en="products of two activations (quantization.attention_matmul: false)",
)
_NEVER = Text(zh="不支持量化", en="never quantized")
_OTHERS = Text(
    zh="MatMul、Gemm、Conv、ConvTranspose 以外的算子", en="operators other than MatMul, Gemm, Conv, ConvTranspose"
)
_EXECUTED = Text(zh="编译后 INT8 算子数", en="operators in INT8 after compiling")
_FLOATS = Text(zh="编译后仍为浮点的矩阵乘/卷积", en="matrix products left in float")
_NONE = Text(zh="无", en="none")
_LOSS = Text(zh="INT8 带来的损失", en="What INT8 costs")
_LOSS_HEADS = Text(zh="来源|损失 [95 % 区间]|说明", en="where it comes from|drop [95 %]|about")
_FP16 = Text(zh="FP16 自身损失", en="FP16's own loss")
_MORE = Text(zh="INT8 附加损失", en="INT8's additional loss")
_TOTAL = Text(zh="合计（相对 float32）", en="both, against float32")
_OF = Text(zh="{split}，n = {n}", en="{split}, n = {n}")
_OUTPUTS = Text(zh="输出比对，n = {n}", en="outputs compared, n = {n}")
_AGAINST = Text(zh="损失相对 float32（{reference}）。", en="Drops are against float32 ({reference}).")
_FLOAT_BASELINE = Text(zh="浮点基线", en="the float baseline")
_MOST_LAYERS, _MOST_NAMES, _MOST_SHAPES = 15, 20, 40


def precision(m: Material, language: Language) -> Section:
    blocks: list[Block] = [Heading(text=_PATHS(language))]
    if m.fidelity is None:
        blocks += [Paragraph(text=_NO_FIDELITY(language)), _paths(None, m.emulated, language)]
    else:
        found = m.fidelity
        blocks += [
            Paragraph(text=_INTRO(language, data=note_words(found.data, language))),
            _paths(found, m.emulated, language),
        ]
        blocks += [Paragraph(text=line, kind="warning") for line in _not_finite(found, language)]
        if found.missing:
            lines = (f"{_path(path, language)}: {note_words(why, language)}" for path, why in found.missing.items())
            blocks += [Paragraph(text=_MISSING(language), kind="note"), Bullets(items=tuple(lines))]
        shapes = [a for a in found.paths if a.shape]
        if shapes:
            blocks.append(_shapes(shapes, language))
        if any(a.accuracy for a in found.paths):
            blocks.append(_scores(found, language))
    blocks += [Heading(text=_ACCURACY(language)), *_accuracy(m, language), Heading(text=_LAYERS(language))]
    blocks += [Paragraph(text=_NO_LAYERS(language))] if m.comparison is None else _by_layers(m.comparison, language)
    blocks += bad_operator(None if m.comparison is None else m.comparison.device, language)
    return Section(title=_TITLE(language), blocks=tuple(blocks))


def _paths(found: Fidelity | None, emulated: bool, language: Language) -> Table:
    rows: list[tuple[Cell, ...]] = []
    dash = Cell(text="–", figure=True)
    for path in get_args(FidelityPath):
        met = [] if found is None else [a for a in _telling(found) if a.path == path]
        if not met and path == "float32":
            continue  # the reference itself
        if not met:
            rows.append((label(PATH[path], language), not_measured(language), *(dash for _ in range(5))))
        rows += [_path_row(a, language) for a in met]
    return Table(
        caption=_PATHS(language),
        heads=tuple(_PATH_HEADS(language).split("|")),
        rows=tuple(rows),
    )


def _path(path: str, language: Language) -> str:
    known = PATH.get(path)  # type: ignore[call-overload]  # a path of a later version has its own name
    return path if known is None else str(known(language))


_PAIR = Text(zh="{path}（{reference}）", en="{path} ({reference})")


def _pair(a: Agreement, language: Language) -> str:
    return _PAIR(language, path=_path(a.path, language), reference=_path(a.reference, language))


def _telling(found: Fidelity) -> list[Agreement]:
    """Without paths in between held against PyTorch where they are held against float32 too: two ends are enough."""
    against = {a.path for a in found.paths if a.reference == "float32" and not a.shape}
    kept = [a for a in found.paths if not a.shape]
    return [a for a in kept if a.reference != "pytorch" or a.path == "served" or a.path not in {*against, "float32"}]


def _path_row(a: Agreement, language: Language) -> tuple[Cell, ...]:
    known = _level(a)
    return (
        text(_pair(a, language)),
        Cell(text=number(a.samples), figure=True),
        Cell(text=cosine(a.worst_cosine), figure=True, evidence=known),
        Cell(text=cosine(a.mean_cosine), figure=True, evidence=known),
        figure(a.max_abs, language, known),
        figure(a.mae, language, known),
        Cell(text="–", figure=True) if a.top1 is None else figure(a.top1, language, known, digits=4),
    )


def _level(a: Agreement) -> Evidence:
    return "modelled" if a.emulated else "measured"


def _not_finite(found: Fidelity, language: Language) -> Iterator[str]:
    for a in found.paths:
        for output in a.outputs:
            if output.not_finite:
                yield _NOT_FINITE(language, path=_path(a.path, language), output=output.output, n=output.not_finite)


def _shapes(shapes: list[Agreement], language: Language) -> Table:
    rows = [
        (
            text(f"{_path(a.path, language)}: {note_words(a.shape, language)}"),
            Cell(text=number(a.samples), figure=True),
            Cell(text=cosine(a.worst_cosine), figure=True, evidence=_level(a)),
            figure(a.max_abs, language, _level(a)),
            figure(a.mae, language, _level(a)),
        )
        for a in shapes[:_MOST_SHAPES]
    ]
    return Table(
        caption=_SHAPES(language),
        heads=tuple(_SHAPE_HEADS(language).split("|")),
        rows=tuple(rows),
    )


def _scores(found: Fidelity, language: Language) -> Table:
    rows = []
    for a in _telling(found):
        for index, (metric, (own, reference)) in enumerate(a.accuracy.items()):
            drop = a.drop if index == 0 else None
            dash = Cell(text="–", figure=True)
            unit = "" if drop is None else drop.unit
            rows.append(
                (
                    text(_pair(a, language)),
                    text(metric),
                    figure(reference, language, _level(a), digits=4),
                    figure(own, language, _level(a), digits=4),
                    dash
                    if drop is None
                    else figure(drop.drop_pp, language, _level(a), signed=True, digits=2, unit=unit),
                    dash if drop is None else Cell(text=f"{drop.p_value:.3g}", figure=True),
                )
            )
    return Table(
        caption=_DROPS(language),
        heads=tuple(_DROP_HEADS(language).split("|")),
        rows=tuple(rows),
    )


def _accuracy(m: Material, language: Language) -> Iterator[Block]:
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, None] = {}
    for one, other in ((m.chosen, m.baseline), (m.confirmed, m.baseline_confirmed)):
        rows += [] if one is None else _scored(one, other, language)
        accuracy = None if one is None else one.measurement.accuracy
        if accuracy is not None and accuracy.comparison is not None:
            reference = accuracy.reference or _FLOAT_BASELINE(language)
            notes[_AGAINST(language, reference=note_words(reference, language))] = None
            notes[_TEST(language, test=accuracy.comparison.test)] = None
    if not rows:
        yield Paragraph(text=_NO_ACCURACY(language))
        return
    yield Table(
        caption=_ACCURACY(language),
        heads=tuple(_ACCURACY_HEADS(language).split("|")),
        rows=tuple(rows),
        note=" ".join(notes),
    )


def _scored(one: Evaluation, other: Evaluation | None, language: Language) -> Iterator[tuple[Cell, ...]]:
    accuracy = one.measurement.accuracy
    if accuracy is None:
        return
    before = other.measurement.accuracy if other is not None else None
    known = level_of(one, "accuracy")
    for metric, value in accuracy.values.items():
        compared = accuracy.comparison if metric == accuracy.primary else None
        dash = Cell(text="–", figure=True)
        unit = unit_words(accuracy.unit or "pp", language)
        yield (
            text(SPLIT[accuracy.split](language)),
            Cell(text=number(accuracy.samples), figure=True),
            text(metric),
            figure(None if before is None else before.values.get(metric), language, known, digits=4),
            figure(value, language, known, digits=4),
            dash if compared is None else figure(compared.drop_pp, language, known, signed=True, digits=2, unit=unit),
            dash if compared is None else Cell(text=f"{compared.p_value:.3g}", figure=True),
        )


def _by_layers(found: Comparison, language: Language) -> list[Block]:
    worst = sorted((r for r in found.rows if not r.is_output and not r.rescaled), key=lambda r: -r.added_error)
    shown = {id(r) for r in (*worst[:_MOST_LAYERS], *found.outputs)}
    rows = [_layer_row(r, language) for r in found.rows if id(r) in shown]
    return [
        Paragraph(text=_LAYER_INTRO(language, a=found.a, b=found.b, n=len(found.rows))),
        Table(
            caption=_LAYERS(language),
            heads=tuple(_LAYER_HEADS(language).split("|")),
            rows=tuple(rows),
        ),
    ]


def _layer_row(row: TensorComparison, language: Language) -> tuple[Cell, ...]:
    state = _RESCALED if row.rescaled else _JUMP if row.jump else _WITHIN if row.within_limits else _BEYOND
    return (
        text(row.node or row.tensor),
        text(row.op_type),
        Cell(text=cosine(row.cosine), figure=True),
        figure(row.max_abs, language),
        Cell(text="∞" if row.sqnr_db is None else f"{row.sqnr_db:.1f}", figure=True),
        figure(row.added_error, language),
        judged(state(language), "missed" if state in (_JUMP, _BEYOND) else "plain"),
    )


def int8(m: Material, language: Language) -> Section:
    if m.chosen.candidate.quantization.scheme == "none":
        blocks: list[Block] = [Paragraph(text=_FLOAT(language, what=candidate_name(m.chosen.candidate, language)))]
        blocks += _least_drop(m, language)
        return Section(title=_INT8(language), blocks=tuple(blocks))
    return Section(
        title=_INT8(language), blocks=(_recipe(m, language), Heading(text=_LOSS(language)), _loss(m, language))
    )


def _least_drop(m: Material, language: Language) -> Iterator[Block]:
    if m.summary is None:
        return
    tried = [
        (a.comparison.drop_pp.value, e)
        for e in m.summary.evaluations
        if e.candidate.quantization.scheme != "none"
        and (a := e.measurement.accuracy) is not None
        and a.comparison is not None
    ]
    if tried:
        _, best = min(tried, key=lambda pair: (pair[0], pair[1].candidate.id))
        standing = _STANDING[m.summary.standing(best)](language)
        what = candidate_name(best.candidate, language)
        yield Paragraph(text=_BEST_INT8(language, what=what, id=best.candidate.short_id, standing=standing))


def _recipe(m: Material, language: Language) -> Table:
    measured, asked = m.chosen.measurement, m.chosen.candidate.quantization
    rows: list[tuple[Cell, Cell]] = [
        (label(_WHAT, language), text(candidate_name(m.chosen.candidate, language))),
    ]
    if m.layers is not None:
        kinds = ", ".join(f"{kind} × {count}" for kind, count in m.layers.kinds.items())
        names = list(m.layers.float_layers[:_MOST_NAMES])
        if len(m.layers.float_layers) > _MOST_NAMES:
            names.append(f"… ({len(m.layers.float_layers)})")
        rows += [
            (label(_BY, language), text(m.layers.by)),
            (label(_KINDS, language), text(kinds or _NONE(language))),
            (
                label(_CONFIGURED if asked.scheme == "cfg" else _LEFT, language),
                text("\n".join(names) or _NONE(language)),
            ),
        ]
    out = [_PRODUCTS(language)] if asked.attention_matmul is False else []
    out += [f"quantization.operators: {asked.operators}"] if asked.operators != "all" else []
    rows += [
        (label(_OUT, language), text("\n".join(out) or _NONE(language))),
        (label(_NEVER, language), label(_OTHERS, language)),
    ]
    rows += [
        (label(_EXECUTED, language), _count(measured.int8_ops, language)),
        (label(_FLOATS, language), _count(measured.float_matmuls_left, language)),
    ]
    return Table(
        caption=_RECIPE(language),
        heads=tuple(_RECIPE_HEADS(language).split("|")),
        rows=tuple(rows),
    )


def _count(found: int | None, language: Language) -> Cell:
    return not_measured(language, figure=False) if found is None else text(number(found))


def _loss(m: Material, language: Language) -> Table:
    """Of accuracy on the task, then of the comparison of outputs; each loss apart from the other."""
    rows = [*_losses_of_accuracy(m, language)]
    if m.fidelity is not None:
        parts = (
            (_FP16, m.fidelity.find("float16 compiled")),
            (_MORE, m.fidelity.find("served", "float16 compiled")),
            (_TOTAL, m.fidelity.find("served")),
        )
        rows += [_loss_row(name, a, language) for name, a in parts if a is not None]
    return Table(
        caption=_LOSS(language),
        heads=tuple(_LOSS_HEADS(language).split("|")),
        rows=tuple(rows),
    )


def _losses_of_accuracy(m: Material, language: Language) -> Iterator[tuple[Cell, ...]]:
    accuracy, before = m.best.measurement.accuracy, m.best_baseline
    if accuracy is None:
        yield label(_TOTAL, language), not_measured(language), text("–")
        return
    own = None if before is None or before.measurement.accuracy is None else before.measurement.accuracy.comparison
    known = level_of(m.best, "accuracy")
    of = text(_OF(language, split=SPLIT[accuracy.split](language), n=number(accuracy.samples)))
    in_fewer_bits = bool(accuracy.reference)  # else the baseline computes in float32, and all of it is INT8's
    parts = [(_FP16, own), (_MORE, accuracy.against_baseline)] if in_fewer_bits else []
    for name, compared in [*parts, (_TOTAL, accuracy.comparison)]:
        if compared is None:
            yield label(name, language), not_measured(language), of
        else:
            yield label(name, language), _drop_cell(compared, known, language), of


def _drop_cell(compared: AccuracyComparison, known: Evidence | None, language: Language) -> Cell:
    return figure(compared.drop_pp, language, known, signed=True, digits=2, unit=compared.unit)


def _loss_row(name: Text, a: Agreement, language: Language) -> tuple[Cell, ...]:
    of = text(_OUTPUTS(language, n=number(a.samples)))
    if a.drop is None:
        return label(name, language), not_measured(language), of
    return label(name, language), _drop_cell(a.drop, _level(a), language), of
