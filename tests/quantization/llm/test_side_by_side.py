"""Two models over the same windows: what is yielded, in which order, and that a rotation is turned back."""

from pathlib import Path

import torch

from tests.quantization.llm.tiny_models import samples, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forwards import float_decoder, float_logits
from workbench.quantization.llm.side_by_side import Turned, side_by_side


def test_the_steps_come_in_the_order_of_the_model_and_end_in_its_logits(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen3", "float32"))
    side, windows = Turned(decoder=float_decoder(model)), samples(2)
    found = list(side_by_side(side, side, windows))
    names = list(dict.fromkeys(name for name, _, _ in found))
    assert names == [
        *(f"model.layers.0{part}" for part in (".self_attn.o_proj", ".mlp.down_proj", "")),
        *(f"model.layers.1{part}" for part in (".self_attn.o_proj", ".mlp.down_proj", "")),
        "logits",
    ]
    said = [ours for name, ours, _ in found if name == "logits"]
    for ours, logits in zip(said, float_logits(model)(windows), strict=True):
        assert torch.equal(ours, logits)
    assert all(torch.equal(ours, theirs) for _, ours, theirs in found)


def test_the_stream_is_what_attention_and_mlp_add_to_it(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "llama", "float32"))
    side = Turned(decoder=float_decoder(model))
    found = {name: ours for name, ours, _ in side_by_side(side, side, samples(1))}
    added = found["model.layers.1.self_attn.o_proj"] + found["model.layers.1.mlp.down_proj"]
    torch.testing.assert_close(found["model.layers.0"] + added, found["model.layers.1"])


def test_a_rotated_stream_is_turned_back(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen2", "float32"))
    rotation, _ = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
    side = Turned(decoder=float_decoder(model), rotation=rotation)
    stream = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(4))
    turned = (stream.double() @ rotation).float()
    torch.testing.assert_close(side.back(turned), stream)
