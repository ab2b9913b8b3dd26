"""Values of the command line's arguments (amct.md §1.4)."""

from __future__ import annotations

import os


def process_data_shape(values: str) -> dict[str, list[int]]:
    """`a:1,3,5;b:0:16` as {'a': [1, 3, 5], 'b:0': [16]}: the last colon separates.

    Raises:
        ValueError: the text has another form.
    """
    shapes: dict[str, list[int]] = {}
    for item in values.split(";"):
        name, colon, dimensions = item.rpartition(":")
        if not colon or not name or not dimensions:
            raise ValueError(
                "Invalid input_shape. Input name and shapes of each input node should be ':' split. "
                "E.g.: input_name1:n1,c1,h1,w1 or input_name2:0:n1,c1,h1,w1"
            )
        shapes[name] = [int(dimension) for dimension in dimensions.split(",")]
    return shapes


def process_multi_data_path(values: str) -> list[str]:
    """Folders, separated by semicolons; a trailing one is allowed, as in the vendor's example."""
    return [os.path.realpath(folder) for folder in values.split(";") if folder]
