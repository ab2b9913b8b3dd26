"""Texts as windows of tokens, and what a model's logits are worth on them: likelihood, distance from the float
model's, and how sure one can be of it.

    reference = float_reference(model, windows)                  # `reference`: once, for every checkpoint
    outcomes = text_outcomes("a", windows, reference(0, len(windows)), forward)

Every token is predicted at most once, the overlap of neighbours read as context alone. All sums are in float64, over
blocks of places, so that beside two windows' logits little memory is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forward import Forward, embedded, float_decoder, head_logits, through
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores, TokenWindow, WindowOutcomes
from workbench.values.significance import Pairs, all_pairs, paired_bootstrap
from workbench.values.system.files import temporary_beside
from workbench.values.system.source_closure import closure_digest


def windows_of(
    texts: Iterable[Sequence[int]], *, window: int, stride: int, context: int | None = None
) -> list[TokenWindow]:
    """The windows of texts, none across two of them, each `stride` tokens behind the one before; the last of a text
    holds what is left.

    With a stride below the window every token but a text's first is predicted exactly once, and at least
    `window - stride` tokens stand before it wherever the text has them. With a stride of the window nothing overlaps,
    as perplexities of quantized models are usually stated; the first token of each window is then predicted nowhere.

    Args:
        context: of the model, which no window may exceed.

    Raises:
        ConfigError: such sizes make no windows, or nothing is predicted.
    """
    if window < 2:
        raise ConfigError(f"a window of {window} tokens predicts nothing.", key="window", hint="Give at least 2.")
    if not 1 <= stride <= window:
        raise ConfigError(
            f"a stride of {stride} leaves tokens out or never moves.",
            key="stride",
            hint=f"Give 1 to {window}, the window.",
        )
    if context is not None and window > context:
        raise ConfigError(
            f"a window of {window} tokens is longer than the model's context of {context}.",
            key="window",
            hint="Lower it.",
        )
    found: list[TokenWindow] = []
    for text in texts:
        ids, predicted = np.array(text, dtype=np.int64), 1
        for start in range(0, len(ids), stride):
            end = min(start + window, len(ids))
            first = max(predicted - start, 1)
            if start + first < end:
                found.append(TokenWindow(ids=ids[start:end], first=first))
            predicted = end
            if end == len(ids):
                break
    if not found:
        raise ConfigError("the texts have less than 2 tokens: nothing is predicted.", hint="Give more text.")
    return found


def input_of(window: TokenWindow) -> torch.Tensor:
    """What a forward pass is given, [1, tokens]."""
    return torch.from_numpy(window.ids)[None]


Floats = npt.NDArray[np.float64]
_BLOCK_BYTES = 1 << 25
"""Of one block's float64 logits; half a dozen such arrays stand beside each other."""


COLUMNS = ("nll", "predictions", "kl", "agreed")
"""Of `WindowOutcomes`."""


def outcomes_of(
    nll: npt.ArrayLike, predictions: npt.ArrayLike, kl: npt.ArrayLike, agreed: npt.ArrayLike
) -> WindowOutcomes:
    """WindowOutcomes of a value for each window."""
    return WindowOutcomes(
        nll=np.array(nll, dtype=np.float64),
        predictions=np.array(predictions, dtype=np.int64),
        kl=np.array(kl, dtype=np.float64),
        agreed=np.array(agreed, dtype=np.int64),
    )


def joined(parts: Sequence[WindowOutcomes]) -> WindowOutcomes:
    """Parts of one model one after another; at least one."""
    return outcomes_of(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))


def text_outcomes(
    name: str, windows: Sequence[TokenWindow], reference: Iterable[torch.Tensor], forward: Forward, *, first: int = 0
) -> WindowOutcomes:
    """One model beside the float model, window by window.

    Args:
        name: of the model, for errors.
        reference: [1, tokens, vocabulary] of each window, of the float model; one at a time is taken.
        first: the number of the first window, for errors.
    """
    rows: list[tuple[float, int, float, int]] = []
    given = forward([input_of(window) for window in windows])
    for number, (window, ours, theirs) in enumerate(zip(windows, reference, given, strict=True), first):
        _check("the float model", number, window, ours, ours.shape[-1])
        _check(name, number, window, theirs, ours.shape[-1])
        nll, kl, agreed = 0.0, 0.0, 0
        for (p, targets), (q, _) in zip(_blocks(window, ours), _blocks(window, theirs), strict=True):
            nll -= float(q.gather(1, targets[:, None]).sum())
            agreed += int((p.argmax(1) == q.argmax(1)).sum())
            kl += float((p.exp() * (p - q)).sum())
        rows.append((nll, window.predictions, kl, agreed))
    return outcomes_of(*zip(*rows, strict=True))


