"""A finished checkpoint that answers prompts on the processor, and two folders side by side (`targets.language`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.forward import check_ids
from workbench.quantization.llm.forwards import (
    Decoder,
    RunningBlock,
    Stage,
    embedded,
    float_decoder,
    greedy,
    head_logits,
    logits_of,
    through,
)
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.tensors import DESCRIPTION
from workbench.targets.ascend_llm.texts import calibration_samples, read_tokenizer
from workbench.targets.language import Seen, SideValues, Tokens
from workbench.values.errors import ConfigError, MeasureError


def prompted(directory: Path) -> Prompted:
    """See `targets.language.LanguageTarget`. Weights stay in memory from the first answer on."""
    with _as_measured():
        served = read_served(directory)
        tokenizer = read_tokenizer(directory, served.config)
    return Prompted(served=served, tokenizer=tokenizer, decoder=served_decoder(served, keep=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """See `targets.language.PromptedModel`.

    Attributes:
        threads: of torch while it answers; None for those of the process.
        whole: it reads a prompt with the answer that it is given in one pass.
    """

    served: Served
    tokenizer: Tokenizer
    decoder: Decoder
    threads: int | None = None
    whole: bool = False

    @property
    def vocabulary(self) -> int:
        return self.served.config.vocabulary

    @property
    def context(self) -> int:
        return self.served.config.context

    @property
    def device_words(self) -> str:
        return " ".join(self.served.unserved)

    def ids(self, text: str) -> list[int]:
        with _as_measured():
            found: list[int] = calibration_samples([text], self.tokenizer, self.served.folder)[0][0].tolist()
        return found

    def text(self, ids: Tokens) -> str:
        return str(self.tokenizer.decode(list(ids)))

    def answers(
        self, prompts: Sequence[Tokens], tokens: int, seen: Seen, *, given: Sequence[Tokens] | None = None
    ) -> list[list[int]]:
        asked = [torch.tensor([list(ids)]) for ids in prompts]
        with _as_measured(), _threads(self.threads):
            _check(self.served, asked, tokens)
            if not self.whole:
                found = greedy(
                    self.decoder,
                    asked,
                    tokens,
                    given=None if given is None else [torch.tensor(list(ids)) for ids in given],
                    seen=lambda prompt, step, logits: seen(prompt, step, logits.to(torch.float32).numpy()),
                )
                return [ids.tolist() for ids in found]
            assert given is not None  # whoever asks in one pass has the answers
            windows = [
                torch.tensor([[*ids, *answer[: tokens - 1]]]) for ids, answer in zip(prompts, given, strict=True)
            ]
            for number, logits in enumerate(logits_of(self.decoder, "prefill")(windows)):
                for step, row in enumerate(logits[0, len(prompts[number]) - 1 :]):
                    seen(number, step, row.to(torch.float32).numpy())
            return [list(ids) for ids in given]

    def ways(self) -> Mapping[str, Prompted]:
        other = 1 if torch.get_num_threads() > 1 else 2
        plural = "" if other == 1 else "s"
        found = {f"{other} thread{plural} instead of {torch.get_num_threads()}": replace(self, threads=other)}
        if not self.served.cached and "W8A8_MIX" not in self.served.types.values():
            # these two compute a prompt otherwise than an answer, so that a whole window means something else
            found["prompt and answer in one pass instead of token by token"] = replace(self, whole=True)
        return found


def _check(served: Served, prompts: Sequence[torch.Tensor], tokens: int) -> None:
    """Lengths with their answers, so that no answer ends at the context."""
    longest = max(ids.shape[1] for ids in prompts) + tokens - 1
    if longest > served.config.context:
        raise MeasureError(
            f"A prompt with its answer has {longest} tokens, the model's context is {served.config.context}."
        )
    check_ids(served.config, prompts)


@contextlib.contextmanager
def _as_measured() -> Iterator[None]:
    """What is wrong with a checkpoint is said of a compiled model that does not run."""
    try:
        yield
    except ConfigError as error:
        raise MeasureError(str(error)) from error


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- two folders side by side: what each block adds to the residual stream, and where that stands ---------------------
# Smoothing moves scales between a linear and what is before it, so most tensors inside of a block differ without error;
# what o_proj and down_proj add to the stream, and the stream behind a block, do not.


_ROTATION = "optional/quarot.safetensors"
_ADDED = ("self_attn.o_proj", "mlp.down_proj")
"""Linears whose outputs are added to the stream, in the order of a block."""


def ids_of(folder: Path, texts: Sequence[str], tokens: int) -> list[list[int]]:
    """The first tokens of texts by a model's own tokenizer."""
    tokenizer = read_tokenizer(folder, read_config(folder, quantized=True))
    return [sample[0, :tokens].tolist() for sample in calibration_samples(texts, tokenizer, folder)]


