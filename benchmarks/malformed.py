"""Ten thousand malformed requests against a real service, with good ones in between.

    python -m benchmarks.malformed [--count 10000] [--seed 0] [--rounds 5] [--task classification|ner]

In rounds, so that a leak shows as a slope: after each the front end's files, threads and memory and the workers' memory
are printed. Exit code 1 when anything was answered that should not have been, or a process changed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.serve.attacked import peak_bytes, run_attacks, settled
from tests.serve.attacks import SECRET, attacks
from tests.serve.making import make_bundle, running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=("classification", "ner"), default="classification")
    given = parser.parse_args()
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running(make_bundle(Path(folder), given.task), "--workers", "2") as service,
    ):
        pid = service.process.pid
        run_attacks(service.port, attacks(given.seed, 200))
        before = settled(pid, 0, patience_s=1.0)
        print(f"after 200 to warm up: {before}")
        for number in range(given.rounds):
            drawn = attacks(given.seed + 1 + number, given.count // given.rounds)
            outcome = run_attacks(service.port, drawn)
            after = settled(pid, before.files)
            print(f"round {number + 1}: {outcome}")
            print(
                f"    {after.files} files, {after.threads} threads, {after.resident_bytes / 1e6:.1f} MB "
                f"(at most {peak_bytes(pid) / 1e6:.1f}), workers {after.worker_bytes / 1e6:.1f} MB"
            )
            wrong += outcome.wrong
            if after.files > before.files or after.threads > before.threads:
                wrong.append(f"files or threads grew: {before} {after}")
            if after.worker_pids != before.worker_pids:
                wrong.append("a worker died")
        log = service.log.read_text(encoding="utf-8")
        defects = [event for event in service.events() if event["event"] in ("defect", "library")]
        wrong += [f"in the log: {event}" for event in defects]
        if SECRET in log:
            wrong.append("the log quotes a request")
    for line in wrong[:50]:
        print(f"WRONG {line}")
    print(f"{len(wrong)} wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
