"""What was examined and how it was made: environment, versions, model and data, conversion and precision settings."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.written.cells import as_figure, heading, moment, number, paragraph, section, table, text
from workbench.report.written.document import Block, Paragraph, Section, Table
from workbench.report.written.marks import key
from workbench.report.written.material import Material
from workbench.report.written.naming import SPLIT, candidate_name
from workbench.report.written.texts import say
from workbench.values.candidate import Candidate
from workbench.values.installed_targets import installed_target
from workbench.values.model import TensorSpec

_MODEL = "float model"
_FILES = "Compiled files"

_ANY = "any"
_MOST_FILES, _MOST_STEPS = 24, 12


def environment(m: Material) -> Section:
    chain = m.best.toolchain
    where = installed_target(chain.target).title if chain.target else chain.target
    items = [
        (say("target"), f"{where} ({chain.target})"),
        (say("device"), chain.device + (say(" (an emulator, no real device)") if chain.emulated else "")),
        *sorted(chain.components.items()),
        *([(say("features of the device"), ", ".join(chain.features))] if chain.features else []),
        *([(say("evaluated on"), m.best.place.words)] if m.best.place is not None else []),
        (say("evaluated at"), moment(m.best.started_at)),
        (say("INT8 workbench"), m.workbench),
    ]
    return section(
        "Environment and versions",
        (
            Paragraph(text=key(), kind="note"),
            _items(say("Environment"), items),
            heading("Model and data"),
            _items(say(_MODEL), list(_model(m))),
            table(
                "Data",
                "split|samples scored|digest (sha256)",
                [
                    (
                        text(say(SPLIT[split]) if split in SPLIT else split),
                        as_figure("–" if count is None else number(count)),
                        text(digest),
                    )
                    for split, (digest, count) in m.data.items()
                ],
            ),
        ),
    )


def _model(m: Material) -> Iterator[tuple[str, str]]:
    yield say(_MODEL), m.model.file
    yield say("its sha256"), m.model.sha256
    yield say("its size"), f"{m.model.size_bytes / 1e6:,.1f} MB"
    yield say("opset"), str(m.model.opset)
    yield say("inputs"), "\n".join(map(_tensor, m.model.inputs))
    yield say("outputs"), "\n".join(map(_tensor, m.model.outputs))
    if m.model.steps:
        yield say("prepared by"), "\n".join(m.model.steps[:_MOST_STEPS])


def _tensor(spec: TensorSpec) -> str:
    shape = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.name}: {spec.dtype} [{shape}]"


def _items(caption: str, items: list[tuple[str, str]]) -> Table:
    return Table(
        caption=caption,
        heads=tuple(say("item|value").split("|")),
        rows=tuple((text(name), text(value)) for name, value in items),
    )


def conversion(m: Material) -> Section:
    chosen = m.chosen.candidate
    baseline = m.baseline.candidate if m.baseline is not None else None
    if baseline is None or m.is_baseline:
        intro = say(
            "What ships is the float baseline: {chosen}. What is not listed is the compiler's own default.",
            chosen=candidate_name(chosen),
        )
    else:
        intro = say(
            "Baseline: {baseline}. What ships: {chosen}. Settings in which they differ are bold; what is not "
            "listed is the compiler's own default.",
            baseline=candidate_name(baseline),
            chosen=candidate_name(chosen),
        )
    blocks: list[Block] = [Paragraph(text=intro), _settings(baseline, chosen)]
    if m.files:
        blocks += [heading(_FILES), _files(m)]
        if len(m.files) > _MOST_FILES:
            blocks.append(
                paragraph("{n} more files: see SHA256SUMS of the bundle.", kind="note", n=len(m.files) - _MOST_FILES)
            )
    return section("Conversion and precision settings", blocks)


def _settings(baseline: Candidate | None, chosen: Candidate) -> Table:
    before = chosen.parameters() if baseline is None else baseline.parameters()
    after = chosen.parameters()
    names = list(dict.fromkeys((*before, *after)))
    none = say("none")
    rows = [(text(name), text(_value(before.get(name), none)), text(_value(after.get(name), none))) for name in names]
    return table(
        "Conversion and precision settings¦table",
        "setting|float baseline (today)|what ships",
        rows,
        strong=tuple(index for index, name in enumerate(names) if before.get(name) != after.get(name)),
    )


def _value(value: object, none: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return none if value in (None, "") else str(value)


def _files(m: Material) -> Table:
    rows = [
        (
            text(each.file),
            as_figure(say(_ANY) if each.batch is None else str(each.batch)),
            as_figure(say(_ANY) if each.sequence_bin is None else str(each.sequence_bin)),
            as_figure(f"{each.size_bytes / 1e6:.1f}"),
            text(each.sha256[:16] + "…"),
        )
        for each in m.files[:_MOST_FILES]
    ]
    return table(_FILES, "file|batch|length|MB|sha256", rows)
