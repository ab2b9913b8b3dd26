"""Linears and attention with one order of sums on every processor: torch's with AVX-512, as the vendor's files have it.

torch's own order is the instruction set's, and the last bit with it. Here it is:

- linear, bfloat16: in float32, of each pair of columns the odd one first; blocks of 512 columns, of 1024 where there
  are more than 1024, are added one after another; then the bias, then one rounding.
- linear, float32: the bias, then blocks of 192 columns (two halves of 193 to 383), each summed column by column with
  fused multiply-adds, which `torch.addcmul` carries out on AVX2 as on AVX-512.
- linear, float16: torch's, the same on AVX2 and AVX-512 unless the processor multiplies float16 itself.
- attention: 512 keys at a time, both products as those of a float32 linear (but see `_few`). e^x by torch's cubic, in
  float32 its quintic, for whole vectors of 16 keys, exact for the rest; summed in 16 lanes, twice 16 in 16-bit types.

torch's kernel is taken for shapes in which it gives these bits for numbers that cancel, which shows its order.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """What else of torch's rounding depends on, for keys of what is kept: version, instruction set, CPU, threads."""
    instructions = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {instructions} on {this_cpu().name}, {torch.get_num_threads()} threads"


def linear_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`F.linear` of x [..., K] and weight [N, K], of one dtype."""
    shape = (x.shape[:-1].numel(), *weight.shape)
    if x.dtype == torch.float16 or _linear_agrees(x.dtype, shape, bias is not None, torch.get_num_threads()):
        return F.linear(x, weight, bias)
    return _linear(x, weight, bias)


def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Over whole sequences [batch, heads, tokens, head_dim]; key and value may have fewer heads, which are shared."""
    shape = (key.shape[1], *query.shape)
    agrees = _attention_agrees(query.dtype, shape, scale, torch.get_num_threads())
    return (_torch_attention if agrees else _attention)(query, key, value, scale)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    wide = None if bias is None else bias.to(torch.float32)
    if x.dtype == torch.float32:
        return _product(x, weight, wide)
    out = _product(x, weight, block=512 if x.shape[-1] <= 1024 else 1024, odd_first=True)
    return (out if wide is None else out + wide).to(x.dtype)


def _product(
    x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor | None = None, *, block: int = 0, odd_first: bool = False
) -> torch.Tensor:
    """total + x · weightᵀ in float32, of [..., M, K] and [..., N, K]."""
    x, weight = x.to(torch.float32), weight.to(torch.float32).transpose(-1, -2).contiguous()
    columns = x.shape[-1]
    block = block or (columns // 2 if 192 < columns < 384 else 192)
    for start in range(0, columns, block):
        sums = x.new_zeros(*x.shape[:-1], weight.shape[-1])
        for place in range(start, min(start + block, columns)):
            column = place ^ 1 if odd_first and place ^ 1 < columns else place
            sums.addcmul_(x[..., column : column + 1], weight[..., column : column + 1, :])
        total = sums if total is None else total + sums
    assert total is not None  # there are columns
    return total


def _few(x: torch.Tensor, weight: torch.Tensor, lanes: int) -> torch.Tensor:
    """x · weightᵀ of the two or three queries behind whole blocks: products are rounded and added in lanes."""
    products = x[..., None, :].to(torch.float32) * weight[..., None, :, :].to(torch.float32)
    vectors = (products[..., start : start + lanes] for start in range(0, x.shape[-1], lanes))
    return _halved(reduce(torch.add, vectors))[..., 0]


def _torch_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    shared, causal = query.shape[1] > key.shape[1], query.shape[2] > 1
    return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=shared)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    group, tokens = query.shape[1] // key.shape[1], query.shape[2]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    left = tokens % (32 if tokens < 192 else 64 if tokens < 768 else 256)
    few = slice(tokens - left, None) if left in (2, 3) and query.shape[-1] % 8 == 0 else slice(0)
    most, total, out = torch.full((*query.shape[:-1], 1), -torch.inf), torch.zeros(()), None
    for start in range(0, tokens, _KEYS):
        keys, values = key[..., start : start + _KEYS, :], value[..., start : start + _KEYS, :].transpose(-1, -2)
        scores, fours = _product(query, keys), keys.shape[-2] // 4 * 4
        scores[..., few, :fours] = _few(query[..., few, :], keys[..., :fours, :], 4)
        scores[..., few, fours:] = _few(query[..., few, :], keys[..., fours:, :], 8)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 - start)
        scores = scores.masked_fill(later, -torch.inf) * torch.tensor(scale, dtype=torch.float32)
        before, most = most, torch.maximum(most, scores.amax(-1, keepdim=True))
        raised, sums = _exponentials(scores - most, query.dtype)
        again, weights = _exp(before - most), raised.to(query.dtype)
        total = torch.addcmul(sums, again, total)
        onto = None if out is None else out * again
        out = _product(weights, values, onto)
        added = _few(weights[..., few, :], values, 1)
        out[..., few, :] = added if onto is None else onto[..., few, :] + added
    assert out is not None  # there are tokens
    return (out * (1 / total)).to(query.dtype)


