"""What an evaluation of a language model's checkpoints found, as tables; every figure says what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from workbench.api.llm import FEW_WINDOWS, Alike, EvaluatedLlm, LlmEvaluation
from workbench.commands.console import out, say
from workbench.report.alike import letters
from workbench.report.table import laid_out
from workbench.values.documents.input_files import size_text
from workbench.values.measurement import Estimate

_WIDEST = 120


def print_evaluation(found: LlmEvaluation) -> None:
    """Tables as wide as the terminal, then what follows from them in sentences."""
    if found.perplexity is not None:
        _say(
            f"On {found.windows} windows of at most {found.window} tokens, {found.predictions} predictions; executed "
            "on this processor with the card's order of steps, 95 % intervals over windows"
        )
        _table(_text_rows(found))
        for sentence in _text_sentences(found):
            _say(sentence)
    if found.chance is not None and found.float_accuracy is not None:
        _say("")
        right = found.float_accuracy
        share = f"{right.value:.1%} [{right.low:.1%}, {right.high:.1%}]"
        _say(f"Multiple choice: float {share}, guessing {found.chance:.1%}; paired over questions")
        _table(_choice_rows(found))
    _say("")
    _say("Sizes: files as they are; weights and cache on one card, by shapes and types")
    _table(_rows(_SIZES, (found.model, *found.checkpoints)))
    _say("")
    _say(
        f"Times MODELLED, not measured ({found.clock}): batch {found.load.batch}, prompts of "
        f"{found.load.prompt} tokens, context {found.load.context}; 95 % of what modelled times are off by"
    )
    _table(_rows(_TIMES, (found.model, *found.checkpoints)))
    notes: dict[str, list[str]] = {}
    for each in found.checkpoints:
        for note in each.notes:
            notes.setdefault(note, []).append(each.name)
    for note, names in notes.items():
        _say(f"{', '.join(names)}: {note}")


Column = tuple[str, Callable[[EvaluatedLlm], str]]


def _rows(columns: Sequence[Column], models: Iterable[EvaluatedLlm]) -> list[list[str]]:
    return [[head for head, _ in columns], *([cell(each) for _, cell in columns] for each in models)]


def _text_rows(found: LlmEvaluation) -> list[list[str]]:
    alike = _letters(found.perplexity)
    rows = [["", "perplexity", "of float", "KL (nats)", "top-1", "alike"]]
    for each in (found.model, *found.checkpoints):
        text = each.text
        assert text is not None  # all of them have it where there are windows
        beside = ["", "", ""]
        if each is not found.model:
            kl = text.kl
            margin = max(kl.high - kl.value, kl.value - kl.low)  # the wider side of the interval
            beside = [_interval(text.ratio, 5), f"{kl.value:.3g} ± {margin:.2g}", f"{text.top1.value:.1%}"]
        value = text.perplexity.value
        rows.append([each.name, f"{value:.2f}" if value < 1e5 else f"{value:.3g}", *beside, alike.get(each.name, "")])
    return rows


def _text_sentences(found: LlmEvaluation) -> list[str]:
    said = []
    if found.windows == 1:
        said.append("One window has no interval and tells no two models apart: give a longer text.")
    elif found.windows < FEW_WINDOWS:
        said.append(f"{found.windows} windows are few: intervals are rough below {FEW_WINDOWS}.")
    if any(_letters(found.perplexity).values()):
        said.append(
            "Models with a letter in common cannot be told apart in perplexity, all pairs compared at once with 95 %."
        )
    elif found.windows > 1 and found.perplexity is not None and len(found.perplexity.names) > 1:
        said.append("All of them can be told apart in perplexity, all pairs compared at once with 95 %.")
    for each in found.checkpoints:
        text = each.text
        if text is not None and text.windows_needed is not None:
            said.append(
                f"{each.name}: these windows cannot tell it from float; about {text.windows_needed} would, if its "
                "difference stays."
            )
    kl = found.kl
    if kl is not None and len(kl.names) > 1:
        same = [
            f"{kl.names[i]} and {kl.names[j]}"
            for i in range(len(kl.names))
            for j in range(i + 1, len(kl.names))
            if kl.alike[i][j]
        ]
        told = f"these cannot be told apart: {'; '.join(same)}" if same else "all of them differ"
        said.append(f"In KL to float, which moves less by chance than perplexity, {told}.")
    return said


def _choice_rows(found: LlmEvaluation) -> list[list[str]]:
    alike = _letters(found.accuracy)
    rows = [["", "right", "loss (pp)", "p", "lost", "won", "changed", "alike"]]
    for each in found.checkpoints:
        if (choices := each.choices) is not None:
            drop = _interval(choices.drop.drop_pp, 3, signed=True)
            row = [each.name, f"{choices.accuracy:.1%}", drop, f"{choices.drop.p_value:.3f}"]
            row += [f"{choices.lost}", f"{choices.won}", f"{choices.changed} of {choices.questions}"]
            rows.append([*row, alike.get(each.name, "")])
    return rows


def _linears(each: EvaluatedLlm) -> str:
    kinds = " ".join(f"{count} {kind}" for kind, count in each.types.items())
    return kinds + (" C8" if each.quantized_cache else "")


_SIZES: tuple[Column, ...] = (
    ("", lambda each: each.name),
    ("on disk", lambda each: size_text(each.figures.disk_bytes)),
    ("on card", lambda each: size_text(each.figures.weight_bytes)),
    ("cache a token", lambda each: size_text(each.figures.kv_bytes_per_token)),
    ("linears", _linears),
)
_TIMES: tuple[Column, ...] = (
    ("", lambda each: each.name),
    ("prefill ms", lambda each: f"{each.figures.prefill_ms.value:.3g}"),
    ("of float", lambda each: _interval(each.figures.prefill_ratio, 3)),
    ("decode ms", lambda each: f"{each.figures.decode_ms.value:.3g}"),
    ("of float", lambda each: _interval(each.figures.decode_ratio, 3)),
)


def _letters(alike: Alike | None) -> dict[str, str]:
    if alike is None:
        return {}
    return dict(zip(alike.names, letters(len(alike.names), lambda i, j: alike.alike[i][j]), strict=True))


def _interval(estimate: Estimate | None, digits: int, *, signed: bool = False) -> str:
    """'1.023 [1.018, 1.029]', of what is hundreds of times too large fewer digits; '1' where there is no interval."""
    if estimate is None:
        return ""
    digits = digits if abs(estimate.high) < 100 else 2
    sign = "+" if signed else ""
    low, value, high = (f"{x:{sign}.{digits}g}" for x in (estimate.low, estimate.value, estimate.high))
    return value if low == high else f"{value} [{low}, {high}]"


def _table(rows: Sequence[Sequence[str]]) -> None:
    """Names to the left, figures to the right; as wide as the terminal, at most 120 columns."""
    width = max(len(row[0]) for row in rows)
    padded = [[row[0].ljust(width), *row[1:]] for row in rows]
    for lines in laid_out(padded, min(out.width, _WIDEST)):
        for line in lines:
            say(line)


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, width=min(out.width, _WIDEST))
