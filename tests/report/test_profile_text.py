"""What is printed of a profile."""

from dataclasses import replace
from pathlib import Path

from tests.profiled import profile
from workbench.report.profile import profile_lines
from workbench.study.profile_tries import Try
from workbench.values.candidate import Candidate
from workbench.values.device_profile import Lever


def test_the_text_says_where_the_time_goes_when_it_idles_and_what_to_try() -> None:
    lever = Lever(finding="40% of the time copies", changes={"serving.batch": 8}, at_most=0.4)
    candidate = Candidate(target="onnxruntime")
    one = Try(
        lever=lever,
        candidate=candidate,
        missing={"serving.batch": 8},
        file=Path("try.json"),
        command="workbench evaluate e",
    )

    lines = profile_lines(profile(), [one])

    assert lines[:4] == [
        "where the time goes (modelled): 0.060 ms of operators in 1 kind, 1 execution",
        "  MatMulV2  100.0%          60.0 us       2 calls  AI_CORE INT8",
        "casts, layouts and transposes 0.0%, quantize and dequantize 0.0%, matrix products 100.0%",
        "of the matrix products' time, 50.0% ran on INT8",
    ]
    assert "the cores compute 60.0% of 0.100 ms; 0.040 ms they have nothing to do" in lines
    assert "  stream 3 of device 0: idle 20.0% of 0.100 ms, 3 tasks" in lines
    assert any("mm</script><b> -> nn: 1 x" in line and "host copy 75%, scheduling 25%" in line for line in lines)
    assert any("66.7 TOPS, 11.3% of the 590 of Ascend910B3 (over 50% of their time)" in line for line in lines)
    assert any("at most 40.0%" in line for line in lines)
    assert any("workbench evaluate e" in line and "not in the space" in line for line in lines)
    assert any("serving.batch: choices [8]" in line for line in lines)
    assert lines[-1] == "note: a table ends within a row"


def test_idle_time_that_is_in_no_line_of_its_own_is_told_too() -> None:
    found = replace(profile(), idle_us=100.0, edges_us=10.0, short_gaps_us=5.0, causes={"host launch": 85.0})

    lines = profile_lines(found)

    assert "    6.2%  before the first operator and after the last" in lines
    assert "   28.1%  in further gaps" in lines
    assert "    3.1%  in gaps below half a microsecond" in lines
    assert not any("before the first operator" in line for line in profile_lines(profile()))


def test_measured_times_say_so() -> None:
    assert "(measured)" in profile_lines(profile(modelled=False))[0]
