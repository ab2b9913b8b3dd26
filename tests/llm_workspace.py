"""A workspace that asks a question of a tiny language model: model folder, texts, manifest, space, experiment."""

import json
import random
from pathlib import Path
from typing import Any

from tests.targets.ascend_llm.folders import WORDS, write_llm, write_texts
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.inputs.experiment import Experiment, read_experiment

SPACE = """
version: 1
target: ascend-llm
parameters:
  quantization.scheme: {choices: [none, recipe]}
  recipe.qkv: {when: {quantization.scheme: [recipe]}, choices: [W8A8, W8A8_DYNAMIC]}
  recipe.o: {when: {quantization.scheme: [recipe]}, choices: [W8A8]}
  recipe.gate_up: {when: {quantization.scheme: [recipe]}, choices: [W8A8]}
  recipe.down: {when: {quantization.scheme: [recipe]}, choices: [W8A8, FLOAT]}
  recipe.smoothing: {when: {quantization.scheme: [recipe]}, choices: ["off", m4]}
  recipe.float_down: {when: {recipe.down: [W8A8]}, choices: [0, 1]}
presets:
  - {name: static, quantization.scheme: recipe}
  - {name: static with float down_proj, quantization.scheme: recipe, recipe.down: FLOAT}
"""


def words(count: int, seed: int = 0) -> str:
    """A text of so many words that the tiny tokenizer knows."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def write_language_workspace(root: Path, *, family: str = "qwen2", **changes: Any) -> Path:
    """The experiment's file; `changes` replace its keys."""
    write_llm(root / "model", family)
    write_texts(root / "prompts.jsonl", [words(20, seed) for seed in range(4)])
    (root / "text.txt").write_text(words(24 * 16, 9))
    (root / "texts.yaml").write_text(
        "version: 1\ntask: language\nfiles: {calibration: prompts.jsonl, validation: text.txt}\n"
        "window: 16\nsplit: {holdout_fraction: 0.3}\n"
    )
    (root / "space.yaml").write_text(SPACE)
    body = {
        "version": 1,
        "name": "tiny-llm",
        "model": "model",
        "dataset": "texts.yaml",
        "search_space": "space.yaml",
        "calibration": {"samples": 4},
        "objectives": ["perplexity", "size_mb", "decode_ms"],
        "constraints": {"accuracy_loss": 50},
        "load": {"batch": 2, "prompt": 16, "context": 32},
        "budget": {"trials": 6},
        **changes,
    }
    file = root / "experiment.yaml"
    file.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))
    return file


def language_bench(file: Path) -> tuple[Experiment, Bench]:
    question = read_experiment(file)
    journal = Journal(root=file.parent / "journal")
    journal.root.mkdir(exist_ok=True)
    store = Store(file.parent / ".workbench" / "store")
    return question, open_bench(question, journal, store, lambda candidate, stage: None)
