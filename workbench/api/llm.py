"""Language models: a float model and a recipe in, a checkpoint for serving out; and which checkpoint keeps answers."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from workbench.bundle.opened import read_bundle
from workbench.bundle.prompts import golden_prompts
from workbench.load.openai.asking import address_of, only_model
from workbench.load.openai.golden import ServedReplay, asked_of_server
from workbench.quantization.llm.outcomes import FEW_WINDOWS
from workbench.targets.ascend_llm.calibrate import CalibratedLlm, calibrate_llm
from workbench.targets.ascend_llm.evaluate import Alike, EvaluatedLlm, LlmEvaluation, evaluate_llm
from workbench.values.errors import ConfigError

__all__ = [
    "FEW_WINDOWS",
    "Alike",
    "CalibratedLlm",
    "EvaluatedLlm",
    "LlmEvaluation",
    "calibrate_llm",
    "evaluate_llm",
]


def verify_served(
    bundle: Path | str, url: str, *, model: str | None = None, api_key_env: str = "WORKBENCH_API_KEY"
) -> ServedReplay:
    """Ask a running server, which speaks OpenAI's API, for the answers to a bundle's golden prompts.

    Args:
        url: with or without '/v1'.
        model: the server's name for it; the only one it has when None.
        api_key_env: environment variable with its key, where it asks for one.

    Raises:
        BundleError: it is no bundle of a language model.
        ConfigError: the URL is none of HTTP, nobody answers, or the server refuses what it is asked.
        MeasureError: its answers are none.
    """
    api_key = os.environ.get(api_key_env)
    golden = golden_prompts(read_bundle(Path(bundle)))
    hint = "Write http://HOST:PORT/v1; TLS ends at a proxy in front of it."
    try:
        parts = urlsplit(url)
        sound = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError as error:
        raise ConfigError(f"{url!r} is no URL: {error}.", key="--url", hint=hint) from error
    if not sound or parts.username or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is no address of a server.", key="--url", hint=hint)
    address, base, _ = address_of(url)
    chosen = model or only_model(address, base, api_key)
    return asked_of_server(golden, address, base, chosen, api_key=api_key)
