"""Golden prompts asked of a running server that speaks OpenAI's API: does what is served give the bundle's answers?

`POST /v1/completions` with the ids of a prompt, greedy, and log-probabilities with ids for tokens, as vLLM gives them
with `return_tokens_as_token_ids` (an extension of its own [inferred of other servers: they answer with texts, which
name no id, and are refused]). An answer is compared up to the first token that is another one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.bundle.manifest import Tolerance
from workbench.bundle.prompts import GoldenPrompt, GoldenPrompts
from workbench.load.http1 import asked, body_words
from workbench.load.openai.answer import error_words
from workbench.load.openai.asking import bearer
from workbench.values.errors import ConfigError, MeasureError

MOST_TOP = 20
"""Log-probabilities that are asked for with each token: what vLLM allows where `--max-logprobs` says nothing."""
_ID = re.compile(r"token_id:(\d{1,9})", re.ASCII)
_MOST_LOGARITHM = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedReplay:
    """How far a server's answers lie from the kept ones.

    Attributes:
        prompts, tokens, numbers: how many prompts, tokens of answers and log-probabilities were compared.
        largest: difference of a log-probability; `share`: as a share of what is allowed for it.
        ties: prompts whose answer goes another way at two tokens that lie within the tolerance of each other.
        faults: what is beyond the tolerance, a sentence for each prompt.
    """

    prompts: int
    tokens: int
    numbers: int
    largest: float
    share: float
    ties: int
    faults: tuple[str, ...]

    @property
    def words(self) -> str:
        """One clause of a report."""
        text = (
            f"{self.prompts} golden prompts asked of the server: {self.numbers} log-probabilities at {self.tokens} "
            f"tokens, largest difference {self.largest:.2g} ({self.share:.0%} of the tolerance)"
        )
        return f"{text}, {self.ties} answers go another way at a tie" if self.ties else text


def asked_of_server(
    golden: GoldenPrompts, address: str, base: str, model: str, *, api_key: str | None = None
) -> ServedReplay:
    """Ask every prompt, one after another, and hold the log-probabilities against the kept ones.

    Args:
        address, base: as `asking.address_of` tells them.

    Raises:
        ConfigError: nobody answers, the server refuses the request, or names no ids of tokens.
        MeasureError: an answer is none of this protocol.
    """
    tokens = numbers = ties = 0
    largest, share, faults = 0.0, 0.0, list[str]()
    for number, prompt in enumerate(golden.prompts):
        said = _asked(prompt, golden.tokens, address, base, model, api_key)
        for token, ((theirs, top), step, wanted) in enumerate(zip(said, prompt.steps, prompt.answer, strict=True)):
            tokens += 1
            allowed = 2 * float(golden.tolerance.margin(np.array(step.logits)).max())
            kept = dict(zip(step.ids, step.log_probabilities, strict=True))
            both = kept.keys() & top.keys()
            numbers += len(both)
            off = max((abs(top[one] - kept[one]) for one in both), default=0.0)
            largest, share = max(largest, off), max(share, off / allowed)
            fault = ""
            if off > allowed:
                fault = f"prompt {number}, token {token} of its answer: a log-probability differs by {off:.3g}, "
                fault += f"{allowed:.3g} is allowed"
            elif theirs != wanted:
                fault = _another_way(number, token, theirs, prompt, golden.tolerance)
                ties += not fault
            faults += [fault] if fault else []
            if fault or theirs != wanted:
                break
    return ServedReplay(
        prompts=len(golden.prompts),
        tokens=tokens,
        numbers=numbers,
        largest=largest,
        share=share,
        ties=ties,
        faults=tuple(faults),
    )


_Said = tuple[int, Mapping[int, float]]
"""A server's word on one token: its id, and id → log-probability."""


def _another_way(number: int, token: int, theirs: int, prompt: GoldenPrompt, tolerance: Tolerance) -> str:
    """Why a server's token is a fault; '' where the two lie within the tolerance of each other."""
    step, wanted = prompt.steps[token], prompt.answer[token]
    logits = dict(zip(step.ids, step.logits, strict=True))
    where = f"prompt {number}: token {token} of its answer is {theirs}, {wanted} in the bundle"
    if theirs not in logits or wanted not in logits:
        return f"{where}; it is not among the {len(logits)} likeliest that were kept"
    behind, allowed = logits[wanted] - logits[theirs], 2 * float(tolerance.margin(np.array([logits[wanted]]))[0])
    return "" if behind <= allowed else f"{where}, whose logit is {behind:.3g} higher; {allowed:.3g} is allowed"


def _asked(prompt: GoldenPrompt, tokens: int, address: str, base: str, model: str, api_key: str | None) -> list[_Said]:
    body = {
        "model": model,
        "prompt": list(prompt.ids),
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": min(MOST_TOP, len(prompt.steps[0].ids)),
        "ignore_eos": True,
        "return_tokens_as_token_ids": True,
    }
    path = f"{base}/completions"
    headers = {"Content-Type": "application/json", **bearer(api_key)}
    content = json.dumps(body).encode()
    status, found, said = asked(address, "POST", path, content, headers, key="--url")
    if found is None:
        raise MeasureError(f"{address}{path} answers no JSON: {body_words(said)}.")
    if status != 200:
        raise ConfigError(
            f"{address}{path} answers with status {status}: {error_words(found).rstrip('.')}.",
            key="--url",
            hint="Look at --model; vLLM must be started with --max-logprobs 20, as deploy/serve_vllm.sh does.",
        )
    return _read(found, tokens, f"{address}{path}")


def _read(found: Any, tokens: int, place: str) -> list[_Said]:
    """The tokens of an answer, within bounds.

    Raises:
        ConfigError: tokens are texts.
        MeasureError: it is no such answer.
    """
    try:
        logprobs = found["choices"][0]["logprobs"]
        names, tops = logprobs["tokens"], logprobs["top_logprobs"]
        if not (isinstance(names, list) and isinstance(tops, list) and len(names) == len(tops) == tokens):
            raise ValueError(f"{tokens} tokens were asked for")
        said: list[_Said] = []
        for name, top in zip(names, tops, strict=True):
            ids = {_id(key, place): float(value) for key, value in top.items()}
            if not all(math.isfinite(value) and abs(value) < _MOST_LOGARITHM for value in ids.values()):
                raise ValueError("a log-probability is none")
            said.append((_id(name, place), ids))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise MeasureError(f"{place}: its answer holds no log-probabilities of {tokens} tokens: {error}.") from error
    return said


def _id(name: Any, place: str) -> int:
    match = _ID.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ConfigError(
            f"{place} names tokens by their texts ({str(name)[:40]!r}), which tell no id.",
            key="--url",
            hint="vLLM names ids where it is asked with return_tokens_as_token_ids.",
        )
    return int(match[1])
