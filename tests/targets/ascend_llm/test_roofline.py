"""Sizes are those of the files; modelled times follow what is streamed and multiplied."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quantization.llm.tiny_models import write_model
from workbench.quantization.llm.checkpoint import LINEARS, open_model
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.targets.ascend_llm.roofline import ServedShape, modelled_times, roofline_clock, served_size, time_ratio


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> LlmConfig:
    """The sizes of Qwen2.5-7B."""
    config = read_config(write_model(tmp_path_factory.mktemp("m"), "qwen2"))
    return replace(
        config,
        layers=28,
        hidden=3584,
        intermediate=18944,
        heads=28,
        kv_heads=4,
        head_dim=128,
        vocabulary=152064,
    )


def types(config: LlmConfig, kind: str) -> dict[str, str]:
    return {f"model.layers.{index}.{name}": kind for index in range(config.layers) for name in LINEARS}


def decode_ms(config: LlmConfig, kinds: Mapping[str, str], **shape: int) -> float:
    return modelled_times(config, kinds, quantized_cache=False, shape=ServedShape(**shape)).decode_ms.value


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_float_model_weighs_what_its_weights_do(tmp_path: Path, family: str, tied: bool) -> None:
    model = open_model(write_model(tmp_path / "m", family, "float16", tie_word_embeddings=tied))
    data = (tmp_path / "m" / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    size = served_size(model.config, {}, quantized_cache=False)
    assert size.weights_bytes == len(data) - header
    config = model.config
    assert size.kv_bytes_per_token == 2 * 2 * config.layers * config.kv_heads * config.head_dim


def test_int8_halves_linears_and_the_cache_but_for_scales(large: LlmConfig) -> None:
    float_, int8 = (
        served_size(large, types(large, kind), quantized_cache=kind != "FLOAT") for kind in ("FLOAT", "W8A8")
    )
    outer = 2 * 2 * large.vocabulary * large.hidden
    assert (int8.weights_bytes - outer) / (float_.weights_bytes - outer) == pytest.approx(0.5, abs=0.01)
    assert int8.kv_bytes_per_token * 2 == float_.kv_bytes_per_token


def test_a_token_of_a_large_model_takes_what_its_weights_take_to_stream(large: LlmConfig) -> None:
    clock = roofline_clock("Ascend910B3")
    price = dict(clock.prices)["far_memory"]
    weights = served_size(large, {}, quantized_cache=False).weights_bytes - 2 * large.vocabulary * large.hidden
    streamed_ms = weights / 1e6 * price / 1000
    assert streamed_ms < decode_ms(large, {}, context=1) < 1.1 * streamed_ms
    assert decode_ms(large, types(large, "W8A8")) < 0.6 * decode_ms(large, {})


def test_longer_contexts_larger_batches_and_longer_prompts_take_longer(large: LlmConfig) -> None:
    assert decode_ms(large, {}, context=100_000) > decode_ms(large, {}, context=1000)
    assert decode_ms(large, {}, batch=256) > decode_ms(large, {}, batch=1)
    short, long = (
        modelled_times(large, {}, quantized_cache=False, shape=ServedShape(prompt_tokens=n)).prefill_ms.value
        for n in (512, 4096)
    )
    assert 8 < long / short < 12  # products grow with the prompt, attention with its square


def test_a_quantized_cache_helps_where_the_cache_is_what_is_read(large: LlmConfig) -> None:
    shape = ServedShape(batch=32, context=32_768)
    wide, narrow = (modelled_times(large, {}, quantized_cache=c8, shape=shape).decode_ms.value for c8 in (False, True))
    assert narrow < 0.8 * wide


def test_pdmix_is_dynamic_in_prefill_and_static_in_decode(large: LlmConfig) -> None:
    mix, static, dynamic = (
        modelled_times(large, types(large, kind), quantized_cache=False)
        for kind in ("W8A8_MIX", "W8A8", "W8A8_DYNAMIC")
    )
    assert mix.prefill == dynamic.prefill != static.prefill
    assert mix.decode == static.decode != dynamic.decode


def test_a_ratio_is_surer_than_the_times_it_is_of(large: LlmConfig) -> None:
    ours, theirs = (modelled_times(large, types(large, kind), quantized_cache=False) for kind in ("W8A8", "FLOAT"))
    ratio = time_ratio(ours.decode, theirs.decode)
    assert ratio.value == pytest.approx(ours.decode_ms.value / theirs.decode_ms.value)
    assert ratio.high / ratio.low < theirs.decode_ms.high / theirs.decode_ms.low
    assert ratio.high < 1
