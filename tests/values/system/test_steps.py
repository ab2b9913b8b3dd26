"""What long work says of itself: each step, and how far it is where nothing was said for a while."""

import itertools
import threading
import time

from workbench.values.system.steps import Steps, time_words


def test_a_step_is_said_once_and_again_after_each_silence_with_how_far_it_is() -> None:
    said: list[str] = []
    twice = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len([each for each in said if "50%" in each]) == 2:
            twice.set()

    with Steps(say, silence_s=0.01) as steps:
        steps("comparing")
        steps("comparing", 0.5)
        assert twice.wait(60)

    assert said[0] == "comparing"
    assert all(line.startswith("comparing: ") and line.endswith("more") for line in said[-2:])
    assert time_words(30.0, 0.25) == "25%, about 90 s more"
    assert time_words(300.0, 0.0) == "5 min 00 s so far"


def test_steps_that_are_not_announced_are_said_after_a_silence_alone() -> None:
    said: list[str] = []
    with Steps(said.append, announced=False) as steps:
        steps("smoke")

    assert said == []


def test_a_step_that_takes_long_is_named_ever_more_rarely() -> None:
    said: list[float] = []
    with Steps(lambda _: said.append(time.monotonic()), announced=False, silence_s=0.02) as steps:
        began = time.monotonic()
        steps("confirming")
        time.sleep(0.6)  # what takes long

    assert 1 <= len(said) <= 14, "every 0.02 s would be thirty"
    assert all(later - sooner >= (sooner - began) / 5 for sooner, later in itertools.pairwise(said))
