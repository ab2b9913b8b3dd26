"""Two models over the same windows, block by block: what each adds to the residual stream, and where that stands.

Smoothing moves scales between a linear and what is before it, so most tensors inside of a block differ without error;
what o_proj and down_proj add to the stream, and the stream behind a block, do not. A rotated model's stream is turned
back before it is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from workbench.quantization.llm.forwards import Decoder, RunningBlock, Stage, embedded, head_logits, through

ADDED = ("self_attn.o_proj", "mlp.down_proj")
"""Linears whose outputs are added to the stream, in the order of a block."""
LOGITS = "logits"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turned:
    """A model, and by what its stream is rotated: [hidden, hidden] orthogonal, or None."""

    decoder: Decoder
    rotation: torch.Tensor | None = None

    def back(self, stream: torch.Tensor) -> torch.Tensor:
        """The stream as it would be without the rotation, in float32."""
        wide = stream.to(torch.float32)
        return wide if self.rotation is None else wide @ self.rotation.to(torch.float32).T


def side_by_side(
    a: Turned, b: Turned, windows: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, of A, of B) for every window of every step, in the order of the model; [1, tokens, …] float32.

    Every model goes on with its own stream. One block of each is in memory at a time.
    """
    seen: tuple[dict[str, torch.Tensor], ...] = ({}, {})
    decoders = [_watched(side.decoder, found) for side, found in zip((a, b), seen, strict=True)]
    streams = [embedded(decoder, windows) for decoder in decoders]
    steps = zip(*(through(*each, "prefill") for each in zip(decoders, streams, strict=True)), strict=True)
    for (index, number), _ in steps:
        with torch.inference_mode():
            added = [(f".{name}", a.back(seen[0][name]), b.back(seen[1][name])) for name in ADDED]
            added.append(("", a.back(streams[0][number]), b.back(streams[1][number])))
        for name, ours, theirs in added:
            yield f"model.layers.{index}{name}", ours, theirs
    for ours, theirs in zip(*map(head_logits, decoders, streams), strict=True):
        yield LOGITS, ours.to(torch.float32), theirs.to(torch.float32)


def _watched(decoder: Decoder, seen: dict[str, torch.Tensor]) -> Decoder:
    """The same, with what `ADDED` last gave put into `seen`."""

    def block(index: int, stage: Stage) -> RunningBlock:
        plain = decoder.block(index, stage)

        def linear(name: str, x: torch.Tensor) -> torch.Tensor:
            found = plain.linear(name, x)
            if name in ADDED:
                seen[name] = found
            return found

        return replace(plain, linear=linear)

    return replace(decoder, block=block)
