"""One-layer checkpoints as a team would have trained them."""

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig

from workbench.commands.example.build import character_tokenizer, write_tokenizer
from workbench.commands.example.texts import documents


def write_checkpoint(folder: Path, kind: type, **settings: Any) -> Path:
    """A one-layer BERT with random weights and biases: the exporter would merge biases that are all zero."""
    config = BertConfig(
        vocab_size=800,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        num_labels=5,
        **settings,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = kind(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    write_tokenizer(character_tokenizer(TEXTS), folder / "tokenizer.json")
    return folder


TEXTS = [d.text for d in documents(24, seed=1)]
