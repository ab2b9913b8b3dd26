"""Commands about language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.options import AsJson, SigningKey
from workbench.values.documents.canonical import encode
from workbench.values.system.files import check_apart


def calibrate_llm(
    model: Annotated[Path, typer.Argument(help="folder of a Llama, Qwen2 or Qwen3 model")],
    cfg: Annotated[Path, typer.Option(help="msModelSlim's YAML recipe, modelslim_v0 or modelslim_v1")],
    to: Annotated[Path, typer.Option(help="folder to write into")],
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
        on_message=tell,
    )
    if as_json:
        print_json(encode(done))
        return
    say(f"calibrated on {done.samples} texts, {done.tokens} tokens, by msModelSlim's procedure")
    for kind, count in done.types.items():
        say(f"{count:6} linears {kind}")
    for name in done.left_float:
        say(f"left float by rank: {name}")
    for warning in done.warnings:
        tell(f"warning: {warning}")
    for name in done.files:
        say(f"wrote {done.folder / name}")


def evaluate_llm(
    model: Annotated[Path, typer.Argument(help="folder of the float model")],
    checkpoints: Annotated[list[Path], typer.Argument(help="folders of its checkpoints")],
    text: Annotated[
        list[Path] | None, typer.Option(help="text to predict: a plain file, or .jsonl or .json; repeat for several")
    ] = None,
    choices: Annotated[
        list[Path] | None, typer.Option(help="questions: CSV of MMLU or C-Eval, .jsonl, or a folder of them")
    ] = None,
    window: Annotated[int, typer.Option(min=2, help="tokens that a model is given at once")] = 512,
    stride: Annotated[int | None, typer.Option(min=1, help="tokens between windows; default: the window")] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="no more windows than this; default: all")] = None,
    shots: Annotated[int, typer.Option(min=0, help="answered examples before each question")] = 0,
    examples: Annotated[
        list[Path] | None, typer.Option(help="where examples are taken from: dev files, or a folder of them")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which checkpoint of a language model keeps its answers, executed on the processor and compared in pairs."""
    from workbench.api.llm import evaluate_llm as run
    from workbench.commands.llm_tables import print_evaluation

    found = run(
        model,
        checkpoints,
        texts=tuple(text or ()),
        window=window,
        stride=stride,
        windows=windows,
        questions=tuple(choices or ()),
        examples=tuple(examples or ()),
        shots=shots,
        on_message=tell,
    )
    if as_json:
        print_json(encode(found))
        return
    print_evaluation(found)


def export_llm(
    checkpoint: Annotated[Path, typer.Argument(help="folder of a finished checkpoint, ours or msModelSlim's")],
    model: Annotated[Path, typer.Option(help="folder of the float model that it was made from")],
    cfg: Annotated[Path, typer.Option(help="the recipe that it was made by")],
    prompts: Annotated[Path, typer.Option(help="texts whose beginnings become golden prompts, .jsonl or .json")],
    to: Annotated[Path, typer.Option(help="folder to create")],
    name: Annotated[str | None, typer.Option(help="of the bundle; default: the checkpoint folder's")] = None,
    sign: SigningKey = None,
) -> None:
    """Write the bundle of a finished language model checkpoint and verify it: files for vLLM-Ascend and MindIE, golden
    prompts, sums."""
    from workbench.bundle.signing import only_key, read_secret_key
    from workbench.bundle.verify import verify_bundle
    from workbench.bundle.write import check_free
    from workbench.shipping.handover import checkpoint_contents, hand_over
    from workbench.targets.ascend_llm.target import AscendLlmTarget
    from workbench.targets.ascend_llm.texts import read_texts

    secret = None if sign is None else read_secret_key(sign)  # a wrong file costs no work
    check_free(to)
    check_apart(to, checkpoint, model, key="--to")
    called, texts = name or checkpoint.resolve().name, read_texts(prompts, model)
    contents = checkpoint_contents(checkpoint, model, AscendLlmTarget(), name=called, recipe=cfg, texts=texts)
    hand_over(to, contents, secret=secret)
    done = verify_bundle(to, trusted=None if secret is None else only_key(secret.public))
    for warning in done.warnings:
        tell(f"warning: {warning}")
    say(f"{to}: verified: {done.summary}")
