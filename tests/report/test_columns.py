"""Numbers stay on one line where they can, whatever the metric is called."""

import pytest

from workbench.report.table import laid_out

LEAST = (13, 9, 21, 8, 8, 8, 19, 8, 7, 7)
NUMBERS = [
    "held-out",
    "0.9831",
    "+1.69 [+0.12, +3.10]",
    "0.07",
    "0.08",
    "0.11",
    "1.35x [1.31, 1.39]",
    "14286",
    "2.2",
    "45",
]


@pytest.mark.parametrize("metric", ["accuracy", "exact_match", "decision_agreement", "cer"])
@pytest.mark.parametrize(("width", "lines"), [(80, 2), (100, 1), (112, 1)])
def test_a_long_name_of_a_metric_takes_two_lines_and_sends_no_column_below(metric: str, width: int, lines: int) -> None:
    heads = ["", metric, "drop pp", "P50 ms", "P95", "P99", "speed-up", "per s", "MB", "mem MB"]
    head, row = laid_out([heads, NUMBERS], LEAST, width)
    assert len(row) == lines
    assert max(map(len, [*head, *row])) <= width
    assert "".join(head[:-1] if lines == 2 else head).replace(" ", "").startswith(metric.split("_")[0])
    assert [line.split()[-1] for line in row][-1] == "45"
    assert head[-1].endswith("MB mem MB"), "the last heads stand beside each other"
