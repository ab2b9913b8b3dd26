import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.load import LoadPlan, arrival_times
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad

CLOSED = ServiceLoad(concurrency=4)


def test_this_machine_may_be_loaded() -> None:
    for host in ("localhost", "127.0.0.1", "127.8.9.1", "[::1]"):
        assert LoadPlan(url=f"http://{host}:8000", load=CLOSED).address == (host.strip("[]"), 8000)


def test_another_host_must_be_spelled_out() -> None:
    for host in ("example.org", "10.0.0.7", "127.0.0.1.example.org", "0.0.0.0", "[fe80::1]"):
        bare = host.strip("[]")
        with pytest.raises(ConfigError, match=r"is not this machine.*--host-allowed"):
            LoadPlan(url=f"http://{host}:8000", load=CLOSED)
        assert LoadPlan(url=f"http://{host}:8000", load=CLOSED, allowed_hosts=(bare,)).address[0] == bare


def test_bounds_are_kept_and_what_is_no_address_is_refused() -> None:
    urls = ("https://127.0.0.1", "127.0.0.1:8000", "http://127.0.0.1:99999", "http://127.0.0.1/predict")
    for changed, words in (
        *(({"url": url}, "url") for url in (*urls, "http://u:p@127.0.0.1")),
        ({"duration_s": 0.0}, "duration_s"),
        ({"duration_s": 1e9}, "duration_s"),
        ({"max_requests": 0}, "max_requests"),
        ({"connections": 2001}, "2001 connections"),
        ({"load": ServiceLoad(concurrency=2001)}, "2001 connections"),
        ({"connections": 3}, "4 clients need"),
        ({"timeout_s": 0.0}, "timeout_s"),
        *(({"path": path}, "request line") for path in ("/a b", "/a\r\nX: y", "predict")),
    ):
        with pytest.raises(ConfigError, match=words):
            LoadPlan(**{"url": "http://127.0.0.1", "load": CLOSED, **changed})  # type: ignore[arg-type]  # bad values


@settings(deadline=None, max_examples=30)
@given(rate=st.floats(1, 5000), seconds=st.floats(0.5, 5), seed=st.integers(0, 2**31))
def test_poisson_arrivals_ascend_within_the_time_at_their_rate(rate: float, seconds: float, seed: int) -> None:
    times = arrival_times(ServiceLoad(arrivals="poisson", rate_per_s=rate), seconds, seed)

    assert (np.diff(times) >= 0).all()
    assert len(times) == 0 or (times[0] >= 0 and times[-1] < seconds)
    expected = rate * seconds
    assert abs(len(times) - expected) < 6 * expected**0.5 + 6
    if len(times) > 1000:  # exponential gaps
        assert np.diff(times).std() == pytest.approx(np.diff(times).mean(), rel=0.2)
    assert np.array_equal(times, arrival_times(ServiceLoad(arrivals="poisson", rate_per_s=rate), seconds, seed))


def test_a_rate_beyond_every_bound_draws_no_more_arrivals_than_may_be_sent() -> None:
    load = ServiceLoad(arrivals="poisson", rate_per_s=1e12)

    times = arrival_times(load, 3600.0, 0, most=1000)

    assert len(times) == 1000
    assert np.array_equal(times[:10], arrival_times(load, 3600.0, 0, most=10))
