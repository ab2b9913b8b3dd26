"""How long a service goes on without a worker; that it does, `test_lifecycle` shows with real ones."""

from hypothesis import given
from hypothesis import strategies as st

from workbench.serve.pool import Outage, longest_start_s


def test_pauses_between_starts_grow_to_ten_seconds_and_no_further_however_long_it_goes_on() -> None:
    pauses = [Outage(60).pause_s(failed, 1e6) for failed in (*range(12), 100_000)]

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 10.0), "while another worker answers there is no limit"


@given(limit_s=st.floats(0.01, 1e4), began_s=st.floats(0, 1e7), start_s=st.floats(0, 30))
def test_an_outage_ends_at_its_limit_or_with_the_start_that_was_under_way_then(
    limit_s: float, began_s: float, start_s: float
) -> None:
    """Every start takes `start_s` and fails; the service gives up at a failure, never before the limit."""
    outage, now_s, failed = Outage(limit_s), began_s, 0
    outage.begin(now_s)
    while True:
        now_s += outage.pause_s(failed, now_s) + start_s
        failed += 1
        if outage.is_over_limit(now_s):
            break

    assert limit_s <= outage.lasts_s(now_s) <= limit_s + start_s + 0.1


def test_a_start_may_take_three_times_what_is_known_of_this_bundle() -> None:
    for slowest_s, limit_s, most_s in ((None, 60, 600), (5, 60, 60), (90, 60, 270), (None, 900, 900)):
        assert longest_start_s(slowest_s, first_s=600, limit_s=limit_s) == most_s
