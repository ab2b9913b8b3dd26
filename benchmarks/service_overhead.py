"""What serving costs: throughput at many clients against the same session called directly with the same batches.

    python -m benchmarks.service_overhead BUNDLE TEXTS.csv [--clients 100] [--seconds 8] [--rounds 3]

Rounds alternate: the service under a closed loop, then this process calling the bundle's session over the batches that
the service's metrics report (so many of each length, as large), so that a machine that changes its speed changes both.
Bundles for one worker; front end, worker and clients share the machine's processors, as they do in the direct calls
with nothing. Not a test: minutes, and a machine that should do nothing else.
"""

import argparse
import csv
import http.client
import itertools
import re
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from workbench.bundle import Bundle, preprocessor_of, read_bundle
from workbench.load import LoadPlan, bodies_of_texts, run_load
from workbench.load.service_process import running_service
from workbench.targets import open_target
from workbench.targets.base import Feeds
from workbench.values.preprocess import collate, encode, smallest_bin
from workbench.values.service import ServiceLoad

Counts = dict[int, tuple[float, float]]
"""length → (batches, rows)"""
_COUNT = re.compile(r'^workbench_bin_(batches|rows)_total\{length="(\d+)"\} (\S+)$', re.MULTILINE)


def counts(url: str) -> Counts:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = {(kind, int(length)): float(value) for kind, length, value in _COUNT.findall(text)}
    return {length: (found["batches", length], found["rows", length]) for kind, length in found if kind == "rows"}


def difference(after: Counts, before: Counts) -> Counts:
    return {n: (b - before[n][0], r - before[n][1]) for n, (b, r) in after.items()}


def same_batches(bundle: Bundle, texts: list[str], served: Counts) -> list[Feeds]:
    """One batch for each that was served, of its bin and of the bin's mean size; mixed as they came."""
    preprocessor = preprocessor_of(bundle)
    assert preprocessor is not None
    encoded = encode(preprocessor, texts)
    made = []
    for length, (batches, rows) in served.items():
        fitting = itertools.cycle([e for e in encoded if smallest_bin(preprocessor, len(e.ids)) == length])
        done = 0
        for number in range(round(batches)):
            size = round(rows * (number + 1) / batches) - done
            done += size
            feeds = collate(preprocessor, [next(fitting) for _ in range(size)], length)
            made.append((number / batches, feeds))
    return [feeds for _, feeds in sorted(made, key=lambda m: m[0])]


def direct(bundle: Bundle, batches: list[Feeds], seconds: float) -> float:
    """Rows per second of the session alone, over whole passes of the batches."""
    manifest = bundle.manifest
    session = open_target(manifest.artifact.target).open(manifest.artifact, bundle.model_directory, manifest.candidate)
    for feeds in batches[:20]:
        session.run(feeds)
    started, rows = time.perf_counter(), 0
    for feeds in itertools.cycle(batches):
        session.run(feeds)
        rows += len(next(iter(feeds.values())))
        if (elapsed := time.perf_counter() - started) > seconds:
            break
    session.close()
    return rows / elapsed


def processor_s(pid: int) -> float:
    """Of one process alone."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("texts", type=Path, help="CSV with a column text")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    bundle = read_bundle(given.bundle)
    with given.texts.open(newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    bodies, ratios = bodies_of_texts(texts), []
    for number in range(given.rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            running_service(given.bundle, log=Path(folder) / "log") as service,
        ):
            plan = LoadPlan(
                url=service.url, load=ServiceLoad(concurrency=given.clients), duration_s=given.seconds, seed=number
            )
            before, spent_s = counts(service.url), processor_s(service.pid)
            result = run_load(plan, bodies, server_pid=service.pid)
            after = counts(service.url)
            rows = sum(rows for _, rows in difference(after, before).values())
            front_us = (processor_s(service.pid) - spent_s) / rows * 1e6
        alone = direct(bundle, same_batches(bundle, texts, difference(after, before)), given.seconds)
        ratios.append(result.throughput_per_s.value / alone)
        busy = result.server.worker_busy if result.server is not None else None
        print(
            f"served {result.throughput_per_s.value:.0f}/s, direct {alone:.0f}/s: {ratios[-1]:.1%}; worker "
            f"in the model {busy if busy is None else f'{busy:.0%}'} of the time; front end {front_us:.0f} us of "
            f"processor time a request; load average {psutil.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.1%} of the direct calls")


if __name__ == "__main__":
    main()
