"""Modes 1 and 6: a file that is there, as JSON or on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.engine import Screen
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.info import show_info
from workbench.cann_emulator.atc.json_form import json_of_om, json_of_onnx
from workbench.cann_emulator.atc.onnx_parser import parse_onnx
from workbench.cann_emulator.atc.outputs import write_file
from workbench.cann_emulator.om import NotAnOm, OfflineModel, load_om


def run_to_json(options: Mapping[str, str], console: Screen) -> None:
    """Mode 1: an OM, or with --framework=5 an ONNX file, as JSON.

    Raises:
        AtcFailure: E10041 (no OM), those of the parse, E10001 (the JSON file cannot be written).
    """
    if options.get("framework") == "5":
        text = json_of_onnx(parse_onnx(Path(options["om"])).proto)
    else:
        text = json_of_om(_load(options["om"]))
    write_file(options["json"], text.encode())
    console.log("info", "GE", f"{options['json']} is written")


def run_info(options: Mapping[str, str], console: Screen) -> None:
    """Mode 6: what an OM holds.

    Raises:
        AtcFailure: E10041 (no OM).
    """
    show_info(_load(options["om"]), Path(options["om"]).stat().st_size, console.line)


def _load(path: str) -> OfflineModel:
    try:
        return load_om(Path(path))
    except (OSError, NotAnOm) as error:
        raise failure("E10041", parameter=path) from error
