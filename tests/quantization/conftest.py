"""What all of these tests share: compiled machine code, a second that no deadline has to allow for, and one encoder."""

import pytest

from workbench.graph.read import read_model
from workbench.quantization.histogram import compiled_count
from workbench.testing.encoder import save, tiny_encoder
from workbench.values.model import Model


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    compiled_count()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return read_model(save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx"))
