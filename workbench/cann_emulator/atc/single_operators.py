"""The file of --singleop: read and judged, not compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.soc import check_engine_options
from workbench.json_reader import loads


def check_single_operator_file(options: Mapping[str, str]) -> None:
    """The chip, then the file.

    Raises:
        AtcFailure: E20101 (the chip); E10023 (no file), E10024 (not readable), E10025 (no JSON).
    """
    check_engine_options(options)
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
