"""Calls that take their modelled time asleep: what passes on the clock, what is computed, and one card for all."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.serve.ascend_bundle import TEXTS, Made, make_ascend_bundle

CALL_MS = 60.0
PROGRAM = """
import json, sys, time
from pathlib import Path
from workbench.bundle import preprocessor_of, read_bundle
from workbench.targets import open_target
from workbench.values.preprocess import collate, encode
bundle = read_bundle(Path(sys.argv[1]))
manifest, target = bundle.manifest, open_target(bundle.manifest.artifact.target)
session = target.open(manifest.artifact, bundle.model_directory, manifest.candidate)
feeds = collate(preprocessor_of(bundle), encode(preprocessor_of(bundle), [sys.argv[2]]))
first = session.run(feeds)["logits"][0].tolist()
print("ready", flush=True)
sys.stdin.readline()
began, spent = time.perf_counter(), time.process_time()
for _ in range(5):
    last = session.run(feeds)["logits"][0].tolist()
took, spent = time.perf_counter() - began, time.process_time() - spent
toolchain = target.toolchain().components["emulator"]
print(json.dumps({"first": first, "last": last, "took": took, "spent": spent, "said": toolchain}))
session.close()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_ascend_bundle(tmp_path_factory.mktemp("paced"))


def test_calls_of_two_processes_take_their_modelled_time_one_after_the_other_on_one_card(
    made: Made, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.yaml"
    entry = {"value": 1000 * CALL_MS, "kind": "inferred", "origin": "a test"}
    slow.write_text(
        yaml.safe_dump({"version": 1, "soc_version": "Ascend910B3", "parameters": {"execute_launch_us": entry}})
    )
    more = {"CANN_EMULATOR_PACED": "1", "CANN_EMULATOR_DEVICE_DATA": str(slow)}
    environment = {**os.environ, **made.environment, **more}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(made.bundle), TEXTS[0]],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [json.loads(one.communicate(timeout=300)[0]) for one in processes]
    together_s = time.perf_counter() - began

    assert together_s >= 10 * CALL_MS / 1000, "ten calls on one card"
    for one in told:
        assert one["first"] == pytest.approx(made.logits[TEXTS[0]].tolist(), abs=1e-3), "computed"
        assert set(one["last"]) == {0.0}, "not computed"
        assert one["took"] >= 5 * CALL_MS / 1000
        assert one["spent"] < one["took"] / 2, "asleep most of the time"
        assert one["said"].endswith(" paced, most outputs are zeros")
