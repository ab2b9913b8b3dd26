"""Files for serving a checkpoint: what the scripts do, and what is said not to work."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.targets.ascend_llm.checkpoints import DYNAMIC, MIXED, STATIC, checkpoint
from workbench.targets.ascend_llm.serving_files import (
    MINDIE_INSTALL,
    MINDIE_MODEL,
    MINDIE_SERVER,
    README,
    VLLM,
    serving_files,
)


def laid_out(to: Path, folder: Path, name: str = "tiny") -> Path:
    """A folder with model/ and deploy/, as in a bundle."""
    (to / "deploy" / "mindie").mkdir(parents=True)
    for file, text in serving_files(folder, name).items():
        (to / "deploy" / file).write_text(text)
    (to / "model").symlink_to(folder)
    return to / "deploy"


def asked_of_vllm(deploy: Path, *options: str, **variables: str) -> list[str]:
    """The arguments that the script gives to `vllm`; the program of that name writes them down."""
    programs = deploy / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["sh", str(deploy / VLLM), *options], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.splitlines()


def test_the_command_names_quantization_dtype_and_length_of_this_checkpoint(tmp_path: Path) -> None:
    said = asked_of_vllm(laid_out(tmp_path, checkpoint()), "--port", "8100", TENSOR_PARALLEL="2")
    assert said[:2] == ["serve", str(tmp_path / "model")]
    options = dict(zip(said[2::2], said[3::2], strict=True))
    assert options == {
        "--served-model-name": "tiny",
        "--quantization": "ascend",
        "--dtype": "bfloat16",
        "--max-model-len": "64",
        "--tensor-parallel-size": "2",
        "--max-logprobs": "20",
        "--host": "127.0.0.1",
        "--port": "8100",
    }
    with pytest.raises(subprocess.CalledProcessError) as failed:  # more cards than heads divide into
        asked_of_vllm(tmp_path / "deploy", TENSOR_PARALLEL="3")
    assert failed.value.returncode == 2
    assert "TENSOR_PARALLEL=3" in failed.value.stderr


def test_mindies_copy_has_the_type_in_its_config_and_closed_permissions(tmp_path: Path) -> None:
    deploy = laid_out(tmp_path, checkpoint())
    to = tmp_path / "installed"
    subprocess.run(["sh", str(deploy / MINDIE_INSTALL), str(to)], check=True, timeout=300)
    assert json.loads((to / "config.json").read_text())["quantize"] == "w8a8"
    assert {path.name for path in to.iterdir()} == {path.name for path in checkpoint().iterdir()}
    assert {path.stat().st_mode & 0o777 for path in to.iterdir()} == {0o640}
    assert to.stat().st_mode & 0o777 == 0o750
    again = subprocess.run(["sh", str(deploy / MINDIE_INSTALL), str(to)], capture_output=True, timeout=300, check=False)
    assert again.returncode != 0


def test_mindie_knows_pdmix_by_another_name_and_other_types_in_lower_case() -> None:
    for lines, name in (((STATIC[:-1] + ", pdmix: True}",), "w8a8_pdmix"), ((DYNAMIC,), "w8a8_dynamic")):
        files = serving_files(checkpoint(lines=lines), "tiny")
        assert json.loads(files[MINDIE_MODEL])["quantize"] == name
        assert f'"quantize": "{name}"' in files[README]
        assert json.loads(files[MINDIE_SERVER])["BackendConfig"]["ModelDeployConfig"]["maxSeqLen"] == 64


def test_a_float32_checkpoint_has_no_command_and_says_why() -> None:
    files = serving_files(checkpoint(dtype="float32"), "tiny")
    assert VLLM not in files
    assert "no deq_scale parameter" in files[README]
    files = serving_files(checkpoint(dtype="float32", lines=(DYNAMIC,)), "tiny")
    assert VLLM not in files
    assert "bfloat16 and float16 alone" in files[README]
    assert "deq_scale" not in files[README]


def test_what_a_checkpoint_holds_decides_what_its_readme_warns_of() -> None:
    def readme(*lines: str) -> str:
        return serving_files(checkpoint(lines=lines), "tiny")[README]

    plain = readme(STATIC)
    assert "deq_scale is stored as float32" in plain
    assert "8-bit cache" not in plain
    assert "there was no card" in plain
    cached = readme(STATIC[:-1] + ", use_kvcache_quant: True}")
    assert "v0.18.0 or later" in cached
    assert "this is bfloat16, a qwen2 model" in cached
    mixed = readme(STATIC, MIXED)
    assert "12 linears W8A8, 2 linears W8A8_DYNAMIC" in mixed
    assert "Types differ by layer" in mixed
    assert "decode node" in readme(STATIC[:-1] + ", pdmix: True}")
    assert "Norms have a bias" in readme("anti_cfg: {anti_method: m4}", STATIC)
