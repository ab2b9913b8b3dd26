"""The toolkit's msaccucmp.py, as far as it converts dump files: pyacl.md §5.6.

    python3 msaccucmp.py convert -d FILE|FOLDER [-out DIR] [-v 2]

A status file of the overflow check becomes `<file>.output.0.json`; what operators read and wrote is left as it is.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.cann_emulator.acl.dumping import AI_CORE_INFO, AI_CORE_STATUS, STATUS_BYTES
from workbench.cann_emulator.dump_file import NoDumpFile, outputs_in
from workbench.values.system.files import temporary_beside

_STATUS = "Opdebug.Node_OpDebug."
_NOT_DUMPS = ("emulated.txt", "mapping.csv")


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or 1 where a file is no dump."""
    parser = argparse.ArgumentParser(prog="msaccucmp.py")
    convert = parser.add_subparsers(dest="command", required=True).add_parser("convert")
    convert.add_argument("-d", dest="dump", type=Path, required=True)
    convert.add_argument("-out", "--output", dest="output", type=Path, default=Path())
    convert.add_argument("-v", "--version", dest="version", choices=("1", "2"), default="2")
    arguments = parser.parse_args(argv)
    failed = 0
    files = [arguments.dump]
    if arguments.dump.is_dir():
        files = sorted(file for file in arguments.dump.rglob("*") if file.is_file() and file.name not in _NOT_DUMPS)
    for file in files:
        try:
            _convert(file, arguments.output)
        except (OSError, NoDumpFile) as error:
            print(f"[ERROR] {file} cannot be converted: {error}")
            failed = 1
    return failed


def _convert(file: Path, to: Path) -> None:
    outputs = outputs_in(file.read_bytes())
    if not file.name.startswith(_STATUS):
        raise NoDumpFile(f"the emulator converts files of the overflow check, {_STATUS}*, and no tensors")
    texts = [json.dumps(_overflow(content), indent=4) for content in outputs]
    to.mkdir(parents=True, exist_ok=True)
    for index, text in enumerate(texts):
        result = to / f"{file.name}.output.{index}.json"
        with temporary_beside(result, durable=False) as draft:
            draft.write_text(text, encoding="utf-8")
        print(f'[INFO] The data of output:{index} has been parsed into "{result}".')


def _overflow(content: bytes) -> dict[str, Any]:
    if len(content) != STATUS_BYTES:
        raise NoDumpFile(f"{len(content)} bytes are no overflow status, which has {STATUS_BYTES}")
    names = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")

    def info(at: int) -> dict[str, Any]:
        found = dict(zip(names, struct.unpack_from("<6Q", content, at), strict=True))
        return {**found, "pc_start": hex(found["pc_start"]), "para_base": hex(found["para_base"])}

    (dha,), (l2,) = (struct.unpack_from("<Q", content, at) for at in (AI_CORE_STATUS - 512, AI_CORE_STATUS - 256))
    code, block, status = struct.unpack_from("<3Q", content, AI_CORE_STATUS)
    return {
        "DHA Atomic Add": {**info(0), "status": dha},
        "L2 Atomic Add": {**info(128), "status": l2},
        "AI Core": {**info(AI_CORE_INFO), "kernel_code": hex(code), "block_idx": block, "status": status},
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
