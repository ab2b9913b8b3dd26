"""The record file while it grows: weight factors first, activation factors by insertion (amct.md §1.7, §3.1).

AMCT's operator library finds a layer by the exact line pair `key: "<layer>"`, `  value {` and writes below it; it does
not parse the file. So does this module, and `amct_record.parse_record` reads the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.quantization.amct import protobuf_text
from workbench.quantization.amct.protobuf_reader import MessageReader
from workbench.quantization.amct.protobuf_text import Printed, print_message, quoted, shortest
from workbench.quantization.record import ActivationScale, WeightScale

_SIGNIFICANT_DIGITS = 10


def weight_records(
    layers: Sequence[str],
    weights: Mapping[str, WeightScale],
    balance: Mapping[str, Sequence[float]],
    *,
    pooling: Sequence[str] = (),
) -> str:
    """What quantize_model writes: an entry for every key, with the factors that need no data.

    Args:
        layers: keys in graph order; `<layer>:0` and `<layer>:1` for a product of two activations [inferred].
        pooling: keys of AveragePool, whose scale_w is 1.
    """
    entries: list[Printed] = []
    for key in layers:
        fields: list[Printed] = []
        if key in weights or key in pooling:
            scales = weights[key].scales if key in weights else (1.0,)
            fields += [("scale_w", shortest(scale)) for scale in scales]
            fields += [("offset_w", 0) for _ in scales]
        else:
            fields.append(("is_tensor_quantize", True))
        fields += [("tensor_balance_factor", shortest(factor)) for factor in balance.get(key, ())]
        if key in weights:
            fields.append(("wts_type", quoted("INT8")))
        entries.append(_entry(key, fields))
    return print_message(entries)


def balance_records(factors: Mapping[str, Sequence[float]]) -> str:
    """What the DMQBalancer operators write during the forward of the preprocess model."""
    return print_message(
        [
            _entry(layer, [("tensor_balance_factor", shortest(factor)) for factor in values])
            for layer, values in factors.items()
        ]
    )


def balance_factors(text: str, *, file: Path) -> dict[str, tuple[float, ...]]:
    """Layer → tensor_balance_factor of a record file.

    Raises:
        ConfigError: it is no record file.
    """
    found = {}
    for entry in MessageReader(protobuf_text.parse(text, file=file), file=file, name="ScaleOffsetRecord").messages(
        "record"
    ):
        value = entry.message_of("value")
        key = entry.text("key")
        if key is not None and value is not None and (factors := value[1].reals("tensor_balance_factor")):
            found[key] = factors
    return found


def with_activation(text: str, key: str, scale: ActivationScale, *, force_fp16: bool) -> str:
    """The text with an activation's factors below the head of its entry.

    Raises:
        RuntimeError: the file has no such entry, or in another layout.
    """
    head = f"  key: {quoted(key)}\n  value {{\n"
    if head not in text:
        raise RuntimeError(f"cannot find layer {key} in the record file; its layout must be kept (key, then value)")
    fields = [
        f"    scale_d: {scale.scale:.{_SIGNIFICANT_DIGITS}g}",
        f"    offset_d: {scale.zero_point}",
        '    act_type: "INT8"',
        '    op_data_type: "FLOAT32"',
    ]
    if force_fp16:
        fields.append('    fakequant_precision_mode: "FORCE_FP16_QUANT"')
    return text.replace(head, head + "\n".join(fields) + "\n", 1)


def _entry(key: str, fields: Sequence[Printed]) -> Printed:
    return ("record", (("key", quoted(key)), ("value", tuple(fields))))
