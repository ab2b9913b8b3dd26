"""The batching policy, by a clock that the test moves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.serve.batcher import Batcher, Row


def row(key: object, arrived_s: float) -> Row:
    return Row(key=key, item=None, asker=None, arrived_s=arrived_s)


def batcher(size: int = 4, timeout_s: float = 0.010, limit: int = 100) -> Batcher:
    return Batcher(max_batch_size=size, batch_timeout_s=timeout_s, limit=limit)


def test_a_bin_that_is_not_full_waits_for_company_and_then_goes() -> None:
    one = batcher()
    first = row(16, 1.000)
    one.add([first])

    assert one.take(1.009) is None
    assert one.ready_at() == 1.010
    assert one.take(1.010) == [first]
    assert (one.depth, one.ready_at(), one.take(9.0)) == (0, None, None)


def test_among_ready_bins_the_one_whose_oldest_row_is_oldest_is_taken() -> None:
    one = batcher(size=2)
    late, early = [row(32, 1.003), row(32, 1.003)], [row(16, 1.001), row(16, 1.002)]
    oldest_but_not_ready = row(64, 1.0)
    one.add([oldest_but_not_ready, *late, *early])

    assert one.take(1.005) == early
    assert one.take(1.005) == late
    assert one.take(1.005) is None
    assert one.take(1.010) == [oldest_but_not_ready]


def test_bins_never_mix_and_go_when_they_are_full_without_a_timeout_or_drained() -> None:
    for one, draining, batches in (
        (batcher(size=2), False, [[0, 2], None]),
        (batcher(timeout_s=0), False, [[0, 2, 3], [1]]),
        (batcher(timeout_s=10), True, [[0, 2, 3], [1]]),
    ):
        rows = [row(16, 1.0), row(32, 1.001), row(16, 1.002), row(16, 1.003)]
        one.add(rows)
        one.draining = draining
        taken = [one.take(1.004), one.take(1.004)]
        assert [None if found is None else [rows.index(r) for r in found] for found in taken] == batches


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from([16, 32, 64])),
            st.tuples(st.just("take"), st.just(0)),
            st.tuples(st.just("discard"), st.integers(0, 200)),
            st.tuples(st.just("back"), st.just(0)),
        ),
        max_size=120,
    )
)
def test_every_row_leaves_exactly_once_whatever_happens(steps: list[tuple[str, int]]) -> None:
    one, now = batcher(size=3, timeout_s=0.005, limit=20), 0.0
    inside: list[Row] = []
    taken: list[Row] = []
    for step, value in steps:
        now += 0.001
        if step == "add" and len(inside) < 20:
            inside.append(row(value, now))
            one.add([inside[-1]])
        elif step == "take":
            batch = one.take(now)
            if batch is not None:
                assert len(batch) <= 3
                assert len({r.key for r in batch}) == 1
                assert all(r in inside for r in batch)
                inside = [r for r in inside if r not in batch]
                taken = batch
        elif step == "discard" and inside:
            one.discard([inside.pop(value % len(inside))])
        elif step == "back" and taken:
            one.put_back(taken)
            inside += taken
            taken = []
        assert one.depth == len(inside)
        assert all(r.waiting for r in inside)
    while inside:
        now += 1
        batch = one.take(now)
        assert batch
        inside = [r for r in inside if r not in batch]
    assert one.take(now) is None
