"""--compression_optimize_conf: AMCT inside ATC (atc.md §3.6).

The file is read and judged. A calibration is not run: ATC runs it on the device, through a closed library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.state import device_count

_CALIBRATION_KEYS = frozenset(
    {
        *("input_data_dir", "input_shape", "config_file", "infer_soc", "infer_aicore_num", "infer_device_id"),
        *("infer_ip", "infer_port", "log"),
    }
)
_REQUIRED = ("input_data_dir", "input_shape", "infer_soc")
_LOG_LEVELS = ("debug", "info", "warning", "error")


def parse_compression_conf(text: str, path: str) -> Mapping[str, str | Mapping[str, str]]:
    """The keys of the file; `calibration` holds its own.

    Raises:
        AtcFailure: E21002 (no such form, or an unknown key) [inferred: the reader is in a closed library]; E20101 for
            a value of enable_first_layer_quantization.
    """
    lines = _lines(text)
    keys: dict[str, str | Mapping[str, str]] = {}
    inside: dict[str, str] | None = None
    for number, line in enumerate(lines, start=1):
        if line in ("calibration {", "calibration{", "calibration:{", "calibration: {") and inside is None:
            inside = {}
            continue
        if line == "}" and inside is not None:
            keys["calibration"], inside = inside, None
            continue
        key, colon, value = (part.strip() for part in line.partition(":"))
        known = _CALIBRATION_KEYS if inside is not None else {"enable_first_layer_quantization"}
        if not colon or key not in known:
            raise _unreadable(path, f"entry {number}, {line!r}, is none of {', '.join(sorted(known))}")
        (keys if inside is None else inside)[key] = value.strip("\"'")
    if inside is not None:
        raise _unreadable(path, "calibration is not closed")
    first = keys.get("enable_first_layer_quantization", "false")
    if first not in ("true", "false"):
        raise failure(
            "E20101",
            parameter="enable_first_layer_quantization",
            value=str(first),
            reason="it is true or false",
        )
    return keys


def check_compression_conf(path: str) -> None:
    """What becomes of the flag: nothing without a calibration, else the run ends here.

    Raises:
        AtcFailure: E21001 (no file); E21002, E20101 (its content); E10055 (no device, or a device that is emulated).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise failure("E21001", file_name=path) from error
    calibration = parse_compression_conf(text, path).get("calibration")
    if not isinstance(calibration, Mapping):
        return
    missing = [key for key in _REQUIRED if not calibration.get(key)]
    if missing:
        raise _unreadable(path, f"calibration has no {', '.join(missing)}")
    if calibration.get("log", "info") not in _LOG_LEVELS:
        raise _unreadable(path, f"log is one of {', '.join(_LOG_LEVELS)}")
    if device_count() == 0:
        raise failure("E10055", reason="the calibration runs on a device, and this machine has none")
    raise failure(
        "E10055",
        reason="this atc is emulated and runs no calibration inside a conversion; quantize with amct_onnx and convert "
        "its deploy model",
    )


def _lines(text: str) -> list[str]:
    """Entries without comments and blank lines, braces on lines of their own."""
    text = re.sub(r"#[^\n]*", "", text)
    text = re.sub(r"calibration\s*(?::\s*)?\{", "\ncalibration {\n", text).replace("}", "\n}\n")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _unreadable(path: str, reason: str) -> AtcFailure:
    return failure("E21002", file_name=path, reason=reason)
