"""What judging a float model's checkpoints finds, as values: measured on texts, read from files, or modelled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.quantization.llm import choices as multiple
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.choices import Answers, AskedQuestion, By, ChoiceComparison
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.differences import (
    AnswerAgreement,
    TextComparison,
    certainly_above,
    compare_continuations,
    compare_text,
    kl_pairs,
    looks,
    perplexity_pairs,
)
from workbench.quantization.llm.forwards import Decoder, Forward, Stage, float_decoder, float_logits, greedy
from workbench.quantization.llm.outcomes import TextOutcomes, Window, all_windows, float_outcomes, joined, text_outcomes
from workbench.quantization.llm.questions import read_questions
from workbench.quantization.llm.reference import FloatReference, float_reference
from workbench.targets.ascend_llm.execution import served_decoder, served_logits
from workbench.targets.ascend_llm.forecast import check_memory, judging_bytes
from workbench.targets.ascend_llm.kept import judged_key, keep_outcomes, kept_outcomes, outcomes_file
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.serving_times import (
    ServedFigures,
    ServedShape,
    card_times,
    served_figures,
)
from workbench.targets.ascend_llm.texts import encoder_of, prompt_ids, read_documents, read_prompts, read_tokenizer
from workbench.targets.language import TokenWindow, WindowScores
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Estimate
from workbench.values.simultaneous import Pairs

FLOAT = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedModel:
    """The float model, or one checkpoint.

    Attributes:
        types: type → how many linears of the blocks have it.
        text: against float, on the windows that it was judged on; None where no text was given.
        stopped: why it was not judged on all windows, in words; empty where it was.
        answers: of greedy continuations of prompts.
        notes: what an engine would not do with it, in sentences.
    """

    name: str
    folder: Path
    types: Mapping[str, int]
    quantized_cache: bool
    figures: ServedFigures
    text: TextComparison | None = None
    stopped: str = ""
    choices: ChoiceComparison | None = None
    answers: AnswerAgreement | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Attributes:
    first, second: names of models.
    estimate: the first's figure less the second's, with an interval that holds at once with those of all other pairs.
    """

    first: str
    second: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Which models the windows or questions cannot tell apart, all pairs at once with 95 %.

    Attributes:
        names: the float model first where it takes part; models that were stopped early do not.
        alike: [names, names].
    differences: of every pair; none of a single window.
    """

    names: tuple[str, ...]
    alike: tuple[tuple[bool, ...], ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Attributes:
    checkpoints: in the order in which they were given.
    stage: whose arithmetic the windows took.
    perplexity: who cannot be told apart in the logarithm of perplexity; None with no text.
    kl: likewise in KL, in nats a token, without the float model.
    accuracy: likewise in the share of right answers to questions.
    chance: the share of questions that guessing gets right; None without questions.
    float_accuracy: with its interval for other questions of the kind; likewise.
    shape, clock: what the modelled times are of.
    """

    model: JudgedModel
    checkpoints: tuple[JudgedModel, ...]
    window: int
    stride: int
    windows: int
    predictions: int
    stage: Stage
    perplexity: Alike | None
    kl: Alike | None
    accuracy: Alike | None
    chance: float | None
    float_accuracy: Estimate | None
    shape: ServedShape
    clock: str
    notes: tuple[str, ...] = ()


_WINDOWS_AT_ONCE = 32
"""Of one pass over a checkpoint's blocks; the hidden states of so many windows are in memory beside a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What to judge on; at least one of texts, questions and prompts.

    Attributes:
        texts: files of `read_documents`, cut into windows.
        window, stride: in tokens.
        windows: no more than the first so many; all when None.
        stop_above: a checkpoint stops when its perplexity is certainly more than this many times the float model's.
        questions, examples: files or folders of `read_questions`.
        shots: examples before each question.
        prompts: a file of `read_prompts`.
        answer_tokens: that each prompt is continued by.
        stage: whose arithmetic windows and questions take (`served_logits`); prompts take both.
        shape: of the modelled times.
        kept_in: a folder for the float model's states and for outcomes of windows, so that a killed run goes on, and
            judging more checkpoints later costs theirs alone.
    """

    texts: tuple[Path, ...] = ()
    window: int = 512
    stride: int = 512
    windows: int | None = None
    stop_above: float | None = None
    questions: tuple[Path, ...] = ()
    examples: tuple[Path, ...] = ()
    by: By = "letter"
    shots: int = 0
    prompts: Path | None = None
    answer_tokens: int = 32
    stage: Stage = "decode"
    shape: ServedShape = ServedShape()  # noqa: RUF009  # a frozen value
    kept_in: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """Everything that models are asked, as tokens, and what the float model says to it."""

    windows: Sequence[Window]
    reference: FloatReference | None
    outcomes: TextOutcomes | None
    questions: Sequence[AskedQuestion]
    chosen: Answers | None
    prompts: Sequence[torch.Tensor]
    said: Sequence[torch.Tensor]
    ends: frozenset[int]


