"""prices.yaml: read strictly; and what a fleet costs by it, against sums by hand."""

from pathlib import Path

import pytest

from workbench.prediction.prices import HOURS_A_MONTH, Hardware, monthly_cost, read_prices
from workbench.values.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "experiments" / "prices" / "example.yaml"
WRITTEN = """
version: 1
currency: EUR
source: a test
card: {price: 36000, months: 36, maintenance_percent_per_year: 12}
server: {rent_per_month: 500, hosting_per_month: 100, power_w: 1000}
energy: {per_kwh: 0.5, pue: 1.5}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_month_is_written_off_upkeep_rent_and_hosting_and_the_example_says_that_it_is_invented(
    tmp_path: Path,
) -> None:
    example, prices = read_prices(EXAMPLE), read_prices(written(tmp_path, WRITTEN))

    assert example.currency == "CNY"
    assert "invented" in example.source
    assert prices.card.per_month == pytest.approx(36000 / 36 + 36000 * 0.12 / 12)
    assert prices.server.per_month == 600
    assert (Hardware(price=1200.0, months=12).per_month, Hardware().per_month) == (100, 0)


def test_energy_is_cards_and_servers_with_the_building_for_every_hour(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, WRITTEN))
    cost = monthly_cost(prices, cards=16, servers=2, card_power_w=300.0)

    assert cost.kw == pytest.approx((16 * 300 + 2 * 1000) * 1.5 / 1000)
    assert cost.energy == pytest.approx((cost.kw or 0) * HOURS_A_MONTH * 0.5)
    assert cost.total == pytest.approx(16 * prices.card.per_month + 2 * 600 + (cost.energy or 0))
    unknown = monthly_cost(prices, cards=16, servers=2, card_power_w=None)
    assert (unknown.kw, unknown.energy) == (None, None), "power that nobody knows is no zero"
    assert unknown.total == unknown.cards + unknown.servers
    without = monthly_cost(prices, cards=0, servers=2, card_power_w=None)
    assert (without.cards, without.kw) == (0, pytest.approx(3.0))


def test_what_is_wrong_is_named_with_its_key(tmp_path: Path) -> None:
    for old, new, message in (
        ("price: 36000", "price: -1", "-1 is less than 0"),
        ("price: 36000", "price: .nan", "not a finite number"),
        ("price: 36000", "prize: 36000", "prize"),
        (", months: 36", "", "over how long"),
        ("price: 36000, ", "", "no price to spread"),
        ("card: {price: 36000, months: 36, maintenance_percent_per_year: 12}", "card: {}", "costs nothing"),
        ("currency: EUR", "currency: ''", "no currency"),
        ("source: a test", "", "source"),
        ("pue: 1.5", "pue: 0.9", "0.9 is less than 1"),
        ("power_w: 1000", "power_w: much", "expected a number"),
        ("months: 36,", "months: 0,", "0 is less than 1"),
        ("version: 1", "version: 2", "version"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_prices(written(tmp_path, WRITTEN.replace(old, new)))
