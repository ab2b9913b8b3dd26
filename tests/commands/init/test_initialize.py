import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import tiny
from tests.commands.init.making import parameters, refused, start, write_csv, write_text_model
from tests.word_pieces import VOCABULARY, write_tokenizer
from workbench.values.errors import ConfigError


def test_a_model_and_arrays_become_an_experiment_that_reads(tmp_path: Path) -> None:
    tiny.write_model(tmp_path / "data" / "tiny.onnx")
    tiny.write_data(tmp_path / "data", tmp_path / "data" / "tiny.onnx")
    data = ("calibration.npz", "validation.npz", "holdout.npz")

    experiment = start(
        tmp_path / "data", *data, model=tmp_path / "data" / "tiny.onnx", tokenizer=None, labels=None, name=None
    )

    assert experiment.name == "tiny"
    assert experiment.dataset.task == "classification"
    assert [experiment.dataset.size(s) for s in ("calibration", "validation", "holdout")] == [48, 320, 160]
    assert experiment.calibration.samples == 48
    assert parameters(experiment)["quantization.attention_matmul"].choices == (False,)
    assert parameters(experiment)["quantization.keep_float"].choices == (0, 1, 2)
    assert experiment.workspace == tmp_path / "workspace"


def test_texts_become_an_experiment_with_lengths_from_the_data_and_relative_paths(folder: Path) -> None:
    experiment = start(folder, "train.csv", "dev.csv")
    preprocessor = experiment.dataset.preprocessor
    assert experiment.dataset.labels == ("loan", "payment")
    assert experiment.dataset.size("validation") + experiment.dataset.size("holdout") == 20
    assert preprocessor is not None
    # 4 to 23 tokens; nothing needs the model's limit. The finest of the bins that the service may choose
    assert preprocessor.bins == (8, 16, 24, 32)
    assert experiment.calibration.samples == 20
    assert parameters(experiment)["quantization.attention_matmul"].choices == (False, True)
    assert parameters(experiment)["quantization.keep_float"].choices == (0, 1)
    text = experiment.path.read_text(encoding="utf-8")
    manifest = experiment.dataset.path.read_text(encoding="utf-8")
    assert "model: ../../data/model.onnx" in text
    assert "validation: ../../data/dev.csv  # scores candidates during the search" in manifest
    assert str(folder) not in text + manifest + experiment.space.path.read_text(encoding="utf-8")
    assert "columns: {text: Text, label: label}" in manifest


def test_tokenizer_and_names_of_classes_are_found_beside_the_model(folder: Path) -> None:
    nothing = {"tokenizer": None, "labels": None}
    assert start(folder, "train.csv", "dev.csv", **nothing).dataset.labels == ("loan", "payment")
    (folder / "labels.json").unlink()
    (folder / "config.json").write_text('{"id2label": {"0": "payment", "1": "loan"}}')
    experiment = start(folder, "train.csv", "dev.csv", name="exported", **nothing)
    assert experiment.dataset.labels == ("payment", "loan")
    assert "id2label of the checkpoint's config.json" in experiment.dataset.path.read_text()
    for other in ('{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}', '{"id2label": 3}', "[", "[" * 100_000):
        (folder / "config.json").write_text(other)
        assert "the 2 labels are names" in refused_beside(folder, **nothing)


