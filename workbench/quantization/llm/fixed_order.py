"""Linears and attention with one order of sums on every processor: torch's with AVX-512, as the vendor's files have it;
and exact sums of 8-bit products.

docs/llm.md says it in words, under Processors. torch's kernel is taken for shapes in which it gives the same bits for
numbers that cancel, which shows its order. In float16 linears are torch's own, which are the same everywhere; where a
processor computes in float16 itself (AVX-512 FP16), torch would take oneDNN's, whose order is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce

import torch
import torch.nn.functional as F

from workbench.values.system.cpu import this_cpu

_LANES, _KEYS = 16, 512
_LOG2_E, _LN_2, _LEAST = 1.44269502162933349609375, 0.693147182464599609375, -87.33654022216796875
"""In float32; below the last torch's polynomials give 0."""
_CUBIC = (-0.079204240219773236, -0.22433836478672356, 0.30354260500649682, 0.00010703434948458272)
_QUINTIC = (0.00828929059, 0.0418978221, 0.166676521, 0.499991506, 0.999999701, 1.0)


def kernels() -> str:
    """What else torch's rounding depends on, for keys of what is kept."""
    where = f"{torch.backends.cpu.get_cpu_capability()} on {this_cpu().name}"
    return f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads"


def linear_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`F.linear` of x [..., K] and weight [N, K], of one dtype."""
    if x.dtype == torch.float16:
        return plain_linear(x, weight, bias)
    sizes = (x.shape[:-1].numel(), *weight.shape)
    theirs = _linear_agrees(x.dtype, sizes, bias is not None, torch.get_num_threads())
    return (F.linear if theirs else _linear)(x, weight, bias)


def plain_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`F.linear`; in float16 by torch's own kernel."""
    if x.dtype != torch.float16:
        return F.linear(x, weight, bias)
    # its context manager warns of a graphics card's setting
    before = torch.backends.mkldnn.set_flags(False)[0]  # type: ignore[no-untyped-call]
    try:
        return F.linear(x, weight, bias)
    finally:
        torch.backends.mkldnn.set_flags(before)  # type: ignore[no-untyped-call]


def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Over whole sequences [batch, heads, tokens, head_dim]; key and value may have fewer heads, which are shared."""
    theirs = _attention_agrees(query.dtype, (key.shape[1], *query.shape[1:]), torch.get_num_threads())
    return (torch_attention if theirs else _attention)(query, key, value)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    wide = torch.zeros(()) if bias is None else bias.to(torch.float32)
    if x.dtype == torch.float32:
        return _product(x, weight, wide)
    return (_product(x, weight, torch.zeros(()), odd_first=True) + wide).to(x.dtype)


def _product(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor, *, odd_first: bool = False) -> torch.Tensor:
    """total + x · weightᵀ in float32, of [..., M, K] and [..., N, K]."""
    x, weight, columns = x.to(torch.float32), weight.to(torch.float32).mT.contiguous(), x.shape[-1]
    block = (512 if columns <= 1024 else 1024) if odd_first else columns // 2 if 192 < columns < 384 else 192
    for start in range(0, columns, block):
        sums = x.new_zeros(*x.shape[:-1], weight.shape[-1])
        for place in range(start, min(start + block, columns)):
            column = min(place ^ odd_first, columns - 1)
            sums.addcmul_(x[..., column : column + 1], weight[..., column : column + 1, :])
        total = total + sums
    return total


def _few(x: torch.Tensor, weight: torch.Tensor, lanes: int) -> torch.Tensor:
    """x · weightᵀ of the two or three queries behind whole blocks: products are rounded and added in lanes."""
    products = x[..., None, :].to(torch.float32) * weight[..., None, :, :].to(torch.float32)
    return _halved(reduce(torch.add, (products[..., i : i + lanes] for i in range(0, x.shape[-1], lanes))))[..., 0]


def _halved(lanes: torch.Tensor) -> torch.Tensor:
    """[..., 2ⁿ] → [..., 1]: the second half is added to the first until one is left."""
    while (half := lanes.shape[-1] // 2) > 0:
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def torch_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """torch's own, causal, over as many tokens as there are keys, or of the last token alone."""
    how = {"is_causal": query.shape[2] > 1, "scale": query.shape[3] ** -0.5}
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=query.shape[1] > key.shape[1], **how)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
    tokens, size = query.shape[2:]
    left = tokens % (32 if tokens < 192 else 64 if tokens < 768 else 256)
    few = slice(tokens - left if left in (2, 3) and size % 8 == 0 else tokens, None)
    most, zero = torch.full((*query.shape[:3], 1), -torch.inf), torch.zeros(())
    total, out = torch.zeros_like(most), torch.zeros(query.shape)
    for start in range(0, tokens, _KEYS):
        keys, values = key[..., start : start + _KEYS, :], value[..., start : start + _KEYS, :].mT
        scores, fours = _product(query, keys, zero), keys.shape[2] // 4 * 4
        scores[..., few, :fours] = _few(query[..., few, :], keys[..., :fours, :], 4)
        scores[..., few, fours:] = _few(query[..., few, :], keys[..., fours:, :], 8)
        later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1 - start)
        scores = scores.masked_fill(later, -torch.inf) * torch.tensor(size**-0.5)
        before, most = most, torch.maximum(most, scores.amax(-1, keepdim=True))
        raised, sums = _exponentials(scores - most, query.dtype)
        again, weights = (before - most).double().exp().float(), raised.to(query.dtype)
        total = torch.addcmul(sums, again, total)
        onto = out * again
        out = _product(weights, values, onto)
        out[..., few, :] = onto[..., few, :] + _few(weights[..., few, :], values, 1)
    return (out * (1 / total)).to(query.dtype)


