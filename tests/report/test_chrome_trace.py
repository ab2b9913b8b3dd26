"""The trace against the rules of the Trace Event Format, JSON object form."""

import json

import pytest

from tests.profiled import profile, rules
from workbench.report.profile import chrome_trace


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
