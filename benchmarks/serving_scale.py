"""How a service grows with cards and front ends: requests a second, P99, full batches on 1, 2, 4, 8 emulated cards.

    python -m benchmarks.serving_scale [--cards 1,2,4,8] [--front-ends 1,2] [--call-ms 10] [--seconds 4]

EMULATED cards: a call sleeps for its modelled time (CANN_EMULATOR_PACED) and its outputs are zeros, so that cards cost
the host's processors nothing but what a driver's call would. The model is tiny and the card made slow: a call takes
`--call-ms` whatever its rows, so a card answers at most 1000 / call-ms * batch requests a second, the bound, less what
passes between two of its calls. Clients, front ends, queues and workers share this machine's processors; where they are
full, the table says so, and no figure beyond is one of the cards. The rates are those of a slow card on purpose: what
is measured is the service.

Two tables: batches filled by a closed loop of clients that keeps every card busy; and bins, with requests of two
lengths at half of the bound, where batches wait for company: the share of full batches with one front end and with
several. Takes about 3 minutes with the defaults on two quiet processors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers

from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import Tolerance
from workbench.bundle.write import BundleContents, write_bundle
from workbench.cann_emulator import acl
from workbench.cann_emulator.tree import search_paths, variables, write_tree
from workbench.graph.read import read_model
from workbench.load import LoadPlan, bodies_of_texts, run_load
from workbench.load.server import scrape
from workbench.load.service_process import RunningService, running_service
from workbench.targets import open_target
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.testing.encoder import CLASSES, VOCABULARY, save, tiny_encoder
from workbench.values.candidate import Candidate, Precision
from workbench.values.preprocess import TokenInput, collate, encode, open_preprocessor
from workbench.values.service import ServiceLoad, ServiceSettings

BATCHES, BINS = (1, 4), (4, 16)
TEXTS = ("w1 w2", "w3", "w4 w5 w6 w7", "w1 w9 w2 w8 w3 w7", "w20 w21 w22 w23 w24 w25 w26 w27 w28", "w29 w29 w29 w2 w2")
BATCH = max(BATCHES)
COMPUTED = len(TEXTS)
"""Calls of a process that are computed: the golden samples that prove the model."""
FULL = 0.95
"""Share of the processors' time above which they count as full."""
ENOUGH = 0.85


@dataclass(frozen=True, kw_only=True)
class Measured:
    cards: int
    front_ends: int
    rate_per_s: float
    p99_ms: float
    mean_batch: float
    full_batches: float
    processors_busy: float
    front_s: float
    first_s: float
    workers_s: float
    failed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", default="1,2,4,8")
    parser.add_argument("--front-ends", default="1,2")
    parser.add_argument("--call-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--no-bins", action="store_true", help="leave out the second table")
    given = parser.parse_args()
    cards = [int(word) for word in given.cards.split(",")]
    fronts = [int(word) for word in given.front_ends.split(",")]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        _switch_on(Path(folder), given.call_ms, max(cards))
        bundle = _bundle(Path(folder))
        os.environ["CANN_EMULATOR_PACED"] = str(COMPUTED)
        print(f"EMULATED, paced: a call of {given.call_ms:g} ms, {BATCH} rows at most, outputs are zeros")
        print(f"{_processors()} processors for clients, front ends, queues and workers together\n", flush=True)
        found = []
        for front_ends in fronts:
            for count in cards:
                load = ServiceLoad(concurrency=3 * BATCH * count)
                found.append(_measured(bundle, count, front_ends, load, given.seconds))
                _print_row(found[-1], found[0], given.call_ms, header=len(found) == 1)
        _conclude(found)
        if not given.no_bins:
            _bins(bundle, cards[min(2, len(cards) - 1)], fronts, given.call_ms, given.seconds)
    print(f"\n{time.monotonic() - began:.0f} s; load average {os.getloadavg()[0]:.1f} (other work than this spoils it)")


