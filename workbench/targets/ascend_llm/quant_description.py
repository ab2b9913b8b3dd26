"""quant_model_description.json of a finished checkpoint: the type of every tensor (msmodelslim.md §3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.quantization.llm.checkpoint import LINEARS
from workbench.quantization.llm.config import LlmConfig
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError

DESCRIPTION = "quant_model_description.json"
FLOAT = "FLOAT"
_MOST_BYTES = 1 << 26


def read_description(file: Path) -> dict[str, str]:
    """Key → value of everything that is a text: the types of tensors, and what is said of the whole.

    Raises:
        ConfigError: no such file, or not one flat object.
    """
    found = read_json(file, limit_bytes=_MOST_BYTES)
    if not isinstance(found, dict):
        raise ConfigError("holds no JSON object.", file=file)
    return {key: value for key, value in found.items() if isinstance(value, str)}


def types_of_linears(described: Mapping[str, str], config: LlmConfig) -> dict[str, str]:
    """Full name of every linear of the blocks → its type.

    Raises:
        ConfigError: a linear is not described.
    """
    names = [f"model.layers.{block}.{name}" for block in range(config.layers) for name in LINEARS]
    for name in names:
        if f"{name}.weight" not in described:
            raise ConfigError(f"says nothing of {name}.weight.", key=DESCRIPTION, hint="The checkpoint is incomplete.")
    return {name: described[f"{name}.weight"] for name in names}
