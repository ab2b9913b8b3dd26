"""Writing the search space: only what can change this model on its targets, and on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from workbench.commands.init.model import Outline
from workbench.space.dimensions import CFG, TARGET, bins_of, dimensions_of
from workbench.targets import described
from workbench.values.dimension import FUSION_PREFIX, Scalar

T = TypeVar("T")
When = Mapping[str, tuple[Scalar, ...]]

_FEW = 5
_KEEP_FLOAT = (0, 1, 2, 4, 8)
_BINS = (1, 2, 4, 8)
_STATIC: When = {"quantization.scheme": ("static",)}
_LARGE_INPUT = 1 << 19
"""Numbers of one sample, about an image of 416 x 416: what is larger is not batched by sixteen."""


Bins = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A parameter of padded lengths, its choices, the default first, and the targets that have it."""


def space_text(
    name: str,
    outline: Outline,
    cores: int,
    *,
    lengths: Sequence[int] = (),
    max_length: int | None = None,
    compiled_lengths: Sequence[int] = (),
    service: bool = True,
    cfg: Sequence[str] = (),
    about: str = "",
) -> str:
    """The search space.

    Args:
        lengths, max_length: of the texts, which may be grouped and padded by them; choices that come to the same bins
            stand once. Empty where samples are no texts.
        compiled_lengths: of samples that are arrays along a free axis, for targets that compile every length.
        service: which settings a service may be told.
        cfg: configurations of a vendor's quantizer, relative to the space's file.
        about: the model, where the space has a name of its own.
    """
    bins = _bins(outline, lengths, max_length, compiled_lengths)
    schemes = _schemes(outline)
    titles = " or ".join(described(target).title for target in outline.targets)
    names = ", ".join(outline.targets)
    lines = [
        f"# What may vary when {about or name} runs on {titles}.",
        f"# INT8 can serve {len(outline.weights)} of its layers and {outline.attention} of its products of two "
        "activations.",
        f"# The machine this was written on has {cores} cores.",
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
    threaded = [t for t in outline.targets if "serving.intra_op_threads" in dimensions_of(t)]
    threads = [cores]
    while threads[-1] > 1:  # 16 → [16, 8, 4, 2, 1]
        threads.append(threads[-1] // 2)
    if threaded:
        lines += ["", *_parameter("serving.intra_op_threads", threads, _for(outline, threaded))]
    why = ["  # The lengths that are compiled; each sample is padded to the least that holds it."]
    if lengths:
        why = [
            "  # Padded lengths, each group of samples a queue of its own: the N with the least padding for",
            '  # these data; one is the longest alone. Lists such as "32 64 128" work too.',
        ]
    for parameter, choices, targets in bins:
        lines += [*why, *_parameter(parameter, [f'"{choice}"' for choice in choices], _for(outline, targets))]
    if outline.model.fixed_batch is not None:
        lines.append("  # The model takes no other batch.")
    lines += _parameter("serving.batch", [outline.model.fixed_batch or 1])
    lines += _service(outline, cores) if service else []
    lines += _forbidden(outline, schemes)
    lines += ["", "# Evaluated before anything is proposed: the float model first, then what usually does well."]
    lines += ["presets:", *_presets(outline, schemes, bins, single_thread=bool(threaded) and cores > 1)]
    lines += [f"  - {{name: cfg-{i}, quantization.scheme: cfg, {CFG}: {file}}}" for i, file in enumerate(cfg, 1)]
    return "\n".join(lines) + "\n"


def _schemes(outline: Outline) -> dict[str, tuple[str, ...]]:
    """Scheme → the targets that have it and that it changes this model on; without `none`."""
    found: dict[str, tuple[str, ...]] = {}
    # dynamic INT8 serves products alone: a net of convolutions with one in its last layer is no faster for it
    layers = len(outline.weights)
    products = outline.products if outline.products * _FEW >= layers else 0
    for scheme, changes in (("dynamic", products), ("static", layers + outline.attention)):
        targets = tuple(t for t, start in outline.each_target() if changes and scheme in start.schemes)
        found |= {scheme: targets} if targets else {}
    return found


def _quantization(outline: Outline, schemes: dict[str, tuple[str, ...]], cfg: Sequence[str]) -> list[str]:
    layers, attention, products = len(outline.weights), outline.attention, outline.products
    lines = []
    if not (layers or attention):
        lines.append("  # No layer of this model can be INT8: nothing multiplies by a constant float32 matrix.")
    lines += _parameter("quantization.scheme", ["none", *schemes, *(["cfg"] if cfg else [])])
    if "static" not in schemes:
        return lines

    def static(name: str, choices: Sequence[Scalar], *why: str, when: When | None = None) -> None:
        lines.extend([*(f"  # {line}" for line in why), *_parameter(f"quantization.{name}", choices, when or _STATIC)])

    algorithms = _union(start.algorithms for start in outline.starts)
    static("algorithm", algorithms)
    if "percentile" in algorithms:
        static("percentile", [99.999, 99.99], when={"quantization.algorithm": ("percentile",)})
    learned = _union(start.weight_algorithms or () for start in outline.starts)
    if layers and learned:
        static("weight_algorithm", learned)
    static("activation_symmetric", [False, True])
    granularity = _union(start.granularity for start in outline.starts) if layers else ["tensor"]
    static("weight_granularity", granularity, when={"quantization.scheme": tuple(schemes)})
    none = () if attention else ("No MatMul of this model multiplies two activations.",)
    static("attention_matmul", [False, True] if attention and layers else [bool(attention)], *none)
    if products < layers and (products or attention):
        static(
            "operators",
            ["all", "conv" if outline.of_images else "matmul"],
            "Which layers become INT8: the convolutions of a vocoder lose more than they gain; those of an",
            "image model do nearly all of its work, and its last products decide the answer.",
        )
    if products < layers and (between := _between(outline)):
        why = "What lies between convolutions in 8 bits too: faster, for one more rounding of each tensor."
        static("elementwise", ["float", "int8"], why, when={**_for(outline, between), **_STATIC})
    corrected = products < layers and not learned
    if corrected:
        static(
            "bias_correction",
            [False, True],
            "The mean error of rounding taken back out of biases: costs no time in a call.",
        )
    if layers and products:
        why = "SmoothQuant: closer to float for one more calibration pass and a little time per call."
        static("balance", ['"off"', "auto"], why)
    keep_float = [count for count in _KEEP_FLOAT if count < max(1, layers)]
    static("keep_float", keep_float, f"How many of the most sensitive of {layers} layers stay in float.")
    return lines + _rare(bool(layers) and not learned, corrected, keep_float[1:])


def _between(outline: Outline) -> list[str]:
    """The targets that can keep tensors in 8 bits between layers."""
    return [target for target in outline.targets if "quantization.elementwise" in dimensions_of(target)]


def _rare(weights: bool, corrected: bool, keep_float: Sequence[int]) -> list[str]:
    """What seldom pays, as comments that need only lose their "# "."""
    found: list[str] = []
    if weights:
        found += _parameter("quantization.weight_algorithm", ["minmax", "mse", "arq", "adaround"], _STATIC)
        found += [] if corrected else _parameter("quantization.bias_correction", [False, True], _STATIC)
    if keep_float:
        kept = {"quantization.keep_float": tuple(keep_float)}
        found += _parameter("quantization.keep_float_unit", ["layer", "group"], kept)
        found += _parameter("quantization.sensitivity", ["sqnr", "first_order"], kept)
    if not found:
        return []
    title = '  # Rarely worth their part of the trials; remove the "# " before what the model needs.'
    return ["", title, *(f"  # {line.removeprefix('  ')}" for line in found)]


def _of_targets(outline: Outline) -> list[str]:
    lines: list[str] = []
    for parameter in _union(start.parameters for start in outline.starts):
        having = [target for target, start in outline.each_target() if parameter in start.parameters]
        choices = _union(start.parameters.get(parameter, ()) for start in outline.starts)
        lines += ["", *_parameter(parameter, choices, _for(outline, having))]
    switches: list[str] = []
    for target, start in outline.each_target():
        own = _for(outline, [target])
        for fusion in start.fusions:
            switches += _parameter(f"{FUSION_PREFIX}{fusion}", ['"on"', '"off"'], own)
        for fusion in start.int8_fusions if outline.layers and "static" in start.schemes else ():
            switches += _parameter(f"{FUSION_PREFIX}{fusion}", ['"on"', '"off"'], {**own, **_STATIC})
    why = "  # The fusions that change this model. In quotes for readers of YAML 1.1, to whom a bare off is false."
    return [*lines, why, *switches] if switches else lines


def _bins(outline: Outline, lengths: Sequence[int], max_length: int | None, compiled: Sequence[int]) -> list[Bins]:
    if outline.fixed_length is not None:
        return []
    names: dict[str, list[str]] = {}
    for target in outline.targets:
        for name, dimension in dimensions_of(target).items():
            if dimension.lengths_in:
                names.setdefault(name, []).append(target)
    found: list[Bins] = []
    for name, targets in names.items():
        if max_length is not None:
            words = [f"optimal {count}" for count in _BINS]
            dimension, array = dimensions_of(targets[0])[name], np.array(lengths, dtype=np.int64)
            distinct = {bins_of(word, dimension, array, max_length): word for word in reversed(words)}
            words = [word for word in words if word in distinct.values()]
            found.append((name, tuple(words), tuple(targets)))
        elif compiled and not name.startswith("serving."):
            found.append((name, (" ".join(map(str, compiled)),), tuple(targets)))
    return found


def _service(outline: Outline, cores: int) -> list[str]:
    start = outline.start.service
    batches: Iterable[int] = start.max_batch_size
    if outline.model.fixed_batch is not None:
        batches = (outline.model.fixed_batch,)
    elif outline.largest_sample > _LARGE_INPUT:
        batches = [batch for batch in batches if batch <= 4] or [1]
    workers = [count for count in start.workers if not described(outline.target).on_host or count <= max(1, cores)]
    timeouts = start.batch_timeout_ms if any(batch > 1 for batch in batches) else (0,)
    now, why, mark = (1, 0.0, 1), "What you run now; without it the first of each is what 'untuned' means.", "# "
    if (known := start.today) and known[0] in batches and known[1] in timeouts and known[2] in workers:
        why = "What such services run today, to which 'today' in the table refers: write what yours does."
        now, mark = known, ""
    return [
        "",
        "# What a service may be told without compiling anything again.",
        "# The best of them is found for every candidate: the experiment's own `service:` says how requests come.",
        "service:",
        f"  max_batch_size: [{', '.join(map(str, batches))}]",
        f"  batch_timeout_ms: [{', '.join(f'{ms:g}' for ms in timeouts)}]  # how long a request waits for company",
        f"  workers: [{', '.join(map(str, workers or [1]))}]",
        f"  # {why}",
        f"  {mark}today: {{max_batch_size: {now[0]}, batch_timeout_ms: {now[1]:g}, workers: {now[2]}}}",
    ]


def _forbidden(outline: Outline, schemes: dict[str, tuple[str, ...]]) -> list[str]:
    lines: list[str] = []
    for scheme, targets in schemes.items():
        lacking = [target for target in outline.targets if target not in targets]
        if lacking:
            lines.append(f"  - target: [{', '.join(lacking)}]")
            lines.append(f"    quantization.scheme: [{scheme}]")
            lines.append(f"    reason: {' and '.join(described(t).title for t in lacking)} has no {scheme} INT8.")
    return ["", "forbid:", *lines] if lines else []


def _presets(
    outline: Outline, schemes: dict[str, tuple[str, ...]], bins: Sequence[Bins], *, single_thread: bool
) -> list[str]:
    layers, products = len(outline.weights), outline.products
    convolves = any(layer.op_type == "Conv" for layer in outline.weights)
    learned = any(start.weight_algorithms for start in outline.starts)
    corrected = {} if learned or products == layers else {"quantization.bias_correction": "true"}
    lines: list[str] = []
    for target, _ in outline.each_target():
        first = target == outline.target

        def add(name: str, written: Mapping[str, str], target: str = target, first: bool = first) -> None:
            own = {"name": name} if first else {"name": f"{target}-{name}", TARGET: target}
            lines.append(f"  - {{{', '.join(f'{key}: {value}' for key, value in (own | dict(written)).items())}}}")

        longer = next((one for one in bins if target in one[2] and len(one[1]) > 1), None)
        grouped = {} if longer is None else {longer[0]: f'"{longer[1][min(2, len(longer[1]) - 1)]}"'}
        add("float", {})
        if single_thread and first:
            add("float-1-thread", {"serving.intra_op_threads": "1"})
        for scheme, having in schemes.items():
            if target in having:
                own = {"quantization.scheme": scheme}
                if scheme == "static" and convolves and target in _between(outline):
                    # before plain static INT8: it is the better bet, and what it costs in accuracy is measured
                    add("static-int8-elementwise", own | {"quantization.elementwise": "int8"} | corrected)
                add(f"{scheme}-int8", own)
        if grouped:
            add("float-bins", grouped)
        if target in schemes.get("static", ()):
            static = {"quantization.scheme": "static"}
            if grouped:
                add("static-int8-bins", static | grouped)
            if 0 < products < layers and not outline.of_images:
                add("static-int8-matmul", static | {"quantization.operators": "matmul"})
            if products and first:
                add("static-int8-balanced", static | {"quantization.balance": "auto"})
            if layers > 2 and first:
                add("static-int8-2-in-float", static | corrected | {"quantization.keep_float": "2"})
    return lines


def _for(outline: Outline, targets: Sequence[str]) -> When:
    """The condition that a parameter belongs to some of the space's targets; none where it belongs to all."""
    return {} if set(targets) == set(outline.targets) else {TARGET: tuple(targets)}


def _parameter(name: str, choices: Sequence[Scalar], when: When | None = None) -> list[str]:
    shown = ", ".join(str(choice).lower() for choice in choices)
    conditions = ", ".join(f"{key}: [{', '.join(map(str, values))}]" for key, values in (when or {}).items())
    return [f"  {name}:", *([f"    when: {{{conditions}}}"] if conditions else []), f"    choices: [{shown}]"]


def _union(groups: Iterable[Iterable[T]]) -> list[T]:
    return list(dict.fromkeys(choice for group in groups for choice in group))
