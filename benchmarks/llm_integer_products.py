"""Ways to multiply 8-bit integers on this processor: which sums are exact, and how long each takes. Run by hand.

    python -m benchmarks.llm_integer_products [--threads 2] [--rounds 9]

Shapes are those of SmolLM2-135M's, Qwen2.5-0.5B's and Qwen3-0.6B's linears, for one generated token and for a window of
512. `int8` and `float32` are the kernels of `integer_product`; `one float32` and `bfloat16` are single
products in those types; `packed` is oneDNN's quantized linear with weights laid out beforehand, whose sums leave it as
float32. Candidates are timed in turns within a round and in the opposite order in the next; the table gives the median
over rounds of each one's time over that of the kernel that `integer_product` uses here. Exactness is looked at on the
extremes (every number −128, −128 by 127, 127) and on random integers of the same shape, against products in 64-bit
floats, which hold every partial sum.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from workbench.quantization.llm.fixed_order import KERNELS, exact_kernel

SHAPES = {
    "SmolLM2 q": (576, 576),
    "SmolLM2 down": (576, 1536),
    "Qwen2.5-0.5B up": (4864, 896),
    "Qwen2.5-0.5B down": (896, 4864),
    "Qwen3-0.6B down": (1024, 3072),
}
"""Name → (N, K)."""
ROWS = (1, 512)

Product = Callable[[torch.Tensor], torch.Tensor]


def products(weight: torch.Tensor) -> dict[str, Product]:
    """Every candidate with its weight as it would be kept in memory."""
    ours = {name: (lambda x, k=kernel: k(x, weight)) for name, kernel in KERNELS.items()}
    floats, halves = weight.to(torch.float32), weight.to(torch.bfloat16)
    more: dict[str, Product] = {
        "one float32": lambda x: (x.to(torch.float32) @ floats.T).to(torch.int32),
        "bfloat16": lambda x: (x.to(torch.bfloat16) @ halves.T).to(torch.int32),
    }
    if (packed := _packed(weight)) is not None:
        more["packed"] = packed
    return {**ours, **more}


def _packed(weight: torch.Tensor) -> Product | None:
    """oneDNN's quantized linear with weights laid out once; its sums leave it as float32."""
    ones, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.int32)
    try:
        laid_out = torch.ops.onednn.qlinear_prepack(weight, None)
    except (RuntimeError, AttributeError):  # a torch without oneDNN
        return None

    def product(x: torch.Tensor) -> torch.Tensor:
        shifted = x.view(torch.uint8) ^ 128
        return torch.ops.onednn.qlinear_pointwise(
            shifted, 1.0, 128, laid_out, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        ).to(torch.int32)

    return product


def trials(rows: int, outputs: int, columns: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The random integers last: they are what is timed."""
    random = torch.Generator().manual_seed(1)
    for left, right in ((-128, -128), (-128, 127), (127, 127)):
        x = torch.full((rows, columns), left, dtype=torch.int8)
        x[:, 0] = 2  # so that large sums are odd, which float32 does not hold
        yield x, torch.full((outputs, columns), right, dtype=torch.int8)
    yield (
        torch.randint(-128, 128, (rows, columns), dtype=torch.int8, generator=random),
        torch.randint(-128, 128, (outputs, columns), dtype=torch.int8, generator=random),
    )


def exact(name: str, rows: int, outputs: int, columns: int) -> bool:
    """Whether a candidate gives every sum of every trial."""
    for x, weight in trials(rows, outputs, columns):
        sums = x.to(torch.float64) @ weight.to(torch.float64).T
        if not torch.equal(products(weight)[name](x).to(torch.float64), sums):
            return False
    return True


def ratios(rows: int, outputs: int, columns: int, rounds: int) -> dict[str, float]:
    """Candidate → median time over that of the kernel in use."""
    x, weight = list(trials(rows, outputs, columns))[-1]
    candidates = products(weight)
    calls = 50 if rows == 1 else 2
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):  # the first round warms up
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            begin = time.perf_counter()
            for _ in range(calls):
                candidates[name](x)
            times[name].append(time.perf_counter() - begin)
    ours = times[exact_kernel()][1:]
    return {
        name: statistics.median(a / b for a, b in zip(taken[1:], ours, strict=True)) for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    level = torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {platform.machine()}, {level}, {given.threads} threads, {given.rounds} rounds")
    print(f"in use here: {exact_kernel()}\n")
    heading = ""
    for shape, (outputs, columns) in SHAPES.items():
        for rows in ROWS:
            found = ratios(rows, outputs, columns, given.rounds)
            if not heading:
                heading = f"{'tokens × linear (N, K)':36}" + "".join(f"{name:>14}" for name in found)
                print(heading)
            cells = [
                f"{ratio:7.2f} {'exact' if exact(name, rows, outputs, columns) else 'wrong':>6}"
                for name, ratio in found.items()
            ]
            print(f"{rows:>3} × {shape} ({outputs}, {columns})".ljust(36) + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
