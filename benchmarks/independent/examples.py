"""The example models: how each is fed, and how one sample of it is judged."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.independent import measures
from benchmarks.independent.engines import Array, Run
from benchmarks.independent.measures import Fraction

ROOT = Path(__file__).resolve().parents[2]
Answers = dict[str, Array]
Judge = Callable[[Answers, Answers, Any], tuple[Fraction, Fraction]]
"""(float model's answers, INT8 model's, the sample's target) → the measure of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One model.

    Attributes:
        measure: what is compared, and in which unit its loss is counted.
        higher: more of it is better.
        bins: an input's last axis is padded with 0 to the smallest of these.
        constants: inputs that the original model has and a compiled one may not.
        state: (output, input, zeros) carried from step to step along the first axis of a sample.
    """

    samples: str
    measure: str
    judge: Judge
    higher: bool = True
    unit: str = "pp"
    bins: tuple[int, ...] = ()
    constants: Mapping[str, Array]
    state: tuple[str, str, Array] | None = None


def samples_of(example: Example, split: str = "unseen") -> Iterator[tuple[dict[str, Array], Any]]:
    path = ROOT / "calibration" / f"{example.samples}_samples.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield from module.samples(split)


def answers(example: Example, run: Run, shapes: Mapping[str, list[Any]], feeds: Mapping[str, Array]) -> Answers:
    """One sample through one model, by itself."""
    single = {name: np.asarray(value)[None] for name, value in feeds.items()}
    if example.bins:
        single = {name: _padded(value, example.bins) for name, value in single.items()}
    constants = {name: value for name, value in example.constants.items() if name in shapes}
    if example.state is None:
        return run({**single, **constants})
    output, state, zeros = example.state
    if shapes[state][0] != zeros.shape[0] or shapes[state][1] == zeros.shape[0]:
        zeros = zeros.swapaxes(0, 1)  # the workbench puts the batch first
    steps = []
    for i in range(next(iter(single.values())).shape[1]):
        found = run({**{name: value[:, i] for name, value in single.items()}, state: zeros, **constants})
        zeros = found[output].reshape(zeros.shape)
        steps.append(found)
    return {name: np.stack([step[name] for step in steps], axis=1) for name in steps[0]}


def _padded(value: Array, bins: tuple[int, ...]) -> Array:
    wide = next((size for size in bins if size >= value.shape[-1]), value.shape[-1])
    return np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, wide - value.shape[-1])])


def _whole(fraction: Fraction) -> tuple[Fraction, Fraction]:
    """Agreement: the float model agrees with itself."""
    return (fraction[1], fraction[1]), fraction


def _labels(output: str) -> Judge:
    return lambda a, b, label: (measures.right(a[output][0], label), measures.right(b[output][0], label))


def _faces(a: Answers, b: Answers, _: Any) -> tuple[Fraction, Fraction]:
    theirs, ours = (measures.faces(of["boxes"][0], of["scores"][0]) for of in (a, b))
    return _whole((2.0 * measures.found_again(ours, theirs), float(len(ours) + len(theirs))))


def _text(a: Answers, b: Answers, text: str) -> tuple[Fraction, Fraction]:
    """By the package's own decoding."""
    from rapidocr_onnxruntime.ch_ppocr_rec.utils import CTCLabelDecode

    decode = _decoder(CTCLabelDecode)
    one, other = ((measures.edits(decode(of["softmax_11.tmp_0"])[0][0], text), len(text)) for of in (a, b))
    return (float(one[0]), float(one[1])), (float(other[0]), float(other[1]))


@functools.cache
def _decoder(decoder: Any) -> Any:
    symbols = json.loads((ROOT / ".workbench/real-models/ocr-lines/symbols.json").read_text("utf-8"))
    return decoder(character=symbols[1:-1])


def _sound(a: Answers, b: Answers, _: Any) -> tuple[Fraction, Fraction]:
    return (0.0, 1.0), measures.log_mel(b["output"], a["output"], 22050)


EXAMPLES: Mapping[str, Example] = {
    "digits-resnet": Example(samples="digits_cnn", measure="right", judge=_labels("logits"), constants={}),
    "digits-mobilenet": Example(samples="digits_cnn", measure="right", judge=_labels("logits"), constants={}),
    "ocr-direction": Example(
        samples="ocr_direction", measure="right", judge=_labels("save_infer_model/scale_0.tmp_1"), constants={}
    ),
    "ocr-lines": Example(
        samples="ocr_lines",
        measure="characters wrong",
        judge=_text,
        higher=False,
        bins=(160, 320, 480, 640, 960, 1280),
        constants={},
    ),
    "ocr-pages": Example(
        samples="ocr_pages",
        measure="IoU of text pixels",
        judge=lambda a, b, _: _whole(measures.mask_iou(b["sigmoid_0.tmp_0"], a["sigmoid_0.tmp_0"], 0.3)),
        constants={},
    ),
    "face-rfb320": Example(samples="face_rfb320", measure="F1 of faces", judge=_faces, constants={}),
    "silero-vad": Example(
        samples="silero_vad",
        measure="steps decided the same",
        judge=lambda a, b, _: _whole(measures.flips(b["output"], a["output"], 0.5)),
        constants={"sr": np.array(16000)},
        state=("stateN", "state", np.zeros((2, 1, 128), np.float32)),
    ),
    "g2p": Example(
        samples="g2p",
        measure="words the same",
        judge=lambda a, b, _: _whole((float(np.array_equal(a["ids"], b["ids"])), 1.0)),
        constants={},
    ),
    "piper-voice": Example(
        samples="piper_voice",
        measure="log-mel distance",
        judge=_sound,
        higher=False,
        unit="dB",
        constants={"scales": np.array([0, 1, 0], np.float32)},
    ),
    "speaker": Example(
        samples="speaker",
        measure="cosine",
        judge=lambda a, b, _: _whole(measures.cosine(b["embedding"], a["embedding"])),
        constants={},
    ),
}