def _switch_on(folder: Path, call_ms: float, cards: int) -> None:
    """The emulated CANN for this process and the services that it starts, with cards whose every launch is so long."""
    root, slow = write_tree(folder / "cann"), folder / "slow.yaml"
    entry = {"value": call_ms * 1000, "kind": "inferred", "origin": "set by benchmarks/serving_scale.py"}
    slow.write_text(
        yaml.safe_dump({"version": 1, "soc_version": "Ascend910B3", "parameters": {"execute_launch_us": entry}})
    )
    for name, folders in search_paths(root).items():
        os.environ[name] = ":".join([*map(str, folders), *filter(None, [os.environ.get(name)])])
    os.environ |= {
        **variables(root),
        "CANN_EMULATOR_VERSION": "8.5.0",
        "CANN_EMULATOR_STATE": str(folder / "state"),
        "CANN_EMULATOR_DEVICES": str(cards),
        "CANN_EMULATOR_DEVICE_DATA": str(slow),
    }
    sys.modules["acl"] = acl


def _bundle(folder: Path) -> Path:
    """Of a tiny encoder with a static file for every batch and bin."""
    words = ("[PAD]", "[UNK]", *(f"w{n}" for n in range(VOCABULARY - 2)))
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    inputs = [TokenInput(name="ids", role="ids")]
    preprocessor = open_preprocessor(folder / "tokenizer.json", max_length=BINS[-1], bins=BINS, inputs=inputs)
    model, target = read_model(save(tiny_encoder(), folder / "model.onnx")), open_target(ASCEND)
    compiling = AscendCompile(batches=BATCHES, sequence_bins=BINS)
    candidate = Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=compiling)
    lowered, compiled = folder / "lowered", folder / "compiled"
    lowered.mkdir()
    compiled.mkdir()
    artifact = target.compile(target.lower(model, candidate, None, lowered), candidate, compiled)
    feeds = collate(preprocessor, encode(preprocessor, TEXTS))
    with contextlib.closing(target.open(artifact, compiled, candidate)) as session:
        golden = GoldenBatch(feeds=feeds, outputs=session.run(feeds), texts=TEXTS)
    contents = BundleContents(
        name="serving-scale",
        task="classification",
        candidate=candidate,
        artifact=artifact,
        artifact_directory=compiled,
        evaluations=(),
        baseline=(),
        model=model,
        datasets={},
        golden=(golden,),
        tolerance=Tolerance(absolute=1e-4, relative=1e-4),
        labels=tuple("abcdefgh"[:CLASSES]),
        preprocessor=preprocessor,
    )
    return write_bundle(folder / "bundle", contents, allow_emulated=True)


def _measured(
    bundle: Path, cards: int, front_ends: int, load: ServiceLoad, seconds: float, timeout_ms: float = 2.0
) -> Measured:
    settings = ServiceSettings(max_batch_size=BATCH, batch_timeout_ms=timeout_ms, workers=1)
    more = ("--devices", str(cards), "--front-ends", str(front_ends))
    with running_service(bundle, log=bundle.parent / "log", settings=settings, more=more, own=True) as service:
        connections = None if load.concurrency else 64  # lasting ones, as a balancer has them
        plan = LoadPlan(url=service.url, load=load, duration_s=seconds, warmup_s=1.0, connections=connections)
        before, spent, counted = psutil.cpu_times(), _spent(service), _counts(service.url)
        result = run_load(plan, bodies_of_texts(TEXTS))
        after, again, then = psutil.cpu_times(), _spent(service), _counts(service.url)
    assert result.p99_ms is not None, result
    batches = then["count"] - counted["count"]
    full = batches - (then["below"] - counted["below"])
    parts = {name: again[name] - spent[name] for name in spent}
    return Measured(
        cards=cards,
        front_ends=front_ends,
        rate_per_s=result.throughput_per_s.value,
        p99_ms=result.p99_ms.value,
        mean_batch=(then["sum"] - counted["sum"]) / batches,
        full_batches=full / batches,
        processors_busy=1 - (after.idle - before.idle) / (sum(after) - sum(before)),
        front_s=parts["front"] / (seconds + 1),
        first_s=parts["first"] / (seconds + 1),
        workers_s=parts["workers"] / (seconds + 1),
        failed=result.failed,
    )


