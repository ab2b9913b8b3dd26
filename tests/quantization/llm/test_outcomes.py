"""Windows of texts, what logits are worth on them, and what is said of models on the same windows."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.quantization.llm.outcomes import (
    COLUMNS,
    compare_text,
    float_outcomes,
    float_reference,
    input_of,
    text_outcomes,
    text_pairs,
    windows_of,
)
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.paired_scores import TokenWindow, WindowOutcomes


def windows(count: int = 3, tokens: int = 9, first: int = 1) -> list[TokenWindow]:
    random = torch.Generator().manual_seed(5)
    return [
        TokenWindow(ids=torch.randint(0, VOCABULARY, (tokens + n,), generator=random).numpy(), first=first)
        for n in range(count)
    ]


def random_logits(
    cut: list[TokenWindow], seed: int, scale: float = 3.0, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(1, len(each.ids), VOCABULARY, generator=random)).to(dtype) for each in cut]


def scored(seed: int, *, first: int = 1, dtype: torch.dtype = torch.float32) -> tuple[WindowOutcomes, WindowOutcomes]:
    cut = windows(first=first)
    ours, theirs = random_logits(cut, 1, dtype=dtype), random_logits(cut, seed, dtype=dtype)
    return float_outcomes(cut, ours), text_outcomes("a", cut, ours, lambda _: iter(theirs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("first", [1, 4])
def test_figures_equal_a_direct_computation(first: int, dtype: torch.dtype) -> None:
    _, found = scored(2, first=first, dtype=dtype)
    cut = windows(first=first)
    for number, (window, ours, theirs) in enumerate(
        zip(cut, random_logits(cut, 1, dtype=dtype), random_logits(cut, 2, dtype=dtype), strict=True)
    ):
        p, q = (F.log_softmax(x[0, first - 1 : -1].double(), -1) for x in (ours, theirs))
        assert found.nll[number] == pytest.approx(
            float(F.nll_loss(q, torch.from_numpy(window.ids[first:]), reduction="sum"))
        )
        assert found.kl[number] == pytest.approx(float(F.kl_div(q, p, log_target=True, reduction="sum")))
        assert found.agreed[number] == int((p.argmax(-1) == q.argmax(-1)).sum())
        assert found.predictions[number] == len(window.ids) - first
    assert found.perplexity == pytest.approx(math.exp(found.nll.sum() / found.predictions.sum()))


def test_kl_is_never_negative_and_zero_between_equals() -> None:
    cut = windows(2)
    for seed, scale in ((1, 0.01), (2, 1.0), (3, 100.0)):
        ours, theirs = random_logits(cut, seed, scale), random_logits(cut, seed + 1, scale)
        assert (text_outcomes("a", cut, ours, lambda _, given=theirs: iter(given)).kl >= 0).all()
        same, float_model = text_outcomes("a", cut, ours, lambda _, given=ours: iter(given)), float_outcomes(cut, ours)
        assert all(np.array_equal(getattr(same, column), getattr(float_model, column)) for column in COLUMNS)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_logit_that_is_no_number_is_an_error_that_names_window_and_checkpoint(value: float) -> None:
    cut = windows()
    ours, theirs = random_logits(cut, 1), random_logits(cut, 2)
    theirs[1][0, 3, 7] = value
    with pytest.raises(MeasureError, match=r"static: 1 logits of window 5 are NaN or infinite"):
        text_outcomes("static", cut, ours, lambda _: iter(theirs), first=4)
    with pytest.raises(MeasureError, match="the float model: 1 logits of window 1"):
        float_outcomes(cut, theirs)


@pytest.mark.parametrize("harm", ["", "cut", "flip", "no seal"])
def test_kept_states_are_read_again_and_damaged_ones_made_again(tmp_path: Path, harm: str) -> None:
    model = open_model(write_model(tmp_path / "m", "llama", "bfloat16"))
    cut = windows()
    first = float_reference(model, cut, kept_in=tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("*.safetensors")
    written, content = file.stat().st_ino, bytearray(file.read_bytes())
    content[-1] ^= 1
    if harm:
        file.write_bytes(content[:-9] if harm == "cut" else content)
    if harm == "no seal":
        file.with_suffix(".json").unlink()
    again = float_reference(model, cut, kept_in=tmp_path / "kept")
    assert (file.stat().st_ino == written) == (not harm)
    plain = logits_of(float_decoder(model), "prefill")([input_of(each) for each in cut])
    for a, b, c in zip(first(0, len(cut)), again(0, len(cut)), plain, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def predicted(windows: list[TokenWindow]) -> list[int]:
    """The tokens that count; texts below are 0, 1, 2 …, so they are places too."""
    return [int(token) for window in windows for token in window.ids[window.first :]]


@given(tokens=st.integers(2, 200), window=st.integers(2, 40), data=st.data())
def test_an_overlap_has_every_token_but_the_first_predicted_once(tokens: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window - 1))
    windows = windows_of([range(tokens)], window=window, stride=stride)
    assert predicted(windows) == list(range(1, tokens))
    assert all(2 <= len(each.ids) <= window for each in windows)
    assert sum(each.predictions for each in windows) == tokens - 1
    # without overlap the first tokens of windows are left out
    apart = windows_of([range(tokens)], window=window, stride=window)
    assert predicted(apart) == [place for place in range(tokens) if place % window]


def test_windows_stay_within_a_text_and_sizes_that_make_none_are_refused() -> None:
    both = windows_of([range(50), range(50, 61)], window=8, stride=4)
    assert predicted(both) == [place for place in range(61) if place not in (0, 50)]
    for window, stride, tokens, said in (
        (1, 1, 20, "predicts nothing"),
        (8, 0, 20, "stride of 0"),
        (8, 9, 20, "9"),
        (65, 65, 99, "a window of 65 tokens is longer than the model's context of 64"),
        (8, 8, 1, "less than 2 tokens"),
    ):
        with pytest.raises(ConfigError, match=said):
            windows_of([range(tokens)], window=window, stride=stride, context=64)


def outcomes(ratio: float, count: int = 24, *, noise: float = 0.01, seed: int = 0, kl: float = 0.02) -> WindowOutcomes:
    """A model whose windows are as hard as those of ratio 1, and log(ratio) nats a token worse but for noise."""
    hard, own = np.random.default_rng(7), np.random.default_rng(seed)
    means = 3 + hard.normal(size=count) + math.log(ratio)
    if ratio != 1:
        means += noise * own.normal(size=count)
    predictions = np.full(count, 511)
    agreed = predictions if ratio == 1 else predictions - own.integers(5, 30, size=count)
    return WindowOutcomes(
        nll=means * predictions,
        predictions=predictions,
        kl=(0.0 if ratio == 1 else kl) * predictions * own.uniform(0.5, 1.5, size=count),
        agreed=agreed,
    )


def test_differences_to_the_float_model_are_paired_and_come_with_what_would_show_them() -> None:
    reference, worse = outcomes(1), outcomes(1.05)
    found = compare_text(reference, worse)
    assert found.ratio.value == pytest.approx(worse.perplexity / reference.perplexity)
    assert found.ratio.low > 1
    assert found.ratio.high - found.ratio.low < 0.02
    assert found.perplexity.high - found.perplexity.low > 5  # texts differ far more than the two models
    assert found.kl.low < found.kl.value < found.kl.high
    assert found.top1.value == worse.agreed.sum() / worse.predictions.sum()
    assert found.windows_needed is None
    itself = compare_text(reference, reference)
    assert (itself.ratio.low, itself.ratio.value, itself.ratio.high) == (1, 1, 1)
    assert itself.kl.value == 0
    assert itself.top1.low < itself.top1.value == 1  # no certain agreement
    noise = compare_text(reference, outcomes(1.002, noise=0.02, seed=3))
    assert noise.ratio.low < 1 < noise.ratio.high
    assert noise.windows_needed is not None
    assert noise.windows_needed > 24


def test_recipes_are_told_apart_from_each_other_and_from_float_at_once() -> None:
    models = [outcomes(1), outcomes(1.02, seed=1), outcomes(1.0201, seed=2), outcomes(1.3, seed=3)]
    alike = text_pairs(models, "nll").alike
    assert alike[1, 2]
    assert not alike[0, 1:].any()
    assert not alike[3, :3].any()
