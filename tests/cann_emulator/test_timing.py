"""The time model: sensible in every direction, and by kinds of kernels."""

import csv
import functools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cann_emulator.atc.compiling import built, mlp
from workbench.cann_emulator.fit import Row, fit, main, read_op_summary
from workbench.cann_emulator.om import Dtype, Gear, Kernel, OfflineModel, Tensor, write_om
from workbench.cann_emulator.timing import copy_us, execute_us, execution_costs, kernel_times, stream_us
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import load_device_data, timing_model, with_parameters
from workbench.values.modelled_times.figures import at_errors

B3 = load_device_data("Ascend910B3")
BASE = functools.cache(lambda: built(mlp(8, 8)))
SIZES = st.integers(1, 3000)
WHOLE = st.integers(1, 96).map(lambda blocks: 32 * blocks)
"""Sides whose rows are whole blocks of memory: others are loaded in pieces, and a larger one may be quicker."""


def tensor(name: str, *shape: int, dtype: Dtype = "float16") -> Tensor:
    return Tensor(name=name, dtype=dtype, shape=shape)


def matmul(batch: int, m: int, k: int, n: int, dtype: Dtype = "float16", out: Dtype = "float16", **more: str) -> Kernel:
    return Kernel(
        name="matmul0",
        op_type="MatMulV2",
        core="cube",
        nodes=("matmul0",),
        dtype=dtype,
        inputs=(tensor("x", batch, m, k, dtype=dtype), tensor("w0", k, n, dtype=dtype)),
        outputs=(tensor("y", batch, m, n, dtype=out),),
        macs=batch * m * k * n,
        cube=((batch, m, k, n),),
        **more,
    )


def elementwise(*shape: int, name: str = "add0", dtype: Dtype = "float16") -> Kernel:
    return Kernel(
        name=name,
        op_type="Add",
        core="vector",
        nodes=(name,),
        dtype=dtype,
        inputs=(tensor("x", *shape, dtype=dtype),),
        outputs=(tensor(f"{name}_y", *shape, dtype=dtype),),
    )


def model(*kernels: Kernel, **changes: object) -> OfflineModel:
    gears = (Gear(dims=(), outputs=(), kernels=kernels),)
    return replace(BASE(), gears=gears, **{"options": {}, **changes})


def time_us(*kernels: Kernel, **changes: object) -> float:
    return stream_us(model(*kernels, **changes), 0, B3)


@settings(deadline=None)
@given(batch=st.integers(1, 64), m=WHOLE, k=WHOLE, n=WHOLE, axis=st.integers(0, 3), more=WHOLE)
def test_more_work_is_never_quicker_and_int8_half_of_it(
    batch: int, m: int, k: int, n: int, axis: int, more: int
) -> None:
    """Half of the cube alone: a whole kernel gains more than 2 where INT8 fits into L2 and halves do not."""
    assert 0 < time_us(elementwise(m, n)) <= time_us(elementwise(m + more, n))
    assert time_us(elementwise(m, n)) <= time_us(elementwise(m, n, dtype="float32"))
    sizes = [batch, m, k, n]
    larger = [size + more * (index == axis) for index, size in enumerate(sizes)]

    assert 0 < time_us(matmul(*sizes)) <= time_us(matmul(*larger))
    quick, half, single = (
        kernel_times(model(matmul(*sizes, dtype)), 0, B3)[0].compute_us for dtype in ("int8", "float16", "float32")
    )
    assert half / 2 <= quick * (1 + 1e-9)
    assert quick <= half <= single


def test_a_fused_kernel_saves_the_launch_and_the_traffic() -> None:
    """MatMul and its bias, in one kernel and in two."""
    two = (matmul(1, 512, 512, 512), elementwise(512, 512))
    one = replace(two[0], nodes=("matmul0", "add0"), core="mix")

    saved = time_us(*two) - time_us(one)

    assert saved >= B3.kernel_launch_us
    assert saved == pytest.approx(kernel_times(model(two[1]), 0, B3)[0].duration_us, rel=0.01)


# --- what the model states of itself: at its own prices a costed execution takes what the model says ---

CLOCK = timing_model(B3, "a test")


