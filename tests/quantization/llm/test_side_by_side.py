"""Two models over the same windows: what is yielded, in which order, and that a rotation is turned back."""

from pathlib import Path

import torch

from tests.quantization.llm.tiny_models import write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forwards import float_decoder
from workbench.quantization.llm.side_by_side import Turned


def test_a_rotated_stream_is_turned_back(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen2", "float32"))
    rotation, _ = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
    side = Turned(decoder=float_decoder(model), rotation=rotation)
    stream = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(4))
    turned = (stream.double() @ rotation).float()
    torch.testing.assert_close(side.back(turned), stream)