def _exponentials(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """e^x of rows, and their sums [..., 1]."""
    whole = x.shape[-1] // _LANES * _LANES
    polynomial, chains = (_quintic_exp, 1) if dtype == torch.float32 else (_cubic_exp, 2)
    out = torch.cat((polynomial(x[..., :whole]), x[..., whole:].double().exp().float()), -1)
    sums = x.new_zeros(2, *x.shape[:-1], _LANES)
    for number in range(whole // _LANES):
        sums[number % chains] += out[..., number * _LANES : (number + 1) * _LANES]
    rest = (out[..., place : place + 1] for place in range(whole, x.shape[-1]))
    return out, reduce(torch.add, rest, _halved(sums[0] + sums[1]))


def _cubic_exp(x: torch.Tensor) -> torch.Tensor:
    powers = x * _LOG2_E
    powers = powers - _horner(powers - powers.floor(), _CUBIC)
    bits = torch.addcmul(x.new_tensor(127 * 2.0**23), powers, x.new_tensor(2.0**23))
    return bits.masked_fill(x < _LEAST, 0).to(torch.int32).view(torch.float32)


def _quintic_exp(x: torch.Tensor) -> torch.Tensor:
    given = x.clamp(min=_LEAST)
    power = torch.addcmul(x.new_tensor(0.5), given, x.new_tensor(_LOG2_E)).floor()
    rest = torch.addcmul(given, -power, x.new_tensor(_LN_2))
    half = (power.to(torch.int32) + 126 << 23).view(torch.float32)
    return (_horner(rest, _QUINTIC) * half * 2).masked_fill(x < _LEAST, 0)


def _horner(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    given = (x.new_tensor(each) for each in coefficients)
    return reduce(lambda out, coefficient: torch.addcmul(coefficient, x, out), given)


@cache
def _linear_agrees(dtype: torch.dtype, sizes: tuple[int, ...], biased: bool, threads: int) -> bool:
    """Whether torch's kernel gives these bits too, for (M, N, K); it may divide the work by `threads`."""
    row, output = (torch.arange(count) % 8 for count in sizes[:2])
    x, weight, bias = torch.randn(3, 8, sizes[2], generator=torch.Generator().manual_seed(9))
    x[:, 0] *= 2.0**20
    x[:, -1], weight[:, -1] = -x[:, 0], weight[:, 0]
    x, weight, bias = x.to(dtype), weight.to(dtype), bias[:, 0].to(dtype) if biased else None
    given = F.linear(x[row], weight[output], None if bias is None else bias[output])
    return torch.equal(given, _linear(x, weight, bias)[row][:, output])


@cache
def _attention_agrees(dtype: torch.dtype, sizes: tuple[int, ...], threads: int) -> bool:
    """Likewise, for (heads of keys, heads, tokens, head_dim); only with AVX-512 has it 16 lanes."""
    shared, heads, tokens, columns = sizes
    plain = torch.randn(3, tokens, columns, generator=torch.Generator().manual_seed(9))
    query, key, value = cancelling = plain.clone()
    query[:, 0] *= 8192
    query[:, -1], key[:, -1] = query[:, 0], -key[:, 0]
    first = torch.arange(tokens % 4, tokens, 4)
    value[first] *= 4096
    key[first + 1], value[first + 1] = key[first], -value[first]
    made = torch.stack((plain, cancelling), 1)[:, :, :, None].expand(-1, -1, -1, heads, -1)
    query, key, value = made.to(dtype).contiguous().transpose(2, 3)
    expected = _attention(query[:, :1], key[:, :1], value[:, :1]).expand(query.shape)
    given = torch_attention(query, key[:, :shared], value[:, :shared])
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.equal(given, expected)


# --- products of 8-bit integers with exact 32-bit sums ---------------------------------------------------------------
#
# `int8` is `torch._int_mm`, oneDNN's s8 × s8 → s32. With the instructions of VNNI or AMX its sums are exact; on
# processors without them some kernels add pairs of products in 16 bits, which saturate. `float32` are float products of
# 1024 columns at a time, added as integers: 1024 · 128 · 128 = 2**24, so every partial sum is an integer that float32
# holds, in whatever order a kernel adds. A caller who lowered torch's precision of float32 products
# (`torch.set_float32_matmul_precision`) makes it inexact. Before the first product of a process each is tried on the
# extremes that saturate or cancel, in shapes with and without whole tiles, and on random integers; the first that gives
# every sum exactly is taken.

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MOST_COLUMNS = (1 << 17) - 1
"""K up to which no sum of products of two int8 numbers leaves int32: K · 128 · 128 < 2**31."""
_COLUMNS_IN_FLOAT32 = 1024
_TRIED_ROWS = (1, 3, 17, 64)
_TRIED_SHAPES = ((7, 1), (5, 3), (16, 64), (33, 255), (64, 576))
"""(N, K), tried with each number of rows."""


def integer_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x · weightᵀ with every sum exact, whatever the processor.

    Args:
        x: int8 [M, K].
        weight: int8 [N, K].

    Returns:
        int32 [M, N].
    """
    if x.dtype != torch.int8 or weight.dtype != torch.int8:
        raise ValueError(f"{x.dtype} by {weight.dtype}; both have to be int8.")
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"{list(x.shape)} by {list(weight.shape)} have no product over the last axis.")
    if x.shape[1] > MOST_COLUMNS:
        raise ValueError(f"{x.shape[1]} columns; above {MOST_COLUMNS} a sum may leave int32.")
    return KERNELS[exact_kernel()](x, weight)


@cache
def exact_kernel() -> str:
    """The name of the first that is exact here; the first call tries them."""
    for name, kernel in KERNELS.items():
        if is_exact(kernel):
            return name
    raise RuntimeError("no kernel of torch gives exact sums of 8-bit products on this machine; reinstall torch.")


def is_exact(kernel: Kernel) -> bool:
    """Whether a kernel gives every sum exactly on what it is tried with; one that torch does not have here does not."""
    try:
        return all(torch.equal(kernel(x, weight), _reference(x, weight)) for x, weight in _trials())
    except (RuntimeError, NotImplementedError, AttributeError):  # torch's own words for a kernel that it does not have
        return False


def _reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x.to(torch.int32), weight.to(torch.int32).T)


def _trials() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(8)
    for rows in _TRIED_ROWS:
        for outputs, columns in _TRIED_SHAPES:
            x = torch.empty(rows, columns, dtype=torch.int8)
            weight = torch.empty(outputs, columns, dtype=torch.int8)
            for left, right in ((-128, -128), (-128, 127), (127, -128), (127, 127)):
                yield x.fill_(left), weight.fill_(right)
            yield tuple(  # type: ignore[misc]  # two tensors
                torch.randint(-128, 128, each.shape, dtype=torch.int8, generator=random) for each in (x, weight)
            )


def _int8(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.shape[1] == 1:  # torch 2.13 takes a column for a row where a stride says nothing, and gives wrong products
        return x.to(torch.int32) * weight.to(torch.int32).T
    return torch._int_mm(x, weight.T)


def _float32(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(x), len(weight), dtype=torch.int32)
    for start in range(0, x.shape[1], _COLUMNS_IN_FLOAT32):
        part = slice(start, start + _COLUMNS_IN_FLOAT32)
        total += (x[:, part].to(torch.float32) @ weight[:, part].to(torch.float32).T).to(torch.int32)
    return total


KERNELS: dict[str, Kernel] = {"int8": _int8, "float32": _float32}