@settings(deadline=None)
@given(
    batch=st.integers(1, 32),
    m=SIZES,
    k=SIZES,
    n=SIZES,
    dtype=st.sampled_from(["float16", "bfloat16", "int8", "float32"]),
    kind=st.sampled_from(["", "dynamic_batch_size"]),
    cores=st.sampled_from(["", "10|20"]),
)
def test_stated_costs_are_the_models_time(
    batch: int, m: int, k: int, n: int, dtype: Dtype, kind: str, cores: str
) -> None:
    kernels = matmul(batch, m, k, n, dtype=dtype), elementwise(batch, m, n), elementwise(batch, m, n, name="add1")
    cpu = replace(elementwise(batch, m, name="scalar"), core="aicpu", op_type="NonZero")
    found = model(*kernels, cpu, gear_kind=kind, options={"aicore_num": cores} if cores else {})

    costs = execution_costs(found, 0, B3, copied_in=(4096,), copied_out=(10**7,))
    copies_us = copy_us(4096, "host_to_device", B3) + copy_us(10**7, "device_to_host", B3)
    own_us = execute_us(found, 0, B3) + copies_us
    assert 1000 * at_errors(CLOCK).call_ms([costs])[0, 0] == pytest.approx(own_us, rel=1e-5)


# --- refitting the time model to an op_summary of msprof ---

TRUTH = {"cube_efficiency_float16": 0.31, "cube_efficiency_int8": 0.22}


def profiled() -> OfflineModel:
    """Products of several sizes in float16 and INT8, and kernels that only move memory."""
    kernels = []
    for index, size in enumerate((16, 128, 512, 1024, 2048)):
        for dtype in ("float16", "int8"):
            kernels.append(replace(matmul(1, size, 512, 2048, dtype), name=f"mm_{dtype}_{index}"))
        kernels.append(elementwise(size * 4, 2048, name=f"add_{index}"))
    return model(*kernels)


def write_summary(path: Path, om: OfflineModel) -> Path:
    truth = with_parameters(B3, {**TRUTH, "kernel_launch_us": 1.5})
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Op Name", "OP Type", "Task Duration(us)", "Task Wait Time(us)"])
        for noise in (1.0, 1.04, 0.97):
            for time in kernel_times(om, 0, truth):
                writer.writerow([time.kernel.name, time.kernel.op_type, f"{time.duration_us * noise:.4f}", 0.75])
        writer.writerow(["N/A", "EVENT_RECORD", "N/A", "N/A"])
    return path


def test_the_command_finds_the_parameters_of_a_device_again_and_the_emulator_takes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    om, target = profiled(), tmp_path / "fitted.yaml"
    summary = write_summary(tmp_path / "op_summary_0.csv", om)
    (tmp_path / "model.om").write_bytes(write_om(om))

    assert main([str(summary), "--om", str(tmp_path / "model.om"), "--to", str(target)]) == 0
    first = target.read_bytes()
    assert main([str(summary), "--om", str(tmp_path / "model.om"), "--to", str(target)]) == 0

    assert target.read_bytes() == first
    assert "15 of 15 kernels matched\nmedian error of a kernel: " in capsys.readouterr().out
    monkeypatch.setenv("CANN_EMULATOR_DEVICE_DATA", str(target))
    fitted = load_device_data("Ascend910B3")
    for name, value in TRUTH.items():
        assert getattr(fitted, name) == pytest.approx(value, rel=0.03), name
        assert fitted.origins[name].startswith("measured: op_summary_0.csv")
    assert fitted.kernel_launch_us == pytest.approx(1.5 + 0.75, rel=0.05)
    assert stream_us(om, 0, fitted) > stream_us(om, 0, B3)


def test_a_summary_or_model_that_lacks_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "op_summary.csv"
    for text, message in (
        ("", "no column 'Op Name'"),
        ("Op Name,OP Type\na,b\n", "no column 'Task Duration"),
        ("Op Name,OP Type,Task Duration(us)\na,b,N/A\n", "no operator with a duration"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_op_summary(file)
    with pytest.raises(ConfigError, match="only 0 of the model's 15 kernels"):
        fit({"conv": Row(op_type="Conv2D", duration_us=5)}, profiled())
    (tmp_path / "bad.om").write_bytes(b"x" * 100)
    assert main([str(file), "--om", str(tmp_path / "bad.om"), "--to", str(tmp_path / "out.yaml")]) == 1
    assert "bad.om: the file does not begin with the emulator's mark" in capsys.readouterr().err
    assert not (tmp_path / "out.yaml").exists()
