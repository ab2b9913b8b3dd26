from hypothesis import given
from hypothesis import strategies as st

from workbench.commands.init.manifest import LENGTHS, choose_lengths


@given(
    lengths=st.lists(st.integers(1, 9000), min_size=1, max_size=40),
    longest=st.none() | st.integers(1, 128).map(lambda n: n * 16),
)
def test_bins_hold_every_text_the_model_can_take_and_none_is_empty(lengths: list[int], longest: int | None) -> None:
    max_length, bins = choose_lengths(lengths, longest=longest, fixed=None)
    limit = longest or 512

    assert list(bins) == sorted(set(bins))
    assert bins[-1] == max_length <= limit
    assert all(min(length, limit) <= max_length for length in lengths)
    for lower, upper in zip((0, *bins), bins, strict=False):
        assert any(lower < min(length, limit) <= upper for length in lengths)
        assert upper in LENGTHS or upper == limit
