"""Making sound files hostile: bytes, words of the format's own grammar, sizes and depths. All of it follows a seed."""

from __future__ import annotations

import contextlib
import io
import math
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

NUMBERS = (
    *("0", "-1", "1e999", "-1e999", "1e-999", "nan", ".nan", ".inf", "NaN", "Infinity", "0x" + "f" * 40, "1e99999999"),
    *("9" * 30, "9" * 5000, "18446744073709551616", "9223372036854775807", "-9223372036854775809", "1:59:59", "0o17"),
    *("2147483648", "4294967296", "00", "1_0", "1.", ".5", "1e", "--1", "true", "null", "~", "²", "١"),
)
_ODD = '"" \'\' "\\ud800" "\\u0000" \\x00 \x00 \ufeff \u202e \x1b[31m é 张 \U0001f600 %s%n . ${HOME}'
TEXTS = (*_ODD.split(" "), "\u2028", "a" * 300, "../../../etc/passwd", "/dev/zero", "/proc/self/mem")
_SIGNS = "[ ] { } , : - ? \" ' # *a | > \\ /* // ; < ||| +---+ !!binary !!python/name:os.system"
MARKS = (
    *_SIGNS.split(" "),
    *(mark * 200 for mark in ("[", "{", '{"a":', "(", "- ")),
    *("\n", "\r", "\r\n", "\t", " ", "&a ", "&a [*a, *a]", "<<: *a", "%YAML 1.1\n---\n", "---\n", "...\n"),
)


def hostile_text(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """A text changed in one to six places by its own words, others' words, numbers, marks or bytes."""
    content = random_.choice(seeds)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 6))):
        content = random_.choice(_TEXT_CHANGES)(content, random_)
    return content[: 1 << 20]


def hostile_bytes(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """A binary file changed in one to six places."""
    content = random_.choice(seeds)
    for _ in range(random_.choice((1, 1, 2, 3, 6))):
        content = random_.choice(_BYTE_CHANGES)(content, random_)
    return content


# --- bytes -----------------------------------------------------------------------------------------------------------


def _cut(content: bytes, random_: random.Random) -> bytes:
    return content[: random_.randrange(len(content) + 1)]


def _flip(content: bytes, random_: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random_.randrange(1, 5)):
        if changed:
            changed[random_.randrange(len(changed))] = random_.randrange(256)
    return bytes(changed)


def _drop(content: bytes, random_: random.Random) -> bytes:
    start = random_.randrange(len(content) + 1)
    return content[:start] + content[start + random_.randrange(1, 40) :]


def _repeat(content: bytes, random_: random.Random) -> bytes:
    start = random_.randrange(len(content) + 1)
    part = content[start : start + random_.randrange(1, 60)]
    return content[:start] + part * random_.choice((2, 3, 50, 1000)) + content[start:]


def _insert(content: bytes, random_: random.Random) -> bytes:
    start = random_.randrange(len(content) + 1)
    return content[:start] + random_.randbytes(random_.choice((1, 2, 8, 64))) + content[start:]


def _large_field(content: bytes, random_: random.Random) -> bytes:
    """A field of two, four or eight bytes gets a number at the edge of its type; or a varint does."""
    value = random_.choice((0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1))
    width = random_.choice((2, 4, 8))
    written = random_.choice((struct.pack("<Q", value)[:width], _varint(value)))
    start = random_.randrange(len(content) + 1)
    return content[:start] + written + content[start + len(written) :]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


_BYTE_CHANGES: Sequence[Callable[[bytes, random.Random], bytes]] = (
    *(_cut, _flip, _flip, _flip, _drop, _repeat, _insert),
    *(_large_field, _large_field),
)

# --- words -----------------------------------------------------------------------------------------------------------

_WORD = re.compile(rb"[A-Za-z_][\w.]*|-?[0-9][0-9.eE+-]*|[^\w\s]")


def _replace_word(content: bytes, random_: random.Random) -> bytes:
    words = list(_WORD.finditer(content))
    if not words:
        return content
    chosen = random_.choice(words)
    return content[: chosen.start()] + _word(content, random_) + content[chosen.end() :]


def _replace_number(content: bytes, random_: random.Random) -> bytes:
    numbers = list(re.finditer(rb"-?[0-9][0-9.eE+-]*", content))
    if not numbers:
        return _replace_word(content, random_)
    chosen = random_.choice(numbers)
    return content[: chosen.start()] + random_.choice(NUMBERS).encode() + content[chosen.end() :]


def _insert_word(content: bytes, random_: random.Random) -> bytes:
    start = random_.randrange(len(content) + 1)
    return content[:start] + _word(content, random_) + content[start:]


def _swap_lines(content: bytes, random_: random.Random) -> bytes:
    lines = content.split(b"\n")
    first, second = random_.randrange(len(lines)), random_.randrange(len(lines))
    lines[first], lines[second] = lines[second], random_.choice((lines[first], lines[second]))
    return b"\n".join(lines)


def _deepen(content: bytes, random_: random.Random) -> bytes:
    """One value of the file becomes a thousand levels, or as many of them side by side."""
    opening, closing = random_.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a: ", b"}"), (b"a {", b"}"), (b"<", b">")))
    count = random_.choice((20, 70, 1000, 20_000))
    start = random_.randrange(len(content) + 1)
    inner = random_.choice(
        (opening * count, opening * count + b"1" + closing * count, (opening + closing + b",") * count)
    )
    return content[:start] + inner + content[start:]


def _lengthen(content: bytes, random_: random.Random) -> bytes:
    start = random_.randrange(len(content) + 1)
    return (
        content[:start]
        + random_.choice((b"x", b"9", b" ", b"\t", b"\n", b"\\", b'"', b"\xe5")) * 200_000
        + content[start:]
    )


