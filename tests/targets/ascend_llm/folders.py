"""Tiny models with a tokenizer, recipes and texts, as a user has them on disk."""

import json
from pathlib import Path
from typing import Any

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from workbench.targets.ascend_llm.calibrate import CalibratedLlm, calibrate_llm
from workbench.targets.ascend_llm.execution import (
    check_tied,
    read_served_block,
    read_served_embedding,
    read_served_head,
)
from workbench.targets.ascend_llm.served import Served

WORDS = ["the", "pump", "stops", "when", "water", "falls", "below", "second", "mark", "seven", "open", "valve"]
TEXTS = ["the pump stops when the water falls", "seven valve open below the second mark", "water the pump open seven"]


def write_llm(folder: Path, family: str = "qwen3", dtype: str = "bfloat16", **changes: Any) -> Path:
    """A model folder with a tokenizer of whole words."""
    write_model(folder, family, dtype, **changes)
    vocabulary = {"[UNK]": 0, **{word: number for number, word in enumerate(WORDS, 1)}}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    assert len(vocabulary) <= VOCABULARY
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    # transformers writes "no limit" as an integer of 100 bits
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def write_texts(path: Path, texts: list[str] | None = None) -> Path:
    lines = [json.dumps({"inputs_pretokenized": text}) for text in texts or TEXTS]
    path.write_text("\n".join(lines) + "\n")
    return path


STATIC = "calib_cfg: {w_bit: 8, a_bit: 8, mm_tensor: False}"


def write_v0(path: Path, *lines: str) -> Path:
    body = "".join(f"  {line}\n" for line in lines or (STATIC,))
    path.write_text(f"apiversion: modelslim_v0\nspec:\n{body}")
    return path


def write_v1(path: Path, *processes: str) -> Path:
    body = "".join(f"    - {line}\n" for line in processes)
    path.write_text(f"apiversion: modelslim_v1\nspec:\n  process:\n{body}  save: [{{type: ascendv1_saver}}]\n")
    return path


WEIGHT = "weight: {scope: per_channel, dtype: int8, symmetric: True, method: minmax}"
LINEAR = f"{{type: linear_quant, qconfig: {{act: {{scope: per_tensor, symmetric: False}}, {WEIGHT}}}}}"


def check_values(served: Served) -> None:
    """Read everything once."""
    check_tied(served)
    read_served_embedding(served)
    read_served_head(served)
    for index in range(served.config.layers):
        read_served_block(served, index)


def run(base: Path, cfg: Path, out: str = "out", **more: Any) -> CalibratedLlm:
    return calibrate_llm(base / "model", base / out, cfg=cfg, data=write_texts(base / "texts.jsonl"), **more)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


GOLDEN = next(
    (p / "shared/bench/msmodelslim_golden" for p in Path(__file__).parents if (p / "shared/bench").is_dir()), None
) or Path("/nowhere")

MANIFEST = GOLDEN / "manifest.json"

CASES: list[dict[str, Any]] = json.loads(MANIFEST.read_text())["cases"] if MANIFEST.is_file() else []
