"""A candidate in words; the groups of its settings that a speed-up is taken apart by, and the candidates in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Literal

from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError
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
    first = (mode if q.scheme == "none" else f"INT8 {q.scheme}") + ("" if q.cfg is None else f" {digest(q.cfg)[:6]}")
    unit = f"{q.keep_float_unit}{'' if q.keep_float == 1 else 's'}"
    told = (
        (q.operators == "matmul", "matrix products alone"),
        (q.operators == "conv", "convolutions alone"),
        (q.elementwise, "8 bits between layers"),
        (q.calibrator, f"scales by {q.calibrator}"),
        (q.algorithm, str(q.algorithm) if q.percentile is None else f"{q.algorithm} {q.percentile:g}"),
        (q.activation_symmetric is not None, "symmetric" if q.activation_symmetric else "asymmetric"),
        (q.weight_granularity, f"weights per {q.weight_granularity}"),
        (q.weight_algorithm not in (None, "minmax"), f"weights {q.weight_algorithm}"),
        (q.attention_matmul, "attention too"),
        (q.balance is not None, f"balanced {q.balance}"),
        (q.bias_correction, "bias corrected"),
        (q.keep_float, f"{q.keep_float} {unit} in float" + ("" if q.sensitivity == "sqnr" else f" by {q.sensitivity}")),
    )
    return [first, *(words for said, words in told if said)]


Group = Literal["engine", "lengths", "precision", "graph", "threads", "batch"]
GROUPS: tuple[Group, ...] = ("engine", "lengths", "precision", "graph", "threads", "batch")
"""In the order in which a speed-up is told: what the data need, then what the model computes in, then how it runs."""

_OWN: dict[str, Group] = {
    "target": "engine",
    "serving.sequence_bins": "lengths",
    "compile.sequence_bins": "lengths",
    "compile.shapes": "lengths",
    "serving.batch": "batch",
    "compile.batches": "batch",
    "serving.intra_op_threads": "threads",
    "serving.streams": "threads",
    "compile.inference_precision": "precision",
    "compile.op_precision_mode": "precision",
    "compile.modify_mixlist": "precision",
    "compile.keep_dtype": "precision",
    "compile.customize_dtypes": "precision",
}
_OF_PART: dict[str, Group] = {
    "quantization": "precision",
    "precision": "precision",
    "recipe": "precision",
    "compile": "graph",
}


def _group(setting: str, *, several: bool) -> Group:
    """Of a setting by its dotted name, such as 'serving.batch'. Compilers of two engines share no settings: theirs go
    with the engine."""
    if several and (setting.startswith(("compile.", "recipe.", "precision.")) or setting == "target"):
        return "engine"
    return _OWN.get(setting) or _OF_PART.get(setting.partition(".")[0], "graph")


def differing_groups(a: Candidate, b: Candidate) -> tuple[Group, ...]:
    """In which groups two candidates differ."""
    ours, theirs = a.parameters(), b.parameters()
    names = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
    found = {_group(name, several=a.target != b.target) for name in names}
    return tuple(group for group in GROUPS if group in found)


def between(a: Candidate, b: Candidate, groups: Iterable[Group]) -> Candidate | None:
    """`a` with the settings of these groups from `b`; None where there can be no such candidate."""
    taken, several = frozenset(groups), a.target != b.target

    def chosen(part: str, name: str) -> bool:
        return _group(f"{a.compile.part if part == 'compile' else part}.{name}", several=several) in taken

    def mixed(part: str) -> Any:
        ours, theirs = getattr(a, part), getattr(b, part)
        return replace(ours, **{f.name: getattr(theirs, f.name) for f in fields(ours) if chosen(part, f.name)})

    try:
        if several:
            engine = b if "engine" in taken else a
            target, precision, settings = engine.target, engine.precision, engine.compile
        else:
            target, precision, settings = a.target, mixed("precision"), mixed("compile")
        return Candidate(
            target=target,
            precision=precision,
            quantization=mixed("quantization"),
            compile=settings,
            serving=mixed("serving"),
        )
    except ConfigError:
        return None


def corners(a: Candidate, b: Candidate) -> dict[frozenset[Group], Candidate]:
    """Every candidate between the two, both included, by the groups it has from `b`."""
    groups = differing_groups(a, b)
    every = (taken for size in range(len(groups) + 1) for taken in itertools.combinations(groups, size))
    return {frozenset(taken): found for taken in every if (found := between(a, b, taken)) is not None}
