"""From everything that is known to a written report, in the order in which such reports are read; and of its sections
those that have no figures: what was examined and how it was made, what is open, what was changed, how to repeat it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from workbench.report.summary import Summary
from workbench.report.written.document import (
    Block,
    Commands,
    Document,
    Language,
    Paragraph,
    Section,
    Table,
    numbered,
)
from workbench.report.written.goals import basis, best_service, goals, judged
from workbench.report.written.material import Material
from workbench.report.written.performance import performance
from workbench.report.written.precision import int8, precision
from workbench.report.written.serving import fleet, serving
from workbench.report.written.wording import (
    SPLIT,
    Row,
    candidate_name,
    figure,
    heading,
    key,
    metric_name,
    moment,
    number,
    outcome_cell,
    paragraph,
    say,
    section,
    speaking,
    spoken,
    state_of,
    table,
)
from workbench.values.installed_targets import installed_target
from workbench.values.model import TensorSpec

Form = Literal["full", "briefing"]
_MODEL, _FILES = "float model", "Compiled files"
_RISKS, _CHANGES = "Risks and open points", "Record of changes"
_MOST_FILES, _MOST_STEPS = 24, 12


def environment(m: Material) -> Section:
    chain, brought = m.best.toolchain, m.model.origin or m.model
    where = installed_target(chain.target).title if chain.target else chain.target
    steps = [step.words for step in m.model.origin.steps[:_MOST_STEPS]] if m.model.origin is not None else []
    items = [
        (say("target"), f"{where} ({chain.target})"),
        (say("device"), chain.device + (say(" (an emulator, no real device)") if chain.emulated else "")),
        *sorted(chain.components.items()),
        *([(say("features of the device"), ", ".join(chain.features))] if chain.features else []),
        *([(say("evaluated on"), m.best.place.words)] if m.best.place is not None else []),
        (say("evaluated at"), moment(m.best.started_at)),
        (say("INT8 workbench"), m.workbench),
    ]
    model = [
        (say(_MODEL), brought.path.name),
        (say("its sha256"), brought.sha256),
        (say("its size"), f"{brought.size_bytes / 1e6:,.1f} MB"),
        (say("opset"), str(m.model.opset)),
        (say("inputs"), "\n".join(map(_tensor, m.model.inputs))),
        (say("outputs"), "\n".join(map(_tensor, m.model.outputs))),
        *([(say("prepared by"), "\n".join(steps))] if steps else []),
    ]
    data = [
        (say(SPLIT[split]) if split in SPLIT else split, figure("–" if count is None else number(count)), digest)
        for split, (digest, count) in m.data.items()
    ]
    return section(
        "Environment and versions",
        (
            Paragraph(text=key(), kind="note"),
            table("Environment", "item|value", items),
            heading("Model and data"),
            table(_MODEL, "item|value", model),
            table("Data", "split|samples scored|digest (sha256)", data),
        ),
    )


def _tensor(spec: TensorSpec) -> str:
    shape = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.name}: {spec.dtype} [{shape}]"


def conversion(m: Material) -> Section:
    names = {"chosen": candidate_name(m.chosen.candidate)}
    intro = "What ships is the float baseline: {chosen}. What is not listed is the compiler's own default."
    if m.baseline is not None and not m.is_baseline:
        names["baseline"] = candidate_name(m.baseline.candidate)
        intro = (
            "Baseline: {baseline}. What ships: {chosen}. Settings in which they differ are bold; what is not "
            "listed is the compiler's own default."
        )
    none, (before, after) = (
        say("none"),
        ((m.baseline or m.chosen).candidate.parameters(), m.chosen.candidate.parameters()),
    )
    settings = list(dict.fromkeys((*before, *after)))

    def setting(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else none if value in (None, "") else str(value)

    blocks: list[Block] = [
        Paragraph(text=say(intro, **names)),
        table(
            "Conversion and precision settings¦table",
            "setting|float baseline (today)|what ships",
            [(name, setting(before.get(name)), setting(after.get(name))) for name in settings],
            strong=(at for at, name in enumerate(settings) if before.get(name) != after.get(name)),
        ),
    ]
    if m.files:
        files: list[Row] = [
            (
                each.file,
                *(figure(say("any") if n is None else str(n)) for n in (each.batch, each.sequence_bin)),
                figure(f"{each.size_bytes / 1e6:.1f}"),
                each.sha256[:16] + "…",
            )
            for each in m.files[:_MOST_FILES]
        ]
        blocks += [heading(_FILES), table(_FILES, "file|batch|length|MB|sha256", files)]
        if more := len(m.files[_MOST_FILES:]):
            blocks.append(paragraph("{n} more files: see SHA256SUMS of the bundle.", kind="note", n=more))
    return section("Conversion and precision settings", blocks)


def risks(m: Material) -> Section:
    found = [(figure(str(index)), what, do) for index, (what, do) in enumerate(_found(m), 1)]
    if not found:
        return section(_RISKS, (paragraph("Nothing was found that would have to be said."),))
    return section(_RISKS, [table(_RISKS, "no.|risk or open point|what to do about it", found)])


def _said(what: str, to_do: str, **values: object) -> tuple[str, str]:
    return say(what, **values), say(to_do)


def _found(m: Material) -> Iterator[tuple[str, str]]:
    """(risk or open point, what to do about it)."""
    if m.emulated:
        yield _said(
            "All times, memory and power are an emulator's, accuracy is by its arithmetic; no device took part.",
            "Sweep, load and judge again on a real device.",
        )
    if m.verdict is None:
        yield _said(
            "No verdict was given; nothing was compared with the old platform.",
            "workbench load … --baseline, then --verdict.",
        )
    for goal in (goal for goal in judged(m) if goal.limited):
        state, why = state_of(goal.outcome), outcome_cell(goal.outcome, limited=True, emulated=False).text
        if state == "missed":
            yield _said("The goal {name} is missed.", "Change the settings, or agree on another limit.", name=goal.name)
        elif state == "open":
            why = say("; ").join(filter(None, (why, goal.about)))
            yield _said(
                "The goal {name} is open: {why}.", "Measure as it says, and judge again.", name=goal.name, why=why
            )
    if m.agreement is None:
        yield _said(
            "Outputs of what ships were not compared with PyTorch and ONNX Runtime.",
            "workbench agreement, then --agreement.",
        )
    elif any(output.not_finite for a in m.agreement.paths for output in a.outputs):
        yield _said(
            "Outputs hold NaN or infinity (see the precision compared).",
            "Find the first operator that overflows layer by layer, and keep its precision.",
        )
    if m.comparison is not None and m.comparison.device is not None and (bad := m.comparison.device.first_bad):
        yield _said(
            "The first bad operator on the device is {operator}.",
            "Mend it as the precision compared says; compile and compare again.",
            operator=bad.operator,
        )
    if m.confirmed is None:
        yield _said(
            "It was not confirmed on held-out data; the search may flatter it.",
            "Sweep again with more time, so that it is confirmed.",
        )
    if m.summary is not None:
        yield from _of_search(m, m.summary)
    latency, service = m.best.measurement.latency, best_service(m)
    if latency is not None and not latency.quiet and latency.clock != "modelled":
        yield _said(
            "The machine was disturbed while it was timed: absolute times are unreliable.",
            "Time it again on a free machine.",
        )
    if service is not None and service.best is None:
        yield _said(
            "No service settings keep the limit on P99.",
            "Use shorter bins or a faster candidate, or raise the limit.",
        )
    elif service is not None and service.confirmed is None and not m.loads:
        yield _said("The service's figures are simulated; no real load confirmed them.", "workbench load, then --load.")
    if any(not one.reliable for one in m.loads):
        yield _said("A load test is not to be relied on (see the service).", "Mend what it says, and load again.")
    if m.capacity is None:
        yield _said(
            "No capacity was planned: cards and cost are not known.", "workbench plan-capacity, then --capacity."
        )


def _of_search(m: Material, summary: Summary) -> Iterator[tuple[str, str]]:
    member, chosen = summary.member(m.chosen.candidate.id), summary.recommended
    for metric in () if member is None else member.broken_on_holdout:
        name = metric_name(metric)
        yield _said("On held-out data it breaks {name}.", "Do not ship it, or choose another candidate.", name=name)
    if m.named and (chosen is None or chosen.candidate_id != m.chosen.candidate.id):
        yield _said(
            "What ships was named by the user; the search recommends another.", "Keep the reason for the choice."
        )
    if damaged := len(summary.damage):
        yield _said(
            "{n} files of the sweep are damaged or gone; what they held is in nothing here.",
            "Sweep again to mend it.",
            n=damaged,
        )
    if failed := sum(summary.failures.values()):
        yield _said("{n} candidates failed.", "See why: workbench show.", n=failed)


def changes(m: Material) -> Section:
    return section(_CHANGES, [table(_CHANGES, "at|what|about", _made(m))])


def _made(m: Material) -> Iterator[tuple[str, str, str]]:
    """(when, what was made, about it), in the order of a sweep's life."""
    if m.summary is not None:
        evaluations, confirmations = m.summary.evaluations, m.summary.confirmations
        began = min(e.started_at for e in evaluations)
        yield moment(began), say("search"), say("{n} candidates evaluated", n=number(len(evaluations)))
        for identity, one in sorted(confirmations.items(), key=lambda pair: pair[1].started_at):
            if identity != m.summary.baseline_id:
                what = say("candidate {what}", what=identity[:12])
                yield moment(one.started_at), say("confirmation"), what
    if m.bundled_at:
        what = say("candidate {what}", what=m.chosen.candidate.short_id)
        yield moment(m.bundled_at), say("bundle written"), what
    yield moment(m.created_at), say("this report"), m.workbench


