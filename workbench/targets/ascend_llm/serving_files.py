"""Files for serving a finished checkpoint with vLLM-Ascend or MindIE: commands, flags, versions, what does not work.

No card was there: every file says that it was not run. Facts stand beside their sources; what follows from them without
being said there is marked [inferred].
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from workbench.quantization.llm.config import DTYPES
from workbench.targets.ascend_llm.description import STATIC
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.tensors import CACHE_TYPE

README, VLLM = "README.md", "serve_vllm.sh"
MINDIE_MODEL, MINDIE_SERVER, MINDIE_INSTALL = "mindie/config.json", "mindie/server.json", "mindie/install.sh"
_MOST_CARDS = 16
_LONGEST = 32_768
"""Tokens that the files allow a request where the model would take more: keys and values of a longest request must fit
the card's memory beside the weights; the variable MAX_MODEL_LEN says another number."""
_MINDIE_TYPES = {"W8A8_MIX": "w8a8_pdmix"}
"""Where MindIE's name is not the type in lower case: its sources know QuantType.W8A8_PDMIX [inferred of the file]."""
_VERSIONS = {
    "W8A8": "v0.9.0rc2 or later, experimental there (its Quantization Guide of v0.9.1)",
    "W8A8_DYNAMIC": "v0.9.0rc2 or later, experimental there (its Quantization Guide of v0.9.1)",
    "W8A8_MIX": "the first release after v0.11.0 or later (pull request 4235; the release [inferred])",
    "W8A16": "a release of 2026: v0.11.0 has it not (issue 4267), the sources of August 2026 do (msmodelslim.md §8)",
    "C8": "v0.18.0 or later (pull requests 7474 and 8007); v0.12.0rc1's was another model's, v0.13.0rc1 has none "
    "(issue 5630)",
}
"""What of vLLM-Ascend reads a type."""


def serving_files(folder: Path, name: str) -> dict[str, str]:
    """Name → text of the files under deploy/ of a bundle whose checkpoint lies in model/.

    Without serve_vllm.sh where vLLM-Ascend has no parameter for what the file holds; README.md says why.

    Args:
        folder: of the checkpoint.
        name: the engines serve it by that, in Latin letters, digits, dots and dashes.
    """
    served = read_served(folder)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80] or "model"
    longest = min(served.config.context, _LONGEST)
    # keys of the server's conf/config.json that concern the model (MindIE 2.1.RC1, 配置参数说明(服务化))
    model = {
        "modelInstanceType": "Standard",
        "modelName": name,
        "modelWeightPath": f"/path/to/{name}",
        "worldSize": 1,
        "backendType": "atb",
        "trustRemoteCode": False,
    }
    deployed = {
        "maxSeqLen": longest,
        "maxInputTokenLen": longest - 1,
        "truncation": False,
        "ModelConfig": [model],
    }
    server = {"BackendConfig": {"npuDeviceIds": [[0]], "ModelDeployConfig": deployed}}
    patched = {**served.config.written, "quantize": _mindie_type(served)}
    return {
        README: _readme(served, name),
        **({} if _refused_by_vllm(served) else {VLLM: _vllm(served, name)}),
        MINDIE_MODEL: json.dumps(patched, indent=2, ensure_ascii=False) + "\n",
        MINDIE_SERVER: json.dumps(server, indent=2) + "\n",
        MINDIE_INSTALL: _INSTALL,
    }


def _dtype(served: Served) -> str:
    """As vLLM's `--dtype` and config.json name it."""
    return next(name for name, dtype in DTYPES.items() if dtype == served.config.dtype)


def _kinds(served: Served) -> dict[str, int]:
    """Type → how many linears of the blocks; the most frequent first."""
    return dict(Counter(served.types.values()).most_common())


def _parallel(served: Served) -> list[int]:
    """Numbers of cards, from 1 to 16, that every split of vLLM's tensor parallelism comes out even on.

    Query heads and the inner size of the MLP are split; heads of keys and values are split, or repeated where there are
    fewer than cards (vLLM's QKVParallelLinear). Scales of an 8-bit cache are split by cards (pull request 7474), so
    their heads cannot be repeated [inferred].
    """
    config, keys = served.config, served.config.kv_heads
    return [
        cards
        for cards in range(1, _MOST_CARDS + 1)
        if config.heads % cards == 0
        and config.intermediate % cards == 0
        and (keys % cards == 0 or (cards % keys == 0 and not served.cached))
    ]


def _refused_by_vllm(served: Served) -> str:
    """Why vLLM-Ascend does not load the checkpoint although its types are known to it; '' where nothing is known."""
    if _dtype(served) == "float32" and set(served.types.values()) != {"FLOAT"}:
        lacking = (
            "; it has no deq_scale parameter for it (msmodelslim.md §8)" if set(STATIC) & set(_kinds(served)) else ""
        )
        return (
            f"The model is float32, and vLLM-Ascend computes quantized models in bfloat16 and float16 alone{lacking}. "
            "With --dtype float16 it would load the file [inferred], but then every step rounds to float16, and no "
            "figure here holds. Convert the float model to bfloat16 or float16, and quantize that."
        )
    return ""


