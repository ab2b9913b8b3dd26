"""Linears and attention give the same bytes whatever instructions torch's kernels may use."""

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

from workbench.quantization.llm import fixed_order
from workbench.quantization.llm.fixed_order import causal_attention, linear_product

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
