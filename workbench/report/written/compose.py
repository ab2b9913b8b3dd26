"""From everything that is known to a written report, in the order in which such reports are read."""

from __future__ import annotations

from workbench.report.written.cells import moment
from workbench.report.written.closing import changes, commands, risks
from workbench.report.written.conditions import conversion, environment
from workbench.report.written.document import Document, Language, numbered
from workbench.report.written.drawing import chinese_font
from workbench.report.written.fleet import fleet
from workbench.report.written.goals import basis, goals
from workbench.report.written.material import Material
from workbench.report.written.performance import performance
from workbench.report.written.precision import int8, precision
from workbench.report.written.serving import serving
from workbench.report.written.texts import Text
from workbench.values.installed_targets import installed_target

_TITLE = Text(zh="模型迁移与 INT8 优化验收报告", en="Acceptance report: migration and INT8")
_MARK = Text(
    zh="仿真结果（EMULATED）：时间、内存、功耗由设备模型推算，未在真实设备上测量",
    en="EMULATED: figures are by a model of the device; nothing was measured on a real one",
)
_MODEL, _TARGET = Text(zh="模型", en="model"), Text(zh="目标平台", en="target")
_SOURCE = Text(zh="依据", en="made from")
_BUNDLE, _EXPERIMENT = Text(zh="部署包 {name}", en="bundle {name}"), Text(zh="实验 {name}", en="experiment {name}")
_DATE, _BY = Text(zh="编制时间", en="written at"), Text(zh="编制工具", en="written by")


def written_report(m: Material, language: Language) -> Document:
    """The report, numbered; the same material gives the same document on any machine but for words in pictures, which
    are English where a machine has no Chinese font."""
    in_pictures: Language = "en" if language == "zh" and chinese_font() is None else language
    target = installed_target(m.chosen.candidate.target)
    device = m.best.toolchain.device
    judged = basis(m, language)
    source = (_BUNDLE if m.is_bundle else _EXPERIMENT)(language, name=m.source)
    document = Document(
        language=language,
        title=_TITLE(language),
        subtitle=f"{m.name}" + (f" — {m.about}" if m.about else ""),
        mark=_MARK(language) if m.emulated else "",
        facts=(
            (_MODEL(language), f"{m.model.file}, {m.task}"),
            (_TARGET(language), f"{target.title}, {device}"),
            (_SOURCE(language), source),
            (_DATE(language), moment(m.created_at)),
            (_BY(language), f"INT8 workbench {m.workbench}"),
        ),
        sections=(
            goals(m, language),
            *(() if judged is None else (judged,)),
            environment(m, language),
            conversion(m, language),
            precision(m, language),
            int8(m, language),
            performance(m, language, in_pictures),
            serving(m, language),
            fleet(m, language, in_pictures),
            risks(m, language),
            changes(m, language),
            commands(m, language),
        ),
    )
    return numbered(document)
