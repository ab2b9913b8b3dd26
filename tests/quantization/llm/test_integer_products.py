"""Sums of 8-bit products are exact, by whichever kernel, and a kernel that saturates is found out."""

import os
import platform
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.quantization.llm.fixed_order import KERNELS, MOST_COLUMNS, is_exact


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
