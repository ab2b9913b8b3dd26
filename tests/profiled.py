"""A profile as a target gives it, for tests of what is said."""

from workbench.values.device_profile import (
    Bubble,
    DeviceProfile,
    OperatorTime,
    StreamUse,
)


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
                cause="host copy",
                within={"host copy": 30.0, "scheduling": 10.0},
                tasks=("MEMCPY_ASYNC",),
            ),
        ),
        causes={"host copy": 30.0, "scheduling": 10.0},
        notes=("a table ends within a row",),
        sources=("op_summary_1.csv",),
    )
