"""Every file of the vendor's tool that was kept for comparison, made again from its model, recipe and texts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.targets.ascend_llm.folders import CASES, GOLDEN
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.run import fake_logits, left_float, without
from workbench.targets.ascend_llm.calibrate import calibrate_llm
from workbench.targets.ascend_llm.recipes import read_recipe
from workbench.targets.ascend_llm.texts import padded_samples, read_texts, read_tokenizer

LEFT_OUT = {"model.embed_tokens.weight", "lm_head.weight"}
EVERY_CASE = pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in CASES])

pytestmark = pytest.mark.skipif(not CASES, reason="the vendor's golden files are not beside this checkout")


def by_processor(case: dict[str, Any]) -> bool:
    """Float32 models smoothed by v1: torch takes their square roots and powers by MKL, which rounds them by the maker
    and the instructions of the CPU (`docs/llm.md`, Processors). The kept files are of one kind."""
    return str(case["case"]).startswith("v1_") and str(case["model"]).endswith("_fp32")


def nearly(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Floats, and the int64 that hold the bits of one, within 32 units of the last place; integers within one, and one
    in a thousand off at most."""
    if theirs.dtype == torch.float32:
        return torch.allclose(ours, theirs, rtol=32 * 2.0**-24, atol=0.0)
    apart = (ours.long() - theirs.long()).abs()
    if theirs.dtype == torch.int64:
        return int(apart.max()) <= 32
    return int(apart.max()) <= 1 and float(apart.float().mean()) <= 0.001


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    case = request.getfixturevalue("case")
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "models" / case["model"], folder)
    for file in (GOLDEN / "models" / case["tokenizer"]).iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@EVERY_CASE
def test_the_checkpoint_equals_the_vendors_to_the_bit(case: dict[str, Any], model: Path, tmp_path: Path) -> None:
    there = GOLDEN / "cases" / case["case"]
    anti = GOLDEN / "calib" / case["anti"] if "anti" in case else None
    data = GOLDEN / "calib" / case["calib"]
    made = calibrate_llm(model, tmp_path / "out", cfg=there / "config.yaml", data=data, anti_data=anti)
    description = "quant_model_description.json"
    assert json.loads((made.folder / description).read_text()) == json.loads((there / description).read_text())
    theirs = load_file(next(there.glob("*.safetensors")))
    ours = load_file(made.folder / next(there.glob("*.safetensors")).name)
    assert set(ours) - LEFT_OUT == set(theirs) - LEFT_OUT
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype, name
        assert torch.equal(ours[name], value) or (by_processor(case) and nearly(ours[name], value)), name
    for file in there.glob("optional/*"):
        assert torch.equal(*(load_file(f)["global_rotation"] for f in (file, made.folder / "optional" / file.name)))


@EVERY_CASE
def test_logits_of_the_fake_quantized_model_equal_the_vendors(case: dict[str, Any], model: Path) -> None:
    there = GOLDEN / "cases" / case["case"]
    ids = json.loads((GOLDEN / "token_ids.json").read_text())
    opened = open_model(model)
    recipe = read_recipe(there / "config.yaml", opened).recipe
    samples: Any = {"calibration": [torch.tensor([each]) for each in ids[f"{case['tokenizer']}/{case['calib']}"]]}
    if "anti" in case:
        tokenizer = read_tokenizer(model, opened.config)
        samples["smoothing"] = padded_samples(read_texts(GOLDEN / "calib" / case["anti"]), tokenizer, 3)
    recipe = without(recipe, left_float(opened, recipe, samples))
    prompts = [torch.tensor([each]) for each in ids[f"{case['tokenizer']}/prompts"]]
    with np.load(there / "fake_quant_logits.npz") as kept:
        theirs = [kept[name] for name in kept.files]
    for ours, expected in zip(fake_logits(opened, recipe, samples, prompts), theirs, strict=True):
        found = ours[0].to(torch.float32).numpy()
        apart = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert np.array_equal(found, expected) or (by_processor(case) and apart < 1e-3)
