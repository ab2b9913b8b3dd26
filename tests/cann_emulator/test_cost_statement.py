"""What the time model states of itself: at its own prices a costed execution takes what the model says."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cann_emulator.test_timing import elementwise, matmul, model
from workbench.cann_emulator.om import Dtype, OfflineModel
from workbench.cann_emulator.timing import copy_us, execute_us, execution_costs
from workbench.values.modelled_times.costs import at_errors
from workbench.values.modelled_times.device_data import load_device_data, with_parameters
from workbench.values.modelled_times.device_model import timing_model
from workbench.values.modelled_times.statement import with_known

B3 = load_device_data("Ascend910B3")
CLOCK = timing_model(B3, "a test")
SIZES = st.integers(1, 3000)


def stated_us(found: OfflineModel, copied_in: tuple[int, ...] = (), copied_out: tuple[int, ...] = ()) -> float:
    costs = execution_costs(found, 0, B3, copied_in=copied_in, copied_out=copied_out)
    return float(1000 * at_errors(CLOCK).call_ms([costs])[0, 0])


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


def test_what_a_benchmark_measures_is_another_price_of_the_same_costs() -> None:
    """So a measurement needs nothing compiled again."""
    found = model(matmul(1, 2048, 512, 2048, dtype="int8"), elementwise(2048, 2048))
    costs = execution_costs(found, 0, B3, copied_in=(), copied_out=())
    own = dict(item for work in costs.works for item in work.amounts)
    gain = next(unknown.value for unknown in CLOCK.unknowns if unknown.name == "int8_gain")

    known = with_known(CLOCK, {"int8_gain": gain / 1.7})

    moved_ms = at_errors(known).call_ms([costs])[0, 0]
    assert 1000 * moved_ms == pytest.approx(execute_us(found, 0, B3) + 0.7 * own["matmul_int8"], rel=1e-5)


def test_what_a_refit_measured_is_hardly_open_any_more() -> None:
    refitted = replace(B3, origins={**B3.origins, "cube_efficiency_float16": "measured: a test"})

    stated = {unknown.name: unknown for unknown in timing_model(refitted, "a test").unknowns}

    assert stated["matrix_float16"].factor_95 == 1.1
    assert stated["int8_gain"].factor_95 == B3.errors["int8_gain"].factor_95


def test_what_costs_nothing_is_not_open() -> None:
    free = with_parameters(B3, {"gear_us": 0.0})

    assert "gear" not in {unknown.name for unknown in timing_model(free, "a test").unknowns}


def test_every_error_says_what_it_was_found_on_and_how_it_is_settled() -> None:
    assert {unknown.name for unknown in CLOCK.unknowns} == set(B3.errors)
    for unknown in CLOCK.unknowns:
        assert "left out" in unknown.source or "[inferred]" in unknown.source
        assert f"microbenchmarks {unknown.name} " in unknown.settled_by or "emulator fit" in unknown.settled_by
