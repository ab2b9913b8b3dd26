"""Checkpoints evaluated beside their float model, and their modelled sizes and times."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tests.quantization.llm.tiny_models import write_model
from tests.targets.ascend_llm.checkpoints import DYNAMIC, checkpoint, copied
from tests.targets.ascend_llm.folders import WORDS
from workbench.commands.cli import app
from workbench.quantization.llm.checkpoint import LINEARS, open_model
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.quantization.llm.outcomes import text_outcomes
from workbench.targets.ascend_llm import evaluate as module
from workbench.targets.ascend_llm.evaluate import LlmEvaluation, evaluate_llm
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.served import read_served
from workbench.targets.ascend_llm.serving_times import card_times, load_costs
from workbench.targets.ascend_llm.tensors import Stored, write_weights
from workbench.targets.language import LanguageCosts
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import LanguageLoad
from workbench.values.modelled_times.device_data import load_device_data
from workbench.values.modelled_times.figures import at_errors
from workbench.values.paired_scores import TokenWindow, WindowOutcomes

CLOCK = "Times MODELLED, not measured (Ascend910B3, timing model)"


def words(count: int, seed: int = 0) -> str:
    places = torch.randint(0, len(WORDS), (count,), generator=torch.Generator().manual_seed(seed))
    return " ".join(WORDS[place] for place in places)


def evaluated(tmp_path: Path, folders: list[Path], *, text: int = 120, **more: Any) -> LlmEvaluation:
    (tmp_path / "text.txt").write_text(words(text))
    asked = {"texts": (tmp_path / "text.txt",), "window": 9, "stride": 8, "kept_in": tmp_path / "kept", **more}
    return evaluate_llm(model(), folders, **asked)


def model() -> Path:
    return checkpoint().parent / "model"


def two(tmp_path: Path) -> list[Path]:
    """A static and a dynamic checkpoint of one model."""
    return [copied(checkpoint(), tmp_path / "static"), copied(checkpoint(lines=(DYNAMIC,)), tmp_path / "dynamic")]


def test_figures_are_those_of_the_checkpoints_logits(tmp_path: Path) -> None:
    found = evaluated(tmp_path, two(tmp_path))
    assert (found.windows, found.predictions) == (15, 119)
    ids = torch.tensor([[WORDS.index(word) + 1 for word in words(120).split()]])
    starts = range(0, 112, 8)
    windows = [ids[:, start : start + 9] for start in starts] + [ids[:, 112:]]
    nlls = {"float": 0.0, "static": 0.0}
    forwards = {
        "float": logits_of(float_decoder(open_model(model())), "prefill"),
        "static": logits_of(served_decoder(read_served(tmp_path / "static")), "decode"),
    }
    for name, forward in forwards.items():
        for window, logits in zip(windows, forward(windows), strict=True):
            rows = torch.log_softmax(logits[0, :-1].double(), -1)
            nlls[name] -= float(rows.gather(1, window[0, 1:, None]).sum())
    assert found.model.text is not None
    assert found.checkpoints[0].text is not None
    assert found.model.text.perplexity.value == pytest.approx(math.exp(nlls["float"] / 119))
    ratio = found.checkpoints[0].text.ratio
    assert ratio.value == pytest.approx(math.exp((nlls["static"] - nlls["float"]) / 119))
    assert ratio.low < ratio.value < ratio.high
    assert found.checkpoints[1].types == {"W8A8_DYNAMIC": 14}


def test_a_killed_run_goes_on_behind_the_last_part_and_others_change_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = two(tmp_path)

    def dies(line: str) -> None:
        if line.startswith("static: 64 of 88"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluated(tmp_path, folders[:1], text=700, on_message=dies)
    computed: list[int] = []

    def counted(name: str, windows: list[TokenWindow], *others: Any, **more: Any) -> WindowOutcomes:
        computed.append(len(windows))
        return text_outcomes(name, windows, *others, **more)

    monkeypatch.setattr(module, "text_outcomes", counted)  # it is what costs; the result does not tell who computed it
    again = evaluated(tmp_path, folders[:1], text=700)
    assert computed == [24]
    monkeypatch.undo()
    for file in (tmp_path / "kept").glob("*.outcomes.json"):
        file.write_bytes(file.read_bytes().replace(b"1", b"2", 1))
    assert evaluated(tmp_path, folders[:1], text=700).checkpoints == again.checkpoints
    assert evaluated(tmp_path, folders, text=700, kept_in=tmp_path / "new").checkpoints[:1] == again.checkpoints


def wrecked(to: Path, value: float, name: str) -> Path:
    """A dynamic checkpoint with one tensor multiplied."""
    from safetensors.torch import load_file

    folder = copied(checkpoint(lines=(DYNAMIC,)), to)
    (file,) = folder.glob("*.safetensors")
    tensors = {key: each.clone() for key, each in load_file(file).items()}  # the file they are mapped from is written
    tensors[name] *= value
    write_weights([Stored(key, each) for key, each in tensors.items()], file)
    return folder


def test_values_that_are_no_numbers_name_the_checkpoint(tmp_path: Path) -> None:
    folder = wrecked(tmp_path / "wreck", 3e37, "model.layers.0.input_layernorm.weight")
    with pytest.raises(MeasureError, match=r"wreck: .*NaN or infinite"):
        evaluated(tmp_path, [folder])


def questions(tmp_path: Path) -> Path:
    file = tmp_path / "pumps_test.csv"
    file.write_text("the pump,open,stops,seven,water,B\nwater falls,below,the,mark,pump,A\nseven valve,a,b,c,open,D\n")
    return file


def test_questions_are_compared_in_pairs(tmp_path: Path) -> None:
    asked = {"questions": (questions(tmp_path),), "examples": (questions(tmp_path),), "shots": 1}
    found = evaluated(tmp_path, [copied(checkpoint(), tmp_path / "static")], texts=(), **asked)
    choices = found.checkpoints[0].choices
    assert choices is not None
    assert choices.questions == 3
    assert choices.float_accuracy - choices.accuracy == pytest.approx((choices.lost - choices.won) / 3)
    assert found.chance == 0.25
    assert found.accuracy is not None
    assert found.accuracy.names == ("float", "static")
    assert found.perplexity is None


def test_what_cannot_be_evaluated_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = [checkpoint()]
    wrong: list[tuple[list[Path], dict[str, Any], str]] = [
        ([checkpoint("llama")], {}, r"family is llama, that of .* qwen2"),
        (once, {"texts": ()}, "nothing to evaluate on"),
        (once, {"window": 65, "stride": 65}, "longer than the model's context of 64"),
        (once * 2, {}, "is given twice"),
    ]
    for folders, more, said in wrong:
        with pytest.raises(ConfigError, match=said):
            evaluated(tmp_path, folders, **more)
    monkeypatch.setattr(module, "memory_bytes", lambda *_, **__: 1 << 60)  # no machine lacks memory on request
    with pytest.raises(ConfigError, match=r"the run needs about .* of memory"):
        evaluated(tmp_path, once)


@pytest.mark.parametrize("width", [80, 120])
def test_the_command_prints_every_model_within_the_terminals_width(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("workbench.commands.console.out.width", width)
    (tmp_path / "text.txt").write_text(words(120))
    folders = [str(each) for each in two(tmp_path)]
    options = f"--text {tmp_path / 'text.txt'} --window 9 --stride 8 --choices {questions(tmp_path)}".split()
    ended = CliRunner().invoke(app, ["evaluate-llm", str(model()), *folders, *options])
    assert ended.exit_code == 0, ended.output
    assert CLOCK in ended.stdout
    assert all(len(line) <= width for line in ended.stdout.splitlines())
    assert {"float", "static", "dynamic"} <= {line.split()[0] for line in ended.stdout.splitlines() if line.split()}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> LlmConfig:
    """The sizes of Qwen2.5-7B."""
    config = read_config(write_model(tmp_path_factory.mktemp("m"), "qwen2"))
    sizes = {"layers": 28, "hidden": 3584, "intermediate": 18944, "heads": 28, "kv_heads": 4, "head_dim": 128}
    return replace(config, vocabulary=152064, **sizes)


def costs(config: LlmConfig, kind: str = "FLOAT", **load: int) -> LanguageCosts:
    types = {f"model.layers.{index}.{name}": kind for index in range(config.layers) for name in LINEARS}
    return load_costs(config, types, quantized_cache=False, load=LanguageLoad(**load))


def decode_ms(config: LlmConfig, kind: str = "FLOAT", **load: int) -> float:
    return float(at_errors(card_times()).call_ms([costs(config, kind, **load).decode])[0, 0])


@pytest.mark.parametrize("tied", [False, True])
def test_a_float_model_weighs_what_its_weights_do(tmp_path: Path, tied: bool) -> None:
    for family in ("llama", "qwen2", "qwen3"):
        opened = open_model(write_model(tmp_path / family, family, "float16", tie_word_embeddings=tied))
        data, config = (tmp_path / family / "model.safetensors").read_bytes(), opened.config
        size = load_costs(config, {}, quantized_cache=False, load=LanguageLoad())
        assert size.weight_bytes == len(data) - 8 - int.from_bytes(data[:8], "little")
        assert size.kv_bytes_per_token == 2 * 2 * config.layers * config.kv_heads * config.head_dim


def test_a_token_of_a_large_model_takes_what_its_weights_take_to_stream(large: LlmConfig) -> None:
    card = load_device_data("Ascend910B3")
    weights = costs(large).weight_bytes - 2 * large.vocabulary * large.hidden
    streamed_ms = weights / (card.hbm_tb_per_s * card.memory_efficiency) / 1e9
    assert streamed_ms < decode_ms(large, context=1) < 1.4 * streamed_ms  # and the starts of its kernels
    assert decode_ms(large, "W8A8") < 0.75 * decode_ms(large)


def test_pdmix_is_dynamic_in_prefill_and_static_in_decode(large: LlmConfig) -> None:
    mix, static, dynamic = (costs(large, kind) for kind in ("W8A8_MIX", "W8A8", "W8A8_DYNAMIC"))
    assert mix.prefill == dynamic.prefill != static.prefill
    assert mix.decode == static.decode != dynamic.decode
