"""How fast a bundle's session is without any service: the same batches, called back to back.

    python -m benchmarks.direct_calls BUNDLE --batches FILE --seconds 10 --start-at 1763736000.0

FILE holds a JSON list of [length, rows, how often]. Batches come in a seeded shuffle, tokens are those of the golden
samples. Prints one JSON line: rows, seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from workbench.bundle import golden_batches, preprocessor_of, read_bundle
from workbench.targets import open_target
from workbench.values.preprocess import Encoded, Feeds, collate, encode

BATCHES = 4096
"""Drawn at most; a longer run begins again."""


def rows_per_s(bundle: Path, batches: Mapping[int, Mapping[int, float]], *, workers: int, seconds: float) -> float:
    """Rows a second of `workers` processes that each call a session of their own, all at the same time.

    Args:
        batches: length → rows of a batch → how many such batches.
    """
    flat = [[length, rows, count] for length, sizes in batches.items() for rows, count in sizes.items()]
    command = [sys.executable, "-m", "benchmarks.direct_calls", str(bundle), "--batches", json.dumps(flat)]
    command += ["--seconds", str(seconds), "--start-at", str(time.time() + 8.0)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(workers)]
    try:
        answers = [json.loads(process.communicate(timeout=seconds + 120)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return float(sum(answer["rows"] / answer["seconds"] for answer in answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--start-at", type=float, required=True)
    options = parser.parse_args()
    bundle = read_bundle(options.bundle)
    manifest = bundle.manifest
    session = open_target(manifest.artifact.target).open(manifest.artifact, bundle.model_directory, manifest.candidate)
    feeds = _drawn(options.bundle, json.loads(options.batches))
    for one in {next(iter(f.values())).shape: f for f in feeds}.values():
        session.run(one)
    if (wait_s := options.start_at - time.time()) < 0:
        raise SystemExit(f"opening took {-wait_s:.1f} s longer than there was")
    time.sleep(wait_s)
    began = time.perf_counter()
    done = turn = 0
    while (elapsed := time.perf_counter() - began) < options.seconds:
        done += len(next(iter(session.run(feeds[turn % len(feeds)]).values())))
        turn += 1
    print(json.dumps({"rows": done, "seconds": elapsed}))
    session.close()


def _drawn(directory: Path, batches: Sequence[tuple[int, int, float]]) -> list[Feeds]:
    """Feeds of the batches in the proportion that is wanted, shuffled."""
    bundle = read_bundle(directory)
    preprocessor = preprocessor_of(bundle)
    if preprocessor is None:
        raise SystemExit("only bundles for text")
    encoded = encode(preprocessor, [text for golden in golden_batches(bundle) for text in golden.texts])
    random = np.random.default_rng(0)
    total = sum(count for _, _, count in batches)
    scale = min(1.0, BATCHES / total)
    made: list[Feeds] = []
    for length, rows, count in batches:
        fitting = [e for e in encoded if len(e.ids) <= length] or [_cut(min(encoded, key=lambda e: len(e.ids)), length)]
        for _ in range(max(1, round(count * scale))):
            made.append(collate(preprocessor, [fitting[i] for i in random.integers(0, len(fitting), rows)], length))
    return [made[i] for i in random.permutation(len(made))]


def _cut(encoded: Encoded, length: int) -> Encoded:
    return Encoded(ids=encoded.ids[:length], types=encoded.types[:length])


if __name__ == "__main__":
    main()
