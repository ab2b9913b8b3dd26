"""The examples of models that read no texts: every shipped file parses, and what is installed gives samples."""

from pathlib import Path

from workbench.inputs.dataset.interface_reader import read_interface
from workbench.space.reader import read_space
from workbench.values.documents.yaml_reader import read_yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("digits-mobilenet", "digits-resnet", "face-rfb320", "g2p", "ocr-direction"),
    *("ocr-lines", "ocr-pages", "piper-voice", "silero-vad", "speaker"),
)


def test_an_example_s_files_belong_together() -> None:
    for name in NAMES:
        with read_yaml(ROOT / f"experiments/{name}.yaml") as top:
            top.leave_the_rest()
            assert top.text("name") == name
            assert top.file_path("dataset", must_exist=False) == ROOT / f"calibration/{name}.yaml"
            assert top.file_path("model", must_exist=False) == ROOT / f".workbench/real-models/{name}/model.onnx"
            assert read_space(top.file_path("search_space")).parameters
        read_interface(ROOT / f"calibration/{name}.yaml")
        assert f"`{name}.yaml`" in (ROOT / "experiments/models.md").read_text("utf-8")
