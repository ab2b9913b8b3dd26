"""What ATC refuses, said before it is started: one check of all flags together, with the vendor's own codes.

The order is ATC's: values first, then what is required, then exclusions, precision, shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.targets.ascend.atc.flag_shapes import check_shapes, refusal
from workbench.targets.ascend.atc.flag_table import DYNAMIC, FLAGS, NEWER, SOC_VERSIONS, Flag
from workbench.targets.ascend.paths import refused_characters
from workbench.targets.ascend.rules import Asked, broken, unsupported_mode
from workbench.values.errors import CompileError, ConfigError, nearest

__all__ = ["FLAGS", "check_flags"]

ONNX = "5"

_OUTPUT_TYPES = frozenset({"FP32", "FP16", "UINT8", "INT8"})

_REQUIRED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "0": (("framework", "E10007"), ("soc_version", "E10054"), ("output", "E10054"), ("model", "E10054")),
    "1": (("om", "E10004"), ("json", "E10004")),
    "3": (("framework", "E10007"), ("soc_version", "E10054"), ("model", "E10054")),
    "6": (("om", "E10004"),),
}
"""Mode → the flags it needs and the code when one is missing, in ATC's order (main_impl.cc:633-860)."""

_MODES_NEVER = {"5": "text dumps of graphs", "30": "models of Ascend035 only (E10055)"}


def check_flags(values: Mapping[str, str], *, quantized: bool = False) -> None:
    """Refuse what ATC 8.5.0 would refuse, and what this product never asks of a 910B3.

    Args:
        values: flag without dashes → value.
        quantized: the model is a deploy model with AscendQuant operators, for which more is forbidden.

    Raises:
        ConfigError: a flag or value that 8.5.0 does not have or that has no place on a 910B3.
        CompileError: a value or combination that ATC refuses, or would ignore; the message has the vendor's code.
    """
    for name, value in values.items():
        check_flag(name, value)
    _check_mode(values)
    for name in values:
        _check_company(FLAGS[name], values)
    _check_precision(values)
    _check_others(values)
    check_shapes(values)
    if quantized:
        _check_together(values, quantized=True)


def check_flag(name: str, value: str) -> None:
    """One flag by itself.

    Raises:
        ConfigError: 8.5.0 does not have it, or it has no place on a 910B3.
        CompileError: a value that ATC refuses.
    """
    _check_known(name, value)
    _check_value(FLAGS[name], value)


def _check_known(name: str, value: str) -> None:
    if name in NEWER:
        raise ConfigError(f"ATC 8.5.0 does not know this flag: it belongs to {NEWER[name]}.", key=f"--{name}")
    if name not in FLAGS:
        raise ConfigError("ATC has no such flag.", key=f"--{name}", hint=nearest(name, FLAGS))
    if FLAGS[name].never:
        raise ConfigError(
            f"is not used on a 910B3: {FLAGS[name].never}.", key=f"--{name}={value}", hint="Leave it out."
        )


def _check_value(flag: Flag, value: str) -> None:
    if flag.kind == "choice" and value not in flag.values:
        allowed = ", ".join(f"[{choice}]" for choice in sorted(flag.values))
        raise refusal(flag.code, flag.name, value, f"the value is none of {allowed}", "Choose one of them.")
    if flag.kind in ("input", "output", "directory") and (bad := refused_characters(value)):
        raise refusal(
            "E10001",
            flag.name,
            value,
            f"ATC takes no {', '.join(map(repr, bad))} in a path",
            "Use letters, digits and . / _ - only.",
        )
    if flag.name == "output" and value.endswith("/"):
        raise refusal("E10022", "output", value, "the path names no file", "Add the file's name, without .om.")
    if flag.kind == "numbers":
        others = re.search(r"[^0-9,]" if flag.name == "dynamic_batch_size" else r"[^0-9,;]", value)
        if others or not value:
            reason = "only digits, commas and semicolons belong here, and no blank"
            raise refusal(flag.code, flag.name, value, reason, "Correct it.")


def _check_mode(values: Mapping[str, str]) -> None:
    mode = values.get("mode", "0")
    if mode in _MODES_NEVER:
        raise ConfigError(f"is not used on a 910B3: {_MODES_NEVER[mode]}.", key=f"--mode={mode}")
    if mode == "6" and "framework" in values:
        raise refusal("E10057", "mode", mode, "mode 6 takes --om only", "Leave --framework out.")
    for name, code in _REQUIRED[mode]:
        if not values.get(name):
            raise CompileError(f"--{name} is missing, which mode {mode} needs (ATC: {code}). Add it.")
    framework = values.get("framework", ONNX)
    if framework != ONNX:
        raise ConfigError(
            "this product compiles ONNX models."
            + (" Caffe is refused on the 910B family (E10001)." * (framework == "0")),
            key=f"--framework={framework}",
            hint="Use 5.",
        )
    soc = values.get("soc_version")
    if soc is not None and soc not in SOC_VERSIONS:
        reason = (
            "the chip of the first generation, with another architecture"
            if soc == "Ascend910B"
            else "no chip of the 910B family (ATC answers EE1001 where it does not know it either)"
        )
        raise ConfigError(f"is {reason}.", key=f"--soc_version={soc}", hint=nearest(soc, SOC_VERSIONS))


def _check_company(flag: Flag, values: Mapping[str, str]) -> None:
    for other in flag.excludes:
        if other in values:
            raise refusal(
                flag.excludes_code, flag.name, values[flag.name], f"excludes --{other}", "Give one of the two."
            )
    for other in flag.requires:
        if not values.get(other):
            code = "E10004" if other == "input_shape" else "E10001"
            raise refusal(code, flag.name, values[flag.name], f"--{other} is missing", f"Add --{other}.")


