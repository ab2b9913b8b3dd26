"""What an evaluation of a float model's checkpoints finds: measured on texts, read from files, or modelled."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.quantization.llm import choices as multiple
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.choices import ChoiceComparison, read_questions
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.quantization.llm.outcomes import (
    COLUMNS,
    FloatReference,
    TextComparison,
    compare_text,
    float_outcomes,
    float_reference,
    joined,
    outcomes_of,
    text_outcomes,
    text_pairs,
    windows_of,
)
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.needs import check_memory, memory_bytes
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.serving_times import ServedFigures, card_times, served_figures
from workbench.targets.ascend_llm.tensors import DESCRIPTION
from workbench.targets.ascend_llm.texts import encoder_of, read_documents, read_tokenizer
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Estimate, LanguageLoad
from workbench.values.paired_scores import TokenWindow, WindowOutcomes
from workbench.values.significance import Pairs
from workbench.values.system.source_closure import closure_digest

FLOAT = "float"
_WINDOWS_AT_ONCE = 32
"""Of one pass over a checkpoint's blocks; the hidden states of so many windows are in memory beside a block."""
_MOST_FILES = 4096
"""Of kept outcomes; the oldest leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedLlm:
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
class LlmEvaluation:
    """Attributes:
    checkpoints: in the order in which they were given.
    perplexity: who cannot be told apart in the logarithm of perplexity; None with no text.
    kl: likewise in KL, in nats a token, without the float model.
    accuracy: likewise in the share of right answers to questions.
    chance: the share of questions that guessing gets right; None without questions.
    float_accuracy: with its interval for other questions of the kind; likewise.
    load, clock: what the modelled times are of.
    """

    model: EvaluatedLlm
    checkpoints: tuple[EvaluatedLlm, ...]
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


def evaluate_llm(
    model: Path | str,
    checkpoints: Sequence[Path | str],
    *,
    texts: Sequence[Path] = (),
    window: int = 512,
    stride: int | None = None,
    windows: int | None = None,
    questions: Sequence[Path] = (),
    examples: Sequence[Path] = (),
    shots: int = 0,
    kept_in: Path | None = None,
    on_message: Callable[[str], None] = lambda line: None,
) -> LlmEvaluation:
    """Evaluate checkpoints beside the float model that they were made of, by texts, by questions, or both; paired, with
    intervals, sizes and modelled times.

    Windows and questions take the arithmetic of generated tokens (`forward.Stage`). Deterministic for one number of
    threads and one version of torch. A killed run goes on, and further checkpoints cost theirs alone.

    Args:
        texts: files of `read_documents`, cut into windows.
        window, stride: in tokens; the window's stride when None.
        windows: no more than the first so many; all when None.
        questions, examples: files or folders of `read_questions`.
        shots: examples before each question.
        kept_in: a folder for the float model's states and for outcomes of windows; in the user's cache when None.
        on_message: told in a sentence how far it is.

    Raises:
        ConfigError: a file is missing or damaged, a checkpoint is of another model or one that an engine would refuse,
            a text does not fit the model's context, or there is too little memory.
        MeasureError: a model gives values that are NaN or infinite; names it and the window.
    """
    if not (texts or questions):
        raise ConfigError("nothing to evaluate on.", hint="Give --text or --choices.")
    opened, stride = open_model(Path(model)), window if stride is None else stride
    served = {name: read_served(folder) for name, folder in _named(checkpoints).items()}
    for checkpoint in served.values():
        _check_same(opened, checkpoint)
    encode = encoder_of(read_tokenizer(opened.folder, opened.config))
    cut: list[TokenWindow] = []
    if texts:
        ids = [encode(text) for path in texts for text in read_documents(path)]
        found = windows_of(ids, window=window, stride=stride, context=opened.config.context)[:windows]
        # in a random order, so that the first of them stand for all
        cut = [found[place] for place in np.random.default_rng(0).permutation(len(found))]
    shown, to_ask = (read_questions(paths) if paths else [] for paths in (examples, questions))
    asked = multiple.asked(to_ask, encode, opened.config, shots=shots, examples=shown)
    lengths = [len(each.ids) for each in cut]
    longest = max([*lengths, *(len(ids) for each in asked for ids in each.inputs)])
    check_memory(memory_bytes(opened.config, tokens=sum(lengths), longest=longest, scored=True), "--windows")
    on_message(f"float: {len(cut)} windows, {len(asked)} questions")
    folder = kept_in or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench" / "judged"
    reference = float_reference(opened, cut, kept_in=folder) if cut else None
    outcomes, chosen, evaluated, load = [], [], [], LanguageLoad()
    models: dict[str, Served | None] = {FLOAT: None, **served}
    for name, each in models.items():
        with _named_errors(name):
            if reference is not None and each is None:
                outcomes.append(float_outcomes(cut, reference(0, len(cut))))
            elif reference is not None and each is not None:
                outcomes.append(_on_windows(name, opened, each, reference, cut, folder, on_message))
            if asked:
                if each is not None:
                    on_message(f"{name}: {len(asked)} questions")
                forward = logits_of(float_decoder(opened) if each is None else served_decoder(each), "decode")
                chosen.append(multiple.answers(name, asked, forward))
        kinds = each.types.values() if each else ["FLOAT" for _ in opened.linears()]
        evaluated.append(
            EvaluatedLlm(
                name=name,
                folder=(each or opened).folder,
                types=dict(Counter(kinds).most_common()),
                quantized_cache=each is not None and bool(each.cached),
                figures=served_figures(opened, each, load),
                text=compare_text(outcomes[0], outcomes[-1]) if cut else None,
                choices=multiple.compare_answers(asked, chosen[0], chosen[-1]) if asked and each else None,
                notes=each.unserved if each else (),
            )
        )
    names = tuple(models)
    return LlmEvaluation(
        model=evaluated[0],
        checkpoints=tuple(evaluated[1:]),
        window=window,
        stride=stride,
        windows=len(cut),
        predictions=sum(each.predictions for each in cut),
        perplexity=_alike(names, text_pairs(outcomes, "nll")) if cut else None,
        kl=_alike(names[1:], text_pairs(outcomes[1:], "kl")) if cut and served else None,
        accuracy=_alike(names, multiple.accuracy_pairs(asked, chosen)) if asked else None,
        chance=multiple.chance(asked) if asked else None,
        float_accuracy=multiple.accuracy(asked, chosen[0]) if asked else None,
        load=load,
        clock=card_times().name,
    )


def _named(checkpoints: Sequence[Path | str]) -> dict[str, Path]:
    """Names of folders, with the folder above where two are alike."""
    places = [Path(folder).resolve() for folder in checkpoints]
    plain, found = Counter(place.name for place in places), dict[str, Path]()
    for place, folder in zip(places, checkpoints, strict=True):
        name = place.name if plain[place.name] == 1 and place.name != FLOAT else f"{place.parent.name}/{place.name}"
        if name in found:
            raise ConfigError(f"{folder} is given twice.", key="CHECKPOINT")
        found[name] = Path(folder)
    return found


def _check_same(model: LlmModel, served: Served) -> None:
    ours, theirs = model.config, served.config
    for what in ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocabulary"):
        if getattr(ours, what) != getattr(theirs, what):
            raise ConfigError(
                f"{what} is {getattr(theirs, what)}, that of {model.folder} {getattr(ours, what)}.",
                file=served.folder,
                hint="Evaluate a checkpoint beside the model that it was made of.",
            )


def _on_windows(
    name: str,
    model: LlmModel,
    served: Served,
    reference: FloatReference,
    windows: Sequence[TokenWindow],
    kept_in: Path,
    report: Callable[[str], None],
) -> WindowOutcomes:
    """Outcomes of all windows, so many at a time; those that were kept are read."""
    forward, key, parts = logits_of(served_decoder(served), "decode"), _deciding(model, served), list[WindowOutcomes]()
    for first in range(0, len(windows), _WINDOWS_AT_ONCE):
        chosen = windows[first : first + _WINDOWS_AT_ONCE]
        file = kept_in / f"{digest([key, [[each.first, each.ids.tolist()] for each in chosen]])}.outcomes.json"
        try:
            found = read_sealed(file)
            parts.append(outcomes_of(*(found[column] for column in COLUMNS)))
            file.touch()
        except Unsound:
            part = text_outcomes(name, chosen, reference(first, first + len(chosen)), forward, first=first)
            kept_in.mkdir(parents=True, exist_ok=True)
            write_sealed(file, {column: getattr(part, column).tolist() for column in COLUMNS})
            parts.append(part)
        done = first + len(chosen)
        report(f"{name}: {done} of {len(windows)} windows, perplexity {joined(parts).perplexity:.4g}")
    for old in sorted(kept_in.glob("*.outcomes.json"), key=lambda each: -each.stat().st_mtime)[_MOST_FILES:]:
        old.unlink(missing_ok=True)
    return joined(parts)


def _deciding(model: LlmModel, served: Served) -> str:
    """Digest of what decides a checkpoint's outcomes but for the windows: models, code, torch's kernels."""
    files = {served.folder / DESCRIPTION, served.folder / "config.json", *served.places.values()}
    return digest(
        {
            "served": {file.name: file_digest(file) for file in files},
            "float": model.content(),
            "code": closure_digest(
                "workbench.targets.ascend_llm.execution",
                "workbench.quantization.llm.outcomes",
            ),
            "kernels": kernels(),
        }
    )


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except MeasureError as error:
        named = str(error).startswith((name, "the float model"))
        raise MeasureError(str(error) if named else f"{name}: {error}") from error


def _alike(names: tuple[str, ...], pairs: Pairs) -> Alike:
    return Alike(names=names, alike=tuple(tuple(map(bool, row)) for row in pairs.alike.tolist()))
