"""The checkpoint in PyTorch beside its ONNX file, for tags: token and entity F1, and only positions that count."""

import json

import numpy as np
import pytest

from workbench.api.opening import opened
from workbench.shipping.agreement.compared import Asked
from workbench.shipping.agreement.measure import agreement_of_candidate
from workbench.space.space import build, complete
from workbench.values.agreement import Agreements
from workbench.values.service import ServiceSettings

torch = pytest.importorskip("torch", reason="PyTorch belongs to the extra [export]")

from tests.graph.checkpoints import write_checkpoint  # noqa: E402  # it needs PyTorch
from workbench.commands.example.texts import documents  # noqa: E402  # as above
from workbench.graph.export import load_checkpoint, write_onnx  # noqa: E402  # as above

TAGS = ("O", "B-A", "I-A", "B-B", "I-B")
SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [dynamic]}}
"""
MANIFEST = """
version: 1
task: ner
files: {calibration: calibration.jsonl, validation: validation.jsonl, holdout: holdout.jsonl}
columns: {tokens: tokens, tags: tags}
labels: labels.json
tokenizer: checkpoint/tokenizer.json
max_length: 32
bins: [16, 32]
"""
EXPERIMENT = """
version: 1
name: tags
about: does the tagger keep its entities?
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../search_spaces/space.yaml
calibration: {samples: 8, batch: 4}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Agreements:
    from transformers import BertForTokenClassification

    root = tmp_path_factory.mktemp("tags")
    for name in ("data", "experiments", "search_spaces"):
        (root / name).mkdir()
    data = root / "data"
    write_checkpoint(data / "checkpoint", BertForTokenClassification)
    write_onnx(load_checkpoint(data / "checkpoint", "ner"), data / "model.onnx", 17)
    (data / "labels.json").write_text(json.dumps(TAGS), encoding="utf-8")
    (data / "manifest.yaml").write_text(MANIFEST, encoding="utf-8")
    (root / "search_spaces" / "space.yaml").write_text(SPACE, encoding="utf-8")
    (root / "experiments" / "tags.yaml").write_text(EXPERIMENT, encoding="utf-8")
    texts = [list(d.text[: 8 + place % 17]) for place, d in enumerate(documents(72, seed=3))]
    generator = np.random.default_rng(0)
    for split, rows in (("calibration", texts[:8]), ("validation", texts[8:30]), ("holdout", texts[30:])):
        lines = [
            json.dumps({"tokens": words, "tags": [TAGS[i] for i in generator.integers(0, 5, len(words))]})
            for words in rows
        ]
        (data / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with opened(root / "experiments" / "tags.yaml", scratch=True) as (question, bench):
        candidate = build(question.space, complete(question.space, {"quantization.scheme": "dynamic"}))
        return agreement_of_candidate(question, candidate, bench, ServiceSettings(max_batch_size=4), Asked(samples=40))


def test_the_checkpoint_beside_the_model_is_found_and_agrees_with_its_export(found: Agreements) -> None:
    torch_way, floats = found.find("pytorch"), found.find("float32", "pytorch")

    assert torch_way is not None
    assert floats is not None
    assert torch_way.max_abs == floats.max_abs < 1e-4
    assert torch_way.top1 is not None
    assert torch_way.top1.value == 1.0
    assert torch_way.samples == 40


def test_tags_are_scored_by_token_and_entity_and_held_against_the_checkpoint_too(found: Agreements) -> None:
    served = found.find("served")

    assert served is not None
    assert {"entity_f1", "token_f1"} <= set(served.accuracy)
    assert served.drop is not None
    assert served.drop.test.startswith("paired bootstrap")
    assert served.max_abs > found.find("float32 compiled").max_abs  # type: ignore[union-attr]  # it was compared
    (output,) = served.outputs
    assert output.elements < 40 * 32 * len(TAGS)  # padding is not among them
    served = found.find("served", "pytorch")

    assert served is not None
    assert served.max_abs == pytest.approx(found.find("served").max_abs, rel=1e-2)  # type: ignore[union-attr]  # as above
