import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.inputs.dataset.manifests import ARRAYS, BERT, LOADER, TEXT, classes, model, spec
from workbench.inputs.dataset import Dataset, check_inputs
from workbench.values.errors import ConfigError


def test_every_row_comes_once_and_the_holdout_is_taken_out_of_the_validation(read: Callable[..., Dataset]) -> None:
    dataset = read(TEXT, BERT)

    seen = {s: [i for b in dataset.batches(s, 7) for i in b.indices.tolist()] for s in ("validation", "holdout")}
    windows = classes(dataset, "validation", stop=16), classes(dataset, "validation", start=16)

    assert (dataset.size("calibration"), dataset.size("validation"), dataset.size("holdout")) == (2, 30, 30)
    assert sorted(seen["validation"] + seen["holdout"]) == list(range(60))
    assert windows[0] + windows[1] == classes(dataset, "validation")
    assert 3 <= sum(windows[0]) <= 13, "a fair sample of a file sorted by class"


def test_identity_follows_content_and_settings(read: Callable[..., Dataset], folder: Path) -> None:
    first = read(TEXT, BERT)
    others = [
        read(TEXT + "split: {seed: 1}", BERT),
        read(TEXT + "bins: [32]", BERT),
        read(TEXT.replace("max_length: 32", "max_length: 31"), BERT),
    ]
    with (folder / "validation.csv").open("a") as rows:
        rows.write("loan,loan\n")
    others.append(read(TEXT, BERT))

    assert len({first.identity, *(d.identity for d in others)}) == 5
    assert first.digest("calibration") == others[-1].digest("calibration")
    assert first.digest("validation") != others[-1].digest("validation")


def test_a_dataset_travels_to_another_process_and_timing_feeds_repeat_for_a_seed(read: Callable[..., Dataset]) -> None:
    for manifest in (
        TEXT,
        ARRAYS,
        LOADER,
    ):
        dataset = read(manifest)

        copy = pickle.loads(pickle.dumps(dataset))
        one, two, other = (dataset.sample_feeds("validation", 30, 3, seed) for seed in (5, 5, 6))

        assert copy.identity == dataset.identity
        for a, b in zip(dataset.batches("validation", 4), copy.batches("validation", 4), strict=True):
            assert {n: values.tolist() for n, values in a.feeds.items()} == {n: v.tolist() for n, v in b.feeds.items()}
        name = next(iter(one[0]))
        assert [len(feeds[name]) for feeds in one] == [3] * 30, "more than the data are"
        assert all(np.array_equal(a[name], b[name]) for a, b in zip(one, two, strict=True))
        assert manifest is LOADER or not all(np.array_equal(a[name], b[name]) for a, b in zip(one, other, strict=True))


def test_timing_feeds_have_the_lengths_of_the_data_or_the_one_asked_for(read: Callable[..., Dataset]) -> None:
    dataset = read(TEXT, BERT)
    lengths = dataset.lengths("validation")

    natural = dataset.sample_feeds("validation", 30, 1, 0)
    fixed = dataset.sample_feeds("validation", 4, 2, 0, length=5)

    drawn = sorted(int(feeds["attention_mask"].sum()) for feeds in natural)
    assert drawn == sorted(lengths.tolist())
    assert {feeds["input_ids"].shape for feeds in fixed} == {(2, 5)}
    assert read(ARRAYS).lengths("validation") is None
    with pytest.raises(ConfigError, match="a length of 8 can be asked of text only"):
        read(ARRAYS).sample_feeds("validation", 1, 1, 0, length=8)


def test_data_that_do_not_fit_the_model_are_refused_before_any_work(read: Callable[..., Dataset], folder: Path) -> None:
    for inputs, message in (
        ([spec("x", "float64", "n", 4)], "inputs.x: the model expects float64 [n, 4], calibration gives float32"),
        ([spec("x", "float32", "n", 5)], "inputs.x: the model expects float32 [n, 5], calibration gives float32 [b"),
        ([spec("x", "float32", "n", 4, 1)], "expects float32 [n, 4, 1], calibration gives float32 [batch, 4]"),
        ([spec("xx", "float32", "n", 4)], "the model has no input 'x', which calibration gives. Did you mean 'xx'?"),
        (
            [spec("x", "float32", "n", 4), spec("z", "float32", "n")],
            "calibration gives nothing for the model's input 'z'",
        ),
    ):
        np.savez(folder / "data.npz", x=np.zeros((3, 4), dtype=np.float32))
        dataset = read(ARRAYS)

        check_inputs(dataset, model(spec("x", "float32", "n", 4)))
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            check_inputs(dataset, model(*inputs))
        assert caught.value.file == folder / "manifest.yaml"


def test_texts_need_the_bins_and_the_roles_of_their_model(read: Callable[..., Dataset]) -> None:
    fixed = model(spec("input_ids", "int64", "batch", 32))
    odd = model(*BERT.inputs, spec("position_ids", "int64", "b", "s"))

    check_inputs(read(TEXT + "bins: [32]", fixed), fixed)
    with pytest.raises(ConfigError, match=r"has the fixed length 32\. Write bins: \[32\]"):
        check_inputs(read(TEXT, fixed), fixed)
    with pytest.raises(ConfigError, match=r"nothing for the model's input 'position_ids'.*Name its role"):
        check_inputs(read(TEXT, odd), odd)
