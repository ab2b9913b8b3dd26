"""PyTorch → ONNX, with a proof that both give the same answers.

The TorchScript exporter (`dynamo=False`) with eager attention is chosen on purpose: of the four combinations, only
this one gives a graph whose Attention, SkipLayerNorm and Gelu patterns ONNX Runtime's optimizers recognise (measured
with torch 2.13, transformers 5.23, onnxruntime 1.31.1). The opset is explicit for the same reason: compilers for
devices accept far older ones than the library's default.

Only local folders with safetensors weights are read: a pickled checkpoint can run code while it is loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
import transformers
from safetensors import SafetensorError

from workbench.graph.door import open_foreign
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.values.documents.input_files import check_file
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError
from workbench.values.preprocess import load_tokenizer
from workbench.values.system.scratch import scratch_folder

Task = Literal["classification", "ner"]
Feeds = Mapping[str, npt.NDArray[np.int64]]
"""Input name → int64 array of shape [batch, sequence]; always with `input_ids` and `attention_mask`."""

MODEL_CLASSES: Mapping[Task, str] = {
    "classification": "AutoModelForSequenceClassification",
    "ner": "AutoModelForTokenClassification",
}
_WEIGHTS = (("vocab_size", "hidden_size"), ("num_hidden_layers", "hidden_size", "intermediate_size"))
"""Keys of a configuration whose product is less than the number of its model's weights."""
_MOST_PER_BYTE, _SMALL_BYTES = 2, 1 << 20  # weights of four bits; a small file is not worth a refusal
_BATCH_SIZES = (1, 2, 5)
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_EXPECTED_WARNINGS = (
    # torch 2.13: the TorchScript exporter and a function it calls itself are on their way out
    ".*legacy TorchScript-based ONNX export.*",
    "The feature will be removed. Please remove usage of this function",
    # transformers 5 builds masks by indexing with ranges, which are never negative; the proof would show it
    "Exporting aten::index operator of advanced indexing",
)


LIMITS: Mapping[str, float] = {
    "cosine": 0.999,
    "max_abs_error": 1e-3,
    "mean_abs_error": 1e-4,
    "top1_agreement": 1.0,
}
"""How far ONNX Runtime may be from PyTorch: least cosine between the logits of any sample; largest and mean absolute
difference over all logits; least share of equal decisions (one per text, or one per token for tags)."""


