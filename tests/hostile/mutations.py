"""Making sound files hostile: bytes, words of the format's own grammar, sizes and depths. All of it follows a seed."""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

NUMBERS = (
    *("0", "-1", "1e999", "-1e999", "1e-999", "nan", ".nan", ".inf", "NaN", "Infinity", "0x" + "f" * 40, "1e99999999"),
    *("9" * 30, "9" * 5000, "18446744073709551616", "9223372036854775807", "-9223372036854775809", "1:59:59", "0o17"),
    *("2147483648", "4294967296", "00", "1_0", "1.", ".5", "1e", "--1", "true", "null", "~", "²", "١"),
)
TEXTS = (
    *(
        '""',
        "''",
        '"\\ud800"',
        '"\\u0000"',
        "\\x00",
        "\x00",
        "\ufeff",
        "\u2028",
        "\u202e",
        "\x1b[31m",
        "é",
        "张",
        "\U0001f600",
    ),
    *("../../../etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/mem", "a" * 300, "%s%n", "${HOME}", "$(id)", "."),
)
MARKS = (
    *(
        "[",
        "]",
        "{",
        "}",
        "[" * 200,
        "{" * 200,
        '{"a":' * 200,
        "(" * 200,
        ",",
        ":",
        ": ",
        "- ",
        "- " * 200,
        "? ",
        '"',
        "'",
    ),
    *(
        "\n",
        "\r",
        "\r\n",
        "\t",
        " ",
        "#",
        "&a ",
        "*a",
        "&a [*a, *a]",
        "<<: *a",
        "!!python/name:os.system ",
        "!!binary ",
    ),
    *("|", ">", "%YAML 1.1\n---\n", "---\n", "...\n", "\\", "/*", "//", ";", "<", ">", "|||", "+---+"),
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
    shapes = ("(8, 16)", "(8,)", "(-1, 16)", "(4611686018427387904, 4)", "()", "(0, 16)", "(8, 0)", "(True, 16)")
    shape = random_.choice(
        (*shapes, "(8, 16" * 2, "(" * 500, "(8.0,)", "(1" + ",1" * 70 + ")", f"({'9' * 400},)", "(2**99,)")
    )
    types = ("'<f4'", "'<i8'", "'|O'", "'<M8[s]'", "'|V2147483647'", "'<U1000000'", "[('a', '<f4')]", "'>f8'", "'<f2'")
    dtype = random_.choice((*types, "'|b1'", "'<c16'", "('<f4', (10,))", "'x'", "9" * 50, "None", "'|S0'", "'<f16'"))
    order = random_.choice(("False", "True", "0", "'C'"))
    if random_.random() < 0.5:
        shape, dtype, order = "(8, 16)", "'<f4'", "False"
    header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if random_.random() < 0.1:
        header = random_.choice(("{" * 900, "[" * 9000, header * 3, header + "x" * 20_000, "__import__('os')", ""))
    text = header.encode() + b"\n"
    version = random_.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    length = random_.choice((len(text), len(text), len(text), 0, 65535, 2**31 - 1))
    field = struct.pack("<H", length & 0xFFFF) if version == b"\x01\x00" else struct.pack("<I", length)
    if random_.random() < 0.5:
        version, field = b"\x01\x00", struct.pack("<H", len(text) & 0xFFFF)
    values = np.random.default_rng(random_.randrange(1000)).normal(size=(8, 16)).astype(np.float32)
    data = random_.choice(
        (
            values.tobytes(),
            values.tobytes(),
            values.tobytes(),
            b"",
            b"\0" * 2_000_000,
            np.full(128, np.nan, "<f4").tobytes(),
        )
    )
    return b"\x93NUMPY" + version + field + text + data


def hostile_onnx(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """Messages changed field by field, graphs of drawn operators, or changed bytes."""
    if random_.random() < 0.35:
        return hostile_bytes(seeds, random_)
    proto = onnx.ModelProto()
    proto.ParseFromString(random_.choice(seeds))
    for _ in range(random_.choice((1, 1, 2, 4))):
        random_.choice(_GRAPH_CHANGES)(proto, random_)
    return proto.SerializeToString()


def _change_tensor(proto: onnx.ModelProto, random_: random.Random) -> None:
    if not proto.graph.initializer:
        return
    tensor = random_.choice(proto.graph.initializer)
    kind = random_.randrange(6)
    if kind == 0:
        tensor.dims.append(random_.choice((-1, 0, 2, 2**31, 2**62)))
    elif kind == 1 and tensor.dims:
        tensor.dims[0] = random_.choice((-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1))
    elif kind == 2:
        tensor.data_type = random_.choice((0, 1, 2, 6, 7, 8, 9, 10, 14, 16, 17, 22, 23, 27, 99, -1))
    elif kind == 3:
        tensor.ClearField("raw_data")
        getattr(tensor, random_.choice(("float_data", "int64_data"))).extend([1] * random_.choice((0, 1, 1000)))
    elif kind == 4:
        tensor.data_location = TensorProto.EXTERNAL
        place = random_.choice(("w.bin", "../w.bin", "/dev/zero", "/etc/passwd", "", "x" * 300, "model.onnx", "."))
        tensor.external_data.add(key="location", value=place)
        tensor.external_data.add(key=random_.choice(("offset", "length")), value=random_.choice(NUMBERS))
    else:
        tensor.name = random_.choice(("", "x", "\x00", "y", "w" * 10_000))


def _change_node(proto: onnx.ModelProto, random_: random.Random) -> None:
    if not proto.graph.node:
        return
    node = random_.choice(proto.graph.node)
    names = [name for each in proto.graph.node for name in (*each.input, *each.output)] or [""]
    kind = random_.randrange(7)
    if kind == 0 and node.input:
        node.input[random_.randrange(len(node.input))] = random_.choice((*names, "", "absent"))
    elif kind == 1 and node.output:
        node.output[0] = random_.choice((*names, "", "other"))
    elif kind == 2:
        node.op_type = random_.choice(_OPERATORS)
    elif kind == 3:
        del node.input[:]
    elif kind == 4:
        values = (1, -1, 2**62, 1.5, float("nan"), "a", [1, -5, 2**40], [1.0], ["a"], b"\xff", np.nan)
        names_ = (
            "axis",
            "to",
            "perm",
            "alpha",
            "transB",
            "value_ints",
            "axes",
            "shape",
            "kernel_shape",
            "group",
            "pads",
        )
        node.attribute.append(helper.make_attribute(random_.choice(names_), random_.choice(values)))
    elif kind == 5:
        node.domain = random_.choice(("", "f", "com.microsoft", "ai.onnx.ml", "nowhere"))
    else:
        proto.graph.node.append(node)


def _change_values(proto: onnx.ModelProto, random_: random.Random) -> None:
    value = random_.choice(
        [*proto.graph.input, *proto.graph.output, *proto.graph.value_info] or [proto.graph.input.add()]
    )
    kind = random_.randrange(4)
    if kind == 0:
        value.type.tensor_type.elem_type = random_.choice((0, 1, 6, 7, 8, 9, 10, 14, 16, 22, 99))
    elif kind == 1:
        value.type.tensor_type.shape.dim.add(dim_value=random_.choice((-1, 0, 1, 2**31, 2**62)))
    elif kind == 2:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    else:
        value.name = random_.choice(("", "x", "y", "absent", "n" * 5000))


def _change_model(proto: onnx.ModelProto, random_: random.Random) -> None:
    kind = random_.randrange(4)
    if kind == 0:
        proto.opset_import.add(
            domain=random_.choice(("", "f")), version=random_.choice((-1, 0, 1, 7, 13, 99, 2**31, 2**62))
        )
    elif kind == 1:
        body = [helper.make_node(random_.choice(("F", "Relu")), ["a"], ["b"], domain=random_.choice(("", "f")))]
        proto.functions.append(helper.make_function("f", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    elif kind == 2:
        proto.ir_version = random_.choice((0, 3, 8, 99, 2**40))
    else:
        proto.graph.ClearField(random_.choice(("node", "input", "output", "initializer", "name")))


_OPERATORS = (
    *(
        "",
        "Relu",
        "MatMul",
        "Gemm",
        "Conv",
        "Gather",
        "Reshape",
        "Expand",
        "Loop",
        "If",
        "Scan",
        "Einsum",
        "Cast",
        "LSTM",
    ),
    *("QuantizeLinear", "DequantizeLinear", "LayerNormalization", "Softmax", "Split", "Slice", "Constant", "Nothing"),
    *("Identity", "BatchNormalization", "AveragePool", "Transpose", "Unsqueeze", "SequenceAt", "TopK", "NonZero"),
)
_GRAPH_CHANGES: Sequence[Callable[[onnx.ModelProto, random.Random], None]] = (
    *(_change_tensor, _change_tensor, _change_node, _change_node, _change_node),
    *(_change_values, _change_model),
)
