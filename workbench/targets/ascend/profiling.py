"""The vendor's profiler and overflow check over one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.targets.ascend.acl.process import ACL_CONFIG
from workbench.targets.ascend.atc.compile_story import read_story, story_text
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.msprof import profile, text_of
from workbench.targets.ascend.overflow import overflow_text, read_overflows, write_overflow_config
from workbench.targets.ascend.program import run_program
from workbench.values.errors import MeasureError

REPLAY_TIMEOUT_S = 900.0


class AscendProfiler:
    """See `workbench.targets.profiler.Profiler`."""

    def where_time_goes(
        self, replay: Sequence[str], artifact: Path, to: Path, *, environment: Mapping[str, str]
    ) -> str:
        """By msprof; and what the compiler told of the files, where they were compiled here."""
        words = text_of(profile(replay, to, environment=environment))
        story = read_story(artifact)
        return words if story is None else f"{words}\n{story_text(story)}"

    def overflows(self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str]) -> str:
        to.mkdir(parents=True, exist_ok=True)
        config = write_overflow_config(to)
        log = to / "run.log"
        surroundings = {**environment, ACL_CONFIG: str(config)}
        ended = run_program(list(replay), environment=surroundings, timeout_s=REPLAY_TIMEOUT_S, log=log)
        if ended.code != 0:
            how = (
                f"took longer than {REPLAY_TIMEOUT_S:g} s"
                if ended.code is None
                else f"failed with exit code {ended.code}"
            )
            last = ended.output.strip().splitlines()[-1:] or ["no output"]
            raise MeasureError(f"the run with the overflow check {how}: {last[0]}", log_path=log)
        found = read_overflows(to / "overflow", find_installation().home, to / "decoded")
        return overflow_text(found, calls)