def is_error(measure: str) -> bool:
    """Whether less of one of `LIMITS` is better."""
    return measure.endswith("error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The proof of one export.

    Attributes:
        model: the ONNX file, or the rejected one when the proof failed.
        samples: texts compared, over `shapes`.
        shapes: (batch, sequence) of each comparison.
        measured, limits: as `LIMITS`.
    """

    model: Path
    opset: int
    samples: int
    shapes: tuple[tuple[int, int], ...]
    measured: Mapping[str, float]
    limits: Mapping[str, float]

    @property
    def failed(self) -> list[str]:
        """What is beyond its limit, as NaN is."""
        kept = {n: v <= self.limits[n] if is_error(n) else v >= self.limits[n] for n, v in self.measured.items()}
        return [name for name, well in kept.items() if not well]


def convert(
    *,
    checkpoint: Path,
    task: Task,
    to: Path,
    texts: Sequence[str],
    tokenizer: Path | None = None,
    max_length: int = 128,
    opset: int = 17,
    limits: Mapping[str, float] = LIMITS,
) -> ExportReport:
    """Export a checkpoint and prove the result; `to` comes into being only when the proof holds.

    A model that fails is kept beside it as `<to>.rejected` for inspection.

    Args:
        texts: real samples of various lengths; two dozen are enough.
        tokenizer: a `tokenizer.json`; the checkpoint's own by default.
        max_length: samples are cut to this many tokens.

    Raises:
        ConfigError: `to` exists, or the checkpoint, the tokenizer or the texts are of no use.
    """
    if to.exists():
        raise ConfigError("already exists and is left alone.", file=to, hint="Remove it or choose another name.")
    model = load_checkpoint(checkpoint, task)
    longest = min(max_length, getattr(model.config, "max_position_embeddings", max_length))
    feeds = sample_batches(texts, tokenizer or checkpoint / "tokenizer.json", max_length=longest)
    to.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder("convert", inside=to.parent) as scratch:
        written = scratch / to.name
        write_onnx(model, written, opset)
        report = prove(model, task, written, feeds, limits)
        final = to.with_name(f"{to.name}.rejected") if report.failed else to
        written.replace(final)
    return replace(report, model=final)


def load_checkpoint(checkpoint: Path, task: Task) -> Any:
    """The PyTorch model of a local folder, in evaluation mode, with eager attention.

    Raises:
        ConfigError: the folder is no checkpoint, has only pickled weights, or lacks the task's head.
    """
    if not (checkpoint / "config.json").is_file():
        raise ConfigError(
            "holds no config.json.", file=checkpoint, hint="Give the folder that save_pretrained() wrote."
        )
    if not any((checkpoint / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        pickled = sorted(p.name for p in checkpoint.glob("*.bin")) + sorted(p.name for p in checkpoint.glob("*.pt"))
        rule = f"holds only pickled weights ({pickled[0]}), which can run code." if pickled else "holds no weights."
        raise ConfigError(
            rule,
            file=checkpoint,
            hint="Where you trust their origin, load them once and call save_pretrained(safe_serialization=True).",
        )
    _check_config(checkpoint)
    kind = getattr(transformers, MODEL_CLASSES[task])
    with quiet_transformers():
        try:
            model, loading = kind.from_pretrained(
                checkpoint,
                local_files_only=True,
                use_safetensors=True,
                attn_implementation="eager",
                output_loading_info=True,
            )
        # What transformers and safetensors raise for a folder that is not a sound checkpoint.
        except (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, SafetensorError) as error:
            raise ConfigError(f"cannot be loaded: {error}", file=checkpoint) from error
    if missing := sorted(loading["missing_keys"]):
        raise ConfigError(
            f"has no weights for {missing[0]!r}" + (f" and {len(missing) - 1} more." if missing[1:] else "."),
            file=checkpoint,
            hint=f"Is it a {task} model? A head that was never trained would be filled with random numbers.",
        )
    return model.eval()


def _check_config(checkpoint: Path) -> None:
    """Sizes in config.json become weights in memory before any of the stored ones is looked at."""
    file = checkpoint / "config.json"
    config = read_json(file)
    if not isinstance(config, dict):
        raise ConfigError("holds no JSON object.", file=file)
    stored_bytes = sum(each.stat().st_size for each in checkpoint.glob("*.safetensors"))
    for keys in _WEIGHTS:
        sizes = [config.get(key, 1) for key in keys]
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
            raise ConfigError(f"{', '.join(keys)} are not all whole numbers.", file=file)
        if math.prod(sizes) > _MOST_PER_BYTE * max(stored_bytes, _SMALL_BYTES):
            rule = f"{' x '.join(keys)} is {math.prod(sizes)}, but the weights beside it have {stored_bytes} bytes."
            raise ConfigError(rule, file=file, hint="It belongs to another checkpoint, or is damaged.")


def sample_batches(texts: Sequence[str], tokenizer: Path, *, max_length: int = 128) -> tuple[Feeds, ...]:
    """Texts as batches of several sizes and lengths, each padded to its longest text.

    Texts are ordered by length and dealt in turn into batches of 1, 2 and 5, so that short and long sequences
    meet every batch size; the last batch may be smaller.
    """
    if not texts:
        raise ConfigError("There is no sample text to prove the export with.", hint="Give at least one.")
    check_file(tokenizer, hint="Name the model's tokenizer.json.")
    encoder = load_tokenizer(tokenizer)
    encoder.no_padding()
    encoder.enable_truncation(max_length)
    encoded = sorted(encoder.encode_batch(list(texts)), key=lambda encoding: len(encoding.ids))
    batches: list[Feeds] = []
    while encoded:
        size = _BATCH_SIZES[len(batches) % len(_BATCH_SIZES)]
        batch, encoded = encoded[:size], encoded[size:]
        for one in batch:
            one.pad(len(batch[-1].ids))
        columns = zip(*((one.ids, one.attention_mask, one.type_ids) for one in batch), strict=True)
        batches.append({name: np.array(rows, np.int64) for name, rows in zip(_INPUTS, columns, strict=True)})
    return tuple(batches)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice from transformers; what was set before comes back."""
    log: Any = transformers.utils.logging  # its functions carry no annotations
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


class _Logits(torch.nn.Module):
    """A model with positional inputs and logits as its only output, which is what the exporter traces."""

    def __init__(self, model: Any, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, tuple(inputs)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(**dict(zip(self.inputs, tensors, strict=True))).logits
        return logits


def _input_names(model: Any) -> tuple[str, ...]:
    accepted = inspect.signature(model.forward).parameters
    segments = getattr(model.config, "type_vocab_size", 0) > 1
    return tuple(name for name in _INPUTS if name in accepted and (name != "token_type_ids" or segments))


def write_onnx(model: Any, to: Path, opset: int) -> None:
    """Write the ONNX form of a model of `load_checkpoint`, without proof.

    Inputs `input_ids`, `attention_mask` and, where the model knows segments, `token_type_ids`: int64, dynamic
    [batch, sequence]. Output `logits`: float32 [batch, classes], or [batch, sequence, tags].
    """
    inputs = _input_names(model)
    # Two rows of eight, so that no dimension is 1 and none is taken for a constant or for broadcasting.
    ids = torch.ones((2, 8), dtype=torch.int64)
    example = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    axes = {0: "batch", 1: "sequence"}
    tags = type(model).__name__.endswith("ForTokenClassification")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]  # torch's stubs leave it out
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        torch.onnx.export(
            # In evaluation mode itself: the exporter gives every part of it back the mode of the whole.
            _Logits(model, inputs).eval(),
            tuple(example[name] for name in inputs),
            str(to),
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_axes={**dict.fromkeys(inputs, axes), "logits": axes if tags else {0: "batch"}},
        )
    onnx.checker.check_model(str(to))


def logits_of(model: Any, feeds: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """[batch, classes], or [batch, sequence, tags] for tags, of a model of `load_checkpoint`."""
    wanted = _input_names(model)
    if lacking := [name for name in wanted if name not in feeds]:
        raise ConfigError(
            f"the checkpoint takes {lacking[0]!r}, and the data give {', '.join(sorted(feeds))}.",
            hint="Name the checkpoint that the ONNX file was made from.",
        )
    with torch.inference_mode():
        given = {name: torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in wanted}
        logits: npt.NDArray[Any] = model(**given).logits.numpy()
    return logits


def prove(
    model: Any, task: Task, exported: Path, batches: Sequence[Feeds], limits: Mapping[str, float] = LIMITS
) -> ExportReport:
    """Run PyTorch and ONNX Runtime over the same batches and judge the differences.

    Padded positions are left out for tags. `batches` are those of `sample_batches`, or any with the model's inputs.
    """
    opset = open_foreign(exported).opset
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(exported), options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise ConfigError(f"ONNX Runtime cannot load it: {error}", file=exported) from error
    wanted = _input_names(model)
    cosines, errors, agreements = [], [], []
    for feeds in batches:
        expected = logits_of(model, feeds)
        actual = session.run(["logits"], {name: feeds[name] for name in wanted})[0]
        for row, mask in enumerate(feeds["attention_mask"]):
            counted = mask.astype(bool) if task == "ner" else slice(None)
            ours, theirs = (np.asarray(each[row][counted], dtype=np.float64) for each in (actual, expected))
            norm = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
            # 1 for two zero vectors, 0 where only one is zero
            cosines.append(float(ours.ravel() @ theirs.ravel()) / norm if norm else float(np.array_equal(ours, theirs)))
            errors.append(np.abs(ours - theirs).ravel())
            agreements.append(np.atleast_1d(ours.argmax(-1) == theirs.argmax(-1)))
    apart = np.concatenate(errors)
    measured = {
        "cosine": float(np.min(cosines)),
        "max_abs_error": float(apart.max()),
        "mean_abs_error": float(apart.mean()),
        "top1_agreement": float(np.concatenate(agreements).mean()),
    }
    return ExportReport(
        model=exported,
        opset=opset,
        samples=len(cosines),
        shapes=tuple(feeds["input_ids"].shape for feeds in batches),
        measured=measured,
        limits=limits,
    )
