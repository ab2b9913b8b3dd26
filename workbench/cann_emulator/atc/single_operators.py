"""The file of --singleop: read and judged, not compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.engine import Screen, start_engine
from workbench.cann_emulator.atc.failure import failure
from workbench.values.documents.json_reader import loads

_NOT_HANDED_ON = ("fusion_switch_file", "op_debug_config")
"""Flags that the engine of single operators is not told of (ge v8.5.0 api/atc/main_impl.cc, SetEnvForSingleOp)."""


def check_single_operator_file(options: Mapping[str, str], console: Screen) -> None:
    """The engine, then the file.

    Raises:
        AtcFailure: of the engine's start; E10023 (no file), E10024 (not readable), E10025 (no JSON).
    """
    start_engine({name: value for name, value in options.items() if name not in _NOT_HANDED_ON}, console)
    file = Path(options["singleop"])
    if not file.exists():
        raise failure("E10023", value=str(file))
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise failure("E10024", value=str(file)) from error
    except UnicodeDecodeError as error:
        raise failure("E10025", realpath=str(file.resolve()), errmsg=str(error)) from error
    try:
        loads(text, once=False)
    except ValueError as error:
        raise failure("E10025", realpath=str(file.resolve()), errmsg=str(error)) from error
