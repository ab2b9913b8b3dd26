"""The command on tiny models: what is written for every family, what is refused, what disk, kill and damage leave."""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.quantization.llm.tiny_models import shard_model
from tests.targets.ascend_llm.folders import (
    LINEAR,
    STATIC,
    content,
    run,
    write_llm,
    write_texts,
    write_v0,
    write_v1,
)
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.run import Samples
from workbench.targets.ascend_llm.calibrate import DESCRIPTION, WORK, calibrate_llm
from workbench.targets.ascend_llm.needs import calibration_needs, check_disk, check_memory, checkpoint_bytes
from workbench.targets.ascend_llm.recipes import read_recipe
from workbench.values.errors import ConfigError, ToolchainError


def test_no_folder_of_a_model_is_written_into(tmp_path: Path) -> None:
    write_llm(tmp_path / "model")
    write_llm(tmp_path / "other", "qwen2")
    (tmp_path / "link").symlink_to("model")
    cfg, data = write_v0(tmp_path / "r.yaml"), write_texts(tmp_path / "texts.jsonl")
    before = content(tmp_path)
    places = {
        **{"model": "is the input", "link": "is the input", "model/out": "lies in the input"},
        **{"link/out/deep": "lies in the input", ".": "holds the input", "other": "holds a model and is left alone"},
    }
    for out, said in places.items():
        with pytest.raises(ConfigError, match=said):
            calibrate_llm(tmp_path / "model", tmp_path / out, cfg=cfg, data=data)
    assert content(tmp_path) == before


def test_few_tokens_of_calibration_are_said_where_ranges_come_from_them(tmp_path: Path) -> None:
    write_llm(tmp_path / "model", max_position_embeddings=512)
    static, dynamic = write_v0(tmp_path / "r.yaml"), LINEAR.replace("per_tensor, symmetric: False", "per_token")
    for number, (words, cfg, said) in enumerate(
        ((4, static, True), (512, static, False), (4, write_v1(tmp_path / "d.yaml", dynamic), False))
    ):
        data, told = write_texts(tmp_path / "texts.jsonl", [" ".join(["pump"] * words)]), list[str]()
        calibrate_llm(tmp_path / "model", tmp_path / str(number), cfg=cfg, data=data, on_message=told.append)
        assert any(f"calibration has {words} tokens in all" in line for line in told) == said


def test_what_the_engine_refuses_is_a_warning_and_with_strict_an_error(tmp_path: Path) -> None:
    write_llm(tmp_path / "model")
    cfg = write_v0(tmp_path / "r.yaml", STATIC, "calib_params: {mix_cfg: {'*.v_proj': w8a16}}")
    assert "needs one type" in run(tmp_path, cfg).warnings[0]
    with pytest.raises(ConfigError, match=r"vLLM-Ascend would not serve it: model\.layers\.0: q_proj W8A8"):
        run(tmp_path, cfg, "other", strict=True)
    assert not (tmp_path / "other").exists()


def test_too_little_memory_or_disk_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs about 1.049e\+06 GiB of memory"):
        check_memory(1 << 50, "--data")
    with pytest.raises(ToolchainError, match=r"needs about 1.049e\+06 GiB on the disk"):
        check_disk(1 << 50, tmp_path / "not" / "there")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_forecast_is_of_the_disk_that_a_checkpoint_takes(tmp_path: Path, dtype: str) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 384, "head_dim": 32}
    write_llm(tmp_path / "model", "qwen3", dtype, tie_word_embeddings=True, **sizes)
    told: list[str] = []
    done = run(tmp_path, write_v0(tmp_path / "r.yaml", STATIC), on_message=told.append)
    written = sum(file.stat().st_size for file in done.folder.glob("*.safetensors"))
    model = open_model(tmp_path / "model")
    assert checkpoint_bytes(model.config, set(model.linears())) == pytest.approx(written, rel=0.2)
    outer = 2 * model.config.vocabulary * model.config.hidden * model.config.dtype.itemsize
    samples: Samples = {"calibration": [torch.zeros(1, 4, dtype=torch.int64)]}
    needed = calibration_needs(model, read_recipe(tmp_path / "r.yaml", model).recipe, samples)[1]
    assert needed == pytest.approx(2 * written - outer, rel=0.2)
    assert told[1].startswith("forecast: about ")


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-one-head-of-keys": ("llama", {"num_key_value_heads": 1}),
    "llama-heads-of-their-own": ("llama", {"num_key_value_heads": 4}),
    "qwen2": ("qwen2", {"num_key_value_heads": 1}),
    "qwen3": ("qwen3", {"head_dim": 24}),
}


