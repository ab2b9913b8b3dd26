"""Loading, describing and running models and gears, and what each mistake returns (pyacl.md §1.5, §2.5, §4, §7)."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cann_emulator.acl.library import (
    Loaded,
    X,
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
from workbench.cann_emulator.om import MAGIC, write_om


@pytest.fixture
def path(tmp_path: Path) -> str:
    return saved(multilayer(), tmp_path)


@pytest.fixture
def model(device: int, path: str) -> Loaded:
    loaded = opened(path)
    loaded.put(X)
    return loaded


def test_a_wrong_index_name_or_description_gives_the_null_of_each_function(model: Loaded) -> None:
    mdl, desc = acl.mdl, model.desc
    for question in (mdl.get_input_size_by_index, mdl.get_output_size_by_index):
        assert question(desc, 7) == question(0, 0) == 0
    for question in (mdl.get_input_name_by_index, mdl.get_output_name_by_index):
        assert question(desc, 7) == ""
    for question in (mdl.get_input_data_type, mdl.get_output_data_type, mdl.get_input_format, mdl.get_output_format):
        assert question(desc, 7) == question(0, 0) == -1
    for question in (mdl.get_input_dims, mdl.get_output_dims, mdl.get_cur_output_dims):
        assert question(desc, 7) == ({}, 100000)
    assert mdl.get_input_index_by_name(desc, "nobody") == (0, 100000)
    assert mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data") == (0, 100000)
    assert mdl.get_num_inputs(0) == 0


def load(path: str) -> int:
    result: int = acl.mdl.load_from_file(path)[1]
    return result


def test_what_a_load_that_fails_returns(device: int, tmp_path: Path) -> None:
    """pyacl.md §2.5, model; broken content and other chips are [inferred]."""
    content = write_om(multilayer())
    cases = {
        "short": (content[:20], 145006),
        "bad magic": (b"IMOD" + content[4:], 145006),
        "truncated": (content[:-10], 145006),
        "longer than it says": (content + b"x", 145006),
        "damaged header": (content[:200] + b"\xff" + content[201:], 545002),
        "damaged graph": (content[:-1] + bytes([content[-1] ^ 1]), 545002),
        "another chip": (write_om(replace(multilayer(), soc_version="Ascend310P3")), 500002),
    }
    for name, (data, code) in cases.items():
        file = tmp_path / f"{name}.om"
        file.write_bytes(data)
        assert load(str(file)) == code, name
        assert "E19999" in text()
    assert content.startswith(MAGIC)
    assert load("") == 145002
    assert "E13026" in text()
    missing = str(tmp_path / "nothing.om")
    assert load(missing) == 145002
    assert missing in text()
    assert load(str(tmp_path)) == 145002
    os.chmod(file, 0)  # noqa: PTH101  the mode of a Path is the same call
    if os.getuid():
        assert load(str(file)) == 145002


def test_unknown_and_unloaded_ids_are_145003(model: Loaded) -> None:
    ok(acl.mdl.unload(model.id))
    for model_id in (model.id, 99):
        assert acl.mdl.unload(model_id) == 145003
        assert acl.mdl.get_desc(model.desc, model_id) == 145003
        assert acl.mdl.execute(model_id, model.input_dataset, model.output_dataset) == 145003
        assert acl.mdl.execute_async(model_id, model.input_dataset, model.output_dataset, 0) == 145003
        assert acl.mdl.set_dynamic_batch_size(model_id, model.input_dataset, 0, 1) == 145003
        assert acl.mdl.set_input_dynamic_dims(model_id, model.input_dataset, 0, {"dimCount": 1, "dims": [1]}) == 145003


def test_a_wrong_number_of_buffers_is_500002_with_e13025(model: Loaded) -> None:
    """pyacl.md §2.5, §4 rows 11 and 12."""
    for side, count in itertools.product(("inputs", "outputs"), (0, 2)):
        pair = {"inputs": model.input_dataset, "outputs": model.output_dataset}
        pair[side] = dataset(list(getattr(model, side)) * count)
        assert acl.mdl.execute(model.id, pair["inputs"], pair["outputs"]) == 500002
        assert "inconsistent" in text()


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_buffer_may_be_64_bytes_short_and_no_more(model: Loaded, side: str) -> None:
    needed = getattr(model, side)[0][1]
    for short, code in ((64, 0), (65, 500002), (1, 0)):
        memory = [(taken(acl.rt.malloc(needed - short, 0)), needed - short)]
        pair = {"inputs": model.input_dataset, "outputs": model.output_dataset, side: dataset(memory)}
        assert acl.mdl.execute(model.id, pair["inputs"], pair["outputs"]) == code, short
        message = text()
        assert ("aligned 64 bytes is less than the tensor size" in message) == bool(code)


def test_execute_and_execute_async_on_one_load_exclude_each_other(model: Loaded) -> None:
    """pyacl.md §2.5, §4 row 30."""
    ok(model.run())
    assert acl.mdl.execute_async(model.id, model.input_dataset, model.output_dataset, 0) == 500002
    assert "not support mix execute" in text()


def test_a_host_address_in_a_data_buffer_faults_at_the_execution_and_not_before(model: Loaded) -> None:
    """pyacl.md §4 row 9, §9 "device/host"."""
    data = X.tobytes()
    wrong = dataset([(acl.util.bytes_to_ptr(data), 320)])
    assert acl.mdl.execute(model.id, wrong, model.output_dataset) == 507015
    assert "no device memory" in text()
    freed = dataset([(model.inputs[0][0], 320)])
    ok(acl.rt.free(model.inputs[0][0]))
    assert acl.mdl.execute(model.id, freed, model.output_dataset) == 507015
    with strictly(), pytest.raises(NotEstablished, match="no live device memory"):
        acl.mdl.execute(model.id, freed, model.output_dataset)


def test_an_output_of_0_0_gets_memory_that_the_caller_frees(model: Loaded) -> None:
    """pyacl.md §1.5, execute."""
    wanted = dataset([(0, 0)])
    ok(acl.mdl.execute(model.id, model.input_dataset, wanted))
    buffer = acl.mdl.get_dataset_buffer(wanted, 0)
    pointer, size = acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)
    assert pointer
    assert size == 80
    ok(acl.rt.free(pointer))
    ok(acl.update_data_buffer(buffer, 0, 0))
    second = taken(acl.mdl.load_from_mem(*in_memory(multilayer())))
    assert acl.mdl.execute_async(second, model.input_dataset, wanted, 0) == 100000


KEPT: list[bytes] = []


def in_memory(model: object) -> tuple[int, int]:
    KEPT.append(write_om(model))  # type: ignore[arg-type]  # an OfflineModel
    return acl.util.bytes_to_ptr(KEPT[-1]), len(KEPT[-1])


def test_work_and_weight_memory_of_the_caller(device: int, tmp_path: Path) -> None:
    """pyacl.md §1.5: query_size, load_from_file_with_mem; the caller frees after unload."""
    sized = replace(multilayer(), work_bytes=10_000, weight_bytes=20_000)
    path = saved(sized, tmp_path)
    assert acl.mdl.query_size(path) == (10_000, 20_000, 0)
    assert acl.mdl.query_size_from_mem(*in_memory(sized)) == (10_000, 20_000, 0)
    free = acl.rt.get_mem_info(1)[0]
    own = taken(acl.mdl.load_from_file(path))
    assert free - acl.rt.get_mem_info(1)[0] == 10_016 + 20_000 + 64
    ok(acl.mdl.unload(own))
    assert acl.rt.get_mem_info(1)[0] == free
    work, weight = taken(acl.rt.malloc(10_000, 0)), taken(acl.rt.malloc(20_000, 0))
    free = acl.rt.get_mem_info(1)[0]
    mine = taken(acl.mdl.load_from_file_with_mem(path, work, 10_000, weight, 20_000))
    assert acl.rt.get_mem_info(1)[0] == free
    half = taken(acl.mdl.load_from_mem_with_mem(*in_memory(sized), work, 10_000, 0, 0))
    assert free - acl.rt.get_mem_info(1)[0] == 20_000 + 32
    for model_id in (mine, half):
        ok(acl.mdl.unload(model_id))
    ok(acl.rt.free(work))
    assert acl.mdl.load_from_file_with_mem(path, weight, 9_999, 0, 0)[1] == 500002
    assert acl.mdl.query_size(str(tmp_path / "no.om")) == (0, 0, 145002)


def test_no_memory_for_a_model_is_245000(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANN_EMULATOR_HBM_MB", "16")
    ok(acl.init())
    ok(acl.rt.set_device(0))
    path = saved(replace(multilayer(), weight_bytes=8 << 20, work_bytes=9 << 20), tmp_path)
    free = acl.rt.get_mem_info(1)[0]
    assert acl.mdl.load_from_file(path) == (0, 245000)
    assert "EL0004" in text()
    assert acl.rt.get_mem_info(1)[0] == free


def all_axes(*sizes: int) -> dict[str, object]:
    return {"name": "", "dimCount": len(sizes), "dims": list(sizes)}


def test_a_gear_is_kept_in_the_dataset_and_must_be_set_for_a_fresh_one(device: int, tmp_path: Path) -> None:
    """pyacl.md §7 "not set at all": the emulator fails loudly."""
    batches = opened(batch_gears(tmp_path))
    ok(acl.mdl.set_dynamic_batch_size(batches.id, batches.input_dataset, 1, 4))
    fresh = dataset(batches.inputs)
    assert acl.mdl.execute(batches.id, fresh, batches.output_dataset) == 500002
    assert "no gear was set on this dataset" in text()
    ok(acl.mdl.set_dynamic_batch_size(batches.id, fresh, 1, 8))
    with strictly(), pytest.raises(NotEstablished, match="set last on this model"):
        batches.run()


def test_what_each_mistake_with_gears_returns(device: int, tmp_path: Path) -> None:
    """pyacl.md §2.5, gears."""
    batches, dims, images = (opened(make(tmp_path)) for make in (batch_gears, dims_gears, image_gears))
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
