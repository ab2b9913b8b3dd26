"""Linears, attention and sums of 8-bit products are the same whatever instructions torch's kernels may use."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.quantization.llm import fixed_order
from workbench.quantization.llm.fixed_order import KERNELS, MOST_COLUMNS, causal_attention, is_exact, linear_product

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
DIGESTS = {
    "bfloat16": "c525337cee9ac5e1",
    "float16": "45d9e74f872c3f41",
    "float32": "e0a7c605202bd1c2",
}
"""Of `outputs`, on a processor with AVX-512 and on one with AVX2."""


def numbers(*shape: int, step: int) -> torch.Tensor:
    """About as many below as above zero, by integers and one division, so the same everywhere."""
    count = int(np.prod(shape))
    return ((torch.arange(count) * step % 2003 - 1001).to(torch.float32) / 700).view(shape)


def outputs(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for tokens, columns, rows in ((1, 64, 64), (5, 75, 33), (37, 176, 64), (40, 600, 64), (40, 1100, 16)):
        x, weight, bias = (
            numbers(*shape, step=7919).to(dtype) for shape in ((1, tokens, columns), (rows, columns), (rows,))
        )
        yield linear_product(x, weight)
        yield linear_product(x, weight, bias)
    for tokens in (1, 7, 16, 34, 61, 200, 600):
        query, key, value = (
            numbers(1, tokens, heads, 32, step=step).to(dtype).transpose(1, 2)
            for heads, step in ((4, 7919), (2, 5003), (2, 3001))
        )
        yield causal_attention(query * 3, key, value)


def digest(name: str) -> str:
    found = hashlib.sha256()
    for each in outputs(TYPES[name]):
        found.update(each.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", TYPES)
def test_the_bytes_are_those_of_every_other_processor(name: str) -> None:
    assert digest(name) == DIGESTS[name]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="torch's limits of instructions are of x86 processors")
def test_the_bytes_do_not_change_where_torch_is_held_to_avx2() -> None:
    code = f"from {__name__} import *\nprint({{name: digest(name) for name in TYPES}} == DIGESTS)"
    limited = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=limited, capture_output=True, text=True, timeout=600)
    assert done.stdout == "True\n", done.stderr


def test_a_kernel_of_another_order_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, attention = F.linear, F.scaled_dot_product_attention

    def backwards(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return theirs(x.flip(-1), weight.flip(-1), bias)

    def shifted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **how: object) -> torch.Tensor:
        return attention(query.flip(-1), key.flip(-1), value, **how)

    x, weight = numbers(40, 64, step=7919), numbers(64, 64, step=5003)
    heads = numbers(1, 4, 40, 16, step=7919)
    expected = fixed_order._linear(x, weight, None), fixed_order._attention(heads, heads, heads)
    fixed_order._linear_agrees.cache_clear()
    fixed_order._attention_agrees.cache_clear()
    monkeypatch.setattr(fixed_order.F, "linear", backwards)
    monkeypatch.setattr(fixed_order.F, "scaled_dot_product_attention", shifted)
    try:
        assert not torch.equal(backwards(x, weight), expected[0])
        assert torch.equal(linear_product(x, weight), expected[0])
        assert torch.equal(causal_attention(heads, heads, heads), expected[1])
    finally:
        fixed_order._linear_agrees.cache_clear()
        fixed_order._attention_agrees.cache_clear()


# --- sums of 8-bit products ------------------------------------------------------------------------------------------


def whole(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The product in 64-bit integers, which is slow and cannot overflow here."""
    return torch.matmul(x.to(torch.int64), weight.to(torch.int64).T)


EXACT = [name for name, kernel in KERNELS.items() if is_exact(kernel)]
"""On a processor without VNNI the first may be missing; the other is exact everywhere."""


@pytest.mark.parametrize("kernel", EXACT)
@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 24),
    outputs=st.integers(1, 24),
    columns=st.integers(1, 1100),
    values=st.sampled_from([(-128, 127), (127, 127), (-128, -128), (-1, 1), (0, 0)]),
    seed=st.integers(0, 2**31),
)
def test_random_shapes_and_values_give_every_sum(
    kernel: str, rows: int, outputs: int, columns: int, values: tuple[int, int], seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    lowest, highest = values
    x = torch.randint(lowest, highest + 1, (rows, columns), dtype=torch.int8, generator=random)
    weight = torch.randint(-128, 128, (outputs, columns), dtype=torch.int8, generator=random)
    assert torch.equal(KERNELS[kernel](x, weight).to(torch.int64), whole(x, weight))


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("columns", [1023, 1024, 1025, 4864, MOST_COLUMNS])
def test_extremes_give_the_largest_sums_there_are(kernel: str, columns: int) -> None:
    extremes = (-128, -127, 127)
    x = torch.tensor(extremes, dtype=torch.int8)[:, None].repeat(1, columns)
    expected = [[left * right * columns for right in extremes] for left in extremes]
    assert KERNELS[kernel](x, x).tolist() == expected


def test_a_kernel_that_saturates_pairs_in_16_bits_is_not_taken() -> None:
    """What u8 × s8 does without VNNI: pairs of products are added in int16."""

    def saturating(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        even = x.shape[1] // 2 * 2
        pairs = (x[:, None, :].to(torch.int32) * weight.to(torch.int32)[None])[..., :even]
        rest = (x[:, None, :].to(torch.int32) * weight.to(torch.int32)[None])[..., even:].sum(-1)
        added = pairs.view(len(x), len(weight), -1, 2).sum(-1).clamp(-(1 << 15), (1 << 15) - 1).sum(-1)
        return (added + rest).to(torch.int32)

    assert not is_exact(saturating)
    assert not is_exact(lambda x, weight: (x.to(torch.float32) @ weight.to(torch.float32).T).to(torch.int32) | 1)
    assert not is_exact(lambda x, weight: (x.to(torch.bfloat16) @ weight.to(torch.bfloat16).T).to(torch.int32))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's limit of instructions is of x86 processors")
def test_without_vnni_another_kernel_is_taken_and_the_sums_are_right() -> None:
    """oneDNN is held to AVX2, where it adds pairs of products in 16 bits (2.13's saturates)."""
    code = (
        "import torch\n"
        "from workbench.quantization.llm.fixed_order import KERNELS, exact_kernel, integer_product, is_exact\n"
        "x = torch.full((4, 640), -128, dtype=torch.int8)\n"
        "print(is_exact(KERNELS['int8']), exact_kernel(), set(integer_product(x, x).flatten().tolist()))"
    )
    limited = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=limited, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    exact, kernel, sums = done.stdout.split(maxsplit=2)
    assert kernel == ("int8" if exact == "True" else "float32")
    assert sums.strip() == str({128 * 128 * 640})
