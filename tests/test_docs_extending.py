"""What docs/extending.md shows works when it is done."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.quantization.histograms import histogram_of
from workbench.quantization import algorithms
from workbench.quantization.statistics import TensorStatistics

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown_algorithm() -> Callable[[TensorStatistics], tuple[float, float]]:
    """The page's function, where the page puts it."""
    (block,) = re.findall(r"```python\n( *def deviation_range.*?)```", PAGE, flags=re.DOTALL)
    module = dict(vars(algorithms))
    exec(textwrap.dedent(block), module)
    found: Callable[[TensorStatistics], tuple[float, float]] = module["deviation_range"]
    return found


def test_the_algorithm_of_the_page_clips_an_outlier_and_keeps_zero_inside(
    shown_algorithm: Callable[[TensorStatistics], tuple[float, float]],
) -> None:
    values = np.append(np.random.default_rng(0).normal(size=20_000), 100.0).astype(np.float32)

    low, high = shown_algorithm(TensorStatistics(histogram=histogram_of(values)))

    assert low < 0 < high
    assert high == pytest.approx(4 * float(np.sqrt(np.mean(values.astype(np.float64) ** 2))), rel=0.05)
    assert shown_algorithm(TensorStatistics(histogram=histogram_of())) == (0.0, 0.0)
