"""A profile as a target gives it, for tests of what is said and drawn."""

from typing import Any

from workbench.values.device_profile import (
    Bubble,
    DeviceProfile,
    OperatorTime,
    ProfiledTask,
    StreamUse,
    TaskKind,
)


def task(name: str, kind: TaskKind, start_us: float, duration_us: float, **changes: object) -> ProfiledTask:
    given = {"op_type": name, "device": "0", "stream": "3", "execution": 1, **changes}
    return ProfiledTask(name=name, kind=kind, start_us=start_us, duration_us=duration_us, **given)  # type: ignore[arg-type]  # one helper for every field


def profile(*, modelled: bool = True) -> DeviceProfile:
    """Two operators with a copy between them, on one stream; names that a page must not take for its own."""
    return DeviceProfile(
        chip="Ascend910B3",
        modelled=modelled,
        executions=1,
        span_us=100.0,
        operators_us=60.0,
        computing_us=60.0,
        idle_us=40.0,
        edges_us=0.0,
        short_gaps_us=0.0,
        operators=(OperatorTime(op_type="MatMulV2", core="AI_CORE", calls=2, total_us=60.0, share=1.0, int8=True),),
        conversion_share=0.0,
        quantization_share=0.0,
        product_share=1.0,
        int8_share=0.5,
        streams=(StreamUse(device="0", stream="3", tasks=3, span_us=100.0, busy_us=80.0, computing_us=60.0),),
        bubbles=(
            Bubble(
                device="0",
                before="mm</script><b>",
                after="nn",
                times=1,
                total_us=40.0,
                median_us=40.0,
                longest_us=40.0,
                longest_start_us=30.0,
                cause="host copy",
                within={"host copy": 30.0, "scheduling": 10.0},
                tasks=("MEMCPY_ASYNC",),
            ),
        ),
        causes={"host copy": 30.0, "scheduling": 10.0},
        tasks=(
            task("mm</script><b>", "cube", 0.0, 30.0, int8=True),
            task("MEMCPY_ASYNC", "copy", 35.0, 30.0, execution=None),
            task("nn", "cube", 70.0, 30.0, int8=False),
        ),
        tasks_left_out=7,
        notes=("a table ends within a row",),
        sources=("op_summary_1.csv",),
    )


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
