"""Commands about language models; heavy libraries are imported inside the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from workbench.commands.console import err, out
from workbench.commands.options import AsJson
from workbench.values.documents.canonical import encode
from workbench.values.documents.input_files import size_text


def calibrate_llm(
    model: Annotated[Path, typer.Argument(help="folder of a Llama, Qwen2 or Qwen3 model", show_default=False)],
    cfg: Annotated[Path, typer.Option(help="msModelSlim's YAML recipe, modelslim_v0 or modelslim_v1")],
    to: Annotated[Path, typer.Option("--out", help="folder to write into")],
    data: Annotated[
        Path | None, typer.Option(help="calibration texts, .jsonl or .json; default: what the recipe names")
    ] = None,
    anti_data: Annotated[Path | None, typer.Option(help="texts for smoothing alone; default: the recipe's")] = None,
    serving: Annotated[
        Literal["vllm-ascend"] | None,
        typer.Option("--for", help="refuse what this engine cannot serve, instead of a warning"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Quantize a language model as msModelSlim does, on the processor: description and weights for Ascend."""
    from workbench.api.llm import calibrate_llm as run

    done = run(
        model,
        to,
        cfg=cfg,
        data=data,
        anti_data=anti_data,
        strict=serving is not None,
        on_message=lambda line: err.print(line, highlight=False, soft_wrap=True),
    )
    if as_json:
        out.print_json(json.dumps(encode(done)))
        return
    out.print(f"calibrated on {done.samples} texts, {done.tokens} tokens, by msModelSlim's procedure", highlight=False)
    for kind, count in done.types.items():
        out.print(f"{count:6} linears {kind}", highlight=False)
    for name in done.left_float:
        out.print(f"left float by rank: {name}", highlight=False)
    out.print(
        f"forecast {size_text(done.forecast.memory_bytes)} of memory and {size_text(done.forecast.disk_bytes)} of disk",
        highlight=False,
    )
    for warning in done.warnings:
        err.print(f"warning: {warning}", highlight=False, soft_wrap=True)
    for name in done.files:
        out.print(f"wrote {done.folder / name}", highlight=False, soft_wrap=True)
