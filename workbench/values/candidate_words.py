"""A candidate in words, for a row of a table."""

from __future__ import annotations

from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import digest
from workbench.values.installed_targets import installed_target
from workbench.values.service import bins_words


def describe(candidate: Candidate) -> str:
    """One short phrase for a table row: 'INT8 static kl, per channel, 2 in float' or 'fp32, bins 32 64 256'."""
    target = installed_target(candidate.target)
    words = [target.title] if target.named else []
    numbers = candidate.compile.numbers(candidate)
    words += [numbers] if numbers else _numbers(candidate.precision.mode, candidate.quantization)
    if bins := candidate.sequence_bins:
        words.append(bins_words(bins))
    return ", ".join([*words, *candidate.compile.words(candidate)])


def _numbers(mode: str, q: Quantization) -> list[str]:
    words = [mode if q.scheme == "none" else f"INT8 {q.scheme}"]
    if q.operators != "all":
        words.append({"matmul": "matrix products alone", "conv": "convolutions alone"}[q.operators])
    if q.calibrator is not None:
        words.append(f"scales by {q.calibrator}")
    if q.cfg is not None:
        words[0] += f" {digest(q.cfg)[:6]}"
    if q.algorithm is not None:
        words.append(q.algorithm if q.percentile is None else f"{q.algorithm} {q.percentile:g}")
    if q.activation_symmetric is not None:
        words.append("symmetric" if q.activation_symmetric else "asymmetric")
    if q.weight_granularity is not None:
        words.append(f"weights per {q.weight_granularity}")
    if q.weight_algorithm not in (None, "minmax"):
        words.append(f"weights {q.weight_algorithm}")
    if q.attention_matmul:
        words.append("attention too")
    if q.balance is not None:
        words.append(f"balanced {q.balance}")
    if q.bias_correction:
        words.append("bias corrected")
    if q.keep_float:
        by = "" if q.sensitivity == "sqnr" else f" by {q.sensitivity}"
        unit = f"{q.keep_float_unit}" if q.keep_float == 1 else f"{q.keep_float_unit}s"
        words.append(f"{q.keep_float} {unit} in float{by}")
    return words