def _vllm(served: Served, name: str) -> str:
    config, cards = served.config, list(map(str, _parallel(served)))
    allowed = "|".join(cards)
    return f"""\
#!/bin/sh
# Serves the checkpoint in ../model with vLLM-Ascend. Not run: there was no card. See README.md beside it.
#   sh serve_vllm.sh [further options of `vllm serve`]
#   TENSOR_PARALLEL  cards: {", ".join(cards)}; 1 where it is not set
#   MAX_MODEL_LEN    tokens of a request with its answer, at most {config.context}
set -eu
folder=$(cd "$(dirname "$0")/../model" && pwd)
cards=${{TENSOR_PARALLEL:-1}}
case "$cards" in
    {allowed}) ;;
    *) echo "TENSOR_PARALLEL=$cards: {config.heads} heads and {config.kv_heads} heads of keys and values \
are dealt over {allowed} cards" >&2; exit 2 ;;
esac
# --dtype is the checkpoint's own: the encoding of deq_scale is bound to it
exec vllm serve "$folder" \\
    --served-model-name {name} \\
    --quantization ascend \\
    --dtype {_dtype(served)} \\
    --max-model-len "${{MAX_MODEL_LEN:-{min(served.config.context, _LONGEST)}}}" \\
    --tensor-parallel-size "$cards" \\
    --max-logprobs 20 \\
    --host 127.0.0.1 \\
    "$@"
"""


def _mindie_type(served: Served) -> str:
    return _MINDIE_TYPES.get(served.kind, served.kind.lower())


_INSTALL = """\
#!/bin/sh
# Copies the checkpoint to a new folder as MindIE wants it. Not run with MindIE: there was no card.
#   sh install.sh /path/to/new/folder
set -eu
to=${1:?usage: sh install.sh NEW_FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$to"
cp -R "$here/../../model/." "$to/"
cp "$here/config.json" "$to/config.json"
find "$to" -type d -exec chmod 750 {} +
find "$to" -type f -exec chmod 640 {} +
"""


def _readme(served: Served, name: str) -> str:
    kinds = ", ".join(f"{count} linears {kind}" for kind, count in _kinds(served).items())
    refused = _refused_by_vllm(served)
    read = [kind for kind in _kinds(served) if kind in _VERSIONS] + ([CACHE_TYPE] if served.cached else [])
    needs = "; ".join(f"{kind}, {_VERSIONS[kind]}" for kind in read) or "any version, as nothing is quantized"
    start = (
        f"**Not servable as it is.** {refused}"
        if refused
        else f"```\nsh {VLLM}\n```\n\n{_bullets(_vllm_notes(served))}\n\nReads it: {needs}."
    )
    return f"""\
# Serving {name}

{kinds}{", keys and values in 8 bits" if served.cached else ""}; every other step in {_dtype(served)}. The checkpoint \
is the folder `model/` beside this one.

**Nothing here was run: there was no card.** Commands and flags are from public documents; [inferred] marks what they \
do not say. Before anything depends on it, ask the running server for the golden prompts: `workbench verify BUNDLE \
--url http://HOST:PORT/v1` holds its log-probabilities against those computed on a processor.

## vLLM-Ascend

{start}

## MindIE

```
sh mindie/install.sh /path/to/{name}
```

copies the checkpoint, with `"quantize": "{_mindie_type(served)}"` in config.json, and the permissions that MindIE \
asks for. `mindie/server.json` holds the keys of the server's `conf/config.json` that concern the model; merge them \
there.

{_bullets(_mindie_notes(served))}
"""


def _vllm_notes(served: Served) -> list[str]:
    config, dtype, types = served.config, _dtype(served), _kinds(served)
    notes = [
        "`--quantization ascend` makes it read `quant_model_description.json`, which must keep that name "
        "(msmodelslim.md §8). No `--trust-remote-code`: the model's own code is never needed.",
        f"Cards (`TENSOR_PARALLEL`): {', '.join(map(str, _parallel(served)))}; {config.heads} heads, {config.kv_heads} "
        "heads of keys and values.",
        f"`--max-model-len` {min(served.config.context, _LONGEST)}; the model takes {config.context} at most.",
    ]
    if set(STATIC) & set(types):
        stored = "float32" if dtype == "bfloat16" else "int64 with the bits of float32"
        notes.append(
            f"Leave `--dtype {dtype}`: deq_scale is stored as {stored}, which no other dtype reads "
            "(msmodelslim.md §3.3)."
        )
    if "W8A8_MIX" in types:
        notes.append(
            "W8A8_MIX is static only on a decode node of a deployment that separates prefill from decode; elsewhere "
            "every step is dynamic (pull request 4235)."
        )
    if served.cached:
        notes.append(
            "The 8-bit cache needs no flag: the description says it (`kv_cache_type`). Maintainers name Qwen3 alone "
            f"of our families (issue 5630); this is a {config.family} model."
        )
    if any(key.endswith("norm.bias") for key in served.places):
        notes.append("Norms have a bias, which is loaded because keys contain `norm.bias` (msmodelslim.md §8).")
    return notes


def _mindie_notes(served: Served) -> list[str]:
    notes = [
        "Versions after 2.1.RC1: that one and older ones want another layout, the tool's `--mindie_format` (CANN "
        "8.5.0, 模型量化).",
        "Permissions: no file above 640 and no folder above 750, all owned by the user that starts the server; it "
        "checks config.json (its own message: other groups must have none). The same of weights and folders is said "
        "of MindIE-SD [inferred of the LLM server].",
        "`worldSize` is the number of cards, `npuDeviceIds` has one list of as many.",
    ]
    if len([kind for kind in _kinds(served) if kind != "FLOAT"]) > 1:
        notes.append(
            "Types differ by layer: config.json names the checkpoint's, the description each tensor's [inferred]."
        )
    if served.cached:
        notes.append(
            "An 8-bit cache is documented with W8A8 and float16 alone, for LLaMA3.1-8B and 70B, Qwen2-7B and 72B "
            f"(MindIE 2.0.RC1, KV Cache int8); this is {_dtype(served)}, a {served.config.family} model."
        )
    if _dtype(served) == "float32":
        notes.append("No document speaks of float32 models.")
    return notes


def _bullets(notes: list[str]) -> str:
    return "\n".join(f"- {note}" for note in notes)
