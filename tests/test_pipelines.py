"""A pipeline from its file to a served bundle, as the command line does it; and what goes wrong on the way."""

import contextlib
import hashlib
import http.client
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import workbench
from tests.tiny_pipeline import CODE, write_pipeline
from workbench.api.pipeline import found_of
from workbench.bundle.pipeline import read_pipeline_bundle
from workbench.commands.init.pipeline import initialize_pipeline
from workbench.evaluation.stage_data import float_pipeline
from workbench.inputs.pipeline import read_pipeline
from workbench.load.service_process import RunningService, running_service
from workbench.search.joint import recommended
from workbench.serve.pipeline import verify_pipeline
from workbench.tracking.server import place_of
from workbench.tracking.store import client_of
from workbench.values.errors import BundleError, ConfigError

ROWS = np.random.default_rng(0).normal(size=(1, 6, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write_pipeline(tmp_path_factory.mktemp("pipeline"))
    done = workbench("sweep", file, "--timeout", "4m")
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture(scope="module")
def bundle(swept: Path) -> Path:
    folder = swept.parent / "bundle"
    done = workbench("export", swept, "--to", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_sweep_measures_combinations_end_to_end_and_recommends_one(swept: Path) -> None:
    pipeline = read_pipeline(swept)
    found = found_of(pipeline)
    chosen = recommended(pipeline, found)

    baseline = found[0]
    assert baseline.searched is not None
    assert baseline.searched.values["same_answer"] == 1.0
    assert baseline.measured_per_s is not None
    assert all(one.searched is not None for one in found)
    assert chosen is not None
    assert not chosen.by_stage
    runs = client_of(place_of(swept.parent))
    (experiment,) = [one for one in runs.search_experiments() if one.name == "tiny"]
    logged = runs.search_runs([experiment.experiment_id])
    assert len(logged) == len(found)
    (best,) = [run for run in logged if run.data.tags["recommended"] == "true"]
    expected = chosen.predicted_per_s if chosen.measured_per_s is None else chosen.measured_per_s.value
    assert best.data.metrics["requests_per_s"] == pytest.approx(expected)
    assert best.data.params["find"].startswith(chosen.recipes["find"][:12])
    shown = workbench("show", swept)
    assert "find → embed → decide" in shown.stdout
    assert "measured under load" in shown.stdout
    as_json = json.loads(workbench("show", swept, "--json").stdout)
    assert as_json["recommended"]["recipes"] == dict(chosen.recipes)


def test_its_bundle_answers_as_the_search_did_and_any_changed_byte_is_named(bundle: Path, tmp_path: Path) -> None:
    assert verify_pipeline(read_pipeline_bundle(bundle)).requests > 0
    for name in ("glue/code.py", "golden.json", "stages/find/golden/samples.npz", "pipeline.json"):
        copy = tmp_path / name.replace("/", "-")
        shutil.copytree(bundle, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(BundleError, match=name.rpartition("/")[2]):
            verify_pipeline(read_pipeline_bundle(copy))
    (bundle / "more").write_text("x", encoding="utf-8")
    with pytest.raises(BundleError, match="more does not belong"):
        verify_pipeline(read_pipeline_bundle(bundle), replay=False)
    (bundle / "more").unlink()


@contextlib.contextmanager
def served(bundle: Path, log: Path) -> Iterator[RunningService]:
    with running_service(bundle, log=log, own=True) as running:
        yield running


def asked(running: RunningService, body: bytes, kind: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/predict", body, {"Content-Type": kind})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # arrays by name
    return stream.getvalue()


def test_it_is_served_and_answers_json_and_arrays_alike(bundle: Path, tmp_path: Path) -> None:
    compressed = io.BytesIO()
    np.savez_compressed(compressed, rows=ROWS)
    with served(bundle, tmp_path / "log") as running:
        status, answer = asked(running, json.dumps({"inputs": {"rows": ROWS.tolist()}}).encode(), "application/json")
        assert status == 200
        assert asked(running, npz(rows=ROWS), "application/x-npz") == (200, answer)
        for body, said in (
            (compressed.getvalue(), "compressed"),
            (npz(rows=ROWS[:, :5]), "size 6 along axis 1"),
            (npz(rows=np.repeat(ROWS, 2, axis=0)), "one row"),
            (npz(rows=np.full_like(ROWS, np.nan)), "float32 cannot"),
            (b"PK", "no NPZ file"),
        ):
            status, refused = asked(running, body, "application/x-npz")
            assert status == 422
            assert said in refused["error"]["message"]
        assert asked(running, b"{}", "text/plain")[0] == 415
        # a request without any row that matters has no items behind the first stage
        nothing = asked(running, npz(rows=np.zeros_like(ROWS)), "application/x-npz")
        assert nothing[0] == 200
        assert nothing[1]["answer"]["classes"] == []


def test_glue_that_raises_hangs_or_answers_nan_fails_its_request_alone(bundle: Path, tmp_path: Path) -> None:
    broken = CODE.replace(
        "def flat(request):",
        "def flat(request):\n    import os\n    first = request['rows'][0, 0]\n"
        "    if first > 100: raise ValueError('no such page')\n    if first > 90: os._exit(3)\n"
        "    if first > 80: return [{'x': request['rows'].reshape(-1) * float('nan')}]\n",
    )
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (copy / "glue" / "code.py").write_text(broken, encoding="utf-8")
    sums = (copy / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    new = hashlib.sha256((copy / "glue" / "code.py").read_bytes()).hexdigest()
    lines = [f"{new}  glue/code.py" if line.endswith("glue/code.py") else line for line in sums]
    (copy / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="ascii")
    log = tmp_path / "log"
    with served(copy, log) as running:
        whole = asked(running, npz(rows=ROWS), "application/x-npz")
        for value in (101.0, 95.0, 85.0):
            rows = ROWS.copy()
            rows[0, 0, 0] = value
            status, refused = asked(running, npz(rows=rows), "application/x-npz")
            assert status == 500
            assert "code.py:flat" in refused["error"]["message"]
            assert asked(running, npz(rows=ROWS), "application/x-npz") == whole
    assert "no such page" in log.read_text(encoding="utf-8")


def test_what_is_wrong_between_stages_stops_a_plan_with_one_sentence(tmp_path: Path) -> None:
    cases = (
        (CODE.replace('request["rows"].reshape(-1)', 'request["rows"]'), "flat: item 0 gives x as float32"),
        (CODE.replace("if score > 0]", "if score > 1e9]"), "give 0 items, fewer than 8"),
        (CODE.replace("(found,) = find", "raise KeyError('boxes')"), r"chosen\(\) failed: KeyError: 'boxes'"),
        (CODE.replace('found["y"])', 'found["z"])'), "KeyError"),
    )
    for place, (code, said) in enumerate(cases):
        file = write_pipeline(tmp_path / str(place), code=code)
        with pytest.raises(ConfigError, match=said):
            float_pipeline(read_pipeline(file))


def test_a_pipelines_bundle_is_signed_and_what_takes_a_model_says_so(bundle: Path, swept: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    assert workbench("keygen", tmp_path / "key").returncode == 0
    done = workbench("sign", copy, "--key", tmp_path / "key")
    assert done.returncode == 0, done.stderr
    assert workbench("verify", copy, "--trusted-keys", tmp_path / "key.pub", "--no-replay").returncode == 0
    done = workbench("promote", copy, "--against", "none")
    assert (done.returncode, "pipeline's bundle" in done.stderr) == (1, True), done.stderr
    done = workbench("sensitivity", swept)
    assert (done.returncode, "is a pipeline" in done.stderr) == (2, True), done.stderr


def test_options_for_one_model_are_refused_for_a_pipeline(bundle: Path, swept: Path) -> None:
    for arguments in (
        ("sweep", swept, "--trials", 3),
        ("show", swept, "--candidate", "ab"),
        ("serve", bundle, "--workers", 2),
    ):
        done = workbench(*arguments)
        assert done.returncode == 2
        assert "one model" in done.stderr


def test_init_writes_edges_where_tensors_fit_and_functions_to_be_filled_in_where_not(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    models = [tmp_path / f"{name}.onnx" for name in ("find", "embed", "decide")]
    loader = [Path(f"{tmp_path / 'code.py'}:samples")]

    started = initialize_pipeline(models, loader, tmp_path / "w", name="three", targets=())

    glue = tmp_path / "w" / "calibration" / "three.py"
    pipeline = read_pipeline(tmp_path / "w" / "experiments" / "three.yaml")
    assert [each.edges for each in pipeline.wirings] == [(), (), (("x", "embed", "y"),)]
    assert [each.takes for each in pipeline.wirings] == [("request",), ("request", "find"), ("embed",)]
    assert "fill in" in started.commands[0]
    with pytest.raises(ConfigError, match="make the items of find"):
        float_pipeline(pipeline)
    filled = glue.read_text(encoding="utf-8")
    filled = filled.replace(
        'raise NotImplementedError("make the items of find")', "return {'x': request['rows'].ravel()}"
    )
    filled = filled.replace(
        'raise NotImplementedError("make the items of embed")', "return [{'x': r} for r in request['rows']]"
    )
    glue.write_text(filled, encoding="utf-8")
    assert float_pipeline(read_pipeline(pipeline.path)).items_a_request("decide") == [6] * 60
    with pytest.raises(ConfigError, match="exists already"):
        initialize_pipeline(models, loader, tmp_path / "w", name="three", targets=())
