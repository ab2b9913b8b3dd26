from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.inputs.dataset.manifests import BERT, NER, TEXT, classes, model, refused, spec
from tests.word_pieces import CLS, LOAN, MENT, PAY, SEP
from workbench.inputs.dataset import NOT_SCORED, Dataset, read_column
from workbench.values.errors import ConfigError


def test_text_becomes_the_inputs_the_model_has_in_their_types(read: Callable[..., Dataset]) -> None:
    ints = model(spec("input_ids", "int32", "b", "s"), spec("segment_ids", "int32", "b", "s"))

    feeds = next(read(TEXT, ints).batches("calibration", 2)).feeds

    assert {n: (str(a.dtype), a.shape) for n, a in feeds.items()} == {
        "input_ids": ("int32", (2, 16)),
        "segment_ids": ("int32", (2, 16)),
    }


def test_each_batch_has_its_own_bin_and_its_valid_positions(read: Callable[..., Dataset]) -> None:
    dataset = read(TEXT, BERT)
    lengths = dataset.lengths("validation")

    for batch in dataset.batches("validation", 1):
        expected = int(lengths[dataset.validation.rows() == batch.indices[0]][0])
        assert batch.lengths.tolist() == [expected]
        assert batch.feeds["input_ids"].shape == (1, 16 if expected <= 16 else 32)
        assert np.array_equal(batch.valid, batch.feeds["attention_mask"] != 0)


def test_only_the_first_token_of_a_word_is_scored(read: Callable[..., Dataset]) -> None:
    dataset = read(NER)

    batch = next(dataset.batches("validation", 2))
    row = batch.indices.tolist().index(0)

    assert batch.feeds["input_ids"][row].tolist()[:6] == [CLS, LOAN, PAY, MENT, LOAN + 1, SEP]
    assert batch.targets[row].tolist() == [NOT_SCORED, 0, 1, NOT_SCORED, 2, *[NOT_SCORED] * 3]
    assert batch.targets[1 - row].tolist() == [NOT_SCORED, 0, *[NOT_SCORED] * 6]


def test_rows_may_name_a_label_by_its_index_begin_with_a_byte_order_mark_or_have_none(
    read: Callable[..., Dataset], folder: Path
) -> None:
    (folder / "calibration.csv").write_bytes("\ufefftext,label\r\nloan,1\r\n".encode())
    unlabelled = read(TEXT.replace("classification", "tensors").replace("labels: labels.json\n", ""), BERT)

    assert classes(read(TEXT, BERT), "calibration") == [1]
    assert next(unlabelled.batches("validation", 4)).targets is None


def test_a_broken_csv_file_is_refused_with_its_line(read: Callable[..., Dataset], folder: Path) -> None:
    for content, message in (
        (b"text,lable\nloan,loan\n", "calibration.csv:1: no column 'label'. Did you mean 'lable'?"),
        (b"text,label\nloan,loan\ndue,lone\n", "calibration.csv:3: unknown label 'lone'. Did you mean 'loan'?"),
        (b"text,label\nloan,7\n", "calibration.csv:2: unknown label '7'."),
        (b"text,label\n", "calibration.csv: has no rows. A split needs"),
        (b"text,label\na,loan\n ,loan\n,loan\n", "calibration.csv:3: 2 of 3 texts of column 'text' are blank"),
        (b"", "calibration.csv:1: no column 'text'."),
        (b"text,label\nloan,loan\n\xc4\xe3,loan\n", "calibration.csv:3: byte 0xc4 is not UTF-8. Convert the file"),
        (b"text,label\nloan, due,loan\n", "calibration.csv:2: 3 fields, but the header has 2. Put quotes"),
        (b'text,label\nloan,loan\n"due,loan\n', "calibration.csv:3: not valid CSV: unexpected end of data."),
        (b'text,label\n"one\ntwo",loan\nthree,nothing\n', "calibration.csv:4: unknown label 'nothing'"),
    ):
        (folder / "calibration.csv").write_bytes(content)

        assert message in refused(read, TEXT, BERT)


def test_a_broken_jsonl_file_is_refused_with_its_line(read: Callable[..., Dataset], folder: Path) -> None:
    for row, message in (
        ('{"tokens": ["loan", "due"], "tags": ["O"]}', "rows.jsonl:2: 2 in 'tokens' but 1 in 'tags'."),
        ('{"tokens": ["loan"], "tags": ["B-SUN"]}', "rows.jsonl:2: unknown label 'B-SUN'. Did you mean"),
        ('{"tokens": ["loan"]}', "rows.jsonl:2: no 'tags' in this row."),
        ('{"tokens": [], "tags": []}', "rows.jsonl:2: 'tokens' must be a list with at least one item, got []."),
        ('{"tokens": "loan", "tags": ["O"]}', "rows.jsonl:2: 'tokens' must be a list"),
        ('{"tokens": [3], "tags": ["O"]}', "rows.jsonl:2: 'tokens' must be a text, got 3."),
        ('{"tokens": ["\\ud800"], "tags": ["O"]}', "rows.jsonl:2: not valid JSON: a text holds half"),
        ('{"tokens": ["loan"], "tags', "rows.jsonl:2: not valid JSON"),
        ("[1]", "rows.jsonl:2: expected a JSON object on each line."),
    ):
        (folder / "rows.jsonl").write_text('{"tokens": ["loan"], "tags": ["O"]}\n' + row)

        assert message in refused(read, NER)


def test_a_column_of_texts_or_of_token_lists_is_read_as_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n你好,0\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"tokens": ["你", "好"]}\n', encoding="utf-8")

    assert read_column(tmp_path / "a.csv", "text") == read_column(tmp_path / "b.jsonl", "tokens") == ("你好",)
    with pytest.raises(ConfigError, match="no column 'txet'"):
        read_column(tmp_path / "a.csv", "txet")
