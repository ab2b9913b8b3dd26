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
    multilayer,
    ok,
    opened,
    saved,
    strictly,
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


def test_no_memory_for_a_model_is_245000(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANN_EMULATOR_HBM_MB", "16")
    ok(acl.init())
    ok(acl.rt.set_device(0))
    path = saved(replace(multilayer(), weight_bytes=8 << 20, work_bytes=9 << 20), tmp_path)
    free = acl.rt.get_mem_info(1)[0]
    assert acl.mdl.load_from_file(path) == (0, 245000)
    assert "EL0004" in text()
    assert acl.rt.get_mem_info(1)[0] == free


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
