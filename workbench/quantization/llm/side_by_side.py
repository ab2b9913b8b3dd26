"""Two models over the same windows, block by block: what each adds to the residual stream, and where that stands.

Smoothing moves scales between a linear and what is before it, so most tensors inside of a block differ without error;
what o_proj and down_proj add to the stream, and the stream behind a block, do not. A rotated model's stream is turned
back before it is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from workbench.quantization.llm.checkpoint import FINAL_NORM, HEAD
from workbench.quantization.llm.forward import Linear, check_ids, norm, run_block
from workbench.quantization.llm.forwards import Decoder, RunningBlock, Stage

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
    a: Turned, b: Turned, windows: Sequence[torch.Tensor], stage: Stage = "prefill"
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, of A, of B) for every window of every step, in the order of the model; [1, tokens, …] float32.

    Every model goes on with its own stream. One block of each is in memory at a time.

    Args:
        windows: ids, each [1, tokens].

    Raises:
        ConfigError: the models have different sizes, a window is too long, or weights cannot be read.
        MeasureError: a block gives values that are NaN or infinite.
    """
    check_ids(a.decoder.config, windows)
    with torch.inference_mode():
        streams = [[F.embedding(ids, side.decoder.embedding()) for ids in windows] for side in (a, b)]
    for index in range(a.decoder.config.layers):
        blocks = [side.decoder.block(index, stage) for side in (a, b)]
        for number in range(len(windows)):
            seen: list[dict[str, torch.Tensor]] = [{}, {}]
            with torch.inference_mode():
                for which, side in enumerate((a, b)):
                    x = streams[which][number]
                    streams[which][number] = _through(side.decoder, blocks[which], x, seen[which], stage)
                added = [(name, a.back(seen[0][name]), b.back(seen[1][name])) for name in ADDED]
                stream = a.back(streams[0][number]), b.back(streams[1][number])
            for name, ours, theirs in added:
                yield f"model.layers.{index}.{name}", ours, theirs
            yield f"model.layers.{index}", *stream
    heads = [side.decoder.head() for side in (a, b)]
    for number in range(len(windows)):
        with torch.inference_mode():
            said = []
            for which, side in enumerate((a, b)):
                normed = norm(heads[which], FINAL_NORM, streams[which][number], side.decoder.config.epsilon)
                said.append(F.linear(normed, heads[which][f"{HEAD}.weight"]).to(torch.float32))
        yield LOGITS, said[0], said[1]


def _through(
    decoder: Decoder, block: RunningBlock, x: torch.Tensor, seen: dict[str, torch.Tensor], stage: Stage
) -> torch.Tensor:
    return run_block(
        decoder.config,
        decoder.rope,
        block.tensors,
        x,
        linear=_watched(block.linear, seen),
        cache=block.kept if stage == "decode" else None,
    )


def _watched(linear: Linear, seen: dict[str, torch.Tensor]) -> Linear:
    def watched(name: str, x: torch.Tensor) -> torch.Tensor:
        found = linear(name, x)
        if name in ADDED:
            seen[name] = found
        return found

    return watched
