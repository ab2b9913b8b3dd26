"""What a target for language models does besides a `Target`: its models are folders, its artifacts checkpoints.

    target.read_model(folder)                      # Model: digest, size, vocabulary
    target.write_checkpoint(model, candidate, …)   # Artifact: a quantized folder
    target.scores(model, artifact, …)(0, 8)        # what came of the first eight windows, beside the float model's
    target.costs(model, artifact, …, load)         # what a load asks of the card, for modelled times
    target.prompted(folder).answers(prompts, 8, …)  # what a checkpoint answers, for golden prompts

Nothing here imports torch: what computes stands behind the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from workbench.targets.base import Target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.errors import ToolchainError
from workbench.values.measurement import LanguageLoad
from workbench.values.model import Model
from workbench.values.modelled_times.statement import CallCosts, TimingModel
from workbench.values.paired_scores import TokenWindow, WindowOutcomes

Ids = npt.NDArray[np.int64]
"""[tokens]"""

FEW_TOKENS = 512
"""Of calibration texts, below which a word is said: of n + 1 alike values the last is the largest once in n + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageCosts:
    """What a load of a checkpoint asks of its card, which is modelled.

    Attributes:
        prefill: all prompts at once; decode: one token for each row.
        weight_bytes: in the card's memory.
        basis: what clock and costs rest on, in words.
    """

    clock: TimingModel
    prefill: CallCosts
    decode: CallCosts
    kv_bytes_per_token: int
    weight_bytes: int
    basis: str


Scores = Callable[[int, int], WindowOutcomes]
"""What came of the windows from one to before another, of a checkpoint that is executed as its device would compute, in
one thread. Raises MeasureError: a logit is NaN or infinite, or the checkpoint cannot be executed."""
Tokens = Sequence[int]
Logits = npt.NDArray[np.float32]
"""[vocabulary], of the token that comes next."""
Seen = Callable[[int, int, Logits], None]
"""(number of the prompt, number of its answer's token, what the model said there); for every prompt in the order of its
answer."""


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

    def text(self, ids: Tokens) -> str:
        """The text of some ids, special tokens left out."""

    def answers(
        self, prompts: Sequence[Tokens], tokens: int, seen: Seen, *, given: Sequence[Tokens] | None = None
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
class LanguageTarget(Target, Protocol):
    """A target for language models. What a `Target` compiles and opens, it does not: `lower`, `compile`, `open` and
    `probe` raise a CandidateError that says so."""

    def read_model(self, folder: Path) -> Model:
        """What a folder holds; weights are not read but for their digest.

        Raises:
            ConfigError: no such folder, an unsupported architecture, or files that are missing or damaged.
        """

    def context(self, folder: Path) -> int:
        """The longest window that a folder's model takes, in tokens; errors as of `read_model`."""

    def samples(self, model: Model, texts: Path) -> Sequence[Ids]:
        """Calibration texts as ids, one sample for each text, as the vendor's quantizer makes them.

        Raises:
            ConfigError: a file is wrong, or a text has no token or is longer than the context.
        """

    def windows(self, model: Model, text: str, *, window: int, stride: int) -> Sequence[TokenWindow]:
        """A text in windows, in its order; every token is predicted at most once.

        Raises:
            ConfigError: the window is longer than the context, or nothing is predicted.
        """

    def rank(self, model: Model, samples: Sequence[Ids]) -> Mapping[str, float]:
        """How much every group of linears hurts its block when it alone is quantized, the worst first."""

    def write_checkpoint(
        self,
        model: Model,
        candidate: Candidate,
        samples: Sequence[Ids],
        ranking: Callable[[], Mapping[str, float]],
        to: Path,
    ) -> Artifact:
        """Quantize and write below `to`, an existing empty folder. Equal arguments give equal bytes.

        Args:
            ranking: asked where the candidate leaves groups float by rank.

        Raises:
            CandidateError: the recipe does not fit the model.
            ConfigError: there is too little memory for it.
        """

    def window_ms(self, model: Model, tokens: int) -> float:
        """Roughly, of the float model over so many tokens, by one of its blocks."""

    def checkpoint_bytes(self, model: Model) -> int:
        """Roughly, of a checkpoint whose linears are all integers."""

    def keep_reference(self, model: Model, windows: Sequence[TokenWindow], to: Path) -> None:
        """Run the float model over windows and put what it gives into `to`, for `scores`."""

    def scores(
        self,
        model: Model,
        candidate: Candidate,
        artifact: Artifact,
        directory: Path,
        windows: Sequence[TokenWindow],
        kept_in: Path,
    ) -> Scores:
        """Args:
        windows: those of `keep_reference`; kept_in: where that put what the float model gives over them.
        """

    def decides_outputs(self, artifact: Artifact) -> str:
        """Equal for two artifacts only if they give equal outputs."""

    def costs(self, model: Model, artifact: Artifact, directory: Path, load: LanguageLoad) -> LanguageCosts:
        """What a load asks of the card."""

    def prompted(self, directory: Path) -> PromptedModel:
        """The checkpoint in a folder, read by the rules of the engine that serves it.

        Raises:
            MeasureError: the engine would refuse it; names file, tensor and rule.
        """

    def finished(self, directory: Path) -> Artifact:
        """The checkpoint in a folder as an artifact, whoever made it: every file of the folder belongs to it.

        Raises:
            ConfigError: it is no checkpoint.
        """


def few_tokens(tokens: int) -> list[str]:
    """What follows from so few tokens of calibration texts; nothing from enough."""
    if tokens >= FEW_TOKENS:
        return []
    return [
        f"calibration has {tokens} tokens in all: about one token in {tokens + 1} that comes later lies beyond a range "
        f"that so many give. Give texts of {FEW_TOKENS} tokens or more."
    ]


def language_target(target: Target) -> LanguageTarget:
    """The same target, known to be one for language models.

    Raises:
        ToolchainError: it is none, although its description says so.
    """
    if not isinstance(target, LanguageTarget):
        raise ToolchainError(f"Target {target.name!r} says that it is for language models, and cannot evaluate one.")
    return target
