"""Manifests bent at random by the thousand, each used as every command uses one, golden samples replayed.

    python -m tests.hostile.manifests --seed 1 --seconds 300

Ends with an error, and the manifest beside it, where anything but a refusal in words comes of one.
"""

import argparse
import contextlib
import copy
import json
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bundle.making import BENT, body_of, places, put, seal, use
from tests.serve.making import make_bundle
from workbench.values.errors import WorkbenchError

VALUES: tuple[Any, ...] = (
    *BENT,
    *(2, 3, 7, 0.01, 1e-9, 1e6, -1e300, False, "a", "int64", "model.onnx", "golden/samples.npz", "README.md"),
    *(["x"], {"name": "a"}, "\u202e", "é" * 50),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    tried = harmless = 0
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        pristine = make_bundle(Path(folder))
        bent = Path(shutil.copytree(pristine, Path(folder) / "bent"))
        sound = body_of(pristine)
        found = list(places(sound))
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            body = copy.deepcopy(sound)
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                with contextlib.suppress(LookupError, TypeError):  # a place inside what was bent before
                    put(body, rng.choice(found), rng.choice(VALUES))
            seal(bent, body)
            started = time.perf_counter()
            try:
                use(bent, replay=True)
                harmless += 1
            except WorkbenchError:
                pass
            except BaseException:
                Path("hostile-manifest.json").write_text(json.dumps(body), encoding="utf-8")
                raise
            slowest_s = max(slowest_s, time.perf_counter() - started)
            tried += 1
    print(f"{tried} manifests, {harmless} harmless, the others refused; slowest {slowest_s:.2f} s")


if __name__ == "__main__":
    main()
