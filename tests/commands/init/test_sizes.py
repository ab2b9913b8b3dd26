"""The limit that a first experiment asks of its service."""

from pathlib import Path

from tests.targets.encoder import save, tiny_encoder
from workbench.commands.init.experiment import p99_ms
from workbench.commands.init.model import examine_model


def test_a_picture_that_takes_longer_to_read_than_to_compute_gets_time_for_it(tmp_path: Path) -> None:
    outline = examine_model(save(tiny_encoder(), tmp_path / "model.onnx"))
    by_numbers = [p99_ms(outline, 2, 7.0, numbers) for numbers in (0, 32, 3 * 240 * 320)]

    assert by_numbers == [200, 200, 1000]
