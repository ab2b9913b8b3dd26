"""The toolkit's msaccucmp.py, as far as it converts a file of the overflow check: pyacl.md §5.6.

    python3 msaccucmp.py convert -d FILE -out DIR -v 2

The emulated acl writes the fields as JSON under the vendor's file name; here they get the name of a result. That the
vendor calls it `<file>.output.0.json` is [inferred] from reports of users.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.values.documents.json_reader import loads
from workbench.values.system.files import temporary_beside


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or 1 where the file is no overflow file of the emulator."""
    parser = argparse.ArgumentParser(prog="msaccucmp.py")
    convert = parser.add_subparsers(dest="command", required=True).add_parser("convert")
    convert.add_argument("-d", dest="dump", type=Path, required=True)
    convert.add_argument("-out", "--output", dest="output", type=Path, default=Path())
    convert.add_argument("-v", "--version", dest="version", choices=("1", "2"), default="2")
    arguments = parser.parse_args(argv)
    try:
        content = loads(arguments.dump.read_bytes())
        if not content["emulated"]:
            raise ValueError("it is not emulated")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"[ERROR] {arguments.dump} is no overflow file of the emulated acl: {error}")
        return 1
    arguments.output.mkdir(parents=True, exist_ok=True)
    result = arguments.output / f"{arguments.dump.name}.output.0.json"
    with temporary_beside(result, durable=False) as draft:
        draft.write_text(json.dumps(content, indent=4), encoding="utf-8")
    print(f"[INFO] The overflow data was converted to {result}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
