"""Writing the search space: only what can change this model on its targets, and on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workbench.commands.init.model import Outline
from workbench.space.dimensions import CFG, TARGET, dimensions_of
from workbench.space.space import choice_text
from workbench.space.words import bins_of
from workbench.targets import described
from workbench.targets.description import SpaceStart
from workbench.values.dimension import FUSION_PREFIX, Scalar

T = TypeVar("T")
When = Mapping[str, tuple[Scalar, ...]]

_KEEP_FLOAT = (0, 1, 2, 4, 8)
_BINS = (1, 2, 4, 8)
_STATIC: When = {"quantization.scheme": ("static",)}
_LARGE_INPUT = 1 << 19
"""Numbers of one sample, about an image of 416 x 416: what is larger is not batched by sixteen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """A parameter of padded lengths, and its choices, the default first."""

    name: str
    choices: tuple[str, ...]
    targets: tuple[str, ...]


def space_text(
    name: str,
    outline: Outline,
    cores: int,
    *,
    text: bool = False,
    lengths: Sequence[int] = (),
    max_length: int | None = None,
    compiled_lengths: Sequence[int] = (),
    service: bool = True,
    cfg: Sequence[str] = (),
    about: str = "",
) -> str:
    """The search space.

    Args:
        text: samples are texts, which may be grouped and padded by their lengths.
        lengths, max_length: of the texts; choices that come to the same bins stand once.
        compiled_lengths: of samples that are arrays along a free axis, for targets that compile every length.
        service: which settings a service may be told.
        cfg: configurations of a vendor's quantizer, relative to the space's file.
        about: the model, where the space has a name of its own.
    """
    weights = [layer for layer in outline.layers if layer.weight is not None]
    attention = sum(layer.second is not None for layer in outline.layers)
    bins = _bins(outline, text, lengths, max_length, compiled_lengths)
    schemes = _schemes(outline)
    titles = " or ".join(described(target).title for target in outline.targets)
    names = ", ".join(outline.targets)
    lines = [
        f"# What may vary when {about or name} runs on {titles}.",
        f"# INT8 can serve {len(weights)} of its layers and {attention} of its products of two activations.",
        f"# The machine this was written on has {cores} cores.",
        f"# It was taken for a model of kind {outline.kind!r}: {outline.kind_reason}.",
        "#",
        "# The first choice of a parameter is its default; presets name only what differs from it. `when:` says where",
        f"# one applies. `workbench space search_spaces/{name}.yaml` explains each and counts the candidates.",
        "version: 1",
        f"target: {names if len(outline.targets) == 1 else f'[{names}]'}",
        "",
        "parameters:",
    ]
    if not cfg:
        lines += [f"  # {note}" for start in outline.starts for note in start.notes]
    lines += _quantization(outline, schemes, cfg)
    if cfg:
        lines += _parameter(CFG, cfg, {"quantization.scheme": ("cfg",)})
    lines += _of_targets(outline)
    threads = _halvings(cores)
    threaded = [t for t in outline.targets if "serving.intra_op_threads" in dimensions_of(t)]
    if threaded:
        lines += ["", *_parameter("serving.intra_op_threads", threads, _for(outline, threaded))]
    for one in bins:
        if text:
            lines.append(
                "  # Padded lengths, each group of samples a queue of its own: the N with the least padding for"
            )
            lines.append('  # these data; one is the longest alone. Lists such as "32 64 128" work too.')
        else:
            lines.append("  # The lengths that are compiled; each sample is padded to the least that holds it.")
        lines += _parameter(one.name, [f'"{choice}"' for choice in one.choices], _for(outline, one.targets))
    lines += _batches(outline)
    lines += _service(outline, cores) if service else []
    lines += _forbidden(outline, schemes)
    lines += ["", "# Evaluated before anything is proposed: the float model first, then what usually does well."]
    lines += ["presets:", *_presets(outline, schemes, bins, threads if threaded else [])]
    lines += [f"  - {{name: cfg-{i}, quantization.scheme: cfg, {CFG}: {file}}}" for i, file in enumerate(cfg, 1)]
    return "\n".join(lines) + "\n"


# --- quantization ---------------------------------------------------------------------------------------------------


