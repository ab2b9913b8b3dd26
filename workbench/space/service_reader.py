"""The two keys `service:`: an experiment says how requests come, a search space what a service may be told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from workbench.values.dimension import Scalar
from workbench.values.documents.input_files import open_lines
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import ConfigError
from workbench.values.service import (
    Goal,
    HostCosts,
    ServiceChoices,
    ServiceLoad,
    ServiceQuestion,
    ServiceSettings,
)

HIGHEST = "highest"
"""Value of `rate` that asks for the highest one with the P99 still kept."""
MAX_BATCH, MAX_WORKERS, MAX_SETTINGS = 1024, 256, 5000
MOST_WORKERS, MOST_CORES = 4096, 4096.0
MOST_CLIENTS, MOST_PER_S = 100_000, 1e6
"""More than one front end serves."""
_MOST_TRACE_BYTES = 1 << 28
"""Ten million arrival times."""


def read_question(top: Section) -> ServiceQuestion | None:
    """The key `service:` of an experiment; None where it has none, and no service is searched for then.

    Raises:
        ConfigError: with file, line and key.
    """
    if not top.has("service"):
        return None
    with top.section("service") as section:
        goal = section.text("goal", "throughput", choices=get_args(Goal))
        p99_ms = section.optional("p99_ms", section.number)
        devices = section.integer("devices", 1, minimum=1, maximum=MOST_WORKERS)
        curve_s = section.seconds("curve", 6.0)
        unconfirmed = str(section.raw("confirm", "")).strip() in ("0", "0s")
        confirm_s = 0.0 if unconfirmed else section.seconds("confirm", 10.0)
        host = _host(section) if section.has("host") else None
        load = _load(section)
        try:
            return ServiceQuestion(
                load=load,
                goal=goal,  # type: ignore[arg-type]  # checked against the Literal's own values above
                p99_ms=p99_ms,
                devices=devices,
                host=host,
                curve_s=curve_s,
                confirm_s=confirm_s,
            )
        except ConfigError as error:
            raise section.error((error.key or "").rpartition(".")[2] or None, error.rule, error.hint) from error


def read_choices(top: Section, bins: Sequence[Scalar] = ()) -> tuple[ServiceChoices | None, Scalar | None]:
    """The key `service:` of a search space, and the bins that its `today:` names; None where it has none.

    Args:
        bins: choices of the space's parameter for them.

    Raises:
        ConfigError: with file, line and key.
    """
    if not top.has("service"):
        return None, None
    with top.section("service") as section:
        batches = section.integers("max_batch_size", (1,), minimum=1)
        workers = section.integers("workers", (1,), minimum=1)
        timeouts_ms = _timeouts(section)
        for key, values, most in (("max_batch_size", batches, MAX_BATCH), ("workers", workers, MAX_WORKERS)):
            if not values or len(set(values)) != len(values) or max(values) > most:
                raise section.error(key, f"{list(values)} must be different numbers up to {most}.")
        choices = ServiceChoices(max_batch_size=batches, batch_timeout_ms=timeouts_ms, workers=workers)
        if len(choices.settings()) > MAX_SETTINGS:
            raise section.error(
                None, f"{len(choices.settings())} settings are more than {MAX_SETTINGS}.", "Take choices out."
            )
        if not section.has("today"):
            return choices, None
        now, todays_bins = _today(section, choices, bins)
        return replace(choices, today=now), todays_bins


def _today(section: Section, choices: ServiceChoices, bins: Sequence[Scalar]) -> tuple[ServiceSettings, Scalar | None]:
    """What the service runs now; one of the choices, so that what is found is never worse."""
    with section.section("today") as now:
        batch, timeout_ms, workers = (
            now.integer("max_batch_size", minimum=1),
            now.number("batch_timeout_ms", minimum=0.0, maximum=10_000),
            now.integer("workers", minimum=1),
        )
        for key, value, offered in (
            ("max_batch_size", batch, choices.max_batch_size),
            ("batch_timeout_ms", timeout_ms, choices.batch_timeout_ms),
            ("workers", workers, choices.workers),
        ):
            if value not in offered and not (key == "batch_timeout_ms" and batch == 1):
                now.refuse(
                    key,
                    f"{value:g} is not among {', '.join(f'{one:g}' for one in offered)}.",
                    f"Add it to service.{key}: what runs today is one of the choices.",
                )
        chosen: Scalar | None = None
        if now.has("sequence_bins"):
            chosen = str(now.raw("sequence_bins"))
            if chosen not in bins:
                among = f"not among {', '.join(map(str, bins))}" if bins else "no choice: the space offers no such bins"
                now.refuse(
                    "sequence_bins",
                    f"{chosen!r} is {among}.",
                    "Add it to parameters.serving.sequence_bins: what runs today is one of the choices.",
                )
        timeout_ms = timeout_ms if batch > 1 else 0.0
        return ServiceSettings(max_batch_size=batch, batch_timeout_ms=timeout_ms, workers=workers), chosen


def _timeouts(section: Section) -> tuple[float, ...]:
    values = section.raw("batch_timeout_ms", [0.0])
    numbers = (
        [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if isinstance(values, list)
        else []
    )
    if not numbers or len(numbers) != len(values) or len(set(numbers)) != len(numbers):
        raise section.error(
            "batch_timeout_ms", f"expected a list of different numbers, got {values!r}.", "Write [0, 2, 5]."
        )
    if not all(0 <= value <= 10_000 for value in numbers):
        raise section.error("batch_timeout_ms", f"{values!r}: milliseconds from 0 to 10000.")
    return tuple(map(float, numbers))


def _load(section: Section) -> ServiceLoad | None:
    given = [key for key in ("concurrency", "rate", "trace") if section.has(key)]
    if not given:
        section.refuse_unknown()  # a misspelt load is likelier than a forgotten one
    if len(given) != 1:
        raise section.error(
            given[1] if given else None,
            f"expected one of concurrency, rate and trace, got {', '.join(given) or 'none of them'}.",
            "concurrency: 100 is 100 clients that wait for their answers; rate: 500 independent users, a second; "
            "trace a file of arrival times.",
        )
    if given == ["concurrency"]:
        return ServiceLoad(concurrency=section.integer("concurrency", minimum=1, maximum=MOST_CLIENTS))
    if given == ["rate"]:
        if section.raw("rate") == HIGHEST:
            return None
        return ServiceLoad(arrivals="poisson", rate_per_s=section.number("rate", minimum=1e-3, maximum=MOST_PER_S))
    return read_trace(section.file_path("trace"))


def read_trace(path: Path) -> ServiceLoad:
    """Arrival times in seconds, one a line, ascending, as a log gives them; the first becomes 0.

    Raises:
        ConfigError: file and line of the first that is no time, or earlier than the one before.
    """
    times: list[float] = []
    with open_lines(path, limit_bytes=_MOST_TRACE_BYTES) as lines:
        for number, line in enumerate((line.strip() for line in lines), start=1):
            if not line:
                continue
            try:
                value = float(line)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                hint = "Write seconds, one time a line."
                raise ConfigError(f"{line[:40]!r} is no time in seconds.", file=path, line=number, hint=hint)
            if times and value < times[-1]:
                rule, hint = f"{line[:40]!r} comes before {times[-1]:.15g}.", "Write the times in ascending order."
                raise ConfigError(rule, file=path, line=number, hint=hint)
            times.append(value)
    if len(times) < 2:
        raise ConfigError("holds fewer than two arrival times.", file=path)
    return ServiceLoad(arrivals="trace", trace_s=tuple(value - times[0] for value in times))


def _host(section: Section) -> HostCosts:
    """Costs that the user states, for a host that is not this one; every figure that rests on them says so."""
    with section.section("host") as host:
        numbers: dict[str, Any] = {
            name: host.number(name, 0.0, minimum=0.0)
            for name in ("batch_ms", "worker_batch_ms", "worker_row_ms", "client_ms", "transport_ms", "network_ms")
        }
        cores = host.number("cores", 1.0, minimum=1.0, maximum=MOST_CORES)
        try:
            return HostCosts(
                request_ms=host.number("request_ms", minimum=0.0),
                capacity=tuple(float(min(n, cores)) for n in range(1, int(-(-cores // 1)) + 1)),
                origin=f"assumed in {section.file.name}: {host.text('origin')}",
                **numbers,
            )
        except ConfigError as error:
            raise host.error(None, str(error)) from error
