"""What judging a float model's checkpoints finds, as values: measured on texts, read from files, or modelled."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.quantization.llm import choices as multiple
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.choices import AskedQuestion, ChoiceComparison, read_questions
from workbench.quantization.llm.forwards import Forward, float_logits
from workbench.quantization.llm.outcomes import (
    TextComparison,
    Window,
    all_windows,
    compare_text,
    float_outcomes,
    joined,
    kl_pairs,
    perplexity_pairs,
    text_outcomes,
)
from workbench.quantization.llm.reference import FloatReference, float_reference
from workbench.targets.ascend_llm.execution import served_logits
from workbench.targets.ascend_llm.kept import judged_key, keep_outcomes, kept_outcomes, outcomes_file
from workbench.targets.ascend_llm.needs import check_memory, memory_bytes
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.serving_times import ServedFigures, card_times, served_figures
from workbench.targets.ascend_llm.texts import encoder_of, read_documents, read_tokenizer
from workbench.targets.language import Scores, TokenWindow
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Estimate, LanguageLoad
from workbench.values.paired_scores import WindowOutcomes
from workbench.values.significance import Pairs

FLOAT = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedModel:
    """The float model, or one checkpoint.

    Attributes:
        types: type → how many linears of the blocks have it.
        text: against float, on the windows; None where no text was given.
        notes: what an engine would not do with it, in sentences.
    """

    name: str
    folder: Path
    types: Mapping[str, int]
    quantized_cache: bool
    figures: ServedFigures
    text: TextComparison | None = None
    choices: ChoiceComparison | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Which models the windows or questions cannot tell apart, all pairs at once with 95 %.

    Attributes:
        names: the float model first where it takes part.
        alike: [names, names].
    """

    names: tuple[str, ...]
    alike: tuple[tuple[bool, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Attributes:
    checkpoints: in the order in which they were given.
    perplexity: who cannot be told apart in the logarithm of perplexity; None with no text.
    kl: likewise in KL, in nats a token, without the float model.
    accuracy: likewise in the share of right answers to questions.
    chance: the share of questions that guessing gets right; None without questions.
    float_accuracy: with its interval for other questions of the kind; likewise.
    load, clock: what the modelled times are of.
    """

    model: JudgedModel
    checkpoints: tuple[JudgedModel, ...]
    window: int
    stride: int
    windows: int
    predictions: int
    perplexity: Alike | None
    kl: Alike | None
    accuracy: Alike | None
    chance: float | None
    float_accuracy: Estimate | None
    load: LanguageLoad
    clock: str


_WINDOWS_AT_ONCE = 32
"""Of one pass over a checkpoint's blocks; the hidden states of so many windows are in memory beside a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What to judge on; at least one of texts and questions.

    Attributes:
        texts: files of `read_documents`, cut into windows.
        window, stride: in tokens.
        windows: no more than the first so many; all when None.
        questions, examples: files or folders of `read_questions`.
        shots: examples before each question.
        kept_in: a folder for the float model's states and for outcomes of windows, so that a killed run goes on, and
            judging more checkpoints later costs theirs alone.
    """

    texts: tuple[Path, ...] = ()
    window: int = 512
    stride: int = 512
    windows: int | None = None
    questions: tuple[Path, ...] = ()
    examples: tuple[Path, ...] = ()
    shots: int = 0
    kept_in: Path | None = None


def judge(
    model_folder: Path,
    checkpoints: Sequence[Path],
    judging: Judging,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> Judgement:
    """Judge checkpoints beside the float model that they were made of.

    Windows and questions take the arithmetic of generated tokens (`served_logits`). Deterministic for one number of
    threads and one version of torch.

    Raises:
        ConfigError: a file is missing or damaged, a checkpoint is of another model or one that an engine would refuse,
            a text does not fit the model's context, or there is too little memory.
        MeasureError: a model gives values that are NaN or infinite; names it and the window.
    """
    if not (judging.texts or judging.questions):
        raise ConfigError("nothing to judge on.", hint="Give --text or --choices.")
    model = open_model(model_folder)
    served = {name: read_served(folder) for name, folder in _named(checkpoints).items()}
    for each in served.values():
        _check_same(model, each)
    windows, asked = _asked(model, judging)
    report(f"float: {len(windows)} windows, {len(asked)} questions")
    outcomes, chosen, judged, load = [], [], [], LanguageLoad()
    if windows:
        reference = float_reference(model, [window.ids for window in windows], kept_in=judging.kept_in)
        outcomes.append(float_outcomes(windows, reference.logits()))
    if asked:
        chosen.append(multiple.answers(FLOAT, asked, float_logits(model)))
    for name, each in served.items():
        forward, text, choice = served_logits(each), None, None
        with _named_errors(name):
            if windows:
                outcomes.append(_on_windows(name, model, each, forward, reference, windows, judging.kept_in, report))
                text = compare_text(outcomes[0], outcomes[-1])
            if asked:
                report(f"{name}: {len(asked)} questions")
                chosen.append(multiple.answers(name, asked, forward))
                choice = multiple.compare_answers(asked, chosen[0], chosen[-1])
        judged.append(
            JudgedModel(
                name=name,
                folder=each.folder,
                types=dict(Counter(each.types.values()).most_common()),
                quantized_cache=bool(each.cached),
                figures=served_figures(model, each, load),
                text=text,
                choices=choice,
                notes=each.unserved,
            )
        )
    names = (FLOAT, *served)
    return Judgement(
        model=JudgedModel(
            name=FLOAT,
            folder=model_folder,
            types={"FLOAT": len(list(model.linears()))},
            quantized_cache=False,
            figures=served_figures(model, None, load),
            text=compare_text(outcomes[0], outcomes[0]) if windows else None,
        ),
        checkpoints=tuple(judged),
        window=judging.window,
        stride=judging.stride,
        windows=len(windows),
        predictions=sum(window.predictions for window in windows),
        perplexity=_alike(names, perplexity_pairs(outcomes)) if windows else None,
        kl=_alike(names[1:], kl_pairs(outcomes[1:])) if windows and served else None,
        accuracy=_alike(names, multiple.accuracy_pairs(asked, chosen)) if asked else None,
        chance=multiple.chance(asked) if asked else None,
        float_accuracy=multiple.accuracy(asked, chosen[0]) if asked else None,
        load=load,
        clock=card_times().name,
    )


def _named(checkpoints: Sequence[Path]) -> dict[str, Path]:
    """Names of folders, with the folder above where two are alike."""
    plain, found = Counter(folder.resolve().name for folder in checkpoints), dict[str, Path]()
    for folder in checkpoints:
        place = folder.resolve()
        name = place.name if plain[place.name] == 1 and place.name != FLOAT else f"{place.parent.name}/{place.name}"
        if name in found:
            raise ConfigError(f"{folder} is given twice.", key="CHECKPOINT")
        found[name] = folder
    return found


def _check_same(model: LlmModel, served: Served) -> None:
    ours, theirs = model.config, served.config
    for what in ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocabulary"):
        if getattr(ours, what) != getattr(theirs, what):
            raise ConfigError(
                f"{what} is {getattr(theirs, what)}, that of {model.folder} {getattr(ours, what)}.",
                file=served.folder,
                hint="Judge a checkpoint beside the model that it was made of.",
            )


def _asked(model: LlmModel, judging: Judging) -> tuple[list[Window], list[AskedQuestion]]:
    config = model.config
    encode = encoder_of(read_tokenizer(model.folder, config))
    texts = [torch.tensor([encode(text)]) for path in judging.texts for text in read_documents(path)]
    windows: list[Window] = []
    if texts:
        windows = all_windows(texts, config, window=judging.window, stride=judging.stride, most=judging.windows)
    examples = read_questions(judging.examples) if judging.examples else []
    questions = read_questions(judging.questions) if judging.questions else []
    asked = multiple.asked(questions, encode, config, shots=judging.shots, examples=examples)
    lengths = [window.ids.shape[-1] for window in windows]
    longest = max([*lengths, *(len(ids) for each in asked for ids in each.inputs)])
    check_memory(memory_bytes(config, tokens=sum(lengths), longest=longest, scored=True), "--windows")
    return windows, asked


def _on_windows(
    name: str,
    model: LlmModel,
    served: Served,
    forward: Forward,
    reference: FloatReference,
    windows: Sequence[Window],
    kept_in: Path | None,
    report: Callable[[str], None],
) -> WindowOutcomes:
    key, parts = "" if kept_in is None else judged_key(model, served), []
    for first in range(0, len(windows), _WINDOWS_AT_ONCE):
        chosen = windows[first : first + _WINDOWS_AT_ONCE]
        file = None if kept_in is None else outcomes_file(kept_in, key, chosen)
        part = None if file is None else kept_outcomes(file)
        if part is None:
            floats, logits = reference.logits(first, first + len(chosen)), forward([window.ids for window in chosen])
            part = text_outcomes(name, chosen, floats, logits, numbered_from=first)
            if file is not None:
                keep_outcomes(file, part)
        parts.append(part)
        done = first + len(chosen)
        report(f"{name}: {done} of {len(windows)} windows, perplexity {joined(parts).perplexity:.4g}")
    return joined(parts)


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except MeasureError as error:
        raise MeasureError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error


def _alike(names: tuple[str, ...], pairs: Pairs) -> Alike:
    return Alike(names=names, alike=tuple(tuple(map(bool, row)) for row in pairs.alike.tolist()))


def scores_of(
    model: LlmModel, served: Served | None, windows: Sequence[TokenWindow], kept_in: Path, name: str
) -> Scores:
    """See `workbench.targets.language`. The float model runs once for all checkpoints: its states are kept.

    Args:
        served: the checkpoint; None for the float model itself.
        name: of the candidate, for errors.
    """
    found = [Window(ids=torch.from_numpy(each.ids)[None], first=each.first) for each in windows]
    reference = float_reference(model, [each.ids for each in found], kept_in=kept_in)
    forward = None if served is None else served_logits(served)

    def scores(start: int, stop: int) -> WindowOutcomes:
        chosen, floats = found[start:stop], reference.logits(start, stop)
        if forward is None:
            return float_outcomes(chosen, floats)
        return text_outcomes(name, chosen, floats, forward([each.ids for each in chosen]), numbered_from=start)

    return scores
