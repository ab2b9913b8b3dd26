"""The command line as a user runs it: one tiny workspace swept once, then every command on it."""

import json
import re
from pathlib import Path

import pytest

from tests.tiny import EXPERIMENT, workbench, write_workspace

VERDICT = re.compile(r"^(Recommended|Cannot be told apart): ", re.MULTILINE)
"""Which of the two is a matter of how quiet the machine is."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(experiment file, what the sweep printed)"""
    file = write_workspace(tmp_path_factory.mktemp("workspace"))
    done = workbench("sweep", file)
    assert done.returncode == 0, done.stderr
    return file, done.stdout


def test_a_sweep_says_its_plan_each_candidate_the_front_and_where_to_look(swept: tuple[Path, str]) -> None:
    file, output = swept

    assert "24 candidates, 12 distinct compiles" in output
    assert "6/6" in output
    assert VERDICT.search(output)
    assert f"workbench show {file} -v" in output
    assert f"workbench ui {file}" in output
    assert f"workbench export {file} --to bundle" in output
    assert (file.parent.parent / "mlruns" / "mlflow.db").exists()


def test_the_same_command_again_does_nothing_twice_and_show_prints_the_front(
    swept: tuple[Path, str], tmp_path: Path
) -> None:
    again = workbench("sweep", swept[0])
    assert again.returncode == 0, again.stderr
    assert "0 candidates evaluated, 6 from before" in again.stdout
    page = tmp_path / "front.html"
    text, full, data = (workbench("show", swept[0], *more) for more in ((), ("-v", "--html", page), ("--json",)))
    assert VERDICT.search(text.stdout)
    assert len(text.stdout.splitlines()) <= 25
    assert VERDICT.search(full.stdout)
    assert f"wrote {page}" in full.stdout
    assert page.read_text(encoding="utf-8").count('<div class="tiles">') == 1
    assert "on the Pareto front" in full.stdout
    assert "On the search space:" in full.stdout
    found = json.loads(data.stdout)
    assert (found["experiment"], found["version"]) == ("tiny", 1)


def test_one_candidate_is_shown_in_full_with_the_command_that_runs_it_again(swept: tuple[Path, str]) -> None:
    chosen = json.loads(workbench("show", swept[0], "--json").stdout)["recommended"]["candidate_id"][:12]

    done = workbench("show", swept[0], "--candidate", chosen)
    again = workbench("evaluate", swept[0], "--candidate", chosen)

    assert f"workbench evaluate {swept[0]} --candidate {chosen}" in done.stdout
    assert again.returncode == 0, again.stderr
    assert "accuracy" in again.stdout


def test_the_winner_is_exported_and_verified_and_a_flipped_byte_is_found(
    swept: tuple[Path, str], tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"

    exported, verified = workbench("export", swept[0], "--to", bundle), workbench("verify", bundle)
    model = next((bundle / "model").glob("*.onnx"))
    damaged = bytearray(model.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    model.write_bytes(damaged)
    refused, second = workbench("verify", bundle), workbench("export", swept[0], "--to", bundle)

    assert exported.returncode == 0, exported.stderr
    assert "registered as tiny version 1." in exported.stdout
    assert verified.returncode == 0, verified.stderr
    assert "golden samples replayed" in verified.stdout
    assert refused.returncode == 1
    assert "another sha256" in refused.stderr
    assert second.returncode == 2
    assert "exists already" in second.stderr


def test_plan_and_space_say_how_large_the_question_is_and_the_cache_is_pruned(swept: tuple[Path, str]) -> None:
    workspace = swept[0].parent.parent
    plan = json.loads(workbench("plan", swept[0], "--json").stdout)
    space = workbench("space", workspace / "search_spaces" / "tiny.yaml")
    shown = workbench("cache", "--workspace", workspace)
    pruned = workbench("cache", "--workspace", workspace, "--prune", "--kind", "memory")

    assert plan["space"]["exact"]
    assert plan["done"] == 6
    assert "quantization.scheme" in space.stdout
    assert f"{plan['space']['candidates']} candidates" in space.stdout
    assert "artifact" in shown.stdout
    assert "removed" in pruned.stdout
    assert VERDICT.search(workbench("show", swept[0]).stdout), "the sweep stays"


def test_bad_input_gets_one_sentence_and_an_exit_code(swept: tuple[Path, str]) -> None:
    for asked, code, message in (
        ("sweep EXPERIMENT --store ftp://host/x", 2, "'ftp://host/x' is no shared store"),
        ("sweep EXPERIMENT --store memory://x", 2, "is no shared store"),
        ("sweep absent.yaml", 2, "absent.yaml: no such file"),
        ("show EXPERIMENT --candidate zzz", 2, "no candidate of the last sweep begin with 'zzz'"),
        ("sweep EXPERIMENT --timeout soon", 2, "'soon' is not a duration"),
        ("convert /nowhere --to /nowhere/x.onnx --samples /nowhere.csv", 2, "no such file"),
        ("verify /nowhere", 1, "this is no complete bundle"),
        ("inspect /nowhere.onnx", 2, "nowhere.onnx"),
        ("example loan-intent-huge", 2, "There is no example 'loan-intent-huge'"),
    ):
        done = workbench(*[str(swept[0]) if word == "EXPERIMENT" else word for word in asked.split()])
        assert done.returncode == code, asked
        assert message in done.stderr.replace("\n", " ")
        assert "Traceback" not in done.stderr


def test_what_cannot_be_swept_or_shipped_is_said_before_any_work(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("accuracy_loss_pp: 2.0", "latency_p50_ms: 0.0001").replace("trials: 6", "trials: 3")
    file = write_workspace(tmp_path, experiment=text)
    (tmp_path / "mlruns").write_text("a file where the folder should be")
    refused = workbench("sweep", file)
    assert refused.returncode == 3
    assert "mlruns" in refused.stderr
    assert "1/3" not in refused.stdout
    (tmp_path / "mlruns").unlink()

    done = workbench("sweep", file)
    assert done.returncode == 0, done.stderr
    assert "Closest:" in done.stdout
    unfit = workbench("export", file, "--to", tmp_path / "bundle")
    assert unfit.returncode == 2
    assert "no candidate meets every constraint" in unfit.stderr

    file.write_text(text.replace("0.0001", "0.0002"), encoding="utf-8")
    other = workbench("sweep", file)
    assert other.returncode == 2
    assert "Start a new one with --fresh" in other.stderr
