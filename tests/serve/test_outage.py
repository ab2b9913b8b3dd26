"""How long a service goes on without a worker; that it does, `test_lifecycle` shows with real ones."""

from hypothesis import given
from hypothesis import strategies as st

from workbench.serve.pool import pause_s


def test_pauses_between_starts_grow_to_ten_seconds_and_no_further_however_long_it_goes_on() -> None:
    pauses = [pause_s(failed, None) for failed in (*range(12), 100_000)]

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 10.0), "while another worker answers there is no limit"


@given(limit_s=st.floats(0.01, 1e4), start_s=st.floats(0, 30))
def test_an_outage_ends_at_its_limit_or_with_the_start_that_was_under_way_then(limit_s: float, start_s: float) -> None:
    """Every start takes `start_s` and fails; the service gives up at a failure, never before the limit."""
    lasts_s, failed = 0.0, 0
    while lasts_s < limit_s:
        lasts_s += pause_s(failed, limit_s - lasts_s) + start_s
        failed += 1

    assert limit_s <= lasts_s <= limit_s + start_s + 0.1