def _check_precision(values: Mapping[str, str]) -> None:
    mode, twin = values.get("precision_mode"), values.get("precision_mode_v2")
    if twin is not None and (rule := unsupported_mode(twin)):
        raise ConfigError(f"{rule.problem}.", key="--precision_mode_v2", hint=rule.remedy)
    if mode is not None and twin is not None:
        raise refusal(
            "E10056", "precision_mode", mode, f"excludes --precision_mode_v2={twin}, even where they mean the same",
            "Give one of the two.",
        )  # fmt: skip
    _check_together(values, quantized=False)


def _check_together(values: Mapping[str, str], *, quantized: bool) -> None:
    """The rules that hold for a candidate's settings too."""
    shapes = next((name for name in DYNAMIC if name in values), "input_shape")
    free = values.get("input_shape", "")
    rule = broken(
        Asked(
            mode=values.get("precision_mode_v2") or values.get("precision_mode") or "force_fp16",
            quantized=quantized,
            dynamic=shapes != "input_shape" or "~" in free or "-1" in free,
            given=frozenset(values),
            kernels=values.get("op_select_implmode", ""),
        )
    )
    if rule is None:
        return
    precision = "precision_mode_v2" if "precision_mode_v2" in values else "precision_mode"
    name = {"precision": precision, "shapes": shapes}.get(rule.about, rule.about)
    if rule.code:
        raise refusal(rule.code, name, values[name], rule.problem, rule.remedy)
    raise CompileError(f"--{name}={values.get(name, '')}: {rule.problem}. {rule.remedy}")


def _check_others(values: Mapping[str, str]) -> None:
    implementation = values.get("op_select_implmode", "")
    if "optypelist_for_implmode" in values and implementation.endswith("_for_all"):
        raise CompileError(
            f"--optypelist_for_implmode is void with --op_select_implmode={implementation} (ATC ignores it). "
            f"Use {implementation.removesuffix('_for_all')}."
        )
    if values.get("virtual_type") == "1" and values.get("buffer_optimize") == "l1_optimize":
        raise refusal("E10001", "virtual_type", "1", "excludes --buffer_optimize=l1_optimize", "Use l2_optimize.")
    if "debug_dir" in values and values.get("op_debug_level", "0") == "0":
        raise CompileError("--debug_dir is void with --op_debug_level=0. Set a level, or leave it out.")
    if "aicore_num" in values:
        _check_cores(values["aicore_num"], SOC_VERSIONS.get(values.get("soc_version", ""), (20, 40)))
    outputs = _check_out_nodes(values["out_nodes"]) if "out_nodes" in values else set()
    if "output_type" in values:
        _check_output_type(values["output_type"], outputs)
    for name in values["input_fp16_nodes"].split(";") if "input_fp16_nodes" in values else ():
        if not name or name != name.strip():
            reason = f"{name!r} is no input: blanks and empty entries are taken for names"
            raise refusal("E10016", "input_fp16_nodes", values["input_fp16_nodes"], reason, "Leave them out.")


def _check_out_nodes(value: str) -> set[str] | None:
    """The outputs of nodes that are named, `node:0`; None where tensors are, whose nodes only the model knows."""
    entries = [entry.split(":") for entry in value.split(";")]
    if {len(entry) for entry in entries} not in ({1}, {2}):
        reason = "every entry is node:index, or every entry is an output tensor"
        raise refusal("E10001", "out_nodes", value, reason, "Use one style, and no empty entry.")
    for _, index in (entry for entry in entries if len(entry) == 2):
        if not re.fullmatch(r"[0-9]{1,9}", index):
            code = "E10001" if re.search(r"[^0-9]", index) else "E10013" if index else "E10014"
            raise refusal(code, "out_nodes", value, f"{index!r} is no index", "Write such as node:0, without blanks.")
    return None if len(entries[0]) == 1 else {f"{node}:{int(index)}" for node, index in entries}


def _check_cores(value: str, most: tuple[int, int]) -> None:
    parts = value.split("|")
    if not all(re.fullmatch(r"\d+", part) for part in parts) or len(parts) > 2:
        raise refusal("E10001", "aicore_num", value, "is not of the form cube|vector", "Write such as 20|40.")
    for part, limit in zip(parts, most, strict=False):
        if not 0 < int(part) <= limit:
            raise refusal("E20103", "aicore_num", value, f"{part} is outside (0, {limit}]", "The chip has no more.")


def _check_output_type(value: str, outputs: set[str] | None) -> None:
    """
    Args:
        outputs: `node:0` of --out_nodes; empty without the flag, None where only the model knows.
    """
    entries = [[part.strip() for part in entry.split(":")] for entry in value.split(";")] if ":" in value else [[value]]
    if any(entry[-1] not in _OUTPUT_TYPES for entry in entries):
        raise refusal("E10001", "output_type", value, "8.5.0 takes FP32, FP16, UINT8 and INT8", "Choose one.")
    if ":" not in value or outputs is None:
        return
    if not outputs:
        raise refusal("E10001", "output_type", value, "nodes are named but --out_nodes is missing", "Add --out_nodes.")
    other = next((":".join(entry) for entry in entries if ":".join(entry[:-1]) not in outputs), None)
    if other is not None:
        raise refusal("E10001", "output_type", value, f"{other} is none of --out_nodes", "Write such as node:0:FP16.")