def written(base: Path, cfg: Path, out: str) -> dict[str, torch.Tensor]:
    files = sorted(run(base, cfg, out).folder.glob("*.safetensors"))
    return {name: value for file in files for name, value in load_file(file).items()}


@pytest.mark.parametrize("form", FORMS)
def test_a_static_checkpoint_holds_what_the_description_names_and_dequantizes_to_the_weights(
    tmp_path: Path, form: str
) -> None:
    family, changes = FORMS[form]
    folder = write_llm(tmp_path / "model", family, "float16", **changes)
    made = written(tmp_path, write_v0(tmp_path / "r.yaml"), "out")
    described = json.loads((tmp_path / "out" / "quant_model_description.json").read_text())
    assert {name for name in described if "." in name} == set(made)
    floats = load_file(folder / "model.safetensors")
    for name, value in floats.items():
        if made[name].dtype != torch.int8:
            assert torch.equal(made[name], value)
            continue
        step = made[name.replace("weight", "weight_scale")].float()
        assert ((made[name].float() * step - value.float()).abs() <= 0.51 * step + 1e-3 * value.float().abs()).all()
    assert (tmp_path / "out" / "chat_template.jinja").is_file()
    assert torch.equal(made["lm_head.weight"], floats.get("lm_head.weight", floats["model.embed_tokens.weight"]))


