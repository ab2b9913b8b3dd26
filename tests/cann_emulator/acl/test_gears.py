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
