"""From everything that is known to a written report, in the order in which such reports are read."""

from __future__ import annotations

from workbench.report.written.cells import moment
from workbench.report.written.closing import changes, commands, risks
from workbench.report.written.conditions import conversion, environment
from workbench.report.written.document import Document, Language, numbered
from workbench.report.written.fleet import fleet
from workbench.report.written.goals import basis, goals
from workbench.report.written.material import Material
from workbench.report.written.performance import performance
from workbench.report.written.precision import int8, precision
from workbench.report.written.serving import serving
from workbench.report.written.texts import say, speaking
from workbench.values.installed_targets import installed_target


def written_report(m: Material, language: Language) -> Document:
    """The report, numbered; the same material gives the same document on any machine but for words in pictures, which
    are English where a machine has no Chinese font."""
    with speaking(language):
        return numbered(_document(m, language))


def _document(m: Material, language: Language) -> Document:
    target = installed_target(m.chosen.candidate.target)
    device = m.best.toolchain.device
    judged = basis(m)
    source = say("bundle {name}" if m.is_bundle else "experiment {name}", name=m.source)
    return Document(
        language=language,
        title=say("Acceptance report: migration and INT8"),
        subtitle=f"{m.name}" + (f" — {m.about}" if m.about else ""),
        mark=say("EMULATED: figures are by a model of the device; nothing was measured on a real one")
        if m.emulated
        else "",
        facts=(
            (say("model"), f"{m.model.file}, {m.task}"),
            (say("target"), f"{target.title}, {device}"),
            (say("made from"), source),
            (say("written at"), moment(m.created_at)),
            (say("written by"), f"INT8 workbench {m.workbench}"),
        ),
        sections=(
            goals(m),
            *(() if judged is None else (judged,)),
            environment(m),
            conversion(m),
            precision(m),
            int8(m),
            performance(m),
            serving(m),
            fleet(m),
            risks(m),
            changes(m),
            commands(m),
        ),
    )