def _word(content: bytes, random_: random.Random) -> bytes:
    own = _WORD.findall(content)
    kind = random_.randrange(4)
    if kind == 0 and own:
        return bytes(random_.choice(own))
    return random_.choice((NUMBERS, TEXTS, MARKS)[kind % 3]).encode("utf-8", "surrogatepass")


_TEXT_CHANGES: Sequence[Callable[[bytes, random.Random], bytes]] = (
    *(_replace_word, _replace_word, _replace_number, _replace_number, _replace_number, _insert_word, _insert_word),
    *(_swap_lines, _deepen, _lengthen, _cut, _flip, _drop, _repeat),
)

# --- formats of their own --------------------------------------------------------------------------------------------


def hostile_npz(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """Archives and arrays whose headers lie; otherwise changed bytes."""
    if random_.random() < 0.4:
        return hostile_bytes(seeds, random_)
    packed = io.BytesIO()
    names = ["x", "label", "arr_0", "x_0", "labels"]
    with zipfile.ZipFile(packed, "w", random_.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for _ in range(random_.choice((1, 2, 2, 3))):
            name = random_.choice((*names, "../x", "a" * 200, "x.npy", ""))
            archive.writestr(
                f"{name}.npy" if name not in archive.namelist() else "other.npy", hostile_npy(seeds, random_)
            )
    content = packed.getvalue()
    return _flip(content, random_) if random_.random() < 0.2 else content


def hostile_npy(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """One thing of the header or the data lies, or two do."""
    shape, dtype, order, version, length = "(8, 16)", "'<f4'", "False", b"\x01\x00", None
    values = np.random.default_rng(random_.randrange(1000)).normal(size=(8, 16)).astype(np.float32)
    data = values.tobytes()
    for _ in range(random_.choice((0, 1, 1, 2))):
        kind = random_.randrange(6)
        if kind == 0:
            shapes = ("(8,)", "(-1, 16)", "(4611686018427387904, 4)", "()", "(0, 16)", "(8, 0)", "(True, 16)", "(8.0,)")
            shape = random_.choice((*shapes, "(8, 16" * 2, "(" * 500, f"({'9' * 400},)", "(1" + ",1" * 70 + ")"))
        elif kind == 1:
            types = "'<i8' '|O' '<M8[s]' '|V2147483647' '<U1000000' '>f8' '<f2' '|b1' '<c16' 'x' None '|S0' '<f16'"
            dtype = random_.choice((*types.split(), "[('a', '<f4')]", "('<f4', (10,))", "9" * 50))
        elif kind == 2:
            order = random_.choice(("True", "0", "'C'"))
        elif kind == 3:
            version = random_.choice((b"\x02\x00", b"\x03\x00", b"\x09\x00"))
        elif kind == 4:
            length = random_.choice((0, 65535, 2**31 - 1))
        else:
            data = random_.choice((b"", b"\0" * 2_000_000, np.full(128, np.nan, "<f4").tobytes()))
    header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if random_.random() < 0.1:
        header = random_.choice(("{" * 900, "[" * 9000, header * 3, header + "x" * 20_000, "__import__('os')", ""))
    text = header.encode() + b"\n"
    told = len(text) if length is None else length
    field = struct.pack("<H", told & 0xFFFF) if version == b"\x01\x00" else struct.pack("<I", told)
    return b"\x93NUMPY" + version + field + text + data


def hostile_onnx(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """Messages changed field by field, or changed bytes."""
    if random_.random() < 0.35:
        return hostile_bytes(seeds, random_)
    proto = onnx.ModelProto()
    proto.ParseFromString(random_.choice(seeds))
    for _ in range(random_.choice((1, 1, 2, 4))):
        parts = list(_messages(proto))
        names = [name for node in proto.graph.node for name in (*node.input, *node.output, node.op_type)]
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # beyond what a field takes
            _change_field(random_.choice(parts), (*names, *_NAMES), random_)
    return proto.SerializeToString()


_NAMES = (
    "",
    "absent",
    "\x00",
    "n" * 5000,
    "axis",
    "to",
    "f",
    "com.microsoft",
    "If",
    "Loop",
    "Gather",
    "Cast",
    "Constant",
)
_PLACES = (
    "../w.bin",
    "/dev/zero",
    "/etc/passwd",
    "location",
    "offset",
    "length",
    "x" * 300,
    "model.onnx",
    ".",
    "1e999",
)
_INTEGERS = (-1, 0, 1, 2, 6, 7, 13, 14, 22, 27, 99, 2**31, 2**40, 2**62, 2**63 - 1)


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if isinstance(value, Sequence) or hasattr(value, "add") else [value]:
                yield from _messages(each)


def _change_field(message: Any, names: Sequence[str], random_: random.Random) -> None:
    """One field, set or not, gets a value at the edge of its type, is repeated, or goes."""
    field = random_.choice(message.DESCRIPTOR.fields)
    value = getattr(message, field.name)
    repeated = hasattr(value, "append")
    if random_.random() < 0.2:
        message.ClearField(field.name)
    elif field.message_type is not None:
        (value.add() if repeated else value).SetInParent()
        if repeated and len(value) > 1:
            value.append(value[random_.randrange(len(value))])
    else:
        kinds = {field.CPPTYPE_STRING: (*names, *_PLACES), field.CPPTYPE_FLOAT: (0.0, -1.5, math.nan, math.inf)}
        edge = random_.choice(kinds.get(field.cpp_type, _INTEGERS))
        edge = edge.encode() if field.type == field.TYPE_BYTES else edge
        if not repeated:
            setattr(message, field.name, edge)
        elif value and random_.random() < 0.7:
            value[random_.randrange(len(value))] = edge
        else:
            value.append(edge)