def _exponentials(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """e^x of rows, and their sums [..., 1]."""
    whole = x.shape[-1] // _LANES * _LANES
    polynomial, chains = (_quintic_exp, 1) if dtype == torch.float32 else (_cubic_exp, 2)
    out = torch.cat((polynomial(x[..., :whole]), _exp(x[..., whole:])), -1)
    sums = x.new_zeros(chains, *x.shape[:-1], _LANES)
    for start in range(0, whole, _LANES):
        sums[start // _LANES % chains] += out[..., start : start + _LANES]
    added = _halved(sums[0] if chains == 1 else sums[0] + sums[1])
    for each in out[..., whole:].unbind(-1):
        added = added + each[..., None]
    return out, added


def _halved(lanes: torch.Tensor) -> torch.Tensor:
    """[..., 2ⁿ] → [..., 1]: the second half is added to the first until one is left."""
    while lanes.shape[-1] > 1:
        lanes = lanes[..., : lanes.shape[-1] // 2] + lanes[..., lanes.shape[-1] // 2 :]
    return lanes


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
    out = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        out = torch.addcmul(x.new_tensor(coefficient), x, out)
    return out


def _exp(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float64).exp().to(torch.float32)


@cache
def _linear_agrees(dtype: torch.dtype, shape: tuple[int, ...], biased: bool, threads: int) -> bool:
    """Whether torch's kernel gives these bits too, for (M, N, K); it may divide the work by `threads`."""
    rows, outputs, columns = shape
    random = torch.Generator().manual_seed(9)
    x, weight = torch.randn(2, 8, columns, generator=random)
    x[:, 0] *= 512
    x[:, -1], weight[:, -1] = -x[:, 0], weight[:, 0]
    x, weight, bias = x.to(dtype), weight.to(dtype), torch.randn(8, generator=random).to(dtype) if biased else None
    row, output = torch.arange(rows) % 8, torch.arange(outputs) % 8
    given = F.linear(x[row], weight[output], None if bias is None else bias[output])
    return torch.equal(given, _linear(x, weight, bias)[row][:, output])


@cache
def _attention_agrees(dtype: torch.dtype, shape: tuple[int, ...], scale: float, threads: int) -> bool:
    """Likewise, for (heads of keys, batch, heads, tokens, head_dim); only with AVX-512 has it 16 lanes."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    shared, batch, heads, tokens, size = shape
    plain = torch.randn(3, tokens, size, generator=torch.Generator().manual_seed(9))
    cancelling = plain.clone()
    query, key, value = cancelling
    query[:, 0] *= 8192
    query[:, -1], key[:, -1] = query[:, 0], -key[:, 0]
    first = torch.arange(tokens % 4, tokens, 4)
    value[first] *= 4096
    key[first + 1], value[first + 1] = key[first], -value[first]
    for made in (plain, cancelling):
        query, key, value = (
            each[None, :, None].expand(batch, -1, count, -1).contiguous().transpose(1, 2)
            for each, count in zip(made.to(dtype), (heads, shared, shared), strict=True)
        )
        expected = _attention(query[:1, :1], key[:1, :1], value[:1, :1], scale)
        if not torch.equal(_torch_attention(query, key, value, scale), expected.expand(batch, heads, -1, -1)):
            return False
    return True
