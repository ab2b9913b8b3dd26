"""How far the answers of what ships lie from other ways to compute the model, layer by layer where it was compared; and
what INT8 costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from workbench.report.written.cells import (
    DASH,
    as_figure,
    cosine,
    counted,
    figure,
    heading,
    label,
    not_measured,
    number,
    paragraph,
    say,
    section,
    table,
    text,
)
from workbench.report.written.document import Block, Bullets, Cell, Commands, Section, Table
from workbench.report.written.material import Material
from workbench.report.written.naming import PATH, SPLIT, candidate_name, note_words
from workbench.study.compared import Cause, Comparison, DeviceFindings, FirstBad
from workbench.values.agreement import Agreement, AgreementPath, Agreements
from workbench.values.evidence import Evidence, level_of
from workbench.values.measurement import AccuracyComparison
from workbench.values.results import Evaluation

_PATHS, _ACCURACY, _LAYERS = "Outputs of each path", "Accuracy on the task", "Layer by layer"
_JUMP, _BEYOND = "error jumps", "beyond limits"
_STANDING: dict[str, str] = {
    "front": "on the Pareto front",
    "dominated": "meets the constraints and is dominated",
    "infeasible": "breaks a constraint",
    "stopped": "stopped early",
    "failed": "failed",
}
_INT8, _NONE, _LOSS = "INT8", "none", "What INT8 costs"
_FP16, _MORE, _TOTAL = "FP16's own loss", "INT8's additional loss", "both, against float32"
_MOST_LAYERS, _MOST_NAMES, _MOST_SHAPES, _MOST_NODES = 15, 20, 40, 6


def precision(m: Material) -> Section:
    blocks: list[Block] = [heading(_PATHS)]
    if m.agreement is None:
        blocks += [
            paragraph(
                "Outputs were not compared (workbench agreement): cosine, largest and mean absolute error between "
                "PyTorch, ONNX Runtime and the compiled files are not measured."
            ),
            _paths(None),
        ]
    else:
        blocks += agreement(m.agreement)
    blocks += [heading(_ACCURACY), *_accuracy(m), heading(_LAYERS)]
    blocks += (
        [paragraph("No comparison by layers was given (workbench compare … --json, --layers).")]
        if m.comparison is None
        else _by_layers(m.comparison)
    )
    blocks += bad_operator(None if m.comparison is None else m.comparison.device)
    return section("Precision compared", blocks)


def agreement(found: Agreements) -> Iterator[Block]:
    """How far the outputs of each path lie from their reference, and what is missing."""
    yield paragraph(
        "The same inputs ({data}) through every path, compared with the reference sample by sample; cosine "
        "is the worst and the mean over samples.",
        data=note_words(found.data),
    )
    yield _paths(found)
    for a in found.paths:
        for output in (output for output in a.outputs if output.not_finite):
            yield paragraph(
                "{n} elements of output {output} of {path} are NaN or infinite, and in no figure above.",
                kind="warning",
                path=_path(a.path),
                output=output.output,
                n=output.not_finite,
            )
    if found.missing:
        lines = (f"{_path(path)}: {note_words(why)}" for path, why in found.missing.items())
        yield paragraph("What is missing, and why", kind="note")
        yield Bullets(items=tuple(lines))
    if shapes := [a for a in found.paths if a.shape]:
        heads = "shape|samples|cosine, worst|max abs error|MAE"
        rows = [
            (
                text(f"{_path(a.path)}: {note_words(a.shape)}"),
                counted(a.samples),
                as_figure(cosine(a.worst_cosine), _level(a)),
                *(figure(a.max_abs, _level(a)), figure(a.mae, _level(a))),
            )
            for a in shapes[:_MOST_SHAPES]
        ]
        yield table("Outputs by compiled shape", heads, rows)
    if any(a.accuracy for a in found.paths):
        yield _scores(found)


def _paths(found: Agreements | None) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for path in get_args(AgreementPath):
        met = [] if found is None else [a for a in _telling(found) if a.path == path]
        if not met and path == "float32":
            continue  # the reference itself
        if not met:
            rows.append((label(PATH[path]), not_measured(), *(DASH for _ in range(5))))
        rows += [
            (
                text(_pair(a)),
                counted(a.samples),
                *(as_figure(cosine(of), _level(a)) for of in (a.worst_cosine, a.mean_cosine)),
                *(figure(of, _level(a)) for of in (a.max_abs, a.mae)),
                DASH if a.top1 is None else figure(a.top1, _level(a), digits=4),
            )
            for a in met
        ]
    return table(_PATHS, "path (reference)|n|cosine, worst|cosine, mean|max abs error|MAE|top-1 alike", rows)


def _path(path: str) -> str:
    known = PATH.get(path)  # type: ignore[call-overload]  # a path of a later version has its own name
    return path if known is None else say(known)


def _pair(a: Agreement) -> str:
    return say("{path} ({reference})", path=_path(a.path), reference=_path(a.reference))


def _telling(found: Agreements) -> list[Agreement]:
    """Without paths in between held against PyTorch where they are held against float32 too: two ends are enough."""
    against = {a.path for a in found.paths if a.reference == "float32" and not a.shape}
    kept = [a for a in found.paths if not a.shape]
    return [a for a in kept if a.reference != "pytorch" or a.path == "served" or a.path not in {*against, "float32"}]


def _level(a: Agreement) -> Evidence:
    return "modelled" if a.emulated else "measured"


def _scores(found: Agreements) -> Table:
    rows = []
    for a in _telling(found):
        drops = [a.drop, *(None for _ in a.accuracy)]  # that of the first, which is the primary metric
        for (metric, (own, reference)), drop in zip(a.accuracy.items(), drops, strict=False):
            figures = (figure(of, _level(a), digits=4) for of in (reference, own))
            rows.append((text(_pair(a)), text(metric), *figures, *_tested(drop, _level(a))))
    return table("Scores of each path", "path (reference)|metric|reference's|its own|loss, paired|p", rows)


def _tested(compared: AccuracyComparison | None, known: Evidence | None, unit: str | None = None) -> tuple[Cell, Cell]:
    """The drop, and how likely chance gives it."""
    if compared is None:
        return DASH, DASH
    return _drop_cell(compared, known, unit), as_figure(f"{compared.p_value:.3g}")


def _accuracy(m: Material) -> Iterator[Block]:
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, None] = {}
    for one, other in ((m.chosen, m.baseline), (m.confirmed, m.baseline_confirmed)):
        rows += [] if one is None else _scored(one, other)
        accuracy = None if one is None else one.measurement.accuracy
        if accuracy is not None and accuracy.comparison is not None:
            reference = accuracy.reference or say("the float baseline")
            notes[say("Losses are against float32 ({reference}).", reference=note_words(reference))] = None
            notes[say("Test: {test}.", test=accuracy.comparison.test)] = None
    if not rows:
        yield paragraph("Accuracy on the task is not measured.")
        return
    yield table(_ACCURACY, "split|samples|metric|float baseline|what ships|loss [95 %]|p", rows, note=" ".join(notes))


def _scored(one: Evaluation, other: Evaluation | None) -> Iterator[tuple[Cell, ...]]:
    accuracy = one.measurement.accuracy
    if accuracy is None:
        return
    before = other.measurement.accuracy if other is not None else None
    known = level_of(one, "accuracy")
    for metric, value in accuracy.values.items():
        compared = accuracy.comparison if metric == accuracy.primary else None
        yield (
            label(SPLIT[accuracy.split]),
            counted(accuracy.samples),
            text(metric),
            figure(None if before is None else before.values.get(metric), known, digits=4),
            figure(value, known, digits=4),
            *_tested(compared, known, accuracy.unit or "pp"),
        )


def _by_layers(found: Comparison) -> list[Block]:
    worst = sorted((r for r in found.rows if not r.is_output and not r.rescaled), key=lambda r: -r.added_error)
    shown = {id(r) for r in (*worst[:_MOST_LAYERS], *found.outputs)}
    rows = []
    for row in (r for r in found.rows if id(r) in shown):
        within = "within limits" if row.within_limits else _BEYOND
        state = "rescaled" if row.rescaled else _JUMP if row.jump else within
        rows.append(
            (
                *(text(row.node or row.tensor), text(row.op_type), as_figure(cosine(row.cosine)), figure(row.max_abs)),
                *(as_figure("∞" if row.sqnr_db is None else f"{row.sqnr_db:.1f}"), figure(row.added_error)),
                Cell(text=say(state), state="missed" if state in (_JUMP, _BEYOND) else "plain"),
            )
        )
    return [
        paragraph(
            "Reference: {a}. Compared: {b}. {n} tensors in all; below are the model's outputs and the tensors "
            "that add most error.",
            a=found.a,
            b=found.b,
            n=len(found.rows),
        ),
        table(_LAYERS, "node|operator|cosine|max abs|SQNR dB|added error|state", rows),
    ]


def int8(m: Material) -> Section:
    if m.chosen.candidate.quantization.scheme == "none":
        blocks: list[Block] = [
            paragraph("What ships is not quantized: {what}.", what=candidate_name(m.chosen.candidate))
        ]
        blocks += _least_drop(m)
        return section(_INT8, blocks)
    return section(_INT8, (_recipe(m), heading(_LOSS), _loss(m)))


def _least_drop(m: Material) -> Iterator[Block]:
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
        standing = say(_STANDING[m.summary.standing(best)])
        what = candidate_name(best.candidate)
        yield paragraph(
            "The INT8 candidate with the least loss is {what} ({id}): {standing}.",
            what=what,
            id=best.candidate.short_id,
            standing=standing,
        )


def _recipe(m: Material) -> Table:
    measured, asked = m.chosen.measurement, m.chosen.candidate.quantization
    rows = [(label("recipe"), text(candidate_name(m.chosen.candidate)))]
    if m.layers is not None:
        kinds = ", ".join(f"{kind} × {count}" for kind, count in m.layers.kinds.items())
        names = list(m.layers.float_layers[:_MOST_NAMES])
        if len(m.layers.float_layers) > _MOST_NAMES:
            names.append(f"… ({len(m.layers.float_layers)})")
        why = (
            "layers that the configuration leaves in float"
            if asked.scheme == "cfg"
            else "sensitive layers left in float"
        )
        rows += [
            (label("scales derived by"), label("the workbench") if m.layers.by == "native" else text(m.layers.by)),
            (label("layers in INT8"), text(kinds or say(_NONE))),
            (label(why), text("\n".join(names) or say(_NONE))),
        ]
    out = [say("products of two activations")] if asked.attention_matmul is False else []
    if asked.operators != "all":
        out.append(say("all but {kind}", kind={"matmul": "MatMul, Gemm", "conv": "Conv"}[asked.operators]))
    rows += [
        (label("left out by a setting"), text("\n".join(out) or say(_NONE))),
        (label("never quantized"), label("operators other than MatMul, Gemm, Conv, ConvTranspose")),
    ]
    for words, count in (
        ("operators in INT8 after compiling", measured.int8_ops),
        ("matrix products left in float¦compiled", measured.float_matmuls_left),
    ):
        rows.append((label(words), not_measured(figure=False) if count is None else text(number(count))))
    return table("Recipe", "item|value¦recipe", rows)


def _loss(m: Material) -> Table:
    """Of accuracy on the task, then of the comparison of outputs; each loss apart from the other."""
    rows: list[tuple[Cell, ...]] = []
    accuracy, before = m.best.measurement.accuracy, m.best_baseline
    if accuracy is None:
        rows.append((label(_TOTAL), not_measured(), text("–")))
    else:
        own = None if before is None or before.measurement.accuracy is None else before.measurement.accuracy.comparison
        of = label("{split}, n = {n}", split=say(SPLIT[accuracy.split]), n=number(accuracy.samples))
        in_fewer_bits = bool(accuracy.reference)  # else the baseline computes in float32, and all of it is INT8's
        parts = [(_FP16, own), (_MORE, accuracy.against_baseline)] if in_fewer_bits else []
        known = level_of(m.best, "accuracy")
        parts.append((_TOTAL, accuracy.comparison))
        rows += [(label(name), _drop_cell(compared, known), of) for name, compared in parts]
    if m.agreement is not None:
        for name, a in (
            (_FP16, m.agreement.find("float16 compiled")),
            (_MORE, m.agreement.find("served", "float16 compiled")),
            (_TOTAL, m.agreement.find("served")),
        ):
            if a is not None:
                of = label("outputs compared, n = {n}", n=number(a.samples))
                rows.append((label(name), _drop_cell(a.drop, _level(a)), of))
    return table(_LOSS, "where it comes from|loss [95 %]|about", rows)


def _drop_cell(compared: AccuracyComparison | None, known: Evidence | None, unit: str | None = None) -> Cell:
    """Args: unit: None for the comparison's own."""
    if compared is None:
        return not_measured()
    return figure(compared.drop_pp, known, signed=True, digits=2, unit=compared.unit if unit is None else unit)


_TITLE = "The first bad operator on the device"
_ERROR = "error"
_CAUSES: dict[Cause, str] = {
    "range": "numbers that float16 cannot hold",
    "integers": "its INT8 layers: scales or weights",
    "rounding": "rounding of its types",
}


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
        yield paragraph(
            "No operator's result is beyond the limits; the device's own files are in {folder}.", folder=found.folder
        )
    else:
        yield _table(found.first_bad, found.folder)
        lines = tuple(line for mend in found.first_bad.mends for line in (f"# {mend.setting}", *mend.lines))
        if lines:
            yield paragraph("what mends it")
            yield Commands(lines=lines)


def _table(bad: FirstBad, folder: str) -> Table:
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
        ("largest value of the float model", number(bad.magnitude)),
        ("files of the device", folder),
        ("inputs and outputs as NPY", "\n".join(bad.files) or "–"),
    )
    return table(
        _TITLE,
        "item|value",
        [(label(name), Cell(text=value, state="missed" if name is _ERROR else "plain")) for name, value in rows],
    )
