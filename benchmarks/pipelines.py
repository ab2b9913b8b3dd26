"""Page OCR as one question beside its stages tuned one by one, and the simulated service beside real loads.

    python calibration/page_ocr.py && workbench sweep experiments/page-ocr.yaml     # first, on a quiet machine
    python -m benchmarks.pipelines [--configurations 20] [--seconds 8]

What the sweep found is loaded anew in this one run, in turns: float, what each stage's own search recommends, and the
joint recommendation. Then configurations are drawn (recipes and settings of every stage), simulated and loaded; a
prediction holds where it is within a fifth of the throughput and a third of P99.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from workbench.api.pipeline import found_of, joint_search, load_joint
from workbench.evaluation.stage_data import float_pipeline
from workbench.inputs.pipeline import read_pipeline
from workbench.search.joint import Joint, recommended

OF_THROUGHPUT, OF_P99 = 0.2, 0.33


def state_line() -> str:
    return f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", type=Path, default=Path("experiments/page-ocr.yaml"))
    parser.add_argument("--configurations", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    print(state_line())
    pipeline = read_pipeline(given.pipeline)
    pipeline = replace(pipeline, service=replace(pipeline.service, confirm_s=given.seconds))
    found = found_of(pipeline)
    chosen = recommended(pipeline, found)
    by_stage = next((one for one in found if one.by_stage), None)
    if chosen is None or by_stage is None:
        sys.exit("the sweep recommends nothing, or had no time for the stages alone")
    rows = {"float": found[0], "stage by stage": by_stage, "joint": chosen}
    with joint_search(pipeline, float_pipeline(pipeline), lambda said: None) as search:
        rates: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(given.rounds):
            for name, one in rows.items():
                loaded, host = load_joint(search, one)
                assert loaded.measured_per_s is not None, loaded.note
                rates[name].append(loaded.measured_per_s.value)
                if name == "float":
                    search.host = host
        for name, one in rows.items():
            quality = one.held or one.searched
            loss = "" if quality is None or quality.loss is None else f"loss {quality.loss.value:+.2f} {quality.unit}"
            print(f"{name:15} {median(rates[name]):7.2f} pages/s ({', '.join(f'{r:.2f}' for r in rates[name])}) {loss}")
        print(f"joint over stage by stage: {median(rates['joint']) / median(rates['stage by stage']):.2f}")
        drawn, held = random.Random(0), [0, 0]
        for number in range(given.configurations):
            options = {name: drawn.choice(list(each)) for name, each in search.options.items()}
            settings = {name: drawn.choice(option.choices.settings()) for name, option in options.items()}
            one: Joint = search.joint_at(options, settings, search.loss(search.floats, "validation"))
            loaded, _ = load_joint(search, one)
            if loaded.measured_per_s is None or loaded.measured_p99_ms is None:
                print(f"{number:3} failed: {loaded.note}")
                continue
            rate, p99 = loaded.measured_per_s.value, loaded.measured_p99_ms.value
            held[0] += abs(one.predicted_per_s / rate - 1) <= OF_THROUGHPUT
            held[1] += abs(one.predicted_p99_ms / p99 - 1) <= OF_P99
            said = "; ".join(f"{name} {settings[name]}" for name in settings)
            both = f"{one.predicted_per_s:6.2f} / {rate:6.2f} per s, P99 {one.predicted_p99_ms:5.0f} / {p99:5.0f} ms"
            print(f"{number:3} {both}  {said}")
    print(f"predictions hold: throughput {held[0]}, P99 {held[1]} of {given.configurations}")
    print(state_line())


if __name__ == "__main__":
    main()
