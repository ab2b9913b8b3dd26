"""The review checklist of pyacl.md §4: each mistake fails as documented, and the session does it right.

One test for each row, with its number. `raw` is pyACL used by hand, up to where a row goes wrong.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.targets.ascend.offline_files import Array, artifact_of, expected, gear_model, grid, static_model, texts
from workbench.cann_emulator.acl import strict
from workbench.cann_emulator.acl.strict import NotEstablished
from workbench.cann_emulator.om import OfflineModel, write_om
from workbench.evaluation.measure import TimingProtocol
from workbench.inputs.metrics import primary_metric
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.acl.session import AscendSession, open_session
from workbench.values.errors import MeasureError

H2D, D2H = 1, 2
TARGET = Path(acl_process.__file__).parents[1]
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Raw:
    """pyACL by hand: a device, a context, a stream, and what loads and runs one model."""

    acl: ModuleType
    context: int
    stream: int
    tmp: Path

    def load(self, model: OfflineModel) -> tuple[int, int]:
        """(model id, description)"""
        file = self.tmp / f"{model.name}.om"
        file.write_bytes(write_om(model))
        model_id, ret = self.acl.mdl.load_from_file(str(file))
        assert ret == 0
        desc = self.acl.mdl.create_desc()
        assert self.acl.mdl.get_desc(desc, model_id) == 0
        return model_id, desc

    def device(self, size: int) -> int:
        pointer, ret = self.acl.rt.malloc(size, 0)
        assert ret == 0
        return int(pointer)

    def upload(self, values: Array) -> int:
        values = np.ascontiguousarray(values)
        pointer = self.device(values.nbytes)
        assert self.acl.rt.memcpy(pointer, values.nbytes, address(values), values.nbytes, H2D) == 0
        return pointer

    def download(self, pointer: int, like: Array) -> Array:
        values = np.empty_like(like)
        assert self.acl.rt.memcpy(address(values), values.nbytes, pointer, values.nbytes, D2H) == 0
        return values

    def dataset(self, parts: list[tuple[int, int]]) -> int:
        dataset = self.acl.mdl.create_dataset()
        for pointer, size in parts:
            _, ret = self.acl.mdl.add_dataset_buffer(dataset, self.acl.create_data_buffer(pointer, size))
            assert ret == 0
        return int(dataset)

    def outputs(self, desc: int) -> tuple[int, list[int]]:
        sizes = [self.acl.mdl.get_output_size_by_index(desc, i) for i in range(self.acl.mdl.get_num_outputs(desc))]
        pointers = [self.device(size) for size in sizes]
        return self.dataset(list(zip(pointers, sizes, strict=True))), pointers

    def inputs(self, feeds: dict[str, Array]) -> int:
        return self.dataset([(self.upload(feeds[name]), feeds[name].nbytes) for name in ("ids", "mask")])


def address(values: Array) -> int:
    return int(values.__array_interface__["data"][0])


@pytest.fixture
def raw(acl: ModuleType, tmp_path: Path) -> Iterator[Raw]:
    """What a test leaves is taken away: these are mistakes, after all."""
    from workbench.cann_emulator.acl import handles

    assert acl.init() in (0, 100002)
    assert acl.rt.set_device(0) == 0
    context, ret = acl.rt.create_context(0)
    assert ret == 0
    stream, ret = acl.rt.create_stream()
    assert ret == 0
    yield Raw(acl=acl, context=context, stream=stream, tmp=tmp_path)
    acl_process.shut_down()
    while acl.rt.reset_device(0) == 0:
        pass
    acl.finalize()
    for thing in handles.alive(object):
        handles.drop(thing.handle)  # type: ignore[attr-defined]  # every object of the emulator has one


@pytest.fixture
def session(acl: ModuleType, tmp_path: Path) -> Iterator[AscendSession]:
    folder = tmp_path / "session"
    folder.mkdir()
    session = open_session(folder, grid((2,), (8,), folder), batch=2)
    yield session
    session.close()


def assert_right(session: AscendSession, feeds: dict[str, Array] | None = None) -> None:
    feeds = feeds or texts(2, 8)
    outputs = session.run(feeds)
    for name, values in expected(feeds).items():
        assert np.array_equal(outputs[name], values), name


def reason(acl: ModuleType) -> str:
    return acl.get_recent_err_msg() or ""


def sources() -> list[tuple[Path, ast.Module]]:
    files = [*sorted((TARGET / "acl").glob("*.py")), TARGET / "fitting.py", TARGET / "atc" / "gears.py"]
    return [(file, ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def names_called(function: str) -> set[str]:
    """Functions of acl that the target calls through `do`, `read` or `take`."""
    return {
        node.args[0].value
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def child(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    head = "import sys\nimport workbench.cann_emulator.acl as acl\nsys.modules['acl'] = acl\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# --- return shapes -------------------------------------------------------------------------------------------------


def test_row_01_the_tuple_of_malloc_taken_for_the_pointer(raw: Raw) -> None:
    pointer = raw.acl.rt.malloc(64, 0)

    with pytest.raises(TypeError):
        raw.acl.rt.memset(pointer, 64, 0, 64)
    assert isinstance(acl_calls.take("rt.malloc", 64, 0), int)


def test_row_02_other_tuples_taken_for_values(raw: Raw) -> None:
    file = raw.tmp / "m.om"
    file.write_bytes(write_om(static_model(1, 8)))
    content = np.frombuffer(file.read_bytes(), np.uint8)
    rt, mdl = raw.acl.rt, raw.acl.mdl
    events = [rt.create_event()[0] for _ in range(2)]
    for event in events:
        rt.record_event(event, raw.stream)
    rt.synchronize_stream(raw.stream)
    results: dict[str, Any] = {
        "mdl.load_from_file": mdl.load_from_file(str(file)),
        "mdl.load_from_mem": mdl.load_from_mem(address(content), content.nbytes),
        "rt.create_context": rt.create_context(0),
        "rt.create_stream": rt.create_stream(),
        "rt.create_event": rt.create_event(),
        "rt.malloc_host": rt.malloc_host(64),
        "rt.get_device_count": rt.get_device_count(),
        "rt.get_run_mode": rt.get_run_mode(),
        "rt.get_device": rt.get_device(),
        "rt.event_elapsed_time": rt.event_elapsed_time(*events),
    }

    assert {name: (type(result), result[-1]) for name, result in results.items()} == dict.fromkeys(results, (tuple, 0))
    with pytest.raises(TypeError):
        mdl.unload(results["mdl.load_from_file"])
    rt.free_host(results["rt.malloc_host"][0])
    assert not names_called("read") & set(results)
    assert not names_called("do") & set(results)


def test_row_03_add_dataset_buffer_compared_with_0(raw: Raw) -> None:
    dataset, buffer = raw.acl.mdl.create_dataset(), raw.acl.create_data_buffer(raw.device(64), 64)

    assert raw.acl.mdl.add_dataset_buffer(dataset, buffer) != 0, "it worked, and looks as if it had failed"
    assert raw.acl.mdl.get_dataset_num_buffers(dataset) == 1
    with pytest.raises(TypeError, match="where a return code belongs"):
        acl_calls.do("mdl.add_dataset_buffer", dataset, buffer)  # the checked call notices the wrong shape


def test_row_04_descriptions_taken_as_single_values(raw: Raw) -> None:
    _, desc = raw.load(static_model(2, 8))

    with pytest.raises(TypeError):
        raw.acl.mdl.get_input_dims(desc, 0)["dims"]
    assert acl_calls.take("mdl.get_input_dims", desc, 0)["dims"] == [2, 8]
    with pytest.raises(TypeError):
        raw.acl.mdl.get_dynamic_batch(desc)["batchCount"]
    assert acl_calls.take("mdl.get_dynamic_batch", desc)["batchCount"] == 0
    assert acl_calls.take("mdl.get_input_index_by_name", desc, "mask") == 1


def test_row_05_get_mem_info_taken_for_two_values(raw: Raw) -> None:
    with pytest.raises(ValueError, match="too many values"):
        free, total = raw.acl.rt.get_mem_info(1)

    free, total = acl_calls.take("rt.get_mem_info", 1)
    assert 0 < free <= total


def test_row_06_single_results_unpacked(raw: Raw) -> None:
    acl = raw.acl
    _, desc = raw.load(static_model(2, 8))
    calls: dict[str, Callable[[], Any]] = {
        "mdl.create_desc": acl.mdl.create_desc,
        "mdl.create_dataset": acl.mdl.create_dataset,
        "create_data_buffer": lambda: acl.create_data_buffer(raw.device(8), 8),
        "mdl.get_num_inputs": lambda: acl.mdl.get_num_inputs(desc),
        "mdl.get_input_size_by_index": lambda: acl.mdl.get_input_size_by_index(desc, 0),
        "mdl.get_input_data_type": lambda: acl.mdl.get_input_data_type(desc, 0),
        "mdl.get_input_format": lambda: acl.mdl.get_input_format(desc, 0),
    }

    for call in calls.values():
        with pytest.raises(TypeError, match="cannot unpack"):
            _, _ = call()
    with pytest.raises(ValueError, match="unpack"):
        _, _ = acl.get_soc_name()
    assert not names_called("take") & {*calls, "get_soc_name", "mdl.get_input_name_by_index"}


def test_row_07_constants_that_do_not_exist(acl: ModuleType) -> None:
    for wrong in ("acl.memcpy_kind", "acl.ACL_MEMCPY_HOST_TO_DEVICE", "acl.rt.ACL_MEM_MALLOC_HUGE_FIRST"):
        with pytest.raises(AttributeError):
            eval(wrong, {"acl": acl})


# --- memory --------------------------------------------------------------------------------------------------------


def test_row_08_arguments_in_the_wrong_place(raw: Raw) -> None:
    values = np.arange(16, dtype=np.int64)
    pointer = raw.device(256)

    assert raw.acl.rt.memcpy(pointer, values.nbytes, address(values), 256, H2D) == 107000, "dst_max and count swapped"
    _, ret = raw.acl.rt.malloc(0, 256)
    assert ret == 100000, "policy and size swapped"


def test_row_09_a_host_pointer_as_model_input(
    raw: Raw, session: AscendSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(strict.STRICT, "on", False)  # which code it is, is [inferred]
    raw.acl.rt.set_context(raw.context)
    model_id, desc = raw.load(static_model(2, 8))
    feeds = texts(2, 8)
    inputs = raw.dataset([(address(feeds[name]), feeds[name].nbytes) for name in ("ids", "mask")])
    outputs, _ = raw.outputs(desc)

    code = raw.acl.mdl.execute(model_id, inputs, outputs)

    assert 507000 <= code < 508000
    assert_right(session, feeds)


def test_row_10_the_output_read_without_a_copy(raw: Raw) -> None:
    pointer = raw.device(64)

    with pytest.raises(RuntimeError):
        raw.acl.util.ptr_to_bytes(pointer, 64)


def test_row_11_only_the_first_input_gets_a_buffer(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    model_id, desc = raw.load(static_model(2, 8))
    ids = texts(2, 8)["ids"]
    outputs, _ = raw.outputs(desc)

    assert raw.acl.mdl.execute(model_id, raw.dataset([(raw.upload(ids), ids.nbytes)]), outputs) == 500002
    assert "E13025" in reason(raw.acl)
    assert_right(session)


def test_row_12_output_sizes_guessed(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    model_id, desc = raw.load(static_model(2, 16))
    inputs = raw.inputs(texts(2, 16))
    sizes = [raw.acl.mdl.get_output_size_by_index(desc, i) for i in range(2)]
    assert sizes == [2 * 3 * 4, 2 * 16 * 2 * 4]

    guessed = raw.dataset([(raw.device(sizes[0]), sizes[0]), (raw.device(sizes[0]), sizes[0])])
    first_only = raw.dataset([(raw.device(sizes[0]), sizes[0])])

    assert raw.acl.mdl.execute(model_id, inputs, guessed) == 500002
    assert raw.acl.mdl.execute(model_id, inputs, first_only) == 500002
    assert_right(session)


def run_raw(raw: Raw, model: OfflineModel, arrays: list[Array]) -> tuple[int, Array]:
    """(code, logits of two rows) of arrays given by position."""
    model_id, desc = raw.load(model)
    inputs = raw.dataset([(raw.upload(array), array.nbytes) for array in arrays])
    outputs, pointers = raw.outputs(desc)
    code = raw.acl.mdl.execute(model_id, inputs, outputs)
    return code, raw.download(pointers[0], np.empty((2, 3), np.float32))


def test_row_13_inputs_in_the_order_of_a_dict(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    feeds = texts(2, 8)
    tokenizer = {"mask": feeds["mask"], "ids": feeds["ids"]}

    code, logits = run_raw(raw, static_model(2, 8), list(tokenizer.values()))

    assert code == 0, "no error at all"
    assert not np.array_equal(logits, expected(feeds)["logits"])
    assert_right(session, tokenizer)


def test_row_14_a_type_taken_for_granted(raw: Raw, tmp_path: Path) -> None:
    feeds = texts(2, 8)

    code, logits = run_raw(raw, static_model(2, 8, ids="int32"), list(feeds.values()))

    assert code == 0, "a buffer may be longer than the model wants"
    assert not np.array_equal(logits, expected(feeds)["logits"])
    code, _ = run_raw(raw, static_model(2, 16), [array.astype(np.int32) for array in texts(2, 16).values()])
    assert code == 500002, "and not 64 bytes shorter"
    session = open_session(tmp_path, grid((2,), (8,), tmp_path, ids="int32", floats="float16"), batch=2)
    assert_right(session, feeds)
    session.close()


def test_row_15_an_acl_type_code_given_to_ptr_to_numpy(raw: Raw) -> None:
    host, _ = raw.acl.rt.malloc_host(64)
    halves = np.array([1.5, -2.0], np.float16)
    raw.acl.rt.memcpy(host, 64, address(halves), halves.nbytes, 0)
    acl_float16, numpy_float16 = 1, 23

    assert raw.acl.util.ptr_to_numpy(host, (2,), acl_float16).tolist() != [1.5, -2.0]
    assert raw.acl.util.ptr_to_numpy(host, (2,), numpy_float16).tolist() == [1.5, -2.0]
    raw.acl.rt.free_host(host)
    assert not any("ptr_to_numpy" in ast.unparse(tree) for _, tree in sources()), "the target has no use for it"


def test_row_16_bytes_that_nobody_holds(raw: Raw) -> None:
    """The storage of a temporary is free for the next object before the copy begins."""
    values = np.arange(40, dtype=np.int64)
    pointer = raw.device(values.nbytes)

    stale = raw.acl.util.bytes_to_ptr(values.tobytes())
    others = [(values + n).tobytes() for n in range(1, 20)]
    raw.acl.rt.memcpy(pointer, values.nbytes, stale, values.nbytes, H2D)

    assert not np.array_equal(raw.download(pointer, values), values)
    assert len(others) == 19
    assert "bytes_to_ptr" not in "".join(ast.unparse(tree) for _, tree in sources()), "page-locked memory instead"


def test_row_17_an_array_that_is_not_contiguous(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    matrix = np.arange(6, dtype=np.int64).reshape(2, 3).T
    pointer = raw.device(matrix.nbytes)
    with pytest.warns(Warning, match="contiguous"):
        source = raw.acl.util.numpy_to_ptr(matrix)
    raw.acl.rt.memcpy(pointer, matrix.nbytes, source, matrix.nbytes, H2D)

    assert not np.array_equal(raw.download(pointer, np.ascontiguousarray(matrix)), matrix)
    feeds = texts(2, 8)
    assert_right(session, {name: np.asfortranarray(array) for name, array in feeds.items()})


# --- life cycle ----------------------------------------------------------------------------------------------------


def test_row_18_init_in_every_instance(acl: ModuleType, tmp_path: Path) -> None:
    first = open_session(tmp_path, grid((2,), (8,), tmp_path), batch=2)
    assert acl.init() == 100002, "what a second instance gets, and must live with"

    second = open_session(tmp_path, grid((2,), (8,), tmp_path), batch=2)

    assert_right(first)
    assert_right(second)
    first.close()
    second.close()


def test_row_19_finalize_and_reset_in_every_instance(raw: Raw, tmp_path: Path) -> None:
    assert raw.acl.rt.reset_device(0) == 0
    assert raw.acl.rt.reset_device(0) == 507007
    assert raw.acl.finalize() == 0
    assert raw.acl.finalize() == 100037
    first = open_session(tmp_path, grid((2,), (8,), tmp_path), batch=2)
    second = open_session(tmp_path, grid((2,), (8,), tmp_path), batch=2)

    first.close()

    assert_right(second)
    second.close()


def test_row_20_destructors_at_exit() -> None:
    """Whichever object the interpreter drops first ends pyACL for the others."""
    script = """
        class Net:
            def __init__(self):
                acl.init()
                acl.rt.set_device(0)
                self.pointer, _ = acl.rt.malloc(64, 0)
            def __del__(self):
                print(acl.rt.free(self.pointer), acl.rt.reset_device(0), acl.finalize())
        first, second = Net(), Net()
    """

    done = child(script, CANN_EMULATOR_LEAKS="off")

    codes = [[int(code) for code in line.split()] for line in done.stdout.splitlines()]
    assert len(codes) == 2, done.stderr
    assert codes[1][2] == 100037, "the other one was there already"
    defined = {n.name for _, tree in sources() for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert "__del__" not in defined


def test_row_21_nothing_freed(acl: ModuleType, tmp_path: Path) -> None:
    script = """
        acl.init(); acl.rt.set_device(0)
        for n in range(10_000):
            pointer, ret = acl.rt.malloc(1 << 20, 0)
            if ret:
                print(ret, "EL0004" in acl.get_recent_err_msg())
                break
    """
    done = child(script, CANN_EMULATOR_HBM_MB="64", CANN_EMULATOR_LEAKS="off")
    assert done.stdout == "207001 True\n", done.stderr

    artifact = grid((2,), (8,), tmp_path)
    free = set()
    for _ in range(20):
        open_session(tmp_path, artifact, batch=2).close()
        acl.rt.set_device(0)
        free.add(acl.rt.get_mem_info(1)[0])
        acl.rt.reset_device(0)
    assert len(free) == 1


def test_row_22_a_dataset_destroyed_while_it_is_used(raw: Raw) -> None:
    model_id, desc = raw.load(static_model(2, 8))
    inputs = raw.inputs(texts(2, 8))
    outputs, _ = raw.outputs(desc)
    assert raw.acl.mdl.execute_async(model_id, inputs, outputs, raw.stream) == 0

    buffer = raw.acl.mdl.get_dataset_buffer(inputs, 0)
    with pytest.raises(NotEstablished, match=r"pending|queued|unfinished|still"):
        raw.acl.rt.free(raw.acl.get_data_buffer_addr(buffer))
    raw.acl.rt.synchronize_stream(raw.stream)


def test_row_23_synchronize_stream_without_its_stream(raw: Raw) -> None:
    with pytest.raises(TypeError):
        raw.acl.rt.synchronize_stream()
    assert raw.acl.rt.synchronize_stream(0) == 0


def test_row_24_the_result_copied_before_it_is_there(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    model_id, desc = raw.load(static_model(2, 8))
    feeds = texts(2, 8)
    outputs, pointers = raw.outputs(desc)
    assert raw.acl.mdl.execute_async(model_id, raw.inputs(feeds), outputs, raw.stream) == 0

    logits = np.empty((2, 3), np.float32)
    try:
        ret = raw.acl.rt.memcpy(address(logits), logits.nbytes, pointers[0], logits.nbytes, D2H)
    except NotEstablished:
        ret = -1  # strict mode says so at once
    assert ret != 0 or not np.array_equal(logits, expected(feeds)["logits"])
    raw.acl.rt.synchronize_stream(raw.stream)
    assert np.array_equal(raw.download(pointers[0], logits), expected(feeds)["logits"])
    assert_right(session, feeds)


# --- threads and processes -----------------------------------------------------------------------------------------


def in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_row_25_a_worker_thread_without_context(raw: Raw, session: AscendSession) -> None:
    assert in_thread(lambda: raw.acl.rt.malloc(64, 0)[1]) == 107002

    assert np.array_equal(in_thread(lambda: session.run(texts(2, 8)))["logits"], expected(texts(2, 8))["logits"])


def test_row_26_a_device_set_before_fork() -> None:
    """The session's own refusal: test_acl_process."""
    script = """
        import os
        acl.init(); acl.rt.set_device(0)
        if os.fork() == 0:
            code = acl.rt.malloc(64, 0)[1]
            print("child:", code, flush=True)
            os._exit(0)
        os.wait()
        acl.rt.reset_device(0); acl.finalize()
    """

    done = child(script)

    assert re.fullmatch(r"child: [1-9]\d+\n", done.stdout), done.stderr