def commands(m: Material) -> Section:
    intro = paragraph("Run in the workspace; fill in what stands in <>.")
    return section("Commands that make it again", (intro, Commands(lines=tuple(_lines(m)))))


def _lines(m: Material) -> Iterator[str]:
    source, at = shlex.quote(m.source), m.chosen.candidate.short_id
    bundle = source if m.is_bundle else say("<bundle>")
    if not m.is_bundle:
        run = None if m.summary is None else m.summary.run
        yield (run.command if run is not None else "") or f"workbench sweep {source}"
        yield f"workbench show {source} --candidate {at}"
        yield f"workbench evaluate {source} --candidate {at}"
        emulated = " --allow-emulated" if m.emulated else ""
        yield f"workbench export {source} --candidate {at} --to {bundle}{emulated}"
    yield f"workbench verify {bundle}"
    asked = (m.agreement, *m.loads, m.verdict, m.capacity)
    yield from dict.fromkeys(one.command for one in asked if one is not None and one.command)
    if not m.loads and m.verdict is None:
        yield f"workbench load {bundle} --baseline {say('<baseline.yaml>')} --to load"
    named = f" --candidate {at}" if m.named and not m.is_bundle else ""
    yield m.command or f"workbench report {source}{named} --lang {spoken()} --to report.docx"


