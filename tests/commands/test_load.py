"""`workbench load`: what it prints, keeps and refuses, at real servers and a real service."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import run
from tests.load.servers import delayed, serving
from workbench.bundle.write import BundleContents, write_bundle
from workbench.load import read_result
from workbench.values.errors import ConfigError

BASELINE = """
version: 1
name: another platform
source: a test
loads: [{concurrency: 4, throughput_per_s: 100, p99_ms: 500}]
limits: {throughput_at_least_percent: 80, p99_at_most_percent: 120}
"""

load = partial(run, "load")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("loan pay\ndue\n", encoding="utf-8")
    return tmp_path / "texts.txt"


def test_a_url_is_loaded_and_the_result_kept(texts: Path, tmp_path: Path) -> None:
    with serving(delayed(0.01)) as server:
        done = load(
            *(server.url, "--concurrency", 4, "--duration", "1s", "--warmup", "0.2s", "--data", texts),
            *("--to", tmp_path / "out"),
        )

    assert done.exit_code == 0, done.output
    for word in ("closed loop", "throughput", "latency P50", "latency P99", "answered", "client"):
        assert word in done.stdout
    kept = read_result(tmp_path / "out" / "load-closed-4.json")
    assert kept.times == "times-closed-4.npz"
    with np.load(tmp_path / "out" / kept.times) as times:
        assert ((times["outcome"] == 200) & (times["intended_s"] >= 0.2)).sum() >= kept.answered > 0
    assert {json.loads(b)["text"] for b in server.bodies} == {"loan pay", "due"}


def test_the_exit_code_says_whether_a_criterion_failed(texts: Path, tmp_path: Path) -> None:
    for published, code, outcome in ((100, 0, "passed"), (1_000_000, 1, "failed")):
        (tmp_path / "b.yaml").write_text(BASELINE.replace(": 100,", f": {published},"), encoding="utf-8")
        with serving(delayed(0.001)) as server:
            done = load(
                *(server.url, "--concurrency", 4, "--duration", "1.5s", "--warmup", "0.2s", "--data", texts, "--json"),
                *("--baseline", tmp_path / "b.yaml"),
            )

        said = json.loads(done.stdout)
        assert len(said["loads"]) == 1, "one load covers both conditions of this baseline"
        rows = {c["name"]: c["outcome"] for c in said["verdict"]["criteria"]}
        assert (rows["throughput"], done.exit_code) == (outcome, code)


def test_every_request_of_a_trace_counts_and_a_log_begins_with_its_first_line(texts: Path, tmp_path: Path) -> None:
    for times, count in (("0\n0.1\n0.1\n0.4\n", 4), ("1795350000.25\n1795350000.35\n1795350000.45\n", 3)):
        (tmp_path / "trace.txt").write_text(times, encoding="utf-8")
        with serving(delayed(0.001)) as server:
            done = load(server.url, "--trace", tmp_path / "trace.txt", "--data", texts, "--json")

        (result,) = json.loads(done.stdout)["loads"]
        assert result["requests"] == result["answered"] == count


def test_what_cannot_be_loaded_is_said_with_the_next_step(texts: Path, tmp_path: Path) -> None:
    trace, own = tmp_path / "trace.txt", ("http://127.0.0.1:1", "--data", texts)
    trace.write_text("0.1\n0.05\n")
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        (own[:1], "does not say what to ask"),
        (("http://example.org", "--data", texts), "--host-allowed example.org"),
        ((*own, "--rate", 5, "--concurrency", 5), "more than one kind of load"),
        ((*own, "--workers", 2), "is for a bundle"),
        ((*own, "--duration", "soon"), "--duration"),
        ((*own, "--trace", texts), "is no time"),
        ((*own, "--trace", trace), f"{trace}:2: '0.05' comes before 0.1."),
        ((*own, "--duration", "0.2s", "--warmup", "0.1s"), "gave no answer at all"),
    )
    for arguments, says in cases:
        done = load(*arguments)
        assert isinstance(done.exception, ConfigError)
        assert says in str(done.exception)


def test_a_bundle_is_served_loaded_and_stopped(
    contents: BundleContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_API_KEY", "open sesame")
    bundle = write_bundle(tmp_path / "bundle", contents)

    done = load(bundle, "--concurrency", 8, "--duration", "1s", "--warmup", "0.3s", "--max-batch-size", 4, "--json")

    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["loads"]
    assert result["statuses"] == {"200": result["requests"]}
    assert 1 < result["server"]["mean_batch"] <= 4
    assert result["processes"]["processes"] >= 2
    assert "open sesame" not in done.output
