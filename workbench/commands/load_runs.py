"""Loads of one server under several conditions, one after the other, shown and kept as they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.commands.console import say, tell
from workbench.commands.loading import Asking, Question, Server, question
from workbench.values.errors import ConfigError
from workbench.values.system.files import write_json_atomically

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.load import LoadResult
    from workbench.shipping.acceptance import Baseline, LoadFigures
    from workbench.values.service import ServiceLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Attributes: asked: by whoever started the command, so that what is wrong with it ends the command."""

    load: ServiceLoad
    length: int | None
    batch: int
    asked: bool = True

    @property
    def name(self) -> str:
        """Of its files."""
        load = self.load
        detail = {
            "closed": f"-{load.concurrency}",
            "poisson": f"-{load.rate_per_s:g}" if load.rate_per_s else "",
            "trace": "",
        }
        length = f"-length-{self.length}" if self.length is not None else ""
        return f"{load.arrivals}{detail[load.arrivals]}{length}" + (f"-batch-{self.batch}" if self.batch > 1 else "")


def conditions_of(asked: ServiceLoad, how: Asking, against: Baseline | None) -> list[Conditions]:
    """The load asked for, then those of a baseline where it is not one of them."""
    kept: dict[tuple[ServiceLoad, int | None, int], Conditions] = {}
    theirs = against.loads if against is not None else ()
    for one in (Conditions(load=asked, length=how.length, batch=how.batch), *(conditions_like(t) for t in theirs)):
        kept.setdefault((one.load, one.length, one.batch), one)
    return list(kept.values())


def conditions_like(theirs: LoadFigures) -> Conditions:
    """A baseline's load; texts of their own lengths where it does not say any."""
    from workbench.values.service import ServiceLoad

    load = ServiceLoad(concurrency=theirs.concurrency)
    return Conditions(load=load, length=theirs.length, batch=theirs.batch, asked=False)


def run_loads(
    server: Server,
    how: Asking,
    conditions: Sequence[Conditions],
    common: Mapping[str, Any],
    *,
    to: Path | None = None,
    command: str = "",
    quiet: bool = False,
) -> Iterator[tuple[Conditions, Question, LoadResult]]:
    """Run one load after the other; ends early where one was interrupted. A baseline's conditions that the data or the
    model cannot meet are left out with a word about it.

    Args:
        common: fields of LoadPlan that all of them share.
        to: folder for results and times; None to keep none.
    """
    from workbench.load import LoadPlan, run_load
    from workbench.load.text import result_lines

    questions: dict[tuple[int | None, int], Question] = {}
    sent = {"seed": common["seed"], "timeout_s": common["timeout_s"]}
    for one in conditions:
        key = one.length, one.batch
        try:
            if key not in questions:
                questions[key] = question(server, replace(how, length=one.length, batch=one.batch), **sent)
        except ConfigError as error:
            if one.asked:
                raise
            tell(f"not loaded with {one.load}, as the baseline was: {error}", style="yellow")
            continue
        asked = questions[key]
        allowed = tuple(how.host_allowed or ())
        of = {**common, **asked.plan, "batch": one.batch, "length": one.length, "allowed_hosts": allowed}
        plan = LoadPlan(url=server.url, load=one.load, **of)
        tell(f"loading {plan.url}: {plan.load}, {plan.warmup_s:g} + {plan.duration_s:g} s")
        times = f"times-{one.name}.npz" if to is not None else None
        result = run_load(
            plan,
            asked.requests,
            api_key=server.api_key,
            server_pid=server.pid,
            devices=server.devices,
            times_to=to / times if to is not None and times is not None else None,
        )
        result = replace(result, times=times, command=command)
        if to is not None:
            write_json_atomically(to / f"load-{one.name}.json", result.to_json())
        if not quiet:
            say("\n".join(result_lines(result)))
        yield one, asked, result
        if result.interrupted:
            return
