"""What a run leaves when the disk ends, the process is killed or the input is bad: nothing that looks finished."""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.targets.ascend_llm.folders import STATIC, content, run, write_llm, write_texts, write_v0
from workbench.targets.ascend_llm.calibrate import DESCRIPTION, WORK, calibrate_llm
from workbench.values.errors import ConfigError, ToolchainError


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
    report=lambda line: line.startswith("block") and (print(line, flush=True), sys.stdin.readline()),
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


def put(name: str, value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name].view(-1)[3] = value
        save_file(tensors, folder / "model.safetensors")

    return change


def config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        found = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**found, **changes}))

    return change


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text()[:200])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (put("model.layers.1.mlp.up_proj.weight", float("nan")), r"layers.1.mlp.up_proj.weight holds 1 values"),
        (put("model.norm.weight", float("inf")), r"model.norm.weight holds 1 values"),
        (put("model.embed_tokens.weight", float("nan")), r"model.embed_tokens.weight holds 1 values"),
        (config(max_position_embeddings=6), "sample 0 has 7 tokens, the model's context is 6"),
        (no_tokenizer, r"tokenizer.json: tokenizer: no such file"),
        (cut_tokenizer, "not a tokenizer file"),
    ],
    ids=["nan", "inf-norm", "nan-embedding", "long", "absent", "cut"],
)
def test_bad_input_is_named_and_no_checkpoint_is_written(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(write_llm(tmp_path / "model"))
    with pytest.raises(ConfigError, match=said):
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
        calibrate_llm(tmp_path / "model", tmp_path / "out", cfg=cfg, data=data, report=dies)
    changed(tmp_path, monkeypatch)
    done = run(tmp_path, cfg)
    assert done.resumed == 0
    assert content(done.folder) == content(run(tmp_path, cfg, "fresh").folder)
