"""Searched scales of weights never have a greater error than the widest range; ranges of histograms are pytorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.ao.quantization.observer import HistogramObserver

from workbench.quantization.llm.affine import affine, extremes, refined_scale, searched_scale
from workbench.quantization.llm.observers import BINS, Histogram, least_error
from workbench.values.errors import ConfigError

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@st.composite
def weights(draw: st.DrawFn) -> torch.Tensor:
    """[N, K] with tails of several weights, rows of one value and rows of zeros."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randn(rows, columns, generator=random).pow(draw(st.sampled_from([1, 3, 5])))
    values *= draw(st.sampled_from([1e-3, 1.0, 50.0]))
    if draw(st.booleans()):
        values[draw(st.integers(0, rows - 1))] = draw(st.sampled_from([0.0, 0.7, -0.7]))
    return values.to(draw(st.sampled_from(DTYPES)))


def error(weight: torch.Tensor, scale: torch.Tensor, importance: torch.Tensor | None = None) -> torch.Tensor:
    """Per row Σ importance · (q·s − w)², in float64."""
    wide, steps = weight.double(), scale.double()
    squares = (torch.round(wide / steps).clamp(-127, 127) * steps - wide).pow(2)
    return (squares if importance is None else squares * importance.double()).sum(1)


def widest(weight: torch.Tensor) -> torch.Tensor:
    return affine(*extremes(weight, -1), symmetric=True, generation="v0").scale


@settings(max_examples=120, deadline=None)
@given(weights(), st.none() | st.integers(0, 2**31))
def test_mse_has_no_greater_error_than_minmax_of_the_weight_or_of_the_output(
    weight: torch.Tensor, seed: int | None
) -> None:
    importance = None
    if seed is not None:
        importance = torch.rand(weight.shape[1], generator=torch.Generator().manual_seed(seed)).pow(4)
    before = widest(weight)
    found = searched_scale(weight, before, importance)
    assert found.dtype == weight.dtype
    assert (found <= before).all()
    assert (error(weight, found, importance) <= error(weight, before, importance) * (1 + 1e-5) + 1e-12).all()


@settings(max_examples=60, deadline=None)
@given(weights())
def test_ssz_has_no_greater_error_than_minmax_and_no_scale_that_is_no_number(weight: torch.Tensor) -> None:
    before = widest(weight)
    found = refined_scale(weight, before, 50, torch.float32)
    assert torch.isfinite(found).all()

    def meant(scale: torch.Tensor) -> torch.Tensor:
        return torch.round(weight / scale).clamp(-128, 127) * scale

    errors = [(weight - meant(scale)).float().pow(2).mean(1) for scale in (found, before)]
    assert (errors[0] <= errors[1] * (1 + 1e-5) + 1e-12).all()


# --- ranges of histograms --------------------------------------------------------------------------------------------


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