def refused_beside(folder: Path, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        start(folder, "train.csv", "dev.csv", name="refused", **given)
    return str(caught.value)


def test_lists_of_tokens_are_tags_to_predict(folder: Path) -> None:
    write_text_model(folder / "model.onnx", ner=True, classes=3)
    (folder / "labels.json").write_text('["O", "B-SUM", "I-SUM"]')
    for name in ("calib.jsonl", "valid.jsonl"):
        rows = [{"words": ["loan"] * (i + 1), "ner_tags": ["O"] * i + ["B-SUM"], "id": i} for i in range(10)]
        (folder / name).write_text("\n".join(map(json.dumps, rows)))

    experiment = start(folder, "calib.jsonl", "valid.jsonl")

    assert experiment.dataset.task == "ner"
    assert experiment.dataset.labels == ("O", "B-SUM", "I-SUM")


def test_numbered_classes_need_no_labels_file_and_texts_without_labels_the_float_model(folder: Path) -> None:
    write_csv(folder / "train.csv", [0, 1] * 10)
    write_csv(folder / "dev.csv", [1, 0] * 10)
    experiment = start(folder, "train.csv", "dev.csv", labels=None)
    assert experiment.dataset.labels == ("0", "1")
    assert (experiment.workspace / "calibration" / "question.labels.json").exists()

    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text("id,text\n" + "".join(f"{i},{('loan due', 'payment')[i % 2]}\n" for i in range(20)))
    assert start(folder, "train.csv", "dev.csv", labels=None, name="unlabelled").dataset.task == "tensors"


def test_inputs_with_other_names_get_their_roles_and_a_fixed_shape_its_own_length_and_batch(folder: Path) -> None:
    write_text_model(folder / "model.onnx", names=("tokens_in", "pad_mask"), length=24, batch=4)

    experiment = start(folder, "train.csv", "dev.csv")

    preprocessor = experiment.dataset.preprocessor
    assert preprocessor is not None
    assert {i.name: i.role for i in preprocessor.inputs} == {"tokens_in": "ids", "pad_mask": "mask"}
    assert preprocessor.bins == (24,)
    assert parameters(experiment)["serving.batch"].choices == (4,)
    assert experiment.calibration.batch == 4


def test_any_file_name_survives_being_written_and_the_name_is_the_model_s_or_its_folder_s(folder: Path) -> None:
    name = "训练 train: #1'\".csv"
    (folder / "train.csv").rename(folder / name)
    (folder / "model.onnx").rename(folder / "my model.onnx")
    assert start(folder, name, "dev.csv", model=folder / "my model.onnx", name="true").name == "true"
    named = start(folder, name, "dev.csv", model=folder / "my model.onnx", name=None)
    write_text_model(folder / "model.onnx")
    assert (named.name, start(folder, name, "dev.csv", name=None).name) == ("my-model", "data")


def test_nothing_is_overwritten_and_a_failing_last_step_leaves_no_file(folder: Path) -> None:
    space = folder.parent / "workspace" / "search_spaces" / "question.yaml"
    space.parent.mkdir(parents=True)
    space.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        start(folder, "train.csv", "dev.csv")
    assert [p for p in (folder.parent / "workspace").rglob("*") if p.is_file()] == [space]
    assert space.read_text() == "mine"
    space.unlink()
    space.parent.rmdir()
    space.parent.write_text("a file where a folder must be")
    with pytest.raises(ConfigError, match="--to: cannot be written: File exists"):
        start(folder, "train.csv", "dev.csv")
    assert [p for p in (folder.parent / "workspace").rglob("*") if p.is_file()] == [space.parent]


def rows(*labels: object) -> str:
    return "text,label\n" + "".join(f"loan due,{label}\n" for label in labels)


def test_data_that_nobody_can_use_are_refused_with_what_to_do(folder: Path) -> None:
    csv, jsonl = ("train.csv", "dev.csv"), ("train.jsonl", "dev.jsonl")
    alone = {"model": write_text_model(folder / "alone" / "model.onnx"), "labels": None}
    cases: tuple[tuple[tuple[str, str], str | bytes, dict[str, Any], str], ...] = (
        (jsonl, '{"tokens": ["loan"], "tags": ["O"]}\n', alone, "--labels: tags need their names"),
        (csv, rows("loan", "payment"), alone, "--labels: the 2 labels are names (loan, payment)"),
        (csv, rows("loan", "payment"), alone, "id2label"),
        (csv, rows("loan", "payment"), {"model": alone["model"], "tokenizer": None}, "--tokenizer: train.csv holds"),
        (csv, rows("loan", "laon"), {}, "train.csv:3: unknown label 'laon'"),
        (csv, "", {}, "its first line names no columns"),
        (csv, "a,b\n1,2\n", {}, "none of its columns (a, b) is known to hold the text"),
        (csv, rows(), {}, "has no rows"),
        (csv, b"text,label\n\xff\xfe,loan\n", {}, "is not UTF-8"),
        (jsonl, '{"text": "loan"', {}, "not valid JSON"),
        (jsonl, "[1, 2]", {}, "names no columns"),
        (jsonl, '{"tokens": ["loan"], "other": ["O"]}', {}, "no list of tags beside 'tokens'"),
    )
    for data, contents, given, says in cases:
        for name in data:
            (folder / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        assert says in refused(folder, *data, **given)
    np.savez(folder / "calib.npz", x=np.zeros((4, 4), np.float32))
    whole = (folder / "calib.npz").read_bytes()
    (folder / "valid.npz").write_bytes(whole)
    (folder / "calib.npz").write_bytes(whole[: len(whole) // 2])
    assert "calib.npz: cannot be read" in refused(folder, "calib.npz", "valid.npz", tokenizer=None, labels=None)
    for name in csv:
        write_csv(folder / name, ["loan", "payment"] * 10)
    for name in ("a/b", "", ".hidden", "a b", "a:b"):
        assert refused(folder, "train.csv", "dev.csv", name=name).startswith("--name")
    write_tokenizer(folder / "tokenizer.json", [*VOCABULARY, "more", "words"])
    assert "its ids go up to 12" in refused(folder, "train.csv", "dev.csv")


def test_arrays_that_do_not_fit_the_model_are_refused_in_words_about_the_user_s_files(tmp_path: Path) -> None:
    tiny.write_model(tmp_path / "data" / "tiny.onnx")
    for name in ("calib", "valid"):
        np.savez(tmp_path / "data" / f"{name}.npz", y=np.zeros((40, 4), np.float32))

    given = {"model": tmp_path / "data" / "tiny.onnx", "tokenizer": None, "labels": None}
    message = refused(tmp_path / "data", "calib.npz", "valid.npz", **given)

    assert message.startswith("inputs: nothing feeds the input 'x' (float32, [batch, 16]). The data's 'y' is no input.")
    assert "workbench-init-" not in message
