"""What a target for language models does for golden prompts: texts to ids, prompts to answers, by a checkpoint on disk.

Optional: bundles of a target without it hold samples and outputs (`Target.open`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from workbench.values.artifact import Artifact

Ids = Sequence[int]
Logits = npt.NDArray[np.float32]
"""[vocabulary], of the token that comes next."""
Seen = Callable[[int, int, Logits], None]
"""(number of the prompt, number of its answer's token, what the model said there); for every prompt in the order of its
answer."""


SideValues = tuple[str, str, npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""(what it is, the type of what makes it, of A, of B), the arrays [1, tokens, …]."""


class PromptedModel(Protocol):
    """A checkpoint that answers prompts on the processor, in the arithmetic of its device. For one thread."""

    @property
    def vocabulary(self) -> int:
        """Ids are below it."""

    @property
    def context(self) -> int:
        """The most tokens of a prompt with its answer."""

    @property
    def device_words(self) -> str:
        """Why a device may not run this checkpoint as it is, in a sentence; '' where nothing is known."""

    def ids(self, text: str) -> list[int]:
        """A text as ids, with the special tokens that the tokenizer's files ask for.

        Raises:
            MeasureError: the tokenizer gives no token.
        """

    def text(self, ids: Ids) -> str:
        """The text of some ids, special tokens left out."""

    def answers(
        self, prompts: Sequence[Ids], tokens: int, seen: Seen, *, given: Sequence[Ids] | None = None
    ) -> list[list[int]]:
        """The likeliest token, again and again, behind every prompt; of equal logits the lowest id.

        A prompt is read as a whole, every further token alone on the kept keys and values, as a server does; nothing
        ends an answer but `tokens`. Deterministic for one number of threads.

        Args:
            tokens: of every answer.
            given: go on with these tokens in place of the likeliest, as many for every prompt.

        Raises:
            MeasureError: a prompt with its answer is longer than the context, an id beyond the vocabulary, or the
                checkpoint cannot be executed.
        """

    def ways(self) -> Mapping[str, PromptedModel]:
        """The same checkpoint executed so that sums of floats come in another order, by what is other; what they differ
        in is rounding alone."""


@runtime_checkable
class AnswersPrompts(Protocol):
    """A target whose artifacts answer prompts."""

    def prompted(self, directory: Path) -> PromptedModel:
        """The checkpoint in a folder, read by the rules of the engine that serves it.

        Raises:
            MeasureError: the engine would refuse it; names file, tensor and rule.
        """

    def ids_of(self, folder: Path, texts: Path, *, samples: int, tokens: int) -> list[list[int]]:
        """The first tokens of the first texts of a file, by the tokenizer of a float model or a checkpoint.

        Raises:
            ConfigError: a file is wrong, or a text has no token.
        """

    def compared(self, a: Path, b: Path, windows: Sequence[Ids]) -> Iterator[SideValues]:
        """Two folders, each a float model or a checkpoint, over the same windows: what every block adds to the stream,
        and the stream behind it, each model going on with its own; the logits last.

        Raises:
            ConfigError: a folder is wrong, they are no models of one size, or a window is too long.
            MeasureError: one cannot be executed.
        """

    def finished(self, directory: Path) -> Artifact:
        """The checkpoint in a folder as an artifact, whoever made it: every file of the folder belongs to it.

        Raises:
            ConfigError: it is no checkpoint.
        """
