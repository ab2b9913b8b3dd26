"""Answers of another platform: kept without pickle, found by what was asked, refused where the question was another."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import write_workspace
from workbench.inputs.answers import Answer, feeds_digest, read_answers, sample_digests, text_digest, write_answers
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError

TEXTS = ("我要贷款", "二", ("two", "words"))


def answer(place: int, *, width: int = 3, row: int | None = None) -> Answer:
    return text_digest(TEXTS[place]), row, {"logits": np.full((width, 2), place, dtype=np.float32)}


def test_answers_are_found_by_what_was_asked_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    assert text_digest("贷款") == hashlib.sha256('"贷款"'.encode()).hexdigest()
    assert text_digest(("a", "b")) == hashlib.sha256(b'["a","b"]').hexdigest()
    write_answers(file, [answer(0), answer(1, width=5), answer(2)], source="Triton", length=512)

    found = read_answers(file)

    places = found.of([text_digest(TEXTS[2]), text_digest("unknown"), text_digest(TEXTS[1])], np.array([0, 1, 2]))
    assert places.tolist() == [2, -1, 1]
    assert found.outputs["logits"].shape == (3, 5, 2)
    assert found.outputs["logits"][0, :, 0].tolist() == [0, 0, 0, 0, 0]
    assert (found.source, found.about["length"]) == ("Triton", 512)
    with np.load(file, allow_pickle=False) as stored:
        assert json.loads(str(stored["answers_about"][0])) == {"version": 1, "source": "Triton", "length": 512}


def test_answers_are_found_by_their_rows_where_the_input_was_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "numpy.npz", logits=np.zeros((2, 4), np.float32), sample_rows=np.array([5, 3]))
    write_answers(tmp_path / "a.npz", [answer(0, row=7), answer(1, row=8)], source="x")

    found = read_answers(tmp_path / "numpy.npz")

    assert found.of(["", "", ""], np.array([3, 4, 5])).tolist() == [1, -1, 0]
    assert found.source == "numpy.npz"
    with pytest.raises(ConfigError, match="row 8 was given to another input"):
        read_answers(tmp_path / "a.npz").of([text_digest("something else")], np.array([8]))


def test_samples_without_texts_are_known_by_their_feeds(tmp_path: Path) -> None:
    dataset = read_experiment(write_workspace(tmp_path)).dataset
    one, all_of_them = (next(dataset.batches("holdout", size)) for size in (1, 8))

    digests = sample_digests(dataset, "holdout", all_of_them)

    assert digests[0] == sample_digests(dataset, "holdout", one)[0] == feeds_digest({"x": one.feeds["x"][0]})
    assert len(set(digests)) == 8


def test_what_is_no_file_of_answers_is_refused_with_the_reason(tmp_path: Path) -> None:
    for arrays, said in (
        ({"logits": np.zeros((2, 4))}, "which answer belongs to which sample"),
        ({"sample_rows": np.arange(2)}, "holds no answers"),
        ({"logits": np.zeros((2, 4)), "sample_rows": np.arange(3)}, "holds no answers"),
        ({"logits": np.zeros((2, 4)), "sample_rows": np.array([0.5, 1.0])}, "whole numbers"),
        ({"logits": np.zeros((2, 4)), "sample_digests": np.array(["A" * 64, "b" * 64])}, "no sha256"),
        ({"logits": np.array([{}, {}], dtype=object), "sample_rows": np.arange(2)}, "not numbers"),
        (
            {"logits": np.zeros((2, 4)), "sample_rows": np.arange(2), "answers_about": np.array(["{"])},
            "is no JSON",
        ),
        (
            {"logits": np.zeros((2, 4)), "sample_rows": np.arange(2), "answers_about": np.array(['{"version":9}'])},
            "version 1",
        ),
    ):
        np.savez(tmp_path / "a.npz", allow_pickle=True, **arrays)

        with pytest.raises(ConfigError, match=said):
            read_answers(tmp_path / "a.npz")


def test_a_file_cut_anywhere_or_promising_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    file, header = tmp_path / "a.npz", io.BytesIO()
    write_answers(file, [answer(0), answer(1)], source="x")
    whole = file.read_bytes()
    for share in (0.0, 0.2, 0.5, 0.9, 0.99):
        file.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ConfigError, match=r"a\.npz"):
            read_answers(file)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("logits.npy", header.getvalue())
    with pytest.raises(ConfigError, match="promises"):
        read_answers(file)