def judge(
    model_folder: Path,
    checkpoints: Sequence[Path],
    judging: Judging,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> Judgement:
    """Judge checkpoints beside the float model that they were made of.

    Deterministic for one number of threads and one version of torch.

    Raises:
        ConfigError: a file is missing or damaged, a checkpoint is of another model or one that an engine would refuse,
            a text does not fit the model's context, or there is too little memory.
        MeasureError: a model gives values that are NaN or infinite; names it and the window.
    """
    if not (judging.texts or judging.questions or judging.prompts):
        raise ConfigError("nothing to judge on.", hint="Give --text, --choices or --prompts.")
    if judging.stop_above is not None and not judging.stop_above > 1:
        raise ConfigError(f"{judging.stop_above:g} is not above 1.", key="--stop-above")
    model = open_model(model_folder)
    named = _named(checkpoints)
    served = {name: read_served(folder) for name, folder in named.items()}
    for name, each in served.items():
        _check_same(model, name, each)
    asked = _ask(model, judging, report)
    outcomes: dict[str, TextOutcomes] = {}
    chosen: dict[str, Answers] = {} if asked.chosen is None else {FLOAT: asked.chosen}
    judged = [_judged(name, each, model, asked, judging, (outcomes, chosen), report) for name, each in served.items()]
    whole = [name for name, found in outcomes.items() if len(found) == len(asked.windows)]
    return Judgement(
        model=JudgedModel(
            name=FLOAT,
            folder=model_folder,
            types={"FLOAT": len(list(model.linears()))},
            quantized_cache=False,
            figures=served_figures(model, None, judging.shape),
            text=None if asked.outcomes is None else compare_text(asked.outcomes, asked.outcomes),
        ),
        checkpoints=tuple(judged),
        window=judging.window,
        stride=judging.stride,
        windows=len(asked.windows),
        predictions=sum(window.predictions for window in asked.windows),
        stage=judging.stage,
        perplexity=None
        if asked.outcomes is None
        else _alike((FLOAT, *whole), perplexity_pairs([asked.outcomes, *(outcomes[name] for name in whole)])),
        kl=_alike(tuple(whole), kl_pairs([outcomes[name] for name in whole])) if whole else None,
        accuracy=_alike(tuple(chosen), multiple.accuracy_pairs(asked.questions, list(chosen.values())))
        if chosen
        else None,
        chance=multiple.chance(asked.questions) if asked.questions else None,
        float_accuracy=None if asked.chosen is None else multiple.accuracy(asked.questions, asked.chosen),
        shape=judging.shape,
        clock=card_times().name,
        notes=tuple(
            f"{name} is not judged on all windows and has no part in what follows."
            for name in outcomes
            if name not in whole
        ),
    )


def _named(checkpoints: Sequence[Path]) -> dict[str, Path]:
    """Names of folders, with the folder above where two are alike."""
    plain = [folder.resolve().name for folder in checkpoints]
    found: dict[str, Path] = {}
    for name, folder in zip(plain, checkpoints, strict=True):
        unique = name if plain.count(name) == 1 and name != FLOAT else f"{folder.resolve().parent.name}/{name}"
        if unique in found:
            raise ConfigError(f"{folder} is given twice.", key="CHECKPOINT")
        found[unique] = folder
    return found


def _check_same(model: LlmModel, name: str, served: Served) -> None:
    ours, theirs = model.config, served.config
    for what in ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocabulary"):
        if getattr(ours, what) != getattr(theirs, what):
            raise ConfigError(
                f"{what} is {getattr(theirs, what)}, that of {model.folder} {getattr(ours, what)}.",
                file=served.folder,
                hint="Judge a checkpoint beside the model that it was made of.",
            )


def _ask(model: LlmModel, judging: Judging, report: Callable[[str], None]) -> _Asked:
    config = model.config
    encode = encoder_of(read_tokenizer(model.folder, config))
    texts = [torch.tensor([encode(text)]) for path in judging.texts for text in read_documents(path)]
    windows = (
        all_windows(texts, config, window=judging.window, stride=judging.stride, most=judging.windows) if texts else []
    )
    asked = multiple.asked(
        read_questions(judging.questions) if judging.questions else [],
        encode,
        config,
        by=judging.by,
        shots=judging.shots,
        examples=read_questions(judging.examples) if judging.examples else [],
    )
    prompts = (
        prompt_ids(read_prompts(judging.prompts), encode, context=config.context, tokens=judging.answer_tokens)
        if judging.prompts
        else []
    )
    lengths = [window.ids.shape[-1] for window in windows]
    longest = max([*lengths, *(len(ids) for each in asked for ids in each.inputs), *(p.shape[-1] for p in prompts)])
    check_memory(judging_bytes(config, tokens=sum(lengths), longest=longest), "--windows")
    reference = None
    if windows:
        report(f"float: {len(windows)} windows")
        reference = float_reference(model, [window.ids for window in windows], kept_in=judging.kept_in)
    chosen = None
    if asked:
        report(f"float: {len(asked)} questions")
        chosen = multiple.answers(FLOAT, asked, float_logits(model))
    ends = _ends(config)
    if prompts:
        report(f"float: {len(prompts)} prompts")
    return _Asked(
        windows=windows,
        reference=reference,
        outcomes=None if reference is None else float_outcomes(windows, reference.logits()),
        questions=asked,
        chosen=chosen,
        prompts=prompts,
        said=greedy(float_decoder(model), prompts, judging.answer_tokens, ends=ends) if prompts else [],
        ends=ends,
    )


def _judged(
    name: str,
    served: Served,
    model: LlmModel,
    asked: _Asked,
    judging: Judging,
    known: tuple[dict[str, TextOutcomes], dict[str, Answers]],
    report: Callable[[str], None],
) -> JudgedModel:
    """Everything about one checkpoint.

    Args:
        known: outcomes on windows and answers to questions by name, to which its own are added.
    """
    outcomes, chosen = known
    text, stopped, choice, answers = None, "", None, None
    try:
        if asked.reference is not None and asked.outcomes is not None:
            forward = served_logits(served, stage=judging.stage)
            key = "" if judging.kept_in is None else judged_key(model, served, judging.stage)
            outcomes[name], stopped = _on_windows(name, forward, asked, judging, key, report)
            text = compare_text(asked.outcomes.first(len(outcomes[name])), outcomes[name])
        if asked.chosen is not None:
            report(f"{name}: {len(asked.questions)} questions")
            chosen[name] = multiple.answers(name, asked.questions, served_logits(served, stage=judging.stage))
            choice = multiple.compare_answers(asked.questions, asked.chosen, chosen[name])
        if asked.prompts:
            report(f"{name}: {len(asked.prompts)} prompts")
            answers = _continued(served_decoder(served), asked, judging.answer_tokens)
    except MeasureError as error:
        raise MeasureError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
    return JudgedModel(
        name=name,
        folder=served.folder,
        types=dict(Counter(served.types.values()).most_common()),
        quantized_cache=bool(served.cached),
        figures=served_figures(model, served, judging.shape),
        text=text,
        stopped=stopped,
        choices=choice,
        answers=answers,
        notes=served.unserved,
    )


def _on_windows(
    name: str, forward: Forward, asked: _Asked, judging: Judging, key: str, report: Callable[[str], None]
) -> tuple[TextOutcomes, str]:
    """Outcomes on all windows, or on the first where a look at them is enough; and why it was."""
    assert asked.reference is not None  # the caller has looked
    assert asked.outcomes is not None  # likewise
    total, limit = len(asked.windows), judging.stop_above
    planned = looks(total)
    # parts end at looks whether there is a limit or not, so that what is kept serves both
    ends = sorted({*planned, *range(_WINDOWS_AT_ONCE, total, _WINDOWS_AT_ONCE), total})
    parts: list[TextOutcomes] = []
    for first, end in zip([0, *ends], ends, strict=False):
        windows = asked.windows[first:end]
        file = None if judging.kept_in is None else outcomes_file(judging.kept_in, key, windows)
        part = None if file is None else kept_outcomes(file, len(windows))
        if part is None:
            part = _part(name, forward, windows, asked.reference, first)
            if file is not None:
                keep_outcomes(file, part)
        parts.append(part)
        so_far = joined(parts)
        float_ = asked.outcomes.first(end)
        ratio = so_far.perplexity / float_.perplexity
        report(f"{name}: {end} of {total} windows, perplexity {so_far.perplexity:.4g}, {ratio:.4g} times float's")
        if limit is None or end not in planned:
            continue
        certain = certainly_above(float_, so_far, limit=limit, planned_looks=len(planned))
        if certain is not None:
            return so_far, (
                f"after {end} of {total} windows its perplexity is certainly at least {certain:.4g} times float's; "
                f"the limit is {limit:g}"
            )
    return joined(parts), ""


def _part(
    name: str, forward: Forward, windows: Sequence[Window], reference: FloatReference, first: int
) -> TextOutcomes:
    logits = forward([window.ids for window in windows])
    floats = reference.logits(first, first + len(windows))
    try:
        return text_outcomes(name, windows, floats, logits, numbered_from=first)
    except MeasureError as error:
        if str(error).startswith(name) or not first:
            raise
        raise MeasureError(f"{name}, counted from window {first}: {error}") from error


def _continued(decoder: Decoder, asked: _Asked, tokens: int) -> AnswerAgreement:
    said = greedy(decoder, asked.prompts, tokens, ends=asked.ends)
    return compare_continuations(asked.said, said, tokens=tokens)


def _ends(config: LlmConfig) -> frozenset[int]:
    """Ids behind which a model's answers end, by config.json."""
    said = config.written.get("eos_token_id")
    found = said if isinstance(said, list) else [said]
    return frozenset(each for each in found if isinstance(each, int) and not isinstance(each, bool))


def _alike(names: tuple[str, ...], pairs: Pairs) -> Alike:
    differences = tuple(
        Difference(
            first=names[i],
            second=names[j],
            estimate=Estimate(
                value=float(pairs.difference[i, j]), low=float(pairs.low[i, j]), high=float(pairs.high[i, j])
            ),
        )
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if math.isfinite(pairs.low[i, j])
    )
    return Alike(
        names=names, alike=tuple(tuple(map(bool, row)) for row in pairs.alike.tolist()), differences=differences
    )


class CheckpointJudge:
    """See `workbench.targets.language.Judge`. The float model runs once for all checkpoints: its states are kept."""

    def __init__(
        self, model: LlmModel, served: Served | None, windows: Sequence[TokenWindow], kept_in: Path, name: str
    ) -> None:
        """Args:
        served: the checkpoint; None for the float model itself.
        name: of the candidate, for errors.
        """
        self._name = name
        self._windows = [Window(ids=torch.from_numpy(each.ids)[None], first=each.first) for each in windows]
        self._reference = float_reference(model, [each.ids for each in self._windows], kept_in=kept_in)
        self._forward = None if served is None else served_logits(served)

    def scores(self, start: int, stop: int) -> WindowScores:
        chosen = self._windows[start:stop]
        if self._forward is None:
            return _plain(float_outcomes(chosen, self._reference.logits(start, stop)))
        given = self._forward([each.ids for each in chosen])
        return _plain(
            text_outcomes(self._name, chosen, self._reference.logits(start, stop), given, numbered_from=start)
        )


def _plain(outcomes: TextOutcomes) -> WindowScores:
    return WindowScores(nll=outcomes.nll, predictions=outcomes.predictions, kl=outcomes.kl, agreed=outcomes.agreed)
