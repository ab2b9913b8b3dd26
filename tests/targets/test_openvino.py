from pathlib import Path

import pytest

from tests.targets.conformance import TargetConformance
from tests.targets.encoder import save, tiny_encoder
from workbench.candidate import Candidate, OpenVinoCompile
from workbench.targets.openvino import OpenVinoTarget

TARGET = OpenVinoTarget()
FLOAT = Candidate(target="openvino", compile=OpenVinoCompile())


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")


class TestOpenVino(TargetConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> OpenVinoTarget:
        return TARGET

    @pytest.fixture(scope="class")
    @classmethod
    def model_path(cls, encoder: Path) -> Path:
        return encoder

    @pytest.fixture(scope="class")
    @classmethod
    def float_candidate(cls) -> Candidate:
        return FLOAT
