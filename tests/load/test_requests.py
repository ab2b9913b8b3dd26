import json
from pathlib import Path

import pytest

from tests.tiny import write_workspace
from workbench.inputs.experiment import read_experiment
from workbench.load import bodies_of_dataset, bodies_of_file
from workbench.load.requests import bodies_of_feeds
from workbench.values.errors import ConfigError


def test_files_of_texts_are_read(tmp_path: Path) -> None:
    for name, content in (
        ("a.txt", "loan\n\npay due\n"),
        ("a.jsonl", '"loan"\n{"text": "pay due", "label": 3}\n'),
        ("a.csv", 'label,text\n0,loan\n1,"pay due"\n'),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert [json.loads(b) for b in bodies_of_file(tmp_path / name)] == [{"text": "loan"}, {"text": "pay due"}]
    (tmp_path / "a.csv").write_text('text\n"one\ntwo"\n', encoding="utf-8")
    assert [json.loads(b) for b in bodies_of_file(tmp_path / "a.csv")] == [{"text": "one\ntwo"}]


def test_a_file_without_requests_is_refused_with_its_line(tmp_path: Path) -> None:
    for name, content, says in (
        ("a.jsonl", '"loan"\n{"txt": 1}\n', r"a\.jsonl:2.*no request"),
        ("a.jsonl", "loan\n", r"a\.jsonl:1.*no JSON"),
        ("a.csv", "sentence\nloan\n", r"a\.csv:2.*no column 'text'"),
        ("a.txt", "\n\n", "holds no request"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=says):
            bodies_of_file(tmp_path / name)


def test_arrays_are_sent_row_by_row(tmp_path: Path) -> None:
    dataset = read_experiment(write_workspace(tmp_path)).dataset
    (batch,) = dataset.batches("validation", 2, stop=2)

    bodies = bodies_of_dataset(dataset, "validation", most=2)

    assert len(bodies) == 2
    assert bodies == bodies_of_feeds(batch.feeds)
    for name, array in batch.feeds.items():
        assert json.loads(bodies[1])["inputs"][name] == array[1:2].tolist()
