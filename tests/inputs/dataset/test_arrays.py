import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.inputs.dataset.manifests import ARRAYS, model, refused, spec
from workbench.inputs.dataset import Dataset, check_inputs


def test_rows_of_arrays_are_those_of_the_file(read: Callable[..., Dataset], folder: Path) -> None:
    for save in (
        np.savez,
        np.savez_compressed,
    ):
        x = np.random.default_rng(0).normal(size=(10, 3, 2)).astype(np.float32)
        save(folder / "data.npz", x=x, y=np.asfortranarray(x[..., 0]), labels=np.arange(10) % 3)

        for batch in read(ARRAYS.replace("tensors", "classification")).batches("validation", 4):
            assert np.array_equal(batch.feeds["x"], x[batch.indices])
            assert np.array_equal(batch.feeds["y"], x[batch.indices, :, 0])
            assert batch.targets.tolist() == [i % 3 for i in batch.indices]


def test_npy_files_are_named_after_inputs(read: Callable[..., Dataset], folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    files = "{x: x.npy}"
    dataset = read(f"version: 1\ntask: tensors\nfiles: {{calibration: {files}, validation: {files}}}\n")

    assert dataset.size("holdout") == 3
    for batch in dataset.batches("validation", 2):
        assert batch.feeds["x"][:, 0].tolist() == [2 * i for i in batch.indices]
    check_inputs(dataset, model(spec("x", "float32", "batch", 2)))


def test_arrays_are_read_where_they_lie(read: Callable[..., Dataset], folder: Path) -> None:
    np.savez(folder / "data.npz", x=np.zeros((4000, 2000), dtype=np.float32))  # 32 MB
    tracemalloc.start()
    try:
        dataset = read(ARRAYS)
        for batch in dataset.batches("validation", 8):
            assert batch.feeds["x"].nbytes == 64_000
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_bytes < 20_000_000  # one block of 8 MiB and what is made of it


def test_a_damaged_file_is_refused(read: Callable[..., Dataset], folder: Path) -> None:
    whole = (folder / "data.npz").read_bytes()
    flipped = whole[:180] + bytes([whole[180] ^ 1]) + whole[181:]
    for content in (whole[: len(whole) // 2], whole[:10], b"not a zip", flipped):
        (folder / "data.npz").write_bytes(content)
        message = refused(read, ARRAYS)
        assert "data.npz: cannot be read: " in message
        assert "damaged, incomplete" in message
    np.save(folder / "x.npy", np.zeros((100, 2), dtype=np.float32))
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-7])
    message = refused(read, "version: 1\ntask: tensors\nfiles: {calibration: {x: x.npy}, validation: {x: x.npy}}\n")
    assert "x.npy: cannot be read: 921 bytes, but its header promises 928" in message


def test_arrays_that_cannot_be_fed_are_refused_by_name_and_sample(read: Callable[..., Dataset], folder: Path) -> None:
    for arrays, message in (
        ({"x": np.array([[1, 2], [3, np.nan], [np.inf, 0]])}, "input 'x' holds nan in sample 1. Remove"),
        ({"x": np.asfortranarray([[1, 2], [3, 4], [np.inf, 0.0]])}, "input 'x' holds inf in sample 2."),
        ({"x": np.zeros((3, 2)), "z": np.zeros((4, 2))}, "differ in their number of samples (x: 3, z: 4)"),
        ({"x": np.zeros((0, 2))}, "has no rows"),
        ({"x": np.zeros((3, 0))}, "samples without values"),
        ({"x": np.float32(3)}, "a single number"),
        ({"x": np.array(["a"])}, "holds <U1, not numbers"),
        ({"x": np.array([{}, {}], dtype=object)}, "array 'x' holds object, not numbers"),
        ({"labels": np.array([0, 1, 2])}, "sample 2 has label 2; labels are 0 to 1."),
        ({"labels": np.array([0, -1, 1])}, "sample 1 has label -1"),
        ({"labels": np.array([0.0, 1, 1])}, "labels are float64 [3]; expected whole numbers, class ids [samples]"),
        ({"labels": None}, "no array 'labels' with the labels."),
    ):
        given = {"x": np.zeros((3, 2)), **arrays}
        np.savez(folder / "data.npz", **{name: array for name, array in given.items() if array is not None})
        labelled = ARRAYS.replace("tensors", "classification") + "labels: labels.json\n"

        assert message in refused(read, labelled if "labels" in arrays else ARRAYS)