def _schemes(outline: Outline) -> dict[str, tuple[str, ...]]:
    """Scheme → the targets that have it and that it changes this model on; without `none`."""
    weights = [layer for layer in outline.layers if layer.weight is not None]
    served = {
        "dynamic": any(layer.op_type in ("MatMul", "Gemm") for layer in weights),  # it serves no others
        "static": bool(weights) or any(layer.second is not None for layer in outline.layers),
    }
    found = {
        scheme: tuple(t for t, start in outline.each_target() if scheme in start.schemes)
        for scheme, changes in served.items()
        if changes
    }
    return {scheme: targets for scheme, targets in found.items() if targets}


def _quantization(outline: Outline, schemes: dict[str, tuple[str, ...]], cfg: Sequence[str]) -> list[str]:
    weights = [layer for layer in outline.layers if layer.weight is not None]
    attention = sum(layer.second is not None for layer in outline.layers)
    products = sum(layer.op_type in ("MatMul", "Gemm") for layer in weights)
    lines = []
    if not (weights or attention):
        lines.append("  # No layer of this model can be INT8: nothing multiplies by a constant float32 matrix.")
    lines += _parameter("quantization.scheme", ["none", *schemes, *(["cfg"] if cfg else [])])
    if "static" not in schemes:
        return lines
    algorithms = _union(start.algorithms for start in outline.starts)
    lines += _parameter("quantization.algorithm", algorithms, _STATIC)
    if "percentile" in algorithms:
        lines += _parameter("quantization.percentile", [99.999, 99.99], {"quantization.algorithm": ("percentile",)})
    learned = _union(start.weight_algorithms or () for start in outline.starts)
    if weights and learned:
        lines += _parameter("quantization.weight_algorithm", learned, _STATIC)
    lines += _parameter("quantization.activation_symmetric", [False, True], _STATIC)
    granularity = _union(start.granularity for start in outline.starts) if weights else ["tensor"]
    lines += _parameter("quantization.weight_granularity", granularity, {"quantization.scheme": tuple(schemes)})
    if not attention:
        lines.append("  # No MatMul of this model multiplies two activations.")
    lines += _parameter(
        "quantization.attention_matmul", [False, True] if attention and weights else [bool(attention)], _STATIC
    )
    if products < len(weights) and (products or attention):
        lines.append(
            "  # Which layers become INT8: the convolutions of a vocoder lose more than they gain; those of an"
        )
        lines.append("  # image model do nearly all of its work, and its last products decide the answer.")
        operators = ["all", "conv" if outline.kind == "image" else "matmul"]
        lines += _parameter("quantization.operators", operators, _STATIC)
    between = _between(outline) if products < len(weights) else []
    if between:
        lines.append("  # What lies between convolutions in 8 bits too: faster, for one more rounding of each tensor.")
        lines += _parameter("quantization.elementwise", ["float", "int8"], {**_for(outline, between), **_STATIC})
    if weights and products:
        lines.append("  # SmoothQuant: closer to float for one more calibration pass and a little time per call.")
        lines += _parameter("quantization.balance", ['"off"', "auto"], _STATIC)
    keep_float = _keep_float(len(weights))
    lines.append(f"  # How many of the most sensitive of {len(weights)} layers stay in float.")
    lines += _parameter("quantization.keep_float", keep_float, _STATIC)
    return lines + _rare(bool(weights) and not learned, keep_float[1:])


def _between(outline: Outline) -> list[str]:
    """The targets that can keep tensors in 8 bits between layers."""
    return [target for target in outline.targets if "quantization.elementwise" in dimensions_of(target)]


def _keep_float(layers: int) -> list[int]:
    return [count for count in _KEEP_FLOAT if count < max(1, layers)]


def _rare(weights: bool, keep_float: Sequence[int]) -> list[str]:
    """What seldom pays, as comments that need only lose their "# "."""
    found: list[str] = []
    if weights:
        found += _parameter("quantization.weight_algorithm", ["minmax", "mse", "arq", "adaround"], _STATIC)
        found += _parameter("quantization.bias_correction", [False, True], _STATIC)
    if keep_float:
        kept = {"quantization.keep_float": tuple(keep_float)}
        found += _parameter("quantization.keep_float_unit", ["layer", "group"], kept)
        found += _parameter("quantization.sensitivity", ["sqnr", "first_order"], kept)
    if not found:
        return []
    title = '  # Rarely worth their part of the trials; remove the "# " before what the model needs.'
    return ["", title, *(f"  # {line.removeprefix('  ')}" for line in found)]


