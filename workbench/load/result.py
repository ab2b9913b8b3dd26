"""What one load gave: counts, latencies with intervals, and what the server says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.load.plan import TokenLimits, Wire
from workbench.values.device_use import DeviceUse
from workbench.values.documents.canonical import added_later, decode, encode
from workbench.values.documents.json_reader import loads
from workbench.values.measurement import Estimate
from workbench.values.service import ServiceLoad

VERSION = 1
P99_ANSWERS = 1000
"""A P99 of fewer answers rests on fewer than ten of them."""
CLIENT_LIMIT = 0.8
"""Share of a core above which a client's own queueing is in the latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """What the service's own /metrics say of the window: the difference of two scrapes; None where one is missing.

    Attributes:
        padding_share: padded positions among all that were computed.
        queue_ms: mean time of a row in its queue; `model_ms`: mean time of a call of the model.
        worker_busy: share of the window that a worker spent in the model.
        batch_rows: upper bound of a bucket ('8', '+Inf') → batches in it, empty ones left out.
        bin_rows: length → rows that ran in that bin.
        errors: kind → count.
    """

    batches: int
    mean_batch: float | None
    padding_share: float | None
    queue_ms: float | None
    model_ms: float | None
    worker_busy: float | None
    batch_rows: Mapping[str, int]
    bin_rows: Mapping[str, int]
    errors: Mapping[str, int]
    device_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcesses:
    """The server's processes, sampled once a second by the operating system's own count.

    Attributes:
        cores: processor time per second of the window; 1.5 is one and a half cores.
        resident_bytes: of all processes together at the window's begin, its end and at most; pages that processes
            share count once for each.
        grown_bytes: median of the last fifth of the samples less that of the second fifth (the first still warms up);
            None with fewer than ten samples.
    """

    processes: int
    cores: float
    resident_begin_bytes: int
    resident_end_bytes: int
    resident_peak_bytes: int
    grown_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Milliseconds."""

    p50: Estimate
    p95: Estimate
    p99: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Attributes:
    share: of requests due in the window that were answered and keep every limit.
    rate_per_s: of such answers that were complete in the window.
    """

    limits: TokenLimits
    share: Estimate
    rate_per_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFigures:
    """Of successful answers to requests that were due in the window; measured, like everything of a load.

    Attributes:
        ttft_ms: from the moment a request was intended to its first chunk with text.
        tpot_ms: of each answer with two chunks or more, the time from its first chunk to its last by its tokens less
            one, as vLLM's and NVIDIA's benchmarks define it.
        between_ms: from chunk to chunk within an answer; between tokens where each chunk holds one.
        gaps: how many of them there were. Of more than two million as many are drawn, evenly by the seed.
        output_tokens_per_s: tokens of successful answers that arrived in the window; a chunk's are its answer's in
            equal parts.
        output_tokens, chunks: of all answers. `prompt_tokens`: of those whose usage told it, `prompts`.
        counted_by_usage: answers whose tokens the server's usage told; of the others, `by_chunks`, each chunk counts
            as one.
        empty: answers without text.
        woken_late_p99_ms: how late the load generator's own event loop came.
        prompts_known: distinct requests that were sent.
    """

    ttft_ms: Percentiles | None
    tpot_ms: Percentiles | None
    between_ms: Percentiles | None
    gaps: int
    output_tokens_per_s: Estimate
    output_tokens: int
    chunks: int
    prompt_tokens: int
    prompts: int
    counted_by_usage: int
    by_chunks: int
    empty: int
    woken_late_p99_ms: float
    prompts_known: int
    goodput: Goodput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """One run of the load generator.

    Latencies are of successful answers (2xx), in milliseconds from the moment a request was intended to the last byte
    of its answer. A closed loop intends a request when its client has the answer before, so it says nothing of users
    who do not wait for each other; an open loop's requests are due whatever the server does.

    Attributes:
        device: the server's cards while it was loaded, once a second; () where nothing tells of any.
        wire, model, batch, length: as the plan has them.
        window_s: seconds that count, after the warm-up; shorter than asked when the run was ended before.
        requests: due within the window, however they ended.
        statuses: HTTP status → answers; `errors`: what was no answer → count.
        late_p99_ms: how long after its intended moment a request of an open loop was sent: the client's own delay, or
            its wait for a free connection.
        per_second: successful answers in each second of the window.
        client_share: processor time of the load generator per second; it is one thread.
        reliable: False says that the figures must not be relied on; `notes` say why, and what else should be known.
        tokens: where answers were streams of tokens.
        times: file with every request's times, beside this result; None when it was not kept.
        command: the command line that asked for it, with other loads of the same; '' where there was none.
    """

    url: str
    load: ServiceLoad
    seed: int
    began_at: str
    warmup_s: float
    window_s: float
    requests: int
    answered: int
    statuses: Mapping[str, int]
    errors: Mapping[str, int]
    throughput_per_s: Estimate
    p50_ms: Estimate | None
    p95_ms: Estimate | None
    p99_ms: Estimate | None
    mean_ms: float | None
    longest_ms: float | None
    late_p99_ms: float | None
    per_second: tuple[int, ...]
    client_share: float
    event_loop: str
    interrupted: bool
    reliable: bool
    notes: tuple[str, ...] = ()
    server: ServerFigures | None = None
    processes: ServerProcesses | None = None
    times: str | None = None
    device: tuple[DeviceUse, ...] = ()
    wire: Wire = "predict"
    model: str = ""
    batch: int = 1
    length: int | None = None
    tokens: TokenFigures | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    command: str = added_later("")

    @property
    def failed(self) -> int:
        """Requests of the window without a successful answer."""
        return self.requests - self.answered

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **encode(self)}


def read_result(path: Path) -> LoadResult:
    """Read what `workbench load --to` wrote.

    Raises:
        ValueError: not such a file, or of another version.
    """
    body = loads(path.read_bytes())
    version = body.pop("version", None)
    if version != VERSION:
        raise ValueError(f"{path}: load result version {version!r} is unknown; this workbench reads {VERSION}")
    return decode(LoadResult, body, "load")