def compared(a: Path, b: Path, windows: Sequence[Tokens]) -> Iterator[SideValues]:
    """See `targets.language.LanguageTarget.compared`. Every model goes on with its own stream, and one block of each is
    in memory at a time."""
    (first, types, back_a), (second, others, back_b) = _side(a), _side(b)
    if _sizes(first.config) != _sizes(second.config):
        raise ConfigError(f"is another model than {a}: their sizes differ.", file=b)
    kinds, ids = others or types, [torch.tensor([list(window)]) for window in windows]
    seen: tuple[dict[str, torch.Tensor], ...] = ({}, {})
    decoders = [_watched(decoder, found) for decoder, found in zip((first, second), seen, strict=True)]
    streams = [embedded(decoder, ids) for decoder in decoders]
    steps = zip(*(through(*each, "prefill") for each in zip(decoders, streams, strict=True)), strict=True)
    for (index, number), _ in steps:
        with torch.inference_mode():
            added = [(f".{name}", back_a(seen[0][name]), back_b(seen[1][name])) for name in _ADDED]
            added.append(("", back_a(streams[0][number]), back_b(streams[1][number])))
        for name, ours, theirs in added:
            place = f"model.layers.{index}{name}"
            yield place, kinds.get(place, "block"), ours.numpy(), theirs.numpy()
    for ours, theirs in zip(*map(head_logits, decoders, streams), strict=True):
        yield "logits", "lm_head", ours.to(torch.float32).numpy(), theirs.to(torch.float32).numpy()


def _side(folder: Path) -> tuple[Decoder, dict[str, str], Callable[[torch.Tensor], torch.Tensor]]:
    """(a model, types of its linears, its stream → the same without a rotation, in float32)."""
    if not (folder / DESCRIPTION).is_file():
        return float_decoder(open_model(folder)), {}, lambda stream: stream.to(torch.float32)
    served = read_served(folder)
    rotation = _rotation(folder, served.config)
    return served_decoder(served), dict(served.types), partial(_turned_back, rotation)


def _turned_back(rotation: torch.Tensor | None, stream: torch.Tensor) -> torch.Tensor:
    wide = stream.to(torch.float32)
    return wide if rotation is None else wide @ rotation.to(torch.float32).T


def _watched(decoder: Decoder, seen: dict[str, torch.Tensor]) -> Decoder:
    """The same, with what `_ADDED` last gave put into `seen`."""

    def block(index: int, stage: Stage) -> RunningBlock:
        plain = decoder.block(index, stage)

        def linear(name: str, x: torch.Tensor) -> torch.Tensor:
            found = plain.linear(name, x)
            if name in _ADDED:
                seen[name] = found
            return found

        return replace(plain, linear=linear)

    return replace(decoder, block=block)


def _rotation(folder: Path, config: LlmConfig) -> torch.Tensor | None:
    file = folder / _ROTATION
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as stored:
            found: torch.Tensor = stored.get_tensor("global_rotation")
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"cannot be read: {error}.", file=file) from error
    if tuple(found.shape) != (config.hidden, config.hidden):
        raise ConfigError(f"global_rotation has shape {list(found.shape)}, the stream {config.hidden}.", file=file)
    return found


def _sizes(config: LlmConfig) -> tuple[int, ...]:
    return (config.layers, config.hidden, config.vocabulary)