# --- what targets bring ---------------------------------------------------------------------------------------------


def _of_targets(outline: Outline) -> list[str]:
    lines: list[str] = []
    for parameter in _union(start.parameters for start in outline.starts):
        having = [target for target, start in outline.each_target() if parameter in start.parameters]
        choices = _union(start.parameters.get(parameter, ()) for start in outline.starts)
        lines += ["", *_parameter(parameter, choices, _for(outline, having))]
    switches = [
        (name, target, kind) for target, start in outline.each_target() for name, kind in _fusions(start, outline)
    ]
    if switches:
        lines.append(
            "  # The fusions that change this model. In quotes for readers of YAML 1.1, to whom a bare off is false."
        )
    for fusion, target, only_int8 in switches:
        when = {**_for(outline, [target]), **(_STATIC if only_int8 else {})}
        lines += _parameter(f"{FUSION_PREFIX}{fusion}", ['"on"', '"off"'], when)
    return lines


def _fusions(start: SpaceStart, outline: Outline) -> list[tuple[str, bool]]:
    quantized = bool(outline.layers) and "static" in start.schemes
    return [(n, False) for n in start.fusions] + [(n, True) for n in start.int8_fusions if quantized]


def _bins(
    outline: Outline, text: bool, lengths: Sequence[int], max_length: int | None, compiled: Sequence[int]
) -> list[Bins]:
    if outline.fixed_length is not None:
        return []
    names: dict[str, list[str]] = {}
    for target in outline.targets:
        for name, dimension in dimensions_of(target).items():
            if dimension.lengths_in:
                names.setdefault(name, []).append(target)
    found = []
    for name, targets in names.items():
        if text:
            dimension = dimensions_of(targets[0])[name]
            words = {f"optimal {count}": None for count in _BINS}
            if lengths and max_length is not None:
                array = np.array(lengths, dtype=np.int64)
                distinct = {bins_of(word, dimension, array, max_length): word for word in reversed(words)}
                words = dict.fromkeys(sorted(distinct.values(), key=lambda word: int(word.split()[1])))
            found.append(Bins(name=name, choices=tuple(words), targets=tuple(targets)))
        elif compiled and not name.startswith("serving."):
            found.append(Bins(name=name, choices=(" ".join(map(str, compiled)),), targets=tuple(targets)))
    return found


def _batches(outline: Outline) -> list[str]:
    lines = []
    if outline.model.fixed_batch is not None:
        lines.append("  # The model takes no other batch.")
    return [*lines, *_parameter("serving.batch", [outline.model.fixed_batch or 1])]


def _service(outline: Outline, cores: int) -> list[str]:
    start = outline.start.service
    batches: Iterable[int] = start.max_batch_size
    if outline.model.fixed_batch is not None:
        batches = (outline.model.fixed_batch,)
    elif outline.largest_sample > _LARGE_INPUT:
        batches = [batch for batch in batches if batch <= 4] or [1]
    workers = [count for count in start.workers if not described(outline.target).on_host or count <= max(1, cores)]
    timeouts = start.batch_timeout_ms if any(batch > 1 for batch in batches) else (0,)
    today = [
        "  # What you run now; without it the first of each is what 'untuned' means.",
        "  # today: {max_batch_size: 1, batch_timeout_ms: 0, workers: 1}",
    ]
    now = start.today
    if now is not None and now[0] in batches and now[1] in timeouts and now[2] in workers:
        said = f"max_batch_size: {now[0]}, batch_timeout_ms: {now[1]:g}, workers: {now[2]}"
        today = [
            "  # What such services run today, to which 'today' in the table refers: write what yours does.",
            f"  today: {{{said}}}",
        ]
    return [
        "",
        "# What a service may be told without compiling anything again.",
        "# The best of them is found for every candidate: the experiment's own `service:` says how requests come.",
        "service:",
        f"  max_batch_size: [{', '.join(map(str, batches))}]",
        f"  batch_timeout_ms: [{', '.join(f'{ms:g}' for ms in timeouts)}]  # how long a request waits for company",
        f"  workers: [{', '.join(map(str, workers or [1]))}]",
        *today,
    ]