_PARTS = (environment, conversion, precision, int8, performance, serving, fleet, risks, changes, commands)
_MINUTES: tuple[tuple[Callable[[Material], Section], int], ...] = (
    *((goals, 2), (performance, 2), (int8, 1), (serving, 1)),
    *((fleet, 1), (risks, 1)),
)
_BRIEF_ROWS = 8


def written_report(m: Material, language: Language, form: Form = "full") -> Document:
    """The report, numbered; the same material gives the same document on any machine but for words in pictures, which
    are English where a machine has no Chinese font.

    Args:
        form: 'briefing' is what those who decide are told in eight minutes: the conclusion with its goals, then one
            table and one picture of each part, with the minutes that it takes.
    """
    with speaking(language):
        target, device = installed_target(m.chosen.candidate.target), m.best.toolchain.device
        source = say("bundle {name}" if m.is_bundle else "experiment {name}", name=m.source)
        emulated = "EMULATED: figures are by a model of the device; nothing was measured on a real one"
        if form == "full":
            title, sections = "Acceptance report: migration and INT8", [goals(m), *basis(m), *(of(m) for of in _PARTS)]
        else:
            title, sections = "Briefing: migration and INT8", [_brief(of, m, minutes) for of, minutes in _MINUTES]
        return numbered(
            Document(
                language=language,
                title=say(title),
                subtitle=f"{m.name}" + (f" — {m.about}" if m.about else ""),
                mark=say(emulated) if m.emulated else "",
                facts=(
                    (say("model"), f"{(m.model.origin or m.model).path.name}, {m.task}"),
                    (say("target"), f"{target.title}, {device}"),
                    (say("made from"), source),
                    (say("written at"), moment(m.created_at)),
                    (say("written by"), f"INT8 workbench {m.workbench}"),
                ),
                sections=tuple(sections),
            )
        )


def _brief(part: Callable[[Material], Section], m: Material, minutes: int) -> Section:
    whole = part(m)
    title = say("{title} ({n} min)", title=whole.title, n=minutes)
    return Section(title=title, blocks=tuple(shortened(whole.blocks, every_row=part is goals)))


def shortened(blocks: Sequence[Block], *, every_row: bool) -> Iterator[Block]:
    """Verdicts and warnings, the first other paragraph, the first table and the first picture, in their order; a table
    that is cut says so."""
    seen: set[str] = set()
    for block in blocks:
        kind = type(block).__name__
        if isinstance(block, Paragraph):
            kind = block.kind if block.kind != "plain" else kind
        elif isinstance(block, Table) and len(block.rows) > _BRIEF_ROWS and not every_row:
            strong = tuple(row for row in block.strong if row < _BRIEF_ROWS)
            more = say("{n} more rows stand in the whole report.", n=len(block.rows) - _BRIEF_ROWS)
            note = f"{block.note} {more}".strip()
            block = replace(block, rows=block.rows[:_BRIEF_ROWS], strong=strong, note=note)
        if kind in ("verdict", "warning") or (kind in ("Paragraph", "Table", "Figure") and kind not in seen):
            yield block
        seen.add(kind)
