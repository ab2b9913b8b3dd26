"""How far the answers of what ships lie from other ways to compute the model, layer by layer where it was compared; and
what INT8 costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from workbench.report.written.document import Block, Bullets, Cell, Commands, Section, State, Table
from workbench.report.written.material import Material
from workbench.report.written.wording import (
    DASH,
    SPLIT,
    Row,
    candidate_name,
    figure,
    heading,
    note_words,
    number,
    paragraph,
    say,
    section,
    table,
)
from workbench.study.compared import Cause, Comparison, DeviceFindings, FirstBad
from workbench.values.agreement import Agreement, AgreementPath, Agreements
from workbench.values.evidence import Evidence, level_of
from workbench.values.measurement import AccuracyComparison

_PATH: dict[AgreementPath, str] = {
    "pytorch": "PyTorch",
    "float32": "ONNX Runtime float32",
    "float32 compiled": "target, float32",
    "float16 compiled": "target, FP16 as today",
    "served": "what ships¦files",
    "old platform": "old platform",
}
_PATHS, _ACCURACY, _LAYERS = "Outputs of each path", "Accuracy on the task", "Layer by layer"
_JUMP, _BEYOND = "error jumps", "beyond limits"
_STANDING: dict[str, str] = {
    "front": "on the Pareto front",
    "dominated": "meets the constraints and is dominated",
    "infeasible": "breaks a constraint",
    "stopped": "stopped early",
    "failed": "failed",
}
_INT8, _LOSS = "INT8", "What INT8 costs"
_FP16, _MORE, _TOTAL = "FP16's own loss", "INT8's additional loss", "both, against float32"
_MOST_LAYERS, _MOST_NAMES, _MOST_SHAPES, _MOST_NODES = 15, 20, 40, 6


def precision(m: Material) -> Section:
    blocks: list[Block] = [heading(_PATHS)]
    if m.agreement is None:
        none = paragraph(
            "Outputs were not compared (workbench agreement): cosine, largest and mean absolute error between "
            "PyTorch, ONNX Runtime and the compiled files are not measured."
        )
        blocks += [none, _paths(None)]
    else:
        blocks += agreement(m.agreement)
    blocks += [heading(_ACCURACY), *_accuracy(m), heading(_LAYERS)]
    if m.comparison is None:
        blocks.append(paragraph("No comparison by layers was given (workbench compare … --json, --layers)."))
    else:
        blocks += [*_by_layers(m.comparison), *bad_operator(m.comparison.device)]
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
        yield paragraph("What is missing, and why", kind="note")
        yield Bullets(items=tuple(f"{_path(path)}: {note_words(why)}" for path, why in found.missing.items()))
    if shapes := [a for a in found.paths if a.shape]:
        rows: list[Row] = [
            (
                f"{_path(a.path)}: {note_words(a.shape)}",
                figure(a.samples),
                _cosine(a.worst_cosine, _level(a)),
                *(figure(of, _level(a)) for of in (a.max_abs, a.mae)),
            )
            for a in shapes[:_MOST_SHAPES]
        ]
        yield table("Outputs by compiled shape", "shape|samples|cosine, worst|max abs error|MAE", rows)
    rows = []
    for a in _telling(found):
        drops = [a.drop, *(None for _ in a.accuracy)]  # that of the first, which is the primary metric
        for (metric, (own, reference)), drop in zip(a.accuracy.items(), drops, strict=False):
            figures = (figure(of, _level(a), digits=4) for of in (reference, own))
            rows.append((_pair(a), metric, *figures, *_tested(drop, _level(a))))
    if any(a.accuracy for a in found.paths):
        yield table("Scores of each path", "path (reference)|metric|reference's|its own|loss, paired|p", rows)


def _paths(found: Agreements | None) -> Table:
    rows: list[Row] = []
    for path in get_args(AgreementPath):
        met = [] if found is None else [a for a in _telling(found) if a.path == path]
        if not met and path != "float32":  # the reference itself
            rows.append((say(_PATH[path]), figure(None), *(DASH for _ in range(5))))
        rows += [
            (
                _pair(a),
                figure(a.samples),
                *(_cosine(of, _level(a)) for of in (a.worst_cosine, a.mean_cosine)),
                *(figure(of, _level(a)) for of in (a.max_abs, a.mae)),
                DASH if a.top1 is None else figure(a.top1, _level(a), digits=4),
            )
            for a in met
        ]
    return table(_PATHS, "path (reference)|n|cosine, worst|cosine, mean|max abs error|MAE|top-1 alike", rows)


def _cosine(value: float, known: Evidence | None = None) -> Cell:
    """Six digits: limits on it lie at 0.999 and above."""
    return figure(f"{value:.6f}", known)


def _path(path: str) -> str:
    known = _PATH.get(path)  # type: ignore[call-overload]  # a path of a later version has its own name
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


def _tested(compared: AccuracyComparison | None, known: Evidence | None, unit: str | None = None) -> tuple[Cell, Cell]:
    """The drop, and how likely chance gives it."""
    if compared is None:
        return DASH, DASH
    return _drop_cell(compared, known, unit), figure(f"{compared.p_value:.3g}")


def _accuracy(m: Material) -> Iterator[Block]:
    rows: list[Row] = []
    notes: dict[str, None] = {}
    for one, other in ((m.chosen, m.baseline), (m.confirmed, m.baseline_confirmed)):
        accuracy = None if one is None else one.measurement.accuracy
        if one is None or accuracy is None:
            continue
        before, known = None if other is None else other.measurement.accuracy, level_of(one, "accuracy")
        for metric, value in accuracy.values.items():
            rows.append(
                (
                    *(say(SPLIT[accuracy.split]), figure(accuracy.samples), metric),
                    figure(None if before is None else before.values.get(metric), known, digits=4),
                    figure(value, known, digits=4),
                    *_tested(accuracy.comparison if metric == accuracy.primary else None, known, accuracy.unit or "pp"),
                )
            )
        if accuracy.comparison is not None:
            reference = accuracy.reference or say("the float baseline")
            notes[say("Losses are against float32 ({reference}).", reference=note_words(reference))] = None
            notes[say("Test: {test}.", test=accuracy.comparison.test)] = None
    if not rows:
        yield paragraph("Accuracy on the task is not measured.")
        return
    yield table(_ACCURACY, "split|samples|metric|float baseline|what ships|loss [95 %]|p", rows, note=" ".join(notes))


def _by_layers(found: Comparison) -> list[Block]:
    worst = sorted((r for r in found.rows if not r.is_output and not r.rescaled), key=lambda r: -r.added_error)
    shown = {id(r) for r in (*worst[:_MOST_LAYERS], *found.outputs)}
    rows = []
    for row in (r for r in found.rows if id(r) in shown):
        within = "within limits" if row.within_limits else _BEYOND
        state = "rescaled" if row.rescaled else _JUMP if row.jump else within
        rows.append(
            (
                *(row.node or row.tensor, row.op_type, _cosine(row.cosine), figure(row.max_abs)),
                *(figure("∞" if row.sqnr_db is None else f"{row.sqnr_db:.1f}"), figure(row.added_error)),
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
    what = candidate_name(m.chosen.candidate)
    if m.chosen.candidate.quantization.scheme != "none":
        return section(_INT8, (_recipe(m, what), heading(_LOSS), _loss(m)))
    return section(_INT8, (paragraph("What ships is not quantized: {what}.", what=what), *_least_drop(m)))


def _least_drop(m: Material) -> Iterator[Block]:
    if m.summary is None:
        return
    tried = [
        (a.comparison.drop_pp.value, e.candidate.id, e)
        for e in m.summary.evaluations
        if e.candidate.quantization.scheme != "none"
        and (a := e.measurement.accuracy) is not None
        and a.comparison is not None
    ]
    if tried:
        *_, best = min(tried, key=lambda one: one[:2])
        yield paragraph(
            "The INT8 candidate with the least loss is {what} ({id}): {standing}.",
            what=candidate_name(best.candidate),
            id=best.candidate.short_id,
            standing=say(_STANDING[m.summary.standing(best)]),
        )


def _recipe(m: Material, what: str) -> Table:
    measured, asked, layers = m.chosen.measurement, m.chosen.candidate.quantization, m.layers
    none = say("none")
    rows: list[tuple[str, Cell | str]] = [(say("recipe"), what)]
    if layers is not None:
        kinds = ", ".join(f"{kind} × {count}" for kind, count in layers.kinds.items())
        names = list(layers.float_layers[:_MOST_NAMES])
        if len(layers.float_layers) > _MOST_NAMES:
            names.append(f"… ({len(layers.float_layers)})")
        by_setting, by_loss = "layers that the configuration leaves in float", "sensitive layers left in float"
        rows += [
            (say("scales derived by"), say("the workbench") if layers.by == "native" else layers.by),
            (say("layers in INT8"), kinds or none),
            (say(by_setting if asked.scheme == "cfg" else by_loss), "\n".join(names) or none),
        ]
    out = [say("products of two activations")] if asked.attention_matmul is False else []
    if asked.operators != "all":
        out.append(say("all but {kind}", kind={"matmul": "MatMul, Gemm", "conv": "Conv"}[asked.operators]))
    rows += [
        (say("left out by a setting"), "\n".join(out) or none),
        (say("never quantized"), say("operators other than MatMul, Gemm, Conv, ConvTranspose")),
    ]
    for words, count in (
        ("operators in INT8 after compiling", measured.int8_ops),
        ("matrix products left in float¦compiled", measured.float_matmuls_left),
    ):
        rows.append((say(words), replace(figure(count), figure=False)))
    return table("Recipe", "item|value¦recipe", rows)


def _loss(m: Material) -> Table:
    """Of accuracy on the task, then of the comparison of outputs; each loss apart from the other."""
    rows: list[tuple[str, Cell, str]] = []
    accuracy, before = m.best.measurement.accuracy, m.best_baseline
    if accuracy is None:
        rows.append((say(_TOTAL), figure(None), "–"))
    else:
        own = None if before is None or before.measurement.accuracy is None else before.measurement.accuracy.comparison
        of = say("{split}, n = {n}", split=say(SPLIT[accuracy.split]), n=number(accuracy.samples))
        in_fewer_bits = bool(accuracy.reference)  # else the baseline computes in float32, and all of it is INT8's
        parts = [(_FP16, own), (_MORE, accuracy.against_baseline)] if in_fewer_bits else []
        known = level_of(m.best, "accuracy")
        rows += [(say(name), _drop_cell(one, known), of) for name, one in (*parts, (_TOTAL, accuracy.comparison))]
    if m.agreement is not None:
        for name, a in (
            (_FP16, m.agreement.find("float16 compiled")),
            (_MORE, m.agreement.find("served", "float16 compiled")),
            (_TOTAL, m.agreement.find("served")),
        ):
            if a is not None:
                of = say("outputs compared, n = {n}", n=number(a.samples))
                rows.append((say(name), _drop_cell(a.drop, _level(a)), of))
    return table(_LOSS, "where it comes from|loss [95 %]|about", rows)


def _drop_cell(compared: AccuracyComparison | None, known: Evidence | None, unit: str | None = None) -> Cell:
    """Args: unit: None for the comparison's own."""
    if compared is None:
        return figure(None)
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
    rows = {
        "operator": f"{bad.operator} ({bad.op_type})",
        "types": bad.types,
        "covers": nodes or "–",
        "its result": bad.tensor,
        _ERROR: wrong,
        "cause": cause,
        "largest value of the float model": number(bad.magnitude),
        "files of the device": folder,
        "inputs and outputs as NPY": "\n".join(bad.files) or "–",
    }
    states: dict[str, State] = {_ERROR: "missed"}
    cells = ((say(name), Cell(text=value, state=states.get(name, "plain"))) for name, value in rows.items())
    return table(_TITLE, "item|value", cells)