def _forbidden(outline: Outline, schemes: dict[str, tuple[str, ...]]) -> list[str]:
    lines: list[str] = []
    for scheme, targets in schemes.items():
        lacking = [target for target in outline.targets if target not in targets]
        if lacking:
            lines.append(f"  - target: [{', '.join(lacking)}]")
            lines.append(f"    quantization.scheme: [{scheme}]")
            lines.append(f"    reason: {' and '.join(described(t).title for t in lacking)} has no {scheme} INT8.")
    for start in outline.starts if schemes else ():
        for values, reason in start.forbid:
            lines.append(f"  - quantization.scheme: [{', '.join(schemes)}]")
            lines += [f"    {other}: [{', '.join(map(choice_text, choices))}]" for other, choices in values.items()]
            lines.append(f"    reason: {reason}")
    return ["", "forbid:", *lines] if lines else []


# --- presets --------------------------------------------------------------------------------------------------------


def _presets(
    outline: Outline, schemes: dict[str, tuple[str, ...]], bins: Sequence[Bins], threads: Sequence[int]
) -> list[str]:
    weights = [layer for layer in outline.layers if layer.weight is not None]
    mixed = len({layer.op_type in ("MatMul", "Gemm") for layer in weights}) == 2
    lines: list[str] = []

    def add(name: str, target: str, **settings: str) -> None:
        first = target == outline.target
        named = name if first else f"{target}-{name}"
        written = {} if first else {TARGET: target}
        written |= {key.replace("__", "."): value for key, value in settings.items()}
        lines.append(f"  - {{{', '.join(f'{key}: {value}' for key, value in ({'name': named} | written).items())}}}")

    for target, _ in outline.each_target():
        longer = next((b for b in bins if target in b.targets and len(b.choices) > 1), None)
        grouped = {} if longer is None else {longer.name: f'"{longer.choices[min(2, len(longer.choices) - 1)]}"'}
        add("float", target)
        if len(threads) > 1 and target == outline.target:
            add("float-1-thread", target, serving__intra_op_threads="1")
        for scheme, having in schemes.items():
            if target not in having:
                continue
            if scheme == "static" and target in _between(outline) and any(one.op_type == "Conv" for one in weights):
                # before plain static INT8: it is the better bet, and what it costs in accuracy is measured
                add("static-int8-elementwise", target, quantization__scheme=scheme, quantization__elementwise="int8")
            add(f"{scheme}-int8", target, quantization__scheme=scheme)
        if grouped:
            add("float-bins", target, **grouped)
        if "static" in schemes and target in schemes["static"]:
            static = {"quantization__scheme": "static"}
            if grouped:
                add("static-int8-bins", target, **static, **grouped)
            if mixed and outline.kind != "image":
                add("static-int8-matmul", target, **static, quantization__operators="matmul")
            if any(layer.op_type in ("MatMul", "Gemm") for layer in weights) and target == outline.target:
                add("static-int8-balanced", target, **static, quantization__balance="auto")
            if 2 in _keep_float(len(weights)) and target == outline.target:
                add("static-int8-2-in-float", target, **static, quantization__keep_float="2")
    return lines


# --- words ----------------------------------------------------------------------------------------------------------


def _for(outline: Outline, targets: Sequence[str]) -> When:
    """The condition that a parameter belongs to some of the space's targets; none where it belongs to all."""
    return {} if set(targets) == set(outline.targets) else {TARGET: tuple(targets)}


def _parameter(name: str, choices: Sequence[Scalar], when: When | None = None) -> list[str]:
    shown = ", ".join(str(choice).lower() for choice in choices)
    conditions = ", ".join(f"{key}: [{', '.join(map(str, values))}]" for key, values in (when or {}).items())
    return [f"  {name}:", *([f"    when: {{{conditions}}}"] if conditions else []), f"    choices: [{shown}]"]


def _union(groups: Iterable[Iterable[T]]) -> list[T]:
    return list(dict.fromkeys(choice for group in groups for choice in group))


def _halvings(cores: int) -> list[int]:
    """16 → [16, 8, 4, 2, 1]."""
    counts = [cores]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
