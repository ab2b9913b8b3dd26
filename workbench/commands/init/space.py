"""Writing the search space: only what can change this model on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.commands.init.model import Outline
from workbench.space.dimensions import dimensions_of
from workbench.space.space import choice_text
from workbench.targets import described
from workbench.values.dimension import FUSION_PREFIX, Scalar

_KEEP_FLOAT = (0, 1, 2, 4, 8)


def space_text(name: str, outline: Outline, cores: int, *, text: bool = False) -> str:
    """The search space: only what can change this model on this machine.

    Args:
        text: samples are texts, which may be grouped and padded by their lengths.
    """
    weights = [layer for layer in outline.layers if layer.weight is not None]
    attention = sum(layer.second is not None for layer in outline.layers)
    target, start, known = described(outline.target), outline.start, dimensions_of(outline.target)
    served = {
        "dynamic": any(layer.op_type in ("MatMul", "Gemm") for layer in weights),  # it serves no others
        "static": bool(weights or attention),
    }
    schemes = ["none", *(scheme for scheme in start.schemes if served[scheme])]
    bins = next((name for name, dimension in known.items() if dimension.lengths_in), None)
    keep_float = [count for count in _KEEP_FLOAT if count < max(1, len(weights))]
    threads = _halvings(cores) if "serving.intra_op_threads" in known else []
    lines = [
        f"# What may vary when {name} runs on {target.title}.",
        f"# INT8 can serve {len(weights)} of its layers and {attention} of its products of two activations.",
        f"# The machine this was written on has {cores} cores.",
        "#",
        "# The first choice of a parameter is its default; presets name only what differs from it. `when:` says where",
        f"# one applies. `workbench space search_spaces/{name}.yaml` explains each and counts the candidates.",
        "version: 1",
        f"target: {target.name}",
        "",
        "parameters:",
    ]
    if not (weights or attention):
        lines.append("  # No layer of this model can be INT8: nothing multiplies by a constant float32 matrix.")
    lines += _parameter("quantization.scheme", schemes)
    if "static" in schemes:
        static = "{quantization.scheme: [static]}"
        lines += _parameter("quantization.algorithm", ["mse", "minmax", "percentile", "kl"], static)
        lines += _parameter("quantization.percentile", [99.999, 99.99], "{quantization.algorithm: [percentile]}")
        lines += _parameter("quantization.activation_symmetric", [False, True], static)
        quantized = ", ".join(schemes[1:])
        lines += _parameter(
            "quantization.weight_granularity", ["channel", "tensor"], f"{{quantization.scheme: [{quantized}]}}"
        )
        products = [False, True] if attention and weights else [bool(attention)]
        if not attention:
            lines.append("  # No MatMul of this model multiplies two activations.")
        lines += _parameter("quantization.attention_matmul", products, static)
        if weights:
            lines.append("  # SmoothQuant: closer to float for one more calibration pass and a little time per call.")
            lines += _parameter("quantization.balance", ['"off"', "auto"], static)
        lines.append(f"  # How many of the most sensitive of {len(weights)} layers stay in float.")
        lines += _parameter("quantization.keep_float", keep_float, static)
        lines += _rare(bool(weights), keep_float[1:])
    for parameter, choices in start.parameters.items():
        lines += ["", *_parameter(parameter, choices)]
    if start.fusions:
        lines.append(
            "  # The fusions that change this model. In quotes for readers of YAML 1.1, to whom a bare off is false."
        )
    for fusion in start.fusions:
        lines += [f"  {FUSION_PREFIX}{fusion}:", '    choices: ["on", "off"]']
    if threads:
        lines += ["", *_parameter("serving.intra_op_threads", threads)]
    binned = bins is not None and text and outline.fixed_length is None
    if binned:
        lines.append(
            "  # Padded lengths that requests are grouped by: the N with the least padding for these texts. One is"
        )
        lines.append('  # the manifest\'s max_length alone. Lists such as "32 64 128" work too.')
        lines += _parameter(str(bins), [f'"optimal {count}"' for count in (1, 2, 4, 8)])
    if outline.fixed_batch is not None:
        lines.append("  # The model takes no other batch.")
    lines += _parameter("serving.batch", [outline.fixed_batch or 1])
    if len(schemes) > 1 and start.forbid:
        lines += ["", "forbid:"]
        for values, reason in start.forbid:
            lines.append(f"  - quantization.scheme: [{', '.join(schemes[1:])}]")
            lines += [f"    {other}: [{', '.join(map(choice_text, choices))}]" for other, choices in values.items()]
            lines.append(f"    reason: {reason}")
    lines += [
        "",
        "# Evaluated before anything is proposed: the float model first, then what usually does well.",
        "presets:",
    ]
    lines.append("  - {name: float}")
    if len(threads) > 1:
        lines.append("  - {name: float-1-thread, serving.intra_op_threads: 1}")
    lines += [f"  - {{name: {scheme}-int8, quantization.scheme: {scheme}}}" for scheme in schemes[1:]]
    if binned:
        lines += [
            f'  - {{name: {name}, {settings}{bins}: "optimal 4"}}'
            for name, settings in (
                ("float-bins", ""),
                *([("static-int8-bins", "quantization.scheme: static, ")] if "static" in schemes else []),
            )
        ]
    if "static" in schemes and weights:
        lines.append("  - {name: static-int8-balanced, quantization.scheme: static, quantization.balance: auto}")
    if "static" in schemes and 2 in keep_float:
        lines.append("  - {name: static-int8-2-in-float, quantization.scheme: static, quantization.keep_float: 2}")
    return "\n".join(lines) + "\n"


def _rare(weights: bool, keep_float: Sequence[int]) -> list[str]:
    """What seldom pays, as comments that need only lose their "# "."""
    static = "{quantization.scheme: [static]}"
    found: list[str] = []
    if weights:
        found += _parameter("quantization.weight_algorithm", ["minmax", "mse", "arq", "adaround"], static)
        found += _parameter("quantization.bias_correction", [False, True], static)
    if keep_float:
        kept = f"{{quantization.keep_float: [{', '.join(map(str, keep_float))}]}}"
        found += _parameter("quantization.keep_float_unit", ["layer", "group"], kept)
        found += _parameter("quantization.sensitivity", ["sqnr", "first_order"], kept)
    if not found:
        return []
    title = '  # Rarely worth their part of the trials; remove the "# " before what the model needs.'
    return ["", title, *(f"  # {line.removeprefix('  ')}" for line in found)]


def _parameter(name: str, choices: Sequence[Scalar], when: str | None = None) -> list[str]:
    shown = ", ".join(str(choice).lower() for choice in choices)
    return [f"  {name}:", *([f"    when: {when}"] if when is not None else []), f"    choices: [{shown}]"]


def _halvings(cores: int) -> list[int]:
    """16 → [16, 8, 4, 2, 1]."""
    counts = [cores]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