def _counts(url: str) -> dict[str, float]:
    found = scrape("127.0.0.1", int(url.rpartition(":")[2]))
    assert found is not None
    return {
        "count": sum(found["workbench_batch_rows_count"].values()),
        "sum": sum(found["workbench_batch_rows_sum"].values()),
        "below": found["workbench_batch_rows_bucket"][frozenset({("le", f"{BATCH - 1}.0")})],
    }


def _spent(service: RunningService) -> dict[str, float]:
    """Processor seconds so far: of the first process, of the front ends beside it, of the workers."""
    first = psutil.Process(service.pid)
    events = service.log.read_text(encoding="utf-8")
    fronts = {int(pid) for pid in re.findall(r'"front_end_ready".*?"pid": (\d+)', events)}
    workers = {int(pid) for pid in re.findall(r'"worker_ready".*?"pid": (\d+)', events)}
    seconds = {process.pid: sum(process.cpu_times()[:2]) for process in first.children(recursive=True)}
    return {
        "first": sum(first.cpu_times()[:2]),
        "front": sum(spent for pid, spent in seconds.items() if pid in fronts),
        "workers": sum(spent for pid, spent in seconds.items() if pid in workers),
    }


def _bound(cards: int, call_ms: float) -> float:
    return cards * BATCH * 1000 / call_ms


def _print_row(row: Measured, first: Measured, call_ms: float, *, header: bool) -> None:
    if header:
        print("front ends  cards  requests/s   bound  of bound  of linear  P99 ms  batch  full  processors busy")
        print(f"{'':>80}(first process + front ends + workers)")
    linear = first.rate_per_s / first.cards * row.cards
    busy = f"{row.processors_busy:4.0%} ({row.first_s:.2f} + {row.front_s:.2f} + {row.workers_s:.2f})"
    print(
        f"{row.front_ends:10d}  {row.cards:5d}  {row.rate_per_s:10.0f}  {_bound(row.cards, call_ms):6.0f}  "
        f"{row.rate_per_s / _bound(row.cards, call_ms):8.0%}  {row.rate_per_s / linear:9.0%}  {row.p99_ms:6.1f}  "
        f"{row.mean_batch:5.2f}  {row.full_batches:4.0%}  {busy}"
        + ("  PROCESSORS FULL" if row.processors_busy > FULL else "")
        + (f"  {row.failed} FAILED" if row.failed else ""),
        flush=True,
    )


def _conclude(found: list[Measured]) -> None:
    print()
    fewest_cards = min(row.cards for row in found)
    one_per_s = max(row.rate_per_s for row in found if row.cards == fewest_cards) / fewest_cards
    for count in sorted({row.cards for row in found}):
        rows = [row for row in found if row.cards == count]
        enough = [row for row in rows if row.rate_per_s >= ENOUGH * one_per_s * count]
        if enough:
            fewest = min(row.front_ends for row in enough)
            print(f"{count} cards: front ends that give {ENOUGH:.0%} of linear: {fewest}")
            continue
        best = max(rows, key=lambda row: row.rate_per_s)
        full = best.processors_busy > FULL
        why = "the host's processors are full" if full else "the front ends or their queues; processors are left"
        print(f"{count} cards: {best.rate_per_s / (one_per_s * count):.0%} of linear at best; limit: {why}")


def _bins(bundle: Path, cards: int, fronts: list[int], call_ms: float, seconds: float) -> None:
    """Requests of both bins at half the bound: batches form by waiting, the case that splitting traffic would thin."""
    rate = 0.5 * _bound(cards, call_ms)
    print(f"\n{cards} cards, {rate:.0f} requests/s independent of each other, two bins, 30 ms of waiting for company")
    print("front ends  requests/s  mean batch  full batches  P99 ms")
    for front_ends in fronts:
        load = ServiceLoad(arrivals="poisson", rate_per_s=rate)
        row = _measured(bundle, cards, front_ends, load, seconds, timeout_ms=30.0)
        print(
            f"{front_ends:10d}  {row.rate_per_s:10.0f}  {row.mean_batch:10.2f}  {row.full_batches:12.0%}  "
            f"{row.p99_ms:6.1f}" + ("  PROCESSORS FULL" if row.processors_busy > FULL else ""),
            flush=True,
        )


def _processors() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
