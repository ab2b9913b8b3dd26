"""The trace against the rules of the Trace Event Format, JSON object form."""

import json
from typing import Any

import pytest

from tests.profiled import profile
from workbench.report.chrome_trace import chrome_trace


def rules(trace: dict[str, Any]) -> None:
    """What the format asks of the events that are written: complete (X) and metadata (M)."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named, used = set(), set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert event["ph"] in ("X", "M")
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert isinstance(event["ts"], int | float)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["cat"], str)
            assert isinstance(event["dur"], int | float)
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            used.add((event["pid"], event["tid"]))
        else:
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            wanted = "name" if event["name"].endswith("_name") else "sort_index"
            assert list(event["args"]) == [wanted]
            assert isinstance(event["args"][wanted], str if wanted == "name" else int)
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
    assert used <= named


def test_the_trace_obeys_the_format() -> None:
    text = json.dumps(chrome_trace(profile(), "bert, 0123"), allow_nan=False)

    rules(json.loads(text))


def test_every_task_is_an_event_of_its_stream_in_microseconds() -> None:
    events = [e for e in chrome_trace(profile(), "bert")["traceEvents"] if e["ph"] == "X"]

    tasks = [event for event in events if event["cat"] != "bubble"]
    assert [(e["name"], e["ts"], e["dur"], e["cat"]) for e in tasks] == [
        (t.name, t.start_us, t.duration_us, t.kind) for t in profile().tasks
    ]
    assert len({(e["pid"], e["tid"]) for e in tasks}) == 1
    (bubble,) = [event for event in events if event["cat"] == "bubble"]
    assert (bubble["name"], bubble["ts"], bubble["dur"]) == ("host copy", 30.0, 40.0)


@pytest.mark.parametrize("modelled", [True, False])
def test_modelled_times_are_marked(modelled: bool) -> None:
    trace = chrome_trace(profile(modelled=modelled), "bert")

    (name,) = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert ("modelled" in name) is modelled
    assert ("modelled" in trace["otherData"]["times"]) is modelled
