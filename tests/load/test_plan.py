import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.load import LoadPlan, arrival_times, is_loopback
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad

CLOSED = ServiceLoad(concurrency=4)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_this_machine_may_be_loaded(host: str) -> None:
    assert LoadPlan(url=f"http://{host}:8000", load=CLOSED).address == (host.strip("[]"), 8000)


@pytest.mark.parametrize("host", ["example.org", "10.0.0.7", "127.0.0.1.example.org", "0.0.0.0", "[fe80::1]"])
def test_another_host_must_be_spelled_out(host: str) -> None:
    bare = host.strip("[]")
    with pytest.raises(ConfigError, match=r"is not this machine.*--host-allowed"):
        LoadPlan(url=f"http://{host}:8000", load=CLOSED)
    assert not is_loopback(bare)
    assert LoadPlan(url=f"http://{host}:8000", load=CLOSED, allowed_hosts=(bare,)).address[0] == bare


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1",
        "127.0.0.1:8000",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/predict",
        "http://u:p@127.0.0.1",
    ],
)
def test_what_is_no_address_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        LoadPlan(url=url, load=CLOSED)


@pytest.mark.parametrize(
    "changed",
    [
        {"duration_s": 0.0},
        {"duration_s": 1e9},
        {"max_requests": 0},
        {"connections": 2001},
        {"connections": 3},
        {"timeout_s": 0.0},
        {"path": "/a b"},
        {"path": "/a\r\nX: y"},
        {"path": "predict"},
    ],
    ids=str,
)
def test_bounds_are_kept(changed: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        LoadPlan(url="http://127.0.0.1", load=CLOSED, **changed)  # type: ignore[arg-type]  # a field with a bad value


def test_more_clients_than_connections_are_refused() -> None:
    with pytest.raises(ConfigError, match="2001 connections"):
        LoadPlan(url="http://127.0.0.1", load=ServiceLoad(concurrency=2001))


def test_a_plan_survives_its_journey_to_the_clients() -> None:
    for load in (
        CLOSED,
        ServiceLoad(arrivals="trace", trace_s=(0.0, 0.5)),
        ServiceLoad(arrivals="poisson", rate_per_s=9),
    ):
        plan = LoadPlan(url="http://localhost:81", load=load, allowed_hosts=("a",))
        assert decode(LoadPlan, encode(plan)) == plan


@settings(deadline=None, max_examples=30)
@given(rate=st.floats(1, 5000), seconds=st.floats(0.5, 5), seed=st.integers(0, 2**31))
def test_poisson_arrivals_ascend_within_the_time_at_their_rate(rate: float, seconds: float, seed: int) -> None:
    times = arrival_times(ServiceLoad(arrivals="poisson", rate_per_s=rate), seconds, seed)

    assert (np.diff(times) >= 0).all()
    assert len(times) == 0 or (times[0] >= 0 and times[-1] < seconds)
    expected = rate * seconds
    assert abs(len(times) - expected) < 6 * expected**0.5 + 6
    assert np.array_equal(times, arrival_times(ServiceLoad(arrivals="poisson", rate_per_s=rate), seconds, seed))


def test_a_rate_beyond_every_bound_draws_no_more_arrivals_than_may_be_sent() -> None:
    load = ServiceLoad(arrivals="poisson", rate_per_s=1e12)

    times = arrival_times(load, 3600.0, 0, most=1000)

    assert len(times) == 1000
    assert np.array_equal(times[:10], arrival_times(load, 3600.0, 0, most=10))


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    gaps = np.diff(arrival_times(ServiceLoad(arrivals="poisson", rate_per_s=1000), 50.0, 1))

    assert gaps.mean() == pytest.approx(0.001, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert abs(float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])) < 0.03
