"""What the time model states of itself: at its own prices a costed execution takes what the model says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cann_emulator.test_timing import elementwise, matmul, model
from workbench.cann_emulator.cost_statement import clock_statement, execution_costs
from workbench.cann_emulator.device_data import load_device_data, with_parameters
from workbench.cann_emulator.om import Dtype, OfflineModel
from workbench.cann_emulator.timing import copy_us, execute_us
from workbench.values.clocks.ensemble import ensemble
from workbench.values.clocks.statement import with_known

B3 = load_device_data("Ascend910B3")
CLOCK = clock_statement(B3, "a test")
SIZES = st.integers(1, 3000)


def stated_us(found: OfflineModel, copied_in: tuple[int, ...] = (), copied_out: tuple[int, ...] = ()) -> float:
    costs = execution_costs(found, 0, B3, copied_in=copied_in, copied_out=copied_out)
    return float(1000 * ensemble(CLOCK).call_ms([costs])[0, 0])


@settings(deadline=None)
@given(
    batch=st.integers(1, 32),
    m=SIZES,
    k=SIZES,
    n=SIZES,
    dtype=st.sampled_from(["float16", "bfloat16", "int8", "float32"]),
    kind=st.sampled_from(["", "range", "dynamic_batch_size"]),
    cores=st.sampled_from(["", "10|20"]),
)
def test_the_stated_costs_come_to_the_models_own_time(
    batch: int, m: int, k: int, n: int, dtype: Dtype, kind: str, cores: str
) -> None:
    kernels = matmul(batch, m, k, n, dtype=dtype), elementwise(batch, m, n), elementwise(batch, m, n, name="add1")
    cpu = replace(elementwise(batch, m, name="scalar"), core="aicpu", op_type="NonZero")
    found = model(*kernels, cpu, gear_kind=kind, options={"aicore_num": cores} if cores else {})

    assert stated_us(found) == pytest.approx(execute_us(found, 0, B3), rel=1e-5)


def test_copies_are_in_front_of_it_and_behind_it() -> None:
    found = model(elementwise(8, 8))
    copies = copy_us(4096, "host_to_device", B3) + copy_us(10**7, "device_to_host", B3)

    assert stated_us(found, (4096,), (10**7,)) == pytest.approx(execute_us(found, 0, B3) + copies, rel=1e-5)


def test_another_parameter_of_the_model_is_another_price_of_the_same_costs() -> None:
    """So a refit, or a measurement, needs nothing compiled again."""
    found = model(matmul(1, 2048, 512, 2048, dtype="int8"), elementwise(2048, 2048))
    other = with_parameters(B3, {"cube_efficiency_int8": B3.cube_efficiency_int8 / 1.7, "kernel_launch_us": 7.0})
    costs = execution_costs(found, 0, B3, copied_in=(), copied_out=())

    known = with_known(CLOCK, {"int8_gain": 2.0 / 1.7, "kernel_launch": 7.0})

    assert 1000 * ensemble(known).call_ms([costs])[0, 0] == pytest.approx(execute_us(found, 0, other), rel=1e-5)


def test_cuts_that_another_beats_in_both_are_not_stated() -> None:
    costs = execution_costs(model(matmul(1, 2048, 512, 2048)), 0, B3, copied_in=(), copied_out=())
    cuts = next(product.cuts for work in costs.works for product in work.products)

    adds, loads = np.array(cuts).T
    assert (np.diff(adds) > 0).all()
    assert (np.diff(loads) < 0).all()


def test_what_a_refit_measured_is_hardly_open_any_more_and_its_data_sheet_has_no_say() -> None:
    refitted = replace(B3, origins={**B3.origins, "cube_efficiency_float16": "measured: a test"})

    stated = {unknown.name: unknown for unknown in clock_statement(refitted, "a test").unknowns}

    assert (stated["matrix_float16"].factor_95, stated["matrix_float16"].data_sheet) == (1.1, 1.0)
    assert stated["int8_gain"].factor_95 == B3.unknowns[1].factor_95


def test_what_costs_nothing_is_not_open() -> None:
    free = with_parameters(B3, {"gear_us": 0.0})

    assert "gear" not in {unknown.name for unknown in clock_statement(free, "a test").unknowns}


def test_every_open_point_says_why_and_how_it_is_settled() -> None:
    assert {unknown.name for unknown in CLOCK.unknowns} == {point.name for point in B3.unknowns}
    for unknown in CLOCK.unknowns:
        assert "[inferred]" in unknown.source
        assert f"microbenchmarks {unknown.name} " in unknown.settled_by


def test_the_data_sheets_centre_is_its_peak_times_an_efficiency() -> None:
    points = {point.name: point.data_sheet for point in B3.unknowns}
    peak = B3.data_sheet

    assert points["matrix_float16"] == pytest.approx(0.6 * peak["cube_float16_tflops"], rel=0.01)
    assert points["int8_gain"] == pytest.approx(0.75 * peak["cube_int8_tops"] / peak["cube_float16_tflops"])
    assert points["far_memory"] == pytest.approx(0.8 * peak["hbm_tb_per_s"])
