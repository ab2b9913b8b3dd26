"""What was examined and how it was made: environment, versions, model and data, conversion and precision settings."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.written.cells import moment, number, text
from workbench.report.written.document import Block, Cell, Heading, Language, Paragraph, Section, Table
from workbench.report.written.marks import key
from workbench.report.written.material import Material
from workbench.report.written.naming import SPLIT, candidate_name
from workbench.report.written.texts import Text
from workbench.values.candidate import Candidate
from workbench.values.installed_targets import installed_target
from workbench.values.model import TensorSpec

_ENVIRONMENT = Text(zh="环境与版本", en="Environment and versions")
_MACHINE = Text(zh="运行环境", en="Environment")
_ITEM_HEADS = Text(zh="项目|内容", en="item|value")
_TARGET = Text(zh="目标平台", en="target")
_DEVICE = Text(zh="计算设备", en="device")
_EMULATED = Text(zh="（仿真器，非真实设备）", en=" (an emulator, no real device)")
_FEATURES = Text(zh="设备特性", en="features of the device")
_PLACE = Text(zh="评测位置", en="evaluated on")
_WHEN = Text(zh="评测时间", en="evaluated at")
_WORKBENCH = Text(zh="INT8 工作台", en="INT8 workbench")
_MODEL_DATA = Text(zh="模型与数据", en="Model and data")
_MODEL = Text(zh="浮点模型", en="float model")
_SHA = Text(zh="模型 sha256", en="its sha256")
_SIZE = Text(zh="模型大小", en="its size")
_OPSET = Text(zh="opset", en="opset")
_INPUTS = Text(zh="输入", en="inputs")
_OUTPUTS = Text(zh="输出", en="outputs")
_STEPS = Text(zh="导入处理", en="prepared by")
_DATA = Text(zh="数据集", en="Data")
_DATA_HEADS = Text(zh="划分|计分样本数|内容摘要（sha256）", en="split|samples scored|digest (sha256)")

_CONVERSION = Text(zh="模型转换与精度设置", en="Conversion and precision settings")
_INTRO = Text(
    zh="基线：{baseline}。交付：{chosen}。两者不同的设置以粗体标出；未列出的设置取编译器缺省值。",
    en="Baseline: {baseline}. What ships: {chosen}. Settings in which they differ are bold; what is not listed is the "
    "compiler's own default.",
)
_ALONE = Text(
    zh="交付方案即浮点基线：{chosen}。未列出的设置取编译器缺省值。",
    en="What ships is the float baseline: {chosen}. What is not listed is the compiler's own default.",
)
_SETTINGS = Text(zh="转换与精度设置", en="Conversion and precision settings")
_SETTING_HEADS = Text(zh="设置项|浮点基线（现行）|交付方案", en="setting|float baseline (today)|what ships")
_FILES = Text(zh="编译产物", en="Compiled files")
_FILE_HEADS = Text(zh="文件|batch|长度|大小（MB）|sha256", en="file|batch|length|MB|sha256")
_ANY = Text(zh="动态", en="any")
_MORE = Text(zh="另有 {n} 个文件，见部署包的 SHA256SUMS。", en="{n} more files: see SHA256SUMS of the bundle.")
_NONE = Text(zh="无", en="none")
_MOST_FILES, _MOST_STEPS = 24, 12


def environment(m: Material, language: Language) -> Section:
    chain = m.best.toolchain
    where = installed_target(chain.target).title if chain.target else chain.target
    items = [
        (_TARGET(language), f"{where} ({chain.target})"),
        (_DEVICE(language), chain.device + (_EMULATED(language) if chain.emulated else "")),
        *sorted(chain.components.items()),
        *([(_FEATURES(language), ", ".join(chain.features))] if chain.features else []),
        *([(_PLACE(language), m.best.place.words)] if m.best.place is not None else []),
        (_WHEN(language), moment(m.best.started_at)),
        (_WORKBENCH(language), m.workbench),
    ]
    return Section(
        title=_ENVIRONMENT(language),
        blocks=(
            Paragraph(text=key(language), kind="note"),
            _items(_MACHINE(language), items, language),
            Heading(text=_MODEL_DATA(language)),
            _items(_MODEL(language), list(_model(m, language)), language),
            Table(
                caption=_DATA(language),
                heads=tuple(_DATA_HEADS(language).split("|")),
                rows=tuple(
                    (
                        text(SPLIT[split](language) if split in SPLIT else split),
                        Cell(text="–" if count is None else number(count), figure=True),
                        text(digest),
                    )
                    for split, (digest, count) in m.data.items()
                ),
            ),
        ),
    )


def _model(m: Material, language: Language) -> Iterator[tuple[str, str]]:
    yield _MODEL(language), m.model.file
    yield _SHA(language), m.model.sha256
    yield _SIZE(language), f"{m.model.size_bytes / 1e6:,.1f} MB"
    yield _OPSET(language), str(m.model.opset)
    yield _INPUTS(language), "\n".join(map(_tensor, m.model.inputs))
    yield _OUTPUTS(language), "\n".join(map(_tensor, m.model.outputs))
    if m.model.steps:
        yield _STEPS(language), "\n".join(m.model.steps[:_MOST_STEPS])


def _tensor(spec: TensorSpec) -> str:
    shape = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.name}: {spec.dtype} [{shape}]"


def _items(caption: str, items: list[tuple[str, str]], language: Language) -> Table:
    return Table(
        caption=caption,
        heads=tuple(_ITEM_HEADS(language).split("|")),
        rows=tuple((text(name), text(value)) for name, value in items),
    )


def conversion(m: Material, language: Language) -> Section:
    chosen = m.chosen.candidate
    baseline = m.baseline.candidate if m.baseline is not None else None
    if baseline is None or m.is_baseline:
        intro = _ALONE(language, chosen=candidate_name(chosen, language))
    else:
        intro = _INTRO(language, baseline=candidate_name(baseline, language), chosen=candidate_name(chosen, language))
    blocks: list[Block] = [Paragraph(text=intro), _settings(baseline, chosen, language)]
    if m.files:
        blocks += [Heading(text=_FILES(language)), _files(m, language)]
        if len(m.files) > _MOST_FILES:
            blocks.append(Paragraph(text=_MORE(language, n=len(m.files) - _MOST_FILES), kind="note"))
    return Section(title=_CONVERSION(language), blocks=tuple(blocks))


def _settings(baseline: Candidate | None, chosen: Candidate, language: Language) -> Table:
    before = chosen.parameters() if baseline is None else baseline.parameters()
    after = chosen.parameters()
    names = list(dict.fromkeys((*before, *after)))
    none = _NONE(language)
    rows = [(text(name), text(_value(before.get(name), none)), text(_value(after.get(name), none))) for name in names]
    return Table(
        caption=_SETTINGS(language),
        heads=tuple(_SETTING_HEADS(language).split("|")),
        rows=tuple(rows),
        strong=tuple(index for index, name in enumerate(names) if before.get(name) != after.get(name)),
    )


def _value(value: object, none: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return none if value in (None, "") else str(value)


def _files(m: Material, language: Language) -> Table:
    rows = [
        (
            text(each.file),
            Cell(text=_ANY(language) if each.batch is None else str(each.batch), figure=True),
            Cell(text=_ANY(language) if each.sequence_bin is None else str(each.sequence_bin), figure=True),
            Cell(text=f"{each.size_bytes / 1e6:.1f}", figure=True),
            text(each.sha256[:16] + "…"),
        )
        for each in m.files[:_MOST_FILES]
    ]
    return Table(
        caption=_FILES(language),
        heads=tuple(_FILE_HEADS(language).split("|")),
        rows=tuple(rows),
    )
