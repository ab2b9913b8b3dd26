from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.inputs.dataset.manifests import ARRAYS, model, refused, spec
from workbench.inputs.dataset import Dataset, check_inputs

FRAMES = model(spec("x", "float32", "batch", "frames", 3), spec("attention_mask", "int64", "batch", "frames"))
SIZES = np.array([1, 2, 3, 4, 5, 4, 3, 2, 1, 5])


@pytest.fixture
def frames(folder: Path) -> Path:
    """x [10, 5, 3] and a mask, of which each sample truly has `SIZES` frames; the padding of the file holds 99."""
    x = np.full((10, 5, 3), 99.0, np.float32)
    mask = np.zeros((10, 5), np.int64)
    for row, size in enumerate(SIZES):
        x[row, :size], mask[row, :size] = row, 1
    np.savez(
        folder / "data.npz", x=x, attention_mask=mask, **{"x.sizes": SIZES, "attention_mask.sizes": SIZES[:, None]}
    )
    return folder


def test_padded_arrays_are_cut_to_their_true_size_and_padded_to_bins(
    read: Callable[..., Dataset], frames: Path
) -> None:
    dataset = read(ARRAYS + "axes: {frames: {bins: [2, 6], pad: -1}}\n", FRAMES)
    check_inputs(dataset, FRAMES)
    for batch in dataset.batches("validation", 3):
        x, sizes = batch.feeds["x"], batch.sizes["frames"]
        assert sizes.tolist() == SIZES[batch.indices].tolist()
        assert x.shape == (len(batch), 2 if sizes.max() <= 2 else 6, 3)
        assert (x[batch.valid] == np.repeat(batch.indices, sizes)[:, None]).all()
        assert (x[~batch.valid] == -1).all()
        assert (batch.feeds["attention_mask"] == batch.valid).all()  # a mask is padded with zeros whatever padding is
    other = dataset.with_bins((5,))
    assert {b.feeds["x"].shape[1] for b in other.batches("validation", 3)} == {5}
    assert other.digest("validation") != dataset.digest("validation")


def test_without_bins_a_batch_ends_where_the_size_changes_or_is_padded_to_its_largest(
    read: Callable[..., Dataset], frames: Path
) -> None:
    dataset = read(ARRAYS, FRAMES)
    order = [row for b in dataset.batches("validation", 1) for row in b.indices.tolist()]
    batches = list(dataset.batches("validation", 4))
    assert [row for b in batches for row in b.indices.tolist()] == order
    assert all(b.feeds["x"].shape[1] == SIZES[row] for b in batches for row in b.indices)
    assert all(f["x"].shape[0] == 4 and not (f["x"] == 99).any() for f in dataset.sample_feeds("validation", 6, 4, 0))
    for batch in read(ARRAYS + "axes: {frames: {}}\n", FRAMES).batches("validation", 4):
        assert batch.feeds["x"].shape[1] == SIZES[batch.indices].max()


def test_steps_of_a_carried_state_are_filled_up_and_not_valid(read: Callable[..., Dataset], frames: Path) -> None:
    stepped = model(
        spec("x", "float32", "batch", 3), spec("attention_mask", "int64", "batch"), spec("h", "float32", "batch", 7)
    )
    dataset = read(ARRAYS + "state: {hN: h}\n", stepped)
    check_inputs(dataset, stepped)
    for batch in dataset.batches("validation", 4):
        assert batch.lengths.tolist() == SIZES[batch.indices].tolist()
        assert batch.feeds["x"].shape == (len(batch), SIZES[batch.indices].max(), 3)


def test_sizes_that_no_bin_or_array_holds_are_refused_before_any_work(
    read: Callable[..., Dataset], frames: Path
) -> None:
    dataset = read(ARRAYS + "axes: {frames: {bins: [4]}}\n", FRAMES)
    with pytest.raises(Exception, match=r"has 5 along 'frames', more than the largest bin, 4"):
        check_inputs(dataset, FRAMES)
    assert "no input has a free axis 'frame'" in refused(read, ARRAYS + "axes: {frame: {bins: [4]}}\n", FRAMES)
    fixed = model(spec("x", "float32", "batch", 5, 3), spec("attention_mask", "int64", "batch", "frames"))
    with pytest.raises(Exception, match=r"the model expects float32 \[batch, 5, 3\], calibration gives"):
        check_inputs(read(ARRAYS, fixed), fixed)
    np.savez(frames / "data.npz", x=np.zeros((2, 5), np.float32), **{"x.sizes": np.array([3, 6])})
    assert "sample 1 of 'x' has the size 6 along its axis 0; the array holds 1 to 5" in refused(read, ARRAYS)
    np.savez(frames / "data.npz", x=np.zeros((2, 5), np.float32), **{"x.sizes": np.ones((2, 2), np.int64)})
    assert "array 'x.sizes' is int64 [2, 2] beside 'x' [2, 5]" in refused(read, ARRAYS)
