"""Gears at run time (pyacl.md §7, §2.5 "Gears", §4 row 33)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cann_emulator.acl.library import (
    Loaded,
    batch_gears,
    dataset,
    dims_gears,
    image_gears,
    multilayer,
    ok,
    opened,
    saved,
    strictly,
    taken,
    text,
)
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl.errors import NotEstablished
from workbench.cann_emulator.executable import Executable

X = np.random.default_rng(8).standard_normal((8, 16)).astype(np.float32)


@pytest.fixture
def batches(device: int, tmp_path: Path) -> Loaded:
    return opened(saved(batch_gears(1, 4, 8), tmp_path))


@pytest.fixture
def dims(device: int, tmp_path: Path) -> Loaded:
    return opened(saved(dims_gears(), tmp_path))


@pytest.fixture
def images(device: int, tmp_path: Path) -> Loaded:
    return opened(saved(image_gears(), tmp_path))


def all_axes(*sizes: int) -> dict[str, object]:
    return {"name": "", "dimCount": len(sizes), "dims": list(sizes)}


def test_dims_show_minus_1_and_sizes_are_of_the_largest_gear(batches: Loaded) -> None:
    desc = batches.desc
    assert acl.mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, 16]
    assert acl.mdl.get_input_size_by_index(desc, 0) == 8 * 16 * 4
    assert acl.mdl.get_output_dims(desc, 0)[0]["dims"] == [8, 4]
    assert acl.mdl.get_output_size_by_index(desc, 0) == 8 * 4 * 4


def test_the_gears_are_listed_by_kind(batches: Loaded, dims: Loaded, images: Loaded) -> None:
    assert acl.mdl.get_dynamic_batch(batches.desc) == ({"batchCount": 3, "batch": [1, 4, 8]}, 0)
    assert acl.mdl.get_dynamic_hw(batches.desc, -1) == ({"hwCount": 0, "hw": []}, 0)
    assert acl.mdl.get_dynamic_hw(images.desc, -1) == ({"hwCount": 2, "hw": [[4, 6], [8, 12]]}, 0)
    assert acl.mdl.get_dynamic_batch(images.desc) == ({"batchCount": 0, "batch": []}, 0)
    assert acl.mdl.get_input_dynamic_gear_count(dims.desc, -1) == (2, 0)
    assert acl.mdl.get_input_dynamic_gear_count(batches.desc, -1) == (0, 0)
    expected = [all_axes(1, 20, 1, 20), all_axes(1, 40, 2, 40)]
    assert acl.mdl.get_input_dynamic_dims(dims.desc, -1, 2) == (expected, 0)


def test_a_batch_gear_runs_its_rows_and_tells_its_output_dims(batches: Loaded) -> None:
    """The largest before any was set; the one set last afterwards."""
    assert acl.mdl.get_cur_output_dims(batches.desc, 0)[0]["dims"] == [8, 4]
    for rows in (4, 1, 8):
        ok(acl.mdl.set_dynamic_batch_size(batches.id, batches.input_dataset, 1, rows))
        assert acl.mdl.get_cur_output_dims(batches.desc, 0)[0]["dims"] == [rows, 4]
        batches.put(X[:rows])
        ok(batches.run())
        expected = Executable(multilayer(batch=rows), threads=1).run({"x": X[:rows]})["y"]
        np.testing.assert_allclose(batches.get(0, np.float32, (rows, 4)), expected, rtol=1e-5)


@pytest.mark.parametrize(("size", "dtype"), [(12, np.int32), (24, np.int64)])
def test_the_runtime_writes_the_values_into_the_gear_input(dims: Loaded, size: int, dtype: type) -> None:
    """int32, or int64 when the buffer has 8 bytes per value."""
    gear = taken(acl.rt.malloc(size, 0))
    given = dataset([*dims.inputs[:2], (gear, size)])
    ok(acl.mdl.set_input_dynamic_dims(dims.id, given, 2, all_axes(1, 40, 2, 40)))
    out = b"\0" * (size - 1) + b"\1"
    ok(acl.rt.memcpy(acl.util.bytes_to_ptr(out), size, gear, size, 2))
    assert np.frombuffer(out, dtype).tolist() == [40, 2, 40]


def test_a_gear_is_kept_in_the_dataset_and_must_be_set_for_a_fresh_one(batches: Loaded) -> None:
    """pyacl.md §7 "not set at all": the emulator fails loudly."""
    ok(acl.mdl.set_dynamic_batch_size(batches.id, batches.input_dataset, 1, 4))
    fresh = dataset(batches.inputs)
    assert acl.mdl.execute(batches.id, fresh, batches.output_dataset) == 500002
    assert "no gear was set on this dataset" in text()
    ok(acl.mdl.set_dynamic_batch_size(batches.id, fresh, 1, 8))
    with strictly(), pytest.raises(NotEstablished, match="set last on this model"):
        batches.run()


def test_what_each_mistake_with_gears_returns(batches: Loaded, dims: Loaded, images: Loaded, tmp_path: Path) -> None:
    """pyacl.md §2.5, gears."""
    mdl = acl.mdl
    given = batches.input_dataset
    assert mdl.set_dynamic_batch_size(batches.id, given, 1, 0) == 100000
    assert mdl.set_dynamic_hw_size(images.id, images.input_dataset, 1, 0, 6) == 100000
    assert mdl.set_dynamic_hw_size(images.id, images.input_dataset, 1, 4, 0) == 100000
    assert mdl.set_input_dynamic_dims(dims.id, dims.input_dataset, 2, {"dimCount": 0, "dims": []}) == 100000
    assert mdl.set_dynamic_batch_size(batches.id, given, 2, 4) == 100000
    assert mdl.set_dynamic_batch_size(batches.id, dataset([batches.inputs[0], (0, 4)]), 1, 4) == 100000
    assert (
        mdl.set_dynamic_batch_size(batches.id, dataset([batches.inputs[0], (batches.inputs[1][0], 3)]), 1, 4) == 145012
    )
    assert mdl.set_dynamic_batch_size(batches.id, given, 1, 5) == 145013
    assert mdl.set_dynamic_hw_size(batches.id, given, 1, 4, 6) == 145012
    assert mdl.set_dynamic_hw_size(images.id, images.input_dataset, 1, 4, 7) == 145013
    static = opened(saved(multilayer(), tmp_path, "static.om"))
    assert mdl.set_dynamic_batch_size(static.id, static.input_dataset, 0, 5) == 145013
    assert mdl.set_input_dynamic_dims(dims.id, dims.input_dataset, 2, all_axes(1, 20, 1)) == 145012
    assert mdl.set_input_dynamic_dims(dims.id, dims.input_dataset, 2, all_axes(2, 20, 1, 20)) == 145012
    assert mdl.set_input_dynamic_dims(dims.id, dims.input_dataset, 2, all_axes(1, 30, 1, 30)) == 145013
