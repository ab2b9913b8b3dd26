"""Golden prompts of a language model: token ids, its greedy answer, and the logits this very checkpoint gave there.

golden/prompts.json holds them with their tolerance, so that whoever asks the served model needs no other file. It is
written by us and read from strangers, so every value is bounded before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.bundle.bounds import LANGUAGE, MOST_RELATIVE, absolute_fault, json_object
from workbench.bundle.manifest import Tolerance
from workbench.bundle.opened import Bundle
from workbench.targets.language import Logits, PromptedModel
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.errors import BundleError, MeasureError

PROMPTS = "golden/prompts.json"
VERSION = 1
MOST_PROMPTS, MOST_TOKENS, MOST_STEPS, MOST_TOP = 64, 2048, 64, 256
"""Of a file; of a prompt; of an answer; and of the ids kept with each token of an answer."""
MOST_BYTES = 1 << 25
MOST_CHARACTERS = 1 << 20
MOST_SHARE = 0.25
"""Of the largest logit, that an absolute tolerance may be: one INT8 step more or less in an early block moves the
logits of a bfloat16 model of a few thousand weights by a tenth [measured]."""
_MOST_VOCABULARY, _MOST_LOGIT = 1 << 24, 1e30
ABOUT = (
    "Greedy answers (temperature 0, end of sequence ignored) and the likeliest ids at every token of them, computed on "
    "a processor from the checkpoint in model/ in the arithmetic of its device; no device was asked. logits and "
    "log_probabilities (natural logarithm, over the whole vocabulary) belong to ids, the likeliest first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStep:
    """What the model said in place of one token of the answer: its likeliest ids, the likeliest first.

    Attributes:
        logits, log_probabilities: of these ids; the logarithm is natural, over the whole vocabulary.
    """

    ids: tuple[int, ...]
    logits: tuple[float, ...]
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPrompt:
    """Attributes:
    text: `ids` are its first tokens.
    answer, answer_text: what the model goes on with, every token the likeliest.
    steps: of every token of the answer.
    """

    text: str
    ids: tuple[int, ...]
    answer: tuple[int, ...]
    answer_text: str
    steps: tuple[KeptStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPrompts:
    """Answers of all prompts have one length.

    Attributes:
        about: for whoever opens the file.
        tolerance: a logit may differ from the kept one by it, a log-probability by twice the largest of its token: it
            is a difference of two.
        tolerance_source: where the tolerance is from.
        largest_measured: largest difference of a kept logit between `ways` to execute the same checkpoint here.
        device: why a device may not run it as it is; '' where nothing is known.
    """

    version: int = VERSION
    about: str = ABOUT
    vocabulary: int
    tolerance: Tolerance
    tolerance_source: str
    largest_measured: float
    ways: tuple[str, ...]
    device: str
    prompts: tuple[GoldenPrompt, ...]

    @property
    def tokens(self) -> int:
        """Of every answer."""
        return len(self.prompts[0].answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReplay:
    """How far this machine's answers lie from the kept ones, all within the tolerance.

    Attributes:
        prompts, logits: how many were compared.
        largest: difference of a logit; `largest_log`: of a log-probability.
        share: the largest difference as a share of what is allowed for it; 0 where all are equal.
        ties: tokens of answers that are not the likeliest here, since two lie within the tolerance of each other.
        device: as `GoldenPrompts.device`.
    """

    prompts: int
    logits: int
    largest: float
    largest_log: float
    share: float
    ties: int
    device: str

    @property
    def words(self) -> str:
        """One clause of a report."""
        text = (
            f"{self.prompts} golden prompts replayed on the processor: {self.logits} logits, largest difference "
            f"{self.largest:.2g} ({self.share:.0%} of the tolerance), of log-probabilities {self.largest_log:.2g}"
        )
        return f"{text}, {self.ties} tokens of answers are ties here" if self.ties else text


def golden_prompts(bundle: Bundle) -> GoldenPrompts:
    """The prompts of a bundle.

    Raises:
        BundleError: the file does not hold what it should, or another tolerance than the manifest.
    """
    manifest = bundle.manifest
    if manifest.task != LANGUAGE:
        raise BundleError(f"{bundle.directory}: it holds samples, and no prompts of a language model.")
    try:
        if manifest.files[manifest.golden].size_bytes > MOST_BYTES:
            raise ValueError(f"they have more than {MOST_BYTES >> 20} MiB")
        found = decode(GoldenPrompts, json_object(bundle.read(manifest.golden), "prompts"), "prompts")
        for fault in prompt_faults(found):
            raise ValueError(fault)
        if found.tolerance != manifest.tolerance or len(found.prompts) != manifest.golden_batches:
            raise ValueError("their number or their tolerance is another than the manifest's")
    except (DecodeError, ValueError) as error:
        raise BundleError(f"{bundle.directory}: the golden prompts cannot be used: {error}.") from error
    return found


def prompt_faults(found: GoldenPrompts) -> Iterator[str]:
    """What no file of ours says, in words."""
    if found.version != VERSION:
        yield f"version {found.version} is unknown"
    if not 0 < found.vocabulary <= _MOST_VOCABULARY or not 0 < len(found.prompts) <= MOST_PROMPTS:
        yield f"{len(found.prompts)} prompts over {found.vocabulary} ids are none, or too many"
    for number, prompt in enumerate(found.prompts):
        if len(prompt.answer) != len(found.prompts[0].answer):
            yield f"prompt {number}: its answer has another length than the first one's"
        for fault in _prompt_faults(prompt, found.vocabulary):
            yield f"prompt {number}: {fault}"
    allowed = found.tolerance
    if not (0 <= allowed.absolute <= _MOST_LOGIT and 0 <= allowed.relative <= MOST_RELATIVE):
        yield f"a tolerance of {allowed.absolute:g} and {allowed.relative:g} is none"
    largest = max((abs(each) for p in found.prompts for s in p.steps for each in s.logits), default=0.0)
    if fault := absolute_fault(allowed.absolute, largest, MOST_SHARE):
        yield fault


def _prompt_faults(prompt: GoldenPrompt, vocabulary: int) -> Iterator[str]:
    if not 0 < len(prompt.ids) <= MOST_TOKENS or len(prompt.text) > MOST_CHARACTERS:
        yield f"{len(prompt.ids)} tokens, {len(prompt.text)} characters are none, or too many"
    if not 0 < len(prompt.answer) <= MOST_STEPS or len(prompt.steps) != len(prompt.answer):
        yield f"an answer of {len(prompt.answer)} tokens with {len(prompt.steps)} steps"
    ids = [*prompt.ids, *prompt.answer]
    for number, step in enumerate(prompt.steps):
        sizes = {len(step.ids), len(step.logits), len(step.log_probabilities), len(set(step.ids))}
        if len(sizes) > 1 or not 0 < len(step.ids) <= MOST_TOP:
            yield f"token {number} has {len(step.ids)} ids and {len(step.logits)} logits"
        if not all(math.isfinite(one) and abs(one) <= _MOST_LOGIT for one in (*step.logits, *step.log_probabilities)):
            yield f"token {number} has a logit that is none"
        ids += step.ids
    if not all(0 <= one < vocabulary for one in ids):
        yield f"an id is beyond the vocabulary of {vocabulary}"


def kept_step(logits: Logits, top: int) -> KeptStep:
    """The likeliest ids in place of one token; of equal ones the lowest first."""
    wide = logits.astype(np.float64)
    order = np.lexsort((np.arange(len(wide)), -wide))[:top]
    values = wide[order]
    return KeptStep(
        ids=tuple(map(int, order)),
        logits=tuple(map(float, values)),
        log_probabilities=tuple(map(float, values - _log_sum(wide))),
    )


def _log_sum(wide: npt.NDArray[np.float64]) -> float:
    highest = float(wide.max())
    return highest + math.log(float(np.exp(wide - highest).sum()))


def replay_prompts(bundle: Bundle, model: PromptedModel) -> PromptReplay:
    """Let the model go through every prompt and its kept answer, and hold its logits against the kept ones.

    Raises:
        BundleError: a text becomes other ids, a logit or a log-probability differs by more than the tolerance, or the
            likeliest token of an answer is another by more than that; names prompt and token.
        MeasureError: the checkpoint cannot be executed.
    """
    golden = golden_prompts(bundle)
    if golden.vocabulary != model.vocabulary:
        raise BundleError(
            f"{bundle.directory}: the golden prompts are of {golden.vocabulary} ids, the model has {model.vocabulary}."
        )
    for number, prompt in enumerate(golden.prompts):
        if model.ids(prompt.text)[: len(prompt.ids)] != list(prompt.ids):
            raise BundleError(
                f"{bundle.directory}: the text of golden prompt {number} becomes other ids here than when the bundle "
                "was made. Install the tokenizers version it was made with."
            )
    logits = ties = 0
    largest = largest_log = share = 0.0

    def hold(where: str, what: str, differences: npt.NDArray[np.float64], allowed: npt.NDArray[np.float64]) -> float:
        """The largest difference, which is within what is allowed."""
        nonlocal share
        at = int(np.argmax(differences - allowed))
        if differences[at] > allowed[at]:
            raise BundleError(
                f"{where}: a {what} differs by {differences[at]:.3g}, {allowed[at]:.3g} is allowed. The checkpoint or "
                "what executes it here is another than when the bundle was made."
            )
        moved = differences > 0
        share = max(share, float((differences[moved] / allowed[moved]).max(initial=0.0)))
        return float(differences.max())

    def compare(number: int, token: int, row: Logits) -> None:
        nonlocal logits, ties, largest, largest_log
        where = f"{bundle.directory}: golden prompt {number}, token {token} of its answer"
        wide = row.astype(np.float64)
        if not np.isfinite(wide).all():
            raise MeasureError(f"{where}: a logit is NaN or infinite.")
        prompt, tolerance = golden.prompts[number], golden.tolerance
        step = prompt.steps[token]
        kept, here = np.array(step.logits), wide[list(step.ids)]
        allowed = tolerance.margin(kept)
        logarithms = np.abs(here - _log_sum(wide) - np.array(step.log_probabilities))
        largest = max(largest, hold(where, "logit", np.abs(here - kept), allowed))
        twice = np.full(len(kept), 2 * allowed.max())
        largest_log = max(largest_log, hold(where, "log-probability", logarithms, twice))
        logits += len(kept)
        likeliest, wanted = int(wide.argmax()), prompt.answer[token]
        behind = float(wide[likeliest] - wide[wanted])
        tie = 2 * float(tolerance.margin(wide[[likeliest]])[0])
        if likeliest != wanted and behind > tie:
            raise BundleError(
                f"{where} is id {likeliest} here and {wanted} in the bundle, whose logit is {behind:.3g} lower; "
                f"{tie:.3g} is allowed."
            )
        ties += likeliest != wanted

    answers = [prompt.answer for prompt in golden.prompts]
    model.answers([prompt.ids for prompt in golden.prompts], golden.tokens, compare, given=answers)
    return PromptReplay(
        prompts=len(golden.prompts),
        logits=logits,
        largest=largest,
        largest_log=largest_log,
        share=share,
        ties=ties,
        device=golden.device,
    )
