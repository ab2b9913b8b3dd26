"""Likelihood, KL and top-1 agreement of logits, against what is computed at once."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forwards import float_logits
from workbench.quantization.llm.outcomes import Window, float_outcomes, text_outcomes
from workbench.quantization.llm.reference import float_reference
from workbench.values.errors import MeasureError
from workbench.values.paired_scores import WindowOutcomes


def windows(count: int = 3, tokens: int = 9, first: int = 1) -> list[Window]:
    random = torch.Generator().manual_seed(5)
    return [
        Window(ids=torch.randint(0, VOCABULARY, (1, tokens + n), generator=random), first=first) for n in range(count)
    ]


def logits_of(
    cut: list[Window], seed: int, scale: float = 3.0, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(1, each.ids.shape[-1], VOCABULARY, generator=random)).to(dtype) for each in cut]


def scored(seed: int, *, first: int = 1, dtype: torch.dtype = torch.float32) -> tuple[WindowOutcomes, WindowOutcomes]:
    cut = windows(first=first)
    ours, theirs = logits_of(cut, 1, dtype=dtype), logits_of(cut, seed, dtype=dtype)
    return float_outcomes(cut, ours), text_outcomes("a", cut, ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("first", [1, 4])
def test_figures_equal_a_direct_computation(first: int, dtype: torch.dtype) -> None:
    _, found = scored(2, first=first, dtype=dtype)
    cut = windows(first=first)
    for number, (window, ours, theirs) in enumerate(
        zip(cut, logits_of(cut, 1, dtype=dtype), logits_of(cut, 2, dtype=dtype), strict=True)
    ):
        p, q = (F.log_softmax(x[0, first - 1 : -1].double(), -1) for x in (ours, theirs))
        assert found.nll[number] == pytest.approx(float(F.nll_loss(q, window.targets, reduction="sum")))
        assert found.kl[number] == pytest.approx(float(F.kl_div(q, p, log_target=True, reduction="sum")))
        assert found.agreed[number] == int((p.argmax(-1) == q.argmax(-1)).sum())
        assert found.predictions[number] == window.ids.shape[-1] - first
    assert found.perplexity == pytest.approx(math.exp(found.nll.sum() / found.predictions.sum()))


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100))
def test_kl_is_never_negative_and_zero_between_equals(seed: int, scale: float) -> None:
    cut = windows(2)
    ours, theirs = logits_of(cut, seed, scale), logits_of(cut, seed + 1, scale)
    assert (text_outcomes("a", cut, ours, theirs).kl >= 0).all()
    same = text_outcomes("a", cut, ours, ours)
    assert (same.kl == 0).all()
    assert (same.agreed == same.predictions).all()
    assert np.array_equal(same.nll, float_outcomes(cut, ours).nll)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_logit_that_is_no_number_is_an_error_that_names_window_and_checkpoint(value: float) -> None:
    cut = windows()
    ours, theirs = logits_of(cut, 1), logits_of(cut, 2)
    theirs[1][0, 3, 7] = value
    with pytest.raises(MeasureError, match=r"static: 1 logits of window 5 are NaN or infinite"):
        text_outcomes("static", cut, ours, theirs, numbered_from=4)
    with pytest.raises(MeasureError, match="the float model: 1 logits of window 1"):
        float_outcomes(cut, theirs)


def test_kept_states_are_read_again_and_give_logits_to_the_bit(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "llama", "bfloat16"))
    ids = [each.ids for each in windows()]
    first = float_reference(model, ids, kept_in=tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("*.safetensors")
    written = file.stat().st_ino
    again = float_reference(model, ids, kept_in=tmp_path / "kept")
    assert file.stat().st_ino == written
    for a, b, c in zip(first.logits(), again.logits(), float_logits(model)(ids), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize("harm", ["cut", "flip", "no seal"])
def test_damaged_kept_states_are_made_again(tmp_path: Path, harm: str) -> None:
    model = open_model(write_model(tmp_path / "m", "llama", "bfloat16"))
    ids = [each.ids for each in windows()]
    first = float_reference(model, ids, kept_in=tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content[:-9] if harm == "cut" else content)
    if harm == "no seal":
        file.with_suffix(".json").unlink()
    again = float_reference(model, ids, kept_in=tmp_path / "kept")
    assert all(torch.equal(a, b) for a, b in zip(first.states, again.states, strict=True))