def test_shards_of_the_model_and_of_the_checkpoint_hold_the_same(tmp_path: Path) -> None:
    write_llm(tmp_path / "model", "llama", "bfloat16", attention_bias=True)
    lines = ("anti_cfg: {anti_method: m2}", STATIC)
    whole = written(tmp_path, write_v0(tmp_path / "r.yaml", *lines), "whole")
    shard_model(tmp_path / "model")
    cfg = write_v0(tmp_path / "b.yaml", *lines, "calib_save_params: {part_file_size: 0.00001}")
    parts = written(tmp_path, cfg, "parts")
    index = json.loads((tmp_path / "parts" / "quant_model_weight_w8a8.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert set(index["weight_map"]) == set(whole) == set(parts)
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    assert not list((tmp_path / "parts").glob("model*.index.json"))


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """A disk that takes no file larger than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("size_bytes", "resumed"), [(1 << 12, 0), (30_000, 2)], ids=["a-block", "the-weights"])
def test_a_disk_that_ends_leaves_nothing_half_written_and_the_run_goes_on(
    tmp_path: Path, size_bytes: int, resumed: int
) -> None:
    write_llm(tmp_path / "model")
    cfg = write_v0(tmp_path / "r.yaml")
    whole = content(run(tmp_path, cfg, "whole").folder)
    sizes = {len(value) for name, value in whole.items() if name.endswith(".safetensors")}
    assert max(sizes) > size_bytes
    write_texts(tmp_path / "texts.jsonl")

    with largest_file(size_bytes), pytest.raises(ToolchainError, match="cannot be written: File too large"):
        calibrate_llm(tmp_path / "model", tmp_path / "out", cfg=cfg, data=tmp_path / "texts.jsonl")

    assert [each.name for each in (tmp_path / "out").iterdir()] == [WORK]
    done = run(tmp_path, cfg)
    assert done.resumed == resumed
    assert content(done.folder) == whole


KILLED = """
import sys
from pathlib import Path

import torch

from workbench.targets.ascend_llm.calibrate import calibrate_llm

base = Path(sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))  # what another number of threads kept is not used
calibrate_llm(
    base / "model", base / "out", cfg=base / "r.yaml", data=base / "texts.jsonl",
    on_message=lambda line: line.startswith("block") and (print(line, flush=True), sys.stdin.readline()),
)
"""


def test_a_run_that_is_killed_goes_on_in_another_process(tmp_path: Path) -> None:
    write_llm(tmp_path / "model", "qwen2", num_hidden_layers=3)
    cfg = write_v0(tmp_path / "r.yaml", "anti_cfg: {anti_method: m2}", STATIC)
    whole = content(run(tmp_path, cfg, "whole").folder)
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(torch.get_num_threads())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith("block 1 ")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("block 2 ")
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out" / DESCRIPTION).exists()
    done = run(tmp_path, cfg)
    assert done.resumed == 2
    assert content(done.folder) == whole


def test_bad_input_is_named_and_no_checkpoint_is_written(tmp_path: Path) -> None:
    folder = write_llm(tmp_path / "model")
    tensors, tokenizer = load_file(folder / "model.safetensors"), (folder / "tokenizer.json").read_text()
    for name in ("model.layers.1.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"):
        wrong = {**tensors, name: tensors[name].index_fill(0, torch.tensor([3]), float("nan"))}
        save_file(wrong, folder / "model.safetensors")
        with pytest.raises(ConfigError, match=f"{name} holds [0-9]+ values"):
            run(tmp_path, write_v0(tmp_path / "r.yaml"))
    save_file(tensors, folder / "model.safetensors")
    for text, said in ((tokenizer[:200], "not a tokenizer file"), (None, "tokenizer.json: tokenizer: no such file")):
        (folder / "tokenizer.json").write_text(text) if text else (folder / "tokenizer.json").unlink()
        with pytest.raises(ConfigError, match=said):
            run(tmp_path, write_v0(tmp_path / "r.yaml"))
    write_llm(folder, max_position_embeddings=6)
    with pytest.raises(ConfigError, match="sample 0 has 7 tokens, the model's context is 6"):
        run(tmp_path, write_v0(tmp_path / "r.yaml"))
    assert not (tmp_path / "out" / DESCRIPTION).exists()


def end_of(place: str) -> Callable[[Path, pytest.MonkeyPatch], object]:
    """The last bytes of a kept file are others."""

    def change(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = next((base / "out" / WORK).glob(f"{place}*"))
        file.write_bytes(file.read_bytes()[:-3] + b"abc")

    return change


def another_model(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(base / "model")
    write_llm(base / "model", seed=7)


@pytest.mark.parametrize(
    "changed",
    [
        end_of("block"),
        end_of("streams"),
        end_of("state"),
        another_model,
        lambda base, _: write_v0(base / "r.yaml", "calib_cfg: {a_bit: 16, mm_tensor: False}"),
        lambda _, monkeypatch: monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER"),
    ],
    ids=["block", "streams", "state", "model", "recipe", "instruction set"],
)
def test_kept_work_that_is_damaged_or_of_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: Callable[[Path, pytest.MonkeyPatch], object]
) -> None:
    write_llm(tmp_path / "model")
    cfg, data = write_v0(tmp_path / "r.yaml"), write_texts(tmp_path / "texts.jsonl")

    def dies(line: str) -> None:
        if line.startswith("block"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_llm(tmp_path / "model", tmp_path / "out", cfg=cfg, data=data, on_message=dies)
    changed(tmp_path, monkeypatch)
    done = run(tmp_path, cfg)
    assert done.resumed == 0
    assert content(done.folder) == content(run(tmp_path, cfg, "fresh").folder)
