from pathlib import Path

from tests import tiny
from tests.commands.init.making import write_text_model
from workbench.commands.init.model import longest_text
from workbench.graph.read import load_graph, read_model


def test_the_limit_is_read_off_the_position_table(tmp_path: Path) -> None:
    def limit(positions: int) -> int | None:
        return longest_text(load_graph(read_model(write_text_model(tmp_path / "m.onnx", positions=positions))))

    assert [limit(512), limit(514), limit(40)] == [512, 512, 32]


def test_a_model_without_embeddings_tells_no_limit(tmp_path: Path) -> None:
    tiny.write_model(tmp_path / "m.onnx")

    assert longest_text(load_graph(read_model(tmp_path / "m.onnx"))) is None
