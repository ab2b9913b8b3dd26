"""What a long piece of work says of itself: what it does, how far it is, and about how long it still takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

SILENCE_S = 10.0


class Steps:
    """Told what is done and which share of it is over; says so where a step begins, and after each silence.

    A thread speaks, until the end of the `with` block: what takes long may not come to tell.
    """

    def __init__(self, say: Callable[[str], None], *, announced: bool = True, silence_s: float = SILENCE_S) -> None:
        """
        Args:
            announced: say each step where it begins; False says only what is silent for long.
        """
        self._say, self._announced, self._silence_s = say, announced, silence_s
        self._step, self._share = "", 0.0
        self._began = self.spoke = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> Steps:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()

    def __call__(self, step: str, share: float = 0.0) -> None:
        begins, self._step, self._share = step != self._step, step, share
        if begins:
            self._began = time.monotonic()
            if self._announced:
                self._speak(step)

    def _watch(self) -> None:
        while not self._over.wait(self._silence_s / 4):
            now = time.monotonic()
            longest_s = min(max(self._silence_s, (now - self._began) / 4), 12 * self._silence_s)  # ever more rarely
            if self._step and now - self.spoke >= longest_s:
                self._speak(f"{self._step}: {time_words(now - self._began, self._share)}")

    def _speak(self, line: str) -> None:
        self.spoke = time.monotonic()
        self._say(line)


def time_words(gone_s: float, share: float) -> str:
    """'25 %, about 45 s more', or for how long it has gone on where nothing tells how far it is."""
    return f"{share:.0%}, about {minutes(gone_s / share - gone_s)} more" if share else f"{minutes(gone_s)} so far"


def minutes(seconds: float) -> str:
    """'45 s', '12 min 05 s' or '3 h 20 min'."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