def float_outcomes(windows: Sequence[TokenWindow], logits: Iterable[torch.Tensor]) -> WindowOutcomes:
    """The float model's own: it agrees with itself everywhere."""
    rows = []
    for number, (window, given) in enumerate(zip(windows, logits, strict=True)):
        _check("the float model", number, window, given, given.shape[-1])
        nll = sum(-float(block.gather(1, targets[:, None]).sum()) for block, targets in _blocks(window, given))
        rows.append((nll, window.predictions, 0.0, window.predictions))
    return outcomes_of(*zip(*rows, strict=True))


def _blocks(window: TokenWindow, logits: torch.Tensor) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """(log-probabilities float64 [places, vocabulary], targets [places]) of the places that count."""
    places = max(1, _BLOCK_BYTES // (8 * logits.shape[-1]))
    targets = torch.from_numpy(window.ids[window.first :])
    counted = logits[0, window.first - 1 : -1]
    for start in range(0, window.predictions, places):
        block = counted[start : start + places].to(torch.float64)
        yield torch.log_softmax(block, dim=1), targets[start : start + places]


def _check(name: str, number: int, window: TokenWindow, logits: torch.Tensor, vocabulary: int) -> None:
    expected = (1, len(window.ids), vocabulary)
    if tuple(logits.shape) != expected:
        raise MeasureError(
            f"{name}: window {number} has logits of shape {tuple(logits.shape)}, the float model's are {expected}. "
            "Evaluate checkpoints of this model only."
        )
    # a sum is finite where every value is, and quicker to look at; finite values may add up to infinity
    if not bool(torch.isfinite(logits.sum(dtype=torch.float64))) and (bad := int((~torch.isfinite(logits)).sum())):
        raise MeasureError(
            f"{name}: {bad} logits of window {number} are NaN or infinite. "
            "A scale is damaged, or a layer overflows its dtype: leave that layer float, or smooth it."
        )


# --- what separates models on the same windows ------------------------------------------------------------------------


FEW_WINDOWS = 10
"""With fewer, intervals over windows are rough: a bootstrap of so few values hardly knows their spread."""
_MOST_NATS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComparison:
    """One model on the windows, against the float model on the same; 95 % intervals over windows, none of one window.

    Windows are drawn together for all models, since tokens of one depend on each other. A perplexity's logarithm is a
    mean over tokens, so a ratio of two perplexities is exp of a paired difference.

    Attributes:
        perplexity: with the interval for other windows of such text.
        ratio: perplexity over the float model's, paired.
        kl: mean KL(float ‖ model) of a token, in nats.
        top1: share of tokens whose most likely next token is the float model's.
        windows_needed: windows that would tell it from float, if its difference stays as it is; None where these do, or
            where there is no difference.
    """

    windows: int
    predictions: int
    perplexity: Estimate
    ratio: Estimate
    kl: Estimate
    top1: Estimate
    windows_needed: int | None


def compare_text(reference: WindowOutcomes, outcomes: WindowOutcomes) -> TextComparison:
    """A model against the float model on the same windows."""
    if not np.array_equal(reference.predictions, outcomes.predictions):
        raise ValueError("outcomes of different windows cannot be paired")
    nll = _drop(outcomes, reference.nll, outcomes.nll)
    # counts of bounded samples, so an agreement everywhere is not taken for certain (`paired_bootstrap`)
    agreed = _drop(outcomes, reference.agreed, outcomes.agreed, higher=True, bounds=(0.0, 1.0))
    return TextComparison(
        windows=len(outcomes),
        predictions=int(outcomes.predictions.sum()),
        perplexity=_exp(_alone(outcomes, outcomes.nll)),
        ratio=_exp(nll),
        kl=_alone(outcomes, outcomes.kl),
        top1=replace(
            agreed,
            value=1 - agreed.value / 100,
            low=max(1 - agreed.high / 100, 0.0),
            high=min(1 - agreed.low / 100, 1.0),
        ),
        windows_needed=_windows_needed(nll, len(outcomes)),
    )


def text_pairs(models: Sequence[WindowOutcomes], column: Literal["nll", "kl"]) -> Pairs:
    """Differences of log perplexity or of the mean KL(float ‖ model), in nats a token, between all pairs of models; the
    intervals hold all at once."""
    return all_pairs(np.stack([getattr(each, column) for each in models]), models[0].predictions.astype(np.float64))


def _windows_needed(difference: Estimate, windows: int) -> int | None:
    """Windows that would bring the interval off 0, if the value stays: it shrinks with the root of the windows."""
    if difference.low > 0 or difference.high < 0 or difference.value == 0:
        return None
    half = difference.value - difference.low if difference.value > 0 else difference.high - difference.value
    return max(math.ceil(windows * (half / difference.value) ** 2), windows + 1)


def _drop(
    outcomes: WindowOutcomes,
    reference: npt.NDArray[Any],
    given: npt.NDArray[Any],
    *,
    higher: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """By how much a mean of a token is worse than the reference's, with its interval."""
    counted, unit = outcomes.predictions.astype(np.float64), "" if higher else "nats a token"
    ours, theirs = (
        PairedScores(numerators=x.astype(np.float64), denominators=counted, higher=higher, bounds=bounds, unit=unit)
        for x in (reference, given)
    )
    return paired_bootstrap(ours, theirs, seed=0).drop_pp


def _alone(outcomes: WindowOutcomes, sums: Floats) -> Estimate:
    """A mean of a token with its interval: the difference to a model that has none of it."""
    return _drop(outcomes, np.zeros(len(sums)), sums)


def _exp(logarithm: Estimate) -> Estimate:
    """Of a wrecked model that is beyond any number it is the largest that is told."""
    low, value, high = (math.exp(min(x, _MOST_NATS)) for x in (logarithm.low, logarithm.value, logarithm.high))
    return replace(logarithm, value=value, low=low, high=high)


# --- the float model's logits for every checkpoint that is evaluated, from one pass over its blocks -------------------


# What is kept is what the last block gives, [1, tokens, hidden] a window; its logits are made when they are asked for.
# So a window of 512 tokens of a model with 152 000 tokens and 896 channels costs 0.9 MB in bfloat16 rather than 156 MB,
# and the head's product again. Made again from kept states, logits are the same to the bit.

MOST_KEPT_BYTES = 2 << 30
"""Of all files in a folder of kept states."""


FloatReference = Callable[[int, int], Iterator[torch.Tensor]]
"""(first, end) → the float model's logits [1, tokens, vocabulary] of the windows from `first` to before `end`, one at a
time."""


def float_reference(model: LlmModel, windows: Sequence[TokenWindow], *, kept_in: Path | None = None) -> FloatReference:
    """Run the float model over windows, one block in memory at a time.

    Args:
        kept_in: a folder that keeps the states by the digest of all that decides them, with their own; a damaged file
            is made again. States above 2 GiB are not kept, and the oldest leave when there are more than that.

    Raises:
        ConfigError: a window is longer than the context or has tokens beyond the vocabulary, or weights are damaged.
        OSError: the folder cannot be written.
    """
    size = sum(len(each.ids) for each in windows) * model.config.hidden * model.config.dtype.itemsize
    file = None if kept_in is None or size > MOST_KEPT_BYTES else kept_in / f"{_states_key(model, windows)}.safetensors"
    if file is not None and _sound(file):
        file.touch()
        read = load_file(file)
        return _logits(model, [read[name] for name in sorted(read)])
    decoder = float_decoder(model)
    states = embedded(decoder, [input_of(each) for each in windows])
    for _ in through(decoder, states, "prefill"):
        pass
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(file) as draft:
            save_file({f"{number:06}": state for number, state in enumerate(states)}, draft)
        write_sealed(file.with_suffix(".json"), {"file": file_digest(file)})
        left = MOST_KEPT_BYTES
        for other in sorted(file.parent.glob("*.safetensors"), key=lambda each: -each.stat().st_mtime):
            left -= other.stat().st_size
            if left < 0:
                other.unlink(missing_ok=True)
                other.with_suffix(".json").unlink(missing_ok=True)
    return _logits(model, states)


def _logits(model: LlmModel, states: Sequence[torch.Tensor]) -> FloatReference:
    """Of what the last block gave of every window, [1, tokens, hidden]."""
    return lambda first, end: head_logits(float_decoder(model), states[first:end])


def _sound(file: Path) -> bool:
    try:
        return bool(read_sealed(file.with_suffix(".json"))["file"] == file_digest(file))
    except (OSError, Unsound):
        return False


def _states_key(model: LlmModel, windows: Sequence[TokenWindow]) -> str:
    return digest(
        {
            "model": model.content(),
            "ids": [[each.ids.tolist()] for each in windows],
            "code": closure_digest(__name__),
            "kernels": kernels(),
        }
    )