def test_row_27_one_model_in_two_threads_without_a_lock(raw: Raw, session: AscendSession) -> None:
    """Both refresh the shared inputs, then both execute: the first gets the second's answer."""
    raw.acl.rt.set_context(raw.context)
    model_id, desc = raw.load(static_model(2, 8))
    mine, theirs = texts(2, 8, seed=1), texts(2, 8, seed=2)
    pointers = [raw.upload(mine[name]) for name in ("ids", "mask")]
    inputs = raw.dataset([(pointer, mine["ids"].nbytes) for pointer in pointers])
    outputs, results = raw.outputs(desc)
    for pointer, name in zip(pointers, ("ids", "mask"), strict=True):
        raw.acl.rt.memcpy(pointer, 128, address(theirs[name]), theirs[name].nbytes, H2D)

    assert raw.acl.mdl.execute(model_id, inputs, outputs) == 0

    logits = raw.download(results[0], np.empty((2, 3), np.float32))
    assert np.array_equal(logits, expected(theirs)["logits"])
    assert not np.array_equal(logits, expected(mine)["logits"])
    wrong: list[int] = []
    threads = [
        threading.Thread(target=lambda s=seed: [check_seed(session, s, wrong) for _ in range(10)]) for seed in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def check_seed(session: AscendSession, seed: int, wrong: list[int]) -> None:
    feeds = texts(2, 8, seed)
    if not np.array_equal(session.run(feeds)["logits"], expected(feeds)["logits"]):
        wrong.append(seed)


def test_row_28_codes_ignored(raw: Raw) -> None:
    model_id, desc = raw.load(static_model(2, 8))
    first, second = texts(2, 8, seed=1), texts(2, 8, seed=2)
    inputs = raw.inputs(first)
    outputs, pointers = raw.outputs(desc)
    buffer = raw.acl.get_data_buffer_addr(raw.acl.mdl.get_dataset_buffer(inputs, 0))

    raw.acl.rt.memcpy(buffer, 16, address(second["ids"]), second["ids"].nbytes, H2D)  # refused, and nobody looks
    raw.acl.mdl.execute(model_id, inputs, outputs)

    logits = raw.download(pointers[0], np.empty((2, 3), np.float32))
    assert np.array_equal(logits, expected(first)["logits"]), "the answer to another question"
    with pytest.raises(
        MeasureError, match=r"acl\.rt\.memcpy failed with 107000 \(PARAM_INVALID\).*CANN says: .*EE1003"
    ):
        acl_calls.do("rt.memcpy", buffer, 16, address(second["ids"]), second["ids"].nbytes, H2D)


# --- measuring -----------------------------------------------------------------------------------------------------


def test_row_29_events_around_the_synchronous_call(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    feeds = texts(2, 8)
    times, pause_ms = {}, 2
    for call in ("execute", "execute_async"):
        model_id, desc = raw.load(static_model(2, 8))
        inputs, (outputs, _) = raw.inputs(feeds), raw.outputs(desc)
        events = [raw.acl.rt.create_event_with_flag(8)[0] for _ in range(2)]
        raw.acl.rt.record_event(events[0], raw.stream)
        if call == "execute":
            assert raw.acl.mdl.execute(model_id, inputs, outputs) == 0
            time.sleep(pause_ms / 1000)  # the events' own stream is idle: the program's time lies between them
        else:
            assert raw.acl.mdl.execute_async(model_id, inputs, outputs, raw.stream) == 0
        raw.acl.rt.record_event(events[1], raw.stream)
        raw.acl.rt.synchronize_stream(raw.stream)
        times[call], ret = raw.acl.rt.event_elapsed_time(*events)
        assert ret == 0

    assert times["execute"] > pause_ms > 10 * times["execute_async"]
    session.run(feeds)
    assert session.times().execute_ms == pytest.approx(times["execute_async"], rel=0.2)


def test_row_30_both_calls_on_one_load(raw: Raw) -> None:
    model_id, desc = raw.load(static_model(2, 8))
    inputs, (outputs, _) = raw.inputs(texts(2, 8)), raw.outputs(desc)
    assert raw.acl.mdl.execute(model_id, inputs, outputs) == 0

    assert raw.acl.mdl.execute_async(model_id, inputs, outputs, raw.stream) == 500002
    assert "mdl.execute" not in names_called("do") | names_called("checked")
    assert "mdl.execute_async" in names_called("checked")


def test_rows_31_and_36_procedure() -> None:
    """No call of pyACL is involved: `measure` warms up and keeps percentiles of many calls (row 31), and accuracy is
    the task's own metric, the cosine only a gate before it (row 36)."""
    protocol = TimingProtocol()

    assert protocol.minimum_warmup >= 10
    assert protocol.calls >= 100
    assert primary_metric("classification") == "accuracy"


def test_row_32_copies_inside_the_time(session: AscendSession) -> None:
    session.run(texts(2, 8))
    times = session.times()

    assert min(times.host_to_device_ms, times.execute_ms, times.device_to_host_ms) > 0
    assert times.total_ms == pytest.approx(times.host_to_device_ms + times.execute_ms + times.device_to_host_ms)


# --- shapes --------------------------------------------------------------------------------------------------------


def test_row_33_gears_without_their_input_their_size_or_their_cut(raw: Raw, tmp_path: Path) -> None:
    model = gear_model([(1, 8), (4, 8)], kind="dynamic_batch_size")
    model_id, desc = raw.load(model)
    feeds = texts(4, 8)
    outputs, pointers = raw.outputs(desc)
    assert raw.acl.mdl.execute(model_id, raw.inputs(feeds), outputs) == 500002, "the extra input is missing"
    index, _ = raw.acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    size = raw.acl.mdl.get_input_size_by_index(desc, index)
    arrays = [(raw.upload(feeds[name]), feeds[name].nbytes) for name in ("ids", "mask")]
    inputs = raw.dataset([*arrays, (raw.device(size), size)])
    try:
        ret = raw.acl.mdl.execute(model_id, inputs, outputs)
    except NotEstablished:
        ret = -1
    assert ret != 0, "no gear was set"
    assert raw.acl.mdl.set_dynamic_batch_size(model_id, inputs, index, 1) == 0
    assert raw.acl.mdl.execute(model_id, inputs, outputs) == 0
    rows = raw.download(pointers[0], np.empty((4, 3), np.float32))
    assert np.array_equal(rows[0], expected(feeds)["logits"][0])
    assert not np.array_equal(rows, expected(feeds)["logits"]), "rows beyond the gear are garbage"

    folder = tmp_path / "gears"
    folder.mkdir()
    session = open_session(folder, artifact_of({(None, None): model}, folder), batch=4)
    for batch in (4, 1, 3):
        assert_right(session, texts(batch, 8))
    session.close()


def test_row_34_a_short_batch_for_a_static_one(raw: Raw, tmp_path: Path) -> None:
    model_id, desc = raw.load(static_model(4, 16))
    outputs, pointers = raw.outputs(desc)
    full, short = texts(4, 16, seed=1), texts(2, 16, seed=2)
    assert raw.acl.mdl.execute(model_id, raw.inputs(short), outputs) == 500002
    inputs = raw.inputs(full)
    for i, name in enumerate(("ids", "mask")):
        pointer = raw.acl.get_data_buffer_addr(raw.acl.mdl.get_dataset_buffer(inputs, i))
        raw.acl.rt.memcpy(pointer, full[name].nbytes, address(short[name]), short[name].nbytes, H2D)
    assert raw.acl.mdl.execute(model_id, inputs, outputs) == 0
    rows = raw.download(pointers[0], np.empty((4, 3), np.float32))
    assert np.array_equal(rows[2:], expected(full)["logits"][2:]), "stale rows of the batch before"

    session = open_session(tmp_path, grid((4,), (16,), tmp_path), batch=4)
    assert_right(session, short)
    session.close()


def test_row_35_a_model_id_tested_for_truth(raw: Raw) -> None:
    model_id, _ = raw.load(static_model(2, 8))

    assert model_id >= 1, "so that it happens to work"
    tests = [
        ast.unparse(node.test)
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.IfExp | ast.While)
    ]
    assert not any(re.fullmatch(r"(not )?(self\.)?model_id", test) for test in tests)


# --- machine -------------------------------------------------------------------------------------------------------


def test_row_37_a_physical_device_number(tmp_path: Path) -> None:
    (tmp_path / "om").mkdir()
    artifact = grid((2,), (8,), tmp_path / "om")
    script = f"""
        from pathlib import Path
        acl.init()
        print(acl.rt.get_device_count(), acl.rt.set_device(2), acl.rt.set_device(0), acl.rt.reset_device(0))
        acl.finalize()
        from tests.targets.ascend.offline_files import grid
        from workbench.targets.ascend.acl.session import open_session
        folder = Path({str(tmp_path)!r}, "again"); folder.mkdir()
        artifact = grid((2,), (8,), folder)
        try:
            open_session(folder, artifact, batch=2, device_id=2)
        except Exception as error:
            print(type(error).__name__, error)
        open_session(folder, artifact, batch=2).close()
    """

    done = child(script, CANN_EMULATOR_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="2")

    first, second = done.stdout.splitlines()
    assert first == "(1, 0) 107001 0 0", done.stderr
    assert re.search(
        r"ToolchainError device 2 cannot be used: .*107001 \(INVALID_DEVICEID\).*ASCEND_RT_VISIBLE_DEVICES", second
    )
    assert artifact.files


def test_row_38_a_chip_name_written_down(raw: Raw, tmp_path: Path) -> None:
    assert raw.acl.get_soc_name() == "Ascend910B3"

    with pytest.raises(MeasureError, match=r"This device is Ascend910B3; the files were compiled for Ascend910B4"):
        open_session(tmp_path, artifact_of({(2, 8): static_model(2, 8)}, tmp_path, device="Ascend910B4"), batch=2)


def test_row_39_unloaded_in_another_context(raw: Raw, session: AscendSession) -> None:
    raw.acl.rt.set_context(raw.context)
    model_id, _ = raw.load(static_model(2, 8))
    other, _ = raw.acl.rt.create_context(0)
    try:
        ret = raw.acl.mdl.unload(model_id)
    except NotEstablished:
        ret = -1
    assert ret != 0
    raw.acl.rt.set_context(raw.context)
    assert raw.acl.mdl.unload(model_id) == 0
    raw.acl.rt.set_context(other)

    assert_right(session)
    raw.acl.rt.set_context(other)
    session.close()  # sets its own context first; the fixture finds nothing left


def test_row_40_success_read_from_words(raw: Raw) -> None:
    """Texts explain a failure; what failed is told by codes: only the checked calls read them, and after the fact."""
    readers = [file.stem for file, tree in sources() if "get_recent_err_msg" in ast.unparse(tree)]

    assert readers == ["calls"]
    raw.acl.rt.malloc(0, 0)
    assert reason(raw.acl), "a text of a failure"
    assert acl_calls.take("rt.malloc", 64, 0), "the next call works, whatever was said before"


def test_every_row_has_its_test() -> None:
    rows = {int(n) for name in globals() for n in re.findall(r"_(\d\d)(?=_)", name) if name.startswith("test_row")}

    assert rows == set(range(1, 41))
