"""What ATC tells about a compiled file: sizes and versions, printed after a compile or by --mode=6.

Form: ge v8.5.0 api/atc/omg.cc:893-975.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIELD = re.compile(r"\b([a-z_]+)\[\s*([^\]]*?)\s*\]")
_START = "Display Model Info start"
_END = "Display Model Info end"


@dataclass(frozen=True, slots=True, kw_only=True)
class OmInfo:
    """One compiled file.

    Attributes:
        memory_size_bytes, weight_size_bytes: device memory for work and for weights; needs no device to know.
        atc_version: the compiler's; a file runs on the same or a newer CANN.
    """

    memory_size_bytes: int
    weight_size_bytes: int
    stream_num: int | None = None
    event_num: int | None = None
    atc_version: str = ""
    soc_version: str = ""
    modeldef_size_bytes: int | None = None
    weight_data_size_bytes: int | None = None
    tbe_kernels_size_bytes: int | None = None
    task_info_size_bytes: int | None = None


def parse_info(text: str) -> OmInfo | None:
    """The block in what ATC printed; None where there is none, or it lacks the two memory sizes."""
    start = text.find(_START)
    if start < 0:
        return None
    end = text.find(_END, start)
    fields = dict(_FIELD.findall(text[start : end if end >= 0 else None]))
    memory, weight = _number(fields, "memory_size"), _number(fields, "weight_size")
    if memory is None or weight is None:
        return None
    return OmInfo(
        memory_size_bytes=memory,
        weight_size_bytes=weight,
        stream_num=_number(fields, "stream_num"),
        event_num=_number(fields, "event_num"),
        atc_version=fields.get("atc_version", ""),
        soc_version=fields.get("soc_version", ""),
        modeldef_size_bytes=_number(fields, "modeldef_size"),
        weight_data_size_bytes=_number(fields, "weight_data_size"),
        tbe_kernels_size_bytes=_number(fields, "tbe_kernels_size"),
        task_info_size_bytes=_number(fields, "task_info_size"),
    )


def _number(fields: dict[str, str], name: str) -> int | None:
    found = re.match(r"\d+", fields.get(name, ""))
    return int(found[0]) if found else None
