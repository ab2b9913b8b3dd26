"""A finished checkpoint that answers prompts on the processor (`targets.language`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from workbench.quantization.llm.forward import check_ids
from workbench.quantization.llm.forwards import Decoder, greedy, logits_of
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.texts import calibration_samples, read_tokenizer
from workbench.targets.language import Seen, Tokens
from workbench.values.errors import ConfigError, MeasureError


def prompted(directory: Path) -> Prompted:
    """See `targets.language.LanguageTarget`. Weights stay in memory from the first answer on."""
    with _as_measured():
        served = read_served(directory)
        tokenizer = read_tokenizer(directory, served.config)
    return Prompted(served=served, tokenizer=tokenizer, decoder=served_decoder(served, keep=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """See `targets.language.PromptedModel`.

    Attributes:
        threads: of torch while it answers; None for those of the process.
        whole: it reads a prompt with the answer that it is given in one pass.
    """

    served: Served
    tokenizer: Tokenizer
    decoder: Decoder
    threads: int | None = None
    whole: bool = False

    @property
    def vocabulary(self) -> int:
        return self.served.config.vocabulary

    @property
    def context(self) -> int:
        return self.served.config.context

    @property
    def device_words(self) -> str:
        return " ".join(self.served.unserved)

    def ids(self, text: str) -> list[int]:
        with _as_measured():
            found: list[int] = calibration_samples([text], self.tokenizer, self.served.folder)[0][0].tolist()
        return found

    def text(self, ids: Tokens) -> str:
        return str(self.tokenizer.decode(list(ids)))

    def answers(
        self, prompts: Sequence[Tokens], tokens: int, seen: Seen, *, given: Sequence[Tokens] | None = None
    ) -> list[list[int]]:
        asked = [torch.tensor([list(ids)]) for ids in prompts]
        with _as_measured(), _threads(self.threads):
            _check(self.served, asked, tokens)
            if not self.whole:
                found = greedy(
                    self.decoder,
                    asked,
                    tokens,
                    given=None if given is None else [torch.tensor(list(ids)) for ids in given],
                    seen=lambda prompt, step, logits: seen(prompt, step, logits.to(torch.float32).numpy()),
                )
                return [ids.tolist() for ids in found]
            assert given is not None  # whoever asks in one pass has the answers
            windows = [
                torch.tensor([[*ids, *answer[: tokens - 1]]]) for ids, answer in zip(prompts, given, strict=True)
            ]
            for number, logits in enumerate(logits_of(self.decoder, "prefill")(windows)):
                for step, row in enumerate(logits[0, len(prompts[number]) - 1 :]):
                    seen(number, step, row.to(torch.float32).numpy())
            return [list(ids) for ids in given]

    def ways(self) -> Mapping[str, Prompted]:
        other = 1 if torch.get_num_threads() > 1 else 2
        plural = "" if other == 1 else "s"
        found = {f"{other} thread{plural} instead of {torch.get_num_threads()}": replace(self, threads=other)}
        if not self.served.cached and "W8A8_MIX" not in self.served.types.values():
            # these two compute a prompt otherwise than an answer, so that a whole window means something else
            found["prompt and answer in one pass instead of token by token"] = replace(self, whole=True)
        return found


def _check(served: Served, prompts: Sequence[torch.Tensor], tokens: int) -> None:
    """Lengths with their answers, so that no answer ends at the context."""
    longest = max(ids.shape[1] for ids in prompts) + tokens - 1
    if longest > served.config.context:
        raise MeasureError(
            f"A prompt with its answer has {longest} tokens, the model's context is {served.config.context}."
        )
    check_ids(served.config, prompts)


@contextlib.contextmanager
def _as_measured() -> Iterator[None]:
    """What is wrong with a checkpoint is said of a compiled model that does not run."""
    try:
        yield
    except ConfigError as error:
        raise MeasureError(str(error)) from error


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
