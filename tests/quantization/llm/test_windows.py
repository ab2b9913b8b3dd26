"""Windows of texts: every token predicted once, the overlap as context."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.quantization.llm.tiny_models import write_model
from workbench.quantization.llm.config import read_config
from workbench.quantization.llm.outcomes import Window, all_windows, windows_of
from workbench.values.errors import ConfigError


def predicted(windows: list[Window]) -> list[int]:
    """The tokens that count; texts below are 0, 1, 2 …, so they are places too."""
    return [int(token) for window in windows for token in window.targets]


@given(tokens=st.integers(0, 200), window=st.integers(2, 40), data=st.data())
def test_an_overlap_has_every_token_but_the_first_predicted_once(tokens: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window - 1))
    windows = windows_of(torch.arange(tokens)[None], window=window, stride=stride)
    assert predicted(windows) == list(range(1, tokens))
    assert all(2 <= each.ids.shape[-1] <= window for each in windows)
    assert sum(each.predictions for each in windows) == max(tokens - 1, 0)


@given(tokens=st.integers(0, 200), window=st.integers(2, 40))
def test_without_overlap_only_first_tokens_of_windows_are_left_out(tokens: int, window: int) -> None:
    windows = windows_of(torch.arange(tokens)[None], window=window, stride=window)
    assert predicted(windows) == [place for place in range(tokens) if place % window]


@pytest.mark.parametrize(("window", "stride", "said"), [(1, 1, "predicts nothing"), (8, 0, "stride of 0"), (8, 9, "9")])
def test_sizes_that_make_no_windows_are_refused(window: int, stride: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        windows_of(torch.arange(20)[None], window=window, stride=stride)


def test_windows_of_several_texts_come_whole_and_in_an_order_of_the_seed(tmp_path: Path) -> None:
    config = read_config(write_model(tmp_path / "m", "qwen2"))
    texts = [torch.arange(50)[None], torch.arange(50, 61)[None]]

    def order(seed: int, most: int | None = None) -> list[int]:
        return predicted(all_windows(texts, config, window=8, stride=4, most=most, seed=seed))

    assert sorted(order(0)) == [place for place in range(61) if place not in (0, 50)]
    assert order(0) == order(0) != order(1)
    assert sorted(order(0, most=2)) == list(range(1, 12))


def test_a_window_beyond_the_context_and_a_text_of_one_token_are_refused(tmp_path: Path) -> None:
    config = read_config(write_model(tmp_path / "m", "qwen2"))
    with pytest.raises(ConfigError, match=r"a window of 65 tokens is longer than the model's context of 64"):
        all_windows([torch.arange(99)[None]], config, window=65, stride=65)
    with pytest.raises(ConfigError, match="less than 2 tokens"):
        all_windows([torch.arange(1)[None]], config, window=8, stride=8)
