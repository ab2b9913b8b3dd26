"""Shares and durations given on the command line: one rule for every command."""

import math

import pytest

from workbench.commands.options import seconds, share
from workbench.values.errors import ConfigError


@pytest.mark.parametrize(("text", "value"), [("20%", 0.2), ("0.2", 0.2), ("0", 0.0), ("1", 1.0), ("120%", 1.2)])
def test_a_share_is_a_percentage_or_a_part_of_one(text: str, value: float) -> None:
    assert math.isclose(share(text, "--headroom"), value)


@pytest.mark.parametrize("text", ["much", "", "%", "30", "1.5", "-10%", "nan", "nan%", "inf%", "-0.1"])
def test_what_may_mean_two_things_or_nothing_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--headroom: .* is no share\. Write 20% or 0\.2\."):
        share(text, "--headroom")


def test_a_duration_that_is_none_names_the_option() -> None:
    assert seconds("30m", "--timeout") == 1800.0
    with pytest.raises(ConfigError, match="--timeout: 'soon' is not a duration"):
        seconds("soon", "--timeout")
