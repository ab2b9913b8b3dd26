"""Ranges of histograms: within what was seen, and where the vendor's own way of counting shows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.ao.quantization.observer import HistogramObserver

from workbench.quantization.llm.observers import BINS, Histogram, least_error
from workbench.values.errors import ConfigError


def heavy(seed: int, size: int = 4000) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).pow(3)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_range_of_least_error_is_pytorchs(seed: int, falling: bool) -> None:
    """Merged counts are rounded differences, so a few are below zero and their sums fall: `falling`."""
    x = heavy(seed, 3000)
    counts = torch.histc(x, BINS, float(x.min()), float(x.max()))
    if falling:
        counts -= 1e-3 * torch.rand(BINS, generator=torch.Generator().manual_seed(seed))
    theirs = HistogramObserver()
    theirs.histogram, theirs.min_val, theirs.max_val = counts, x.min(), x.max()
    found = theirs._non_linear_param_search()
    assert [float(each) for each in least_error(counts, x.min(), x.max())] == [float(each) for each in found]


def test_values_that_are_not_finite_are_left_out_and_a_sample_of_none_is_refused() -> None:
    x = heavy(2).to(torch.float16)
    x[3] = float("inf")
    assert torch.isfinite(torch.cat(Histogram().update(x))).all()
    with pytest.raises(ConfigError, match="no value of a sample is finite"):
        Histogram().update(torch.full((4,), float("nan")))
