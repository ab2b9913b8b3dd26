import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from transformers import BertForSequenceClassification, BertForTokenClassification, BertModel

from tests.graph.checkpoints import TEXTS, write_checkpoint
from workbench.graph.export import (
    LIMITS,
    Task,
    convert,
    load_checkpoint,
    prove,
    sample_batches,
    write_onnx,
)
from workbench.values.errors import ConfigError

KINDS: dict[Task, type] = {"classification": BertForSequenceClassification, "ner": BertForTokenClassification}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[Task, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {task: write_checkpoint(folder / task, kind) for task, kind in KINDS.items()}


@pytest.mark.parametrize("task", KINDS)
def test_an_export_passes_its_proof_with_names_and_axes_as_promised(
    checkpoints: dict[Task, Path], tmp_path: Path, task: Task
) -> None:
    report = convert(checkpoint=checkpoints[task], task=task, to=tmp_path / "model.onnx", texts=TEXTS, opset=16)

    assert not report.failed, report.measured
    assert [*report.measured] == ["cosine", "max_abs_error", "mean_abs_error", "top1_agreement"]
    assert (report.samples, report.opset) == (len(TEXTS), 16)
    assert {batch for batch, _ in report.shapes} >= {1, 2, 5}
    assert len({length for _, length in report.shapes}) > 3
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    graph = onnx.load(tmp_path / "model.onnx").graph
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    dynamic = ["batch", "sequence"]
    assert shapes == {
        **dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), dynamic),
        "logits": [*(dynamic if task == "ner" else dynamic[:1]), 5],
    }


def test_a_model_without_segments_has_no_segment_input(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", BertForSequenceClassification, type_vocab_size=1)

    report = convert(checkpoint=checkpoint, task="classification", to=tmp_path / "model.onnx", texts=TEXTS)

    assert not report.failed
    assert [i.name for i in onnx.load(tmp_path / "model.onnx").graph.input] == ["input_ids", "attention_mask"]


def test_perturbed_weights_fail_the_proof(checkpoints: dict[Task, Path], tmp_path: Path) -> None:
    exported = tmp_path / "model.onnx"
    model = load_checkpoint(checkpoints["ner"], "ner")
    write_onnx(model, exported, opset=17)
    proto = onnx.load(exported)
    weight = next(t for t in proto.graph.initializer if len(t.dims) == 2 and t.dims[0] == 32)
    array = numpy_helper.to_array(weight)
    noise = np.random.default_rng(0).normal(0, 0.5, array.shape).astype("f")
    weight.CopyFrom(numpy_helper.from_array(array + noise, weight.name))
    onnx.save(proto, exported)

    report = prove(model, "ner", exported, sample_batches(TEXTS, checkpoints["ner"] / "tokenizer.json"))

    assert {*report.failed} >= {"max_abs_error", "mean_abs_error"}


def test_a_failed_proof_leaves_only_a_rejected_model_and_no_file_is_overwritten(
    checkpoints: dict[Task, Path], tmp_path: Path
) -> None:
    to = tmp_path / "model.onnx"
    limits = {**LIMITS, "mean_abs_error": 0.0}

    report = convert(checkpoint=checkpoints["ner"], task="ner", to=to, texts=TEXTS, limits=limits)

    assert report.failed == ["mean_abs_error"]
    assert report.model == tmp_path / "model.onnx.rejected"
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx.rejected"]
    assert replace(report, measured=dict.fromkeys(LIMITS, float("nan"))).failed == [*LIMITS]
    to.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="already exists and is left alone"):
        convert(checkpoint=checkpoints["ner"], task="ner", to=to, texts=TEXTS)
    assert to.read_bytes() == b"mine"


def test_a_folder_that_is_no_sound_checkpoint_is_refused(checkpoints: dict[Task, Path], tmp_path: Path) -> None:
    config, weights = ((checkpoints["ner"] / name).read_bytes() for name in ("config.json", "model.safetensors"))
    broken = {"config.json": config, "model.safetensors": weights[: len(weights) // 2]}
    pickled = {"config.json": config, "pytorch_model.bin": b""}
    for number, (files, rule) in enumerate(
        (
            ({}, r"holds no config\.json"),
            (pickled, r"only pickled weights \(pytorch_model.bin\).*safe_serialization"),
            (broken, "cannot be loaded"),
            *(
                ({"config.json": text, "model.safetensors": b"\0" * 100}, rule)
                for text, rule in (
                    (
                        b'{"vocab_size": 1000000000, "hidden_size": 1000000}',
                        r"vocab_size x hidden_size is 100000000000",
                    ),
                    (b'{"vocab_size": 1e9}', "are not all whole numbers"),
                    (b'{"vocab_size": ' + b"9" * 100 + b"}", "has more than 64 bits"),
                    (b"[" * 100_000, "nested deeper than"),
                    (b"[]", "holds no JSON object"),
                )
            ),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with pytest.raises(ConfigError, match=rule):
            load_checkpoint(folder, "ner")
    headless = write_checkpoint(tmp_path / "headless", BertModel)
    with pytest.raises(ConfigError, match=r"has no weights for 'classifier.bias' and 1 more\. Is it a ner model\?"):
        load_checkpoint(headless, "ner")


def test_bad_samples_are_refused(checkpoints: dict[Task, Path], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")

    with pytest.raises(ConfigError, match="no sample text"):
        sample_batches([], checkpoints["ner"] / "tokenizer.json")
    with pytest.raises(ConfigError, match="not a tokenizer file"):
        sample_batches(TEXTS, tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match="no such file"):
        sample_batches(TEXTS, tmp_path / "absent.json")


def test_converting_prints_nothing(checkpoints: dict[Task, Path], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom workbench.graph.export import convert\n"
        "report = convert(checkpoint=Path(sys.argv[1]), task='ner', to=Path(sys.argv[2]), texts=['申请贷款', '你好'])\n"
        "assert not report.failed"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(checkpoints["ner"]), str(tmp_path / "model.onnx")],
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )

    assert (done.stdout, done.stderr) == ("", "")
