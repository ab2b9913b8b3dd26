"""Small BERT encoders trained from scratch on the CPU, reproducibly from a seed.

Only the sizes are BERT's (Devlin et al. 2019; 'mini' and 'small' after Turc et al. 2019, arXiv:1908.08962); there is
no pre-training, the texts are regular enough without.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from workbench.commands.example.texts import Document

if TYPE_CHECKING:
    from workbench.commands.example.build import Recipe

IGNORED = -100
"""Target of a token that has no label ([CLS], [SEP], padding); torch's cross entropy leaves it out."""

MAX_POSITIONS = 512

_INITIAL_SCALE = 0.02  # BERT's initializer_range
_LOCAL_LAYERS = 2
_SHARPNESS = 1.2  # the nearest character gets most of a head's attention at the start, and not all of it


Sample = tuple[tuple[int, ...], int | tuple[int, ...]]
"""One encoded text: token ids, and one class or one tag index per token."""


def train(
    recipe: Recipe,
    samples: Sequence[Sample],
    *,
    labels: Sequence[str],
    vocabulary_size: int,
    seed: int,
    report: Callable[[str], None],
) -> tuple[Any, int]:
    """(one encoder with its head in evaluation mode, the steps that it was trained for).

    The same arguments give the same weights on the same machine and library versions, whatever else runs there.
    """
    started = time.perf_counter()
    with _reproducible(seed):
        model = _new_model(recipe, labels, vocabulary_size)
        model.train()
        batches = [batch for epoch in range(recipe.epochs) for batch in _batches(samples, recipe, seed + epoch)]
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
        warmup = max(1, len(batches) // 10)
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warmup, (len(batches) - step) / (len(batches) - warmup + 1))
        )
        every, losses = max(1, len(batches) // 10), []
        for step, batch in enumerate(batches, start=1):
            loss = model(**_tensors(batch, recipe.train_length)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            losses.append(loss.item())
            if step % every == 0 or step == len(batches):
                recent = losses[-every:]
                took_s = time.perf_counter() - started
                report(f"step {step}/{len(batches)}, loss {math.fsum(recent) / len(recent):.3f}, {took_s:.0f} s")
        model.eval()
    return model, len(batches)


def encode(texts: Sequence[Document], tokenizer: Tokenizer, labels: Sequence[str]) -> list[Sample]:
    """Documents as training samples; with BIO tags for `labels` the target is one tag per token, else the class."""
    index = {label: i for i, label in enumerate(labels)}
    tagged = "O" in index
    encoded = tokenizer.encode_batch([document.text for document in texts])
    return [
        (
            tuple(encoding.ids),
            (IGNORED, *(index[tag] for tag in document.tags), IGNORED) if tagged else index[document.label],
        )
        for encoding, document in zip(encoded, texts, strict=True)
    ]


def accuracy(model: Any, samples: Sequence[Sample], *, max_length: int, batch: int = 32) -> float:
    """Share of right decisions: of texts for a class, of characters for tags. Texts are cut to `max_length` tokens."""
    right = total = 0
    ordered = sorted(samples, key=lambda sample: len(sample[0]))
    with torch.inference_mode():
        for start in range(0, len(ordered), batch):
            tensors = _tensors(ordered[start : start + batch], max_length)
            target = tensors.pop("labels")
            counted = target != IGNORED
            predicted = model(**tensors).logits.argmax(-1)
            right += int((predicted[counted] == target[counted]).sum())
            total += int(counted.sum())
    return right / total


def _new_model(recipe: Recipe, labels: Sequence[str], vocabulary_size: int) -> Any:
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.hidden_size,
        max_position_embeddings=MAX_POSITIONS,
        # A few epochs over fresh texts do not overfit, and dropout costs a fifth of the training time.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )
    model: Any = (BertForTokenClassification if recipe.task == "ner" else BertForSequenceClassification)(config)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        _see_neighbours(model.base_model, recipe)
    return model


def _see_neighbours(encoder: Any, recipe: Recipe) -> None:
    """Start with position vectors that are waves, and two layers whose heads look at the nearest characters.

    A pre-trained encoder knows what stands beside what. One that starts from random weights learns it last: it told a
    digit by itself, not by its neighbours, and in the time in which this start finds three quarters of the entities
    it found one third.

    Positions are the sines and cosines of Vaswani et al. 2017, section 3.5, at the scale of BERT's initial weights.
    Keys copy the fastest waves of a position, queries copy them turned by some steps, so that the score of a pair
    (i, j) is a sum of cosines with its peak at j = i + steps. Training is free to change the attention.
    """
    frequency = 10_000.0 ** (-torch.arange(0, recipe.hidden_size, 2) / recipe.hidden_size)
    angle = torch.arange(MAX_POSITIONS)[:, None] * frequency
    positions = encoder.embeddings.position_embeddings.weight
    positions.copy_(_INITIAL_SCALE * torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1))
    # Not trained: the late positions, which only few texts reach, would be left behind by the early ones.
    positions.requires_grad_(False)
    head_size = recipe.hidden_size // recipe.heads
    for depth, layer in enumerate(encoder.encoder.layer[:_LOCAL_LAYERS]):
        for head in range(recipe.heads):
            distance = head // 2 + 1 + depth * recipe.heads // 2
            turned = _turning(frequency[: head_size // 2] * (-distance if head % 2 else distance))
            rows = slice(head * head_size, (head + 1) * head_size)
            copying = torch.eye(head_size, recipe.hidden_size)
            layer.attention.self.query.weight[rows] = _SHARPNESS * turned @ copying
            layer.attention.self.key.weight[rows] = _SHARPNESS * copying


def _turning(angles: torch.Tensor) -> torch.Tensor:
    """The matrix that turns each (sine, cosine) pair by its angle: sin(a), cos(a) become sin(a + t), cos(a + t)."""
    sine = torch.arange(0, 2 * len(angles), 2)
    cosine = sine + 1
    matrix = torch.zeros(2 * len(angles), 2 * len(angles))
    matrix[sine, sine] = matrix[cosine, cosine] = angles.cos()
    matrix[sine, cosine] = angles.sin()
    matrix[cosine, sine] = -angles.sin()
    return matrix


@contextlib.contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Seed torch and ask for deterministic kernels; the caller's state comes back afterwards.

    One thread: another number of them changes the order of additions and with it the last digits, and two that a busy
    machine takes away in turns wait for each other, 12 s a step instead of 0.35 (two alone: 0.2).
    """
    before_threads, before_mode = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
        # The first steps have near one-hot attention, whose other weights are denormal numbers: computing with them
        # takes many times as long.
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(False)
            torch.use_deterministic_algorithms(before_mode)
            torch.set_num_threads(before_threads)


def _batches(samples: Sequence[Sample], recipe: Recipe, seed: int) -> list[Sequence[Sample]]:
    """One epoch: batches of similar lengths (little padding) in random order."""
    rng = random.Random(seed)
    shuffled = rng.sample(samples, len(samples))
    # Sorted with a jitter, so that a batch holds other neighbours in each epoch.
    shuffled.sort(key=lambda sample: min(len(sample[0]), recipe.train_length) * rng.uniform(0.9, 1.1))
    batches = [shuffled[i : i + recipe.batch] for i in range(0, len(shuffled), recipe.batch)]
    rng.shuffle(batches)
    return list(batches)


def _tensors(batch: Sequence[Sample], max_length: int) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and `labels`, padded to the longest text after the cut; [SEP] is kept."""
    length = min(max_length, max(len(ids) for ids, _ in batch))
    ids = torch.zeros((len(batch), length), dtype=torch.int64)
    mask, tags = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    classes = []
    for row, (own, target) in enumerate(batch):
        kept = min(len(own), length)
        ids[row, :kept] = torch.tensor((*own[: kept - 1], own[-1]))
        mask[row, :kept] = 1
        if isinstance(target, tuple):
            tags[row, :kept] = torch.tensor((*target[: kept - 1], IGNORED))
        else:
            classes.append(target)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(classes) if classes else tags}
