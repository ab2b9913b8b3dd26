"""A float model and a recipe → the quantizer's checkpoint: description, weights, and the model's own files.

Work in progress is in `.calibrating` below the folder: a run that was killed goes on behind the last finished block.
The description is put in place last, so a folder that has one is whole.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from workbench.quantization.llm.checkpoint import EMBEDDING, HEAD, LlmModel, open_model
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forward import check_ids
from workbench.quantization.llm.recipe import Data, LlmRecipe
from workbench.quantization.llm.run import (
    Samples,
    blocks,
    left_float,
    outer_tensors,
    rotation_of,
    start,
    without,
)
from workbench.quantization.llm.walk import Stream
from workbench.targets.ascend_llm.needs import calibration_needs, check_disk, check_memory, window_ms
from workbench.targets.ascend_llm.recipes import ReadRecipe, read_recipe, refused_by_engine, types_of
from workbench.targets.ascend_llm.tensors import (
    CACHE_TYPE,
    DESCRIPTION,
    Stored,
    block_entries,
    write_sharded,
    write_weights,
)
from workbench.targets.ascend_llm.texts import calibration_samples, padded_samples, read_texts, read_tokenizer
from workbench.targets.language import few_tokens
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.input_files import is_file, size_text
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import check_apart, lock_file, temporary_beside, writing
from workbench.values.system.source_closure import closure_digest
from workbench.values.system.steps import time_words

_log = logging.getLogger(__name__)

WORK = ".calibrating"
_STATE = "state.json"
_QUANTIZED_PER_S = 50e6
"""Bytes that are made integers and written, roughly."""
_COPIED = (".json", ".txt", ".jinja", ".model")
"""The vendor's v0 copies .json and .py alone, so chat templates and merges are missing there (msmodelslim.md §2)."""
_LEFT = ("safetensors.index.json", DESCRIPTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedLlm:
    """What a run wrote.

    Attributes:
        files: in the folder, the description last.
        types: type → how many linears.
        left_float: linears left float by rank (`disable_level`).
        warnings: what the serving engine would refuse or compute wrongly.
        samples, tokens: of the calibration data.
        resumed: blocks that a killed run had finished.
    """

    folder: Path
    files: tuple[str, ...]
    types: dict[str, int]
    left_float: tuple[str, ...]
    warnings: tuple[str, ...]
    samples: int
    tokens: int
    resumed: int


def calibrate_llm(
    model: Path | str,
    to: Path | str,
    *,
    cfg: Path | str,
    data: Path | str | None = None,
    anti_data: Path | str | None = None,
    strict: bool = False,
    on_message: Callable[[str], None] = _log.info,
) -> CalibratedLlm:
    """Quantize a language model by a recipe of msModelSlim and write its checkpoint into the folder `to`, made where it
    is missing.

    Deterministic: the same model, recipe and data give the same bytes, resumed or not.

    Args:
        model: folder of a Llama, Qwen2 or Qwen3 model in Hugging Face's format.
        cfg: the tool's YAML, of either generation.
        data: calibration texts; the recipe's own data set, beside the recipe, when None.
        anti_data: texts for smoothing alone; the recipe's, else the calibration texts, when None.
        strict: refuse a checkpoint that the serving engine would refuse, rather than warn.
        on_message: told in a sentence which block is done.

    Raises:
        ConfigError: a file is missing or damaged, the recipe does not fit, or there is too little memory.
        ToolchainError: the folder cannot be written, or another run writes it.
    """
    source, to, cfg = Path(model), Path(to), Path(cfg)
    check_apart(to, source, key="--to")
    if not (to / WORK).exists() and any((to / name).exists() for name in (DESCRIPTION, "config.json")):
        raise ConfigError("holds a model and is left alone.", file=to, hint="Choose another folder.")
    opened = open_model(source)
    read = read_recipe(cfg, opened)
    samples = _samples(opened, read, cfg, data, anti_data)
    tokens = [each.numel() for each in samples["calibration"]]
    memory, disk, passes = calibration_needs(opened, read.recipe, samples)
    seconds = disk / _QUANTIZED_PER_S
    if passes:
        for sentence in few_tokens(sum(tokens)):
            on_message(f"warning: {sentence}")
        check_ids(opened.config, samples["calibration"])
        seconds += passes * sum(tokens) / max(tokens) * window_ms(opened, max(tokens)) / 1000
    on_message(
        f"forecast: about {seconds / 60:.1f} min by one block of the float model, more where scales are searched; "
        f"{size_text(memory)} of memory and {size_text(disk)} of disk"
    )
    return quantize_samples(opened, read, cfg, samples, to, strict=strict, report=on_message)


def quantize_samples(
    model: LlmModel,
    read: ReadRecipe,
    cfg: Path,
    samples: Samples,
    to: Path,
    *,
    strict: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> CalibratedLlm:
    """`calibrate_llm`, of samples that are ids already."""
    if model.surplus:
        report(f"{len(model.surplus)} tensors have no use in this architecture, such as {model.surplus[0]}")
    if model.cast:
        report(f"{len(model.cast)} tensors are rounded to {model.config.dtype}, the model's type in config.json")
    memory, disk, _ = calibration_needs(model, read.recipe, samples)
    check_memory(memory, "--data")
    check_disk(disk, to)
    left = left_float(model, read.recipe, samples)
    recipe = without(read.recipe, left)
    warnings = refused_by_engine(recipe, model)
    if strict and warnings:
        raise ConfigError(f"vLLM-Ascend would not serve it: {warnings[0]}", file=cfg, hint="Change the recipe.")
    hint = "Free space or choose another folder; the same command goes on behind the last finished block."
    with writing(to, hint):
        work = to / WORK
        work.mkdir(parents=True, exist_ok=True)
        with lock_file(work / "lock") as lock:
            if not lock.held:
                raise ToolchainError(f"another run writes {to}. Wait for it or choose another folder.")
            key = _key(model, cfg, samples)
            resumed, streams = _resume(work, key)
            if resumed:
                report(f"going on behind block {resumed} of {model.config.layers}, which an earlier run finished")
            if streams is None:
                streams = start(model, recipe, samples)
            began_s = time.monotonic()
            for block in blocks(model, recipe, streams, first=resumed):
                _keep(work, key, block.index, list(block_entries(block, recipe.generation)), streams)
                share = (block.index + 1 - resumed) / (model.config.layers - resumed)
                told = time_words(time.monotonic() - began_s, share)
                report(f"block {block.index + 1} of {model.config.layers}: {told}")
            files = _assemble(model, recipe, read, work, to)
        shutil.rmtree(work)
    return CalibratedLlm(
        folder=to,
        files=files,
        types=dict(Counter(types_of(recipe, model).values())),
        left_float=left,
        warnings=warnings,
        samples=len(samples["calibration"]),
        tokens=sum(each.numel() for each in samples["calibration"]),
        resumed=resumed,
    )


def _samples(model: LlmModel, read: ReadRecipe, cfg: Path, data: Path | str | None, anti: Path | str | None) -> Samples:
    """Of the files given, else of those that the recipe names, which lie beside it."""
    tokenizer = read_tokenizer(model.folder, model.config)
    file, smoothing = (
        given or (None if named is None else cfg.parent / named)
        for given, named in ((data, read.data), (anti, read.smoothing_data))
    )
    if file is None:
        raise ConfigError("calibration needs texts.", key="--data", hint="Give a .jsonl or .json file.")
    samples: dict[Data, list[torch.Tensor]] = {
        "calibration": calibration_samples(read_texts(Path(file), model.folder), tokenizer, model.folder)
    }
    if smoothing is not None:
        texts = read_texts(Path(smoothing), model.folder)
        samples["smoothing"] = padded_samples(texts, tokenizer, read.smoothing_batch)
    return samples


def _key(model: LlmModel, cfg: Path, samples: Samples) -> str:
    """Digest of all that decides the bytes of a checkpoint, the kernels of torch included, which round."""
    ids = {name: [each.tolist() for each in found] for name, found in samples.items()}
    return digest(
        {
            "model": model.content(),
            "recipe": file_digest(cfg),
            "ids": ids,
            "code": closure_digest("workbench.quantization.llm.run", "workbench.targets.ascend_llm.tensors"),
            "kernels": kernels(),
        }
    )


def _assemble(model: LlmModel, recipe: LlmRecipe, read: ReadRecipe, work: Path, to: Path) -> tuple[str, ...]:
    description: dict[str, object] = {"version": "1.0.0", "model_quant_type": recipe.type}
    outer = outer_tensors(model, recipe)
    names = (f"{EMBEDDING}.weight", f"{HEAD}.weight")
    tensors = [Stored(names[0], outer[names[0]])]
    for index in range(model.config.layers):
        with safe_open(work / _block(index), framework="pt") as block:  # mapped from its file
            types = json.loads(block.metadata()["types"])
            tensors += [Stored(name, block.get_tensor(name), kind) for name, kind in types.items()]
    tensors += [Stored(name, value) for name, value in outer.items() if name not in names]
    tensors.append(Stored(names[1], outer[names[1]]))
    description |= {each.name: each.type for each in tensors}
    v1 = recipe.generation == "v1"
    stem = "quant_model_weights" if v1 else f"quant_model_weight_{recipe.type.lower()}"
    ready = work / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    write_sharded(tensors, ready, stem, read.part_bytes)
    optional: dict[str, object] = {}
    if (rotation := rotation_of(model, recipe)) is not None:
        name = "optional/quarot.safetensors"
        (ready / "optional").mkdir()
        write_weights([Stored("global_rotation", rotation.residual)], ready / name)
        optional = {"quarot": {"rotation_map": {"global_rotation": name}}}
    # keys that are no tensor's (msmodelslim.md §3.1)
    if CACHE_TYPE in description.values():
        description |= {"kv_cache_type": CACHE_TYPE, "kv_quant_type": CACHE_TYPE}
    if v1:
        description |= {"metadata": {}, "group_size": 0, "optional": optional}
    for file in sorted(model.folder.iterdir()):
        if is_file(file) and file.suffix in _COPIED and not file.name.endswith(_LEFT):
            shutil.copyfile(file, ready / file.name)
    (ready / DESCRIPTION).write_text(json.dumps(description, indent=4 if v1 else 2) + "\n")
    made = {str(file.relative_to(ready)) for file in ready.rglob("*") if file.is_file()}
    put = (*sorted(made - {DESCRIPTION}), DESCRIPTION)
    for name in put:
        (to / name).parent.mkdir(exist_ok=True)
        (ready / name).replace(to / name)
    return put


# --- what a run keeps so that a killed one goes on: finished blocks and the streams behind the last, with digests -----


def _resume(work: Path, key: str) -> tuple[int, list[Stream] | None]:
    """How many blocks are finished and sound, and the streams behind them; (0, None) to begin anew."""
    state = _state(work)
    if state.get("key") != key:
        return 0, None
    try:
        if any(file_digest(work / name) != known for name, known in state["files"].items()):
            return 0, None
    except OSError:
        return 0, None
    read = load_file(work / _streams(state["done"]))
    streams: list[Stream] = [[] for _ in range(state["phases"])]
    for name in sorted(read, key=lambda each: tuple(map(int, each.split(".")))):
        streams[int(name.split(".")[0])].append(read[name])
    return state["done"], streams


def _keep(work: Path, key: str, index: int, tensors: Sequence[Stored], streams: Sequence[Stream]) -> None:
    """Keep a block and the streams behind it; what was kept before stays until this is whole."""
    files = _state(work).get("files", {}) if index else {}
    files.pop(_streams(index), None)
    types = {each.name: each.type for each in tensors}
    with temporary_beside(work / _block(index)) as draft:
        write_weights(tensors, draft, {"types": json.dumps(types)})
    hidden = [Stored(f"{p}.{n}", x) for p, stream in enumerate(streams) for n, x in enumerate(stream)]
    with temporary_beside(work / _streams(index + 1)) as draft:
        write_weights(hidden, draft)
    for name in (_block(index), _streams(index + 1)):
        files[name] = file_digest(work / name)
    write_sealed(work / _STATE, {"key": key, "done": index + 1, "phases": len(streams), "files": files})
    (work / _streams(index)).unlink(missing_ok=True)


def _state(work: Path) -> dict[str, Any]:
    try:
        return read_sealed(work / _STATE)
    except Unsound:
        return {}


def _block(index: int) -> str:
    return f"block_{index:05}.safetensors"


def _streams(done: int) -> str:
    return f"streams_{done:05}.safetensors"
