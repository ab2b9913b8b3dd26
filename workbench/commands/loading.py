"""What `workbench load` and `workbench baseline record` share: who is asked, with what requests, and the loads.

A server is one behind a URL, of ours, of the open inference protocol or of OpenAI's API, or one of
our own over a bundle.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from workbench.commands.console import say, tell
from workbench.commands.options import existing_file, pairs
from workbench.values.documents.yaml_reader import is_pipeline
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.system.files import write_json_atomically
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.bundle.opened import Bundle
    from workbench.inputs.dataset import Dataset
    from workbench.load import LoadResult, Request
    from workbench.load.kserve.served import ServedModel
    from workbench.load.server import DeviceReaders
    from workbench.shipping.acceptance.baseline import LoadFigures
    from workbench.values.model import Model
    from workbench.values.preprocess import Text
    from workbench.values.service import ServiceLoad

    Question = tuple[Sequence[str | Request], Mapping[str, Any], ServedModel | None]
    """Requests, the fields of their LoadPlan that depend on them, and the server's model, if it speaks kserve-v2."""

PREDICT, KSERVE, OPENAI = "predict", "kserve-v2", "openai"
_TRITON_METRICS = 8002
MOST_REQUESTS = 200
"""Of a pipeline's, which may be pictures."""

_PLATFORMS = f"{PREDICT} (our service), {KSERVE} (Triton, KServe, MLServer)"

Protocol = Annotated[
    str, typer.Option(help=f"{_PLATFORMS}, or {OPENAI} (vLLM, MindIE and others that stream tokens; only `load`)")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What is loaded; `bundle` and `pid` where we serve it ourselves.

    Attributes:
        named: as the user named it, perhaps with the path of its API.
    """

    url: str
    named: str
    api_key: str | None
    bundle: Bundle | None = None
    pid: int | None = None
    devices: DeviceReaders | None = None


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What is sent, and how a server is asked, as the command line says it.

    Attributes:
        model: name on the server.
    """

    data: Annotated[
        Path | None, typer.Option(exists=True, help="texts to send: .txt, .jsonl, .csv, or a dataset manifest (.yaml)")
    ] = None
    experiment: Annotated[Path | None, existing_file("send the texts of its validation split")] = None
    protocol: Protocol = PREDICT
    model: Annotated[str, typer.Option(help=f"of a {KSERVE} or {OPENAI} server; default: the only one")] = ""
    model_version: Annotated[str, typer.Option(help="of that model; default: the server's choice")] = ""
    map_input: Annotated[
        list[str] | None,
        typer.Option(help="SERVER=OURS: which of our inputs the server's is, such as INPUT__0=input_ids; repeat"),
    ] = None
    length: Annotated[
        int | None, typer.Option(min=1, help="tokens of every text, made of the data's; default: their own")
    ] = None
    batch: Annotated[int, typer.Option(min=1, help="samples in each request")] = 1
    metrics_url: Annotated[
        str | None,
        typer.Option(help="http://HOST:PORT with the server's /metrics; default: the URL's, of kserve-v2 :8002"),
    ] = None
    host_allowed: Annotated[
        list[str] | None, typer.Option(help="another host than this one that may be loaded; repeat for more")
    ] = None
    map_output: list[str] | None = None  # an option of `baseline record` alone

    def __post_init__(self) -> None:
        if self.protocol not in (PREDICT, KSERVE, OPENAI):
            raise ConfigError(f"{self.protocol!r} is none of {PREDICT}, {KSERVE}, {OPENAI}.", key="--protocol")
        if self.protocol == PREDICT and self.model:
            raise ConfigError(f"is for --protocol {KSERVE} or {OPENAI}.", key="--model")
        if self.protocol != KSERVE and (self.model_version or self.renamed_inputs):
            raise ConfigError(f"is for --protocol {KSERVE}.", key="--model-version, --map-input")
        if self.protocol != KSERVE and self.data is not None and self.experiment is not None:
            raise ConfigError("two sources of texts.", key="--data, --experiment", hint="Name one.")
        if self.protocol == OPENAI and (self.length is not None or self.batch > 1):
            raise ConfigError(
                "a request is one prompt of its own length.",
                key="--length, --batch",
                hint="Lengths of answers: max_tokens in a prompt's line, or --max-tokens.",
            )

    @functools.cached_property
    def renamed_inputs(self) -> dict[str, str]:
        """Server's input → ours."""
        return pairs(self.map_input or (), "--map-input")

    @functools.cached_property
    def dataset(self) -> tuple[Dataset, Model | None] | None:
        """What the experiment, or a dataset's manifest, holds; None where neither is named."""
        from workbench.inputs.dataset import read_manifest
        from workbench.inputs.experiment import read_experiment

        if self.experiment is not None:
            if is_pipeline(self.experiment):
                from workbench.inputs.pipeline import read_pipeline

                return read_pipeline(self.experiment).dataset, None
            found = read_experiment(self.experiment)
            return found.dataset, found.model
        if self.data is not None and self.data.suffix in (".yaml", ".yml"):
            return read_manifest(self.data), None
        return None

    def question(self, server: Server, common: Mapping[str, Any]) -> Question:
        """What is sent; `common` are the fields of LoadPlan that all loads share."""
        if self.protocol == KSERVE:
            return _of_another_platform(server, self)
        return _bodies(server, self), {"metrics": metrics_of(self)}, None


@contextlib.contextmanager
def open_server(
    target: str, settings: Mapping[str, float | int | None], api_key: str | None, how: Asking
) -> Iterator[Server]:
    """The service behind a URL, whose host may be loaded, or one of our own over a bundle until the block ends.

    Args:
        settings: option → value, of a bundle's service.
    """
    from workbench.load import LoadPlan
    from workbench.load.service_process import running_service
    from workbench.values.service import ServiceLoad

    options = [part for name, value in settings.items() if value is not None for part in (name, f"{value:g}")]
    if "://" in target:
        if options:
            raise ConfigError("is for a bundle; a running service has its settings.", key=options[0])
        url = urlsplit(target)._replace(path="").geturl() if how.protocol == OPENAI else target
        LoadPlan(url=url, load=ServiceLoad(concurrency=1), allowed_hosts=tuple(how.host_allowed or ()))  # is checked
        yield Server(url=url, named=target, api_key=api_key)
        return
    if how.protocol != PREDICT:
        raise ConfigError("a bundle is served by our own service.", key="--protocol", hint="Name the URL of a server.")
    from workbench.bundle.opened import read_bundle
    from workbench.bundle.pipeline import is_pipeline_bundle
    from workbench.load.server import DeviceReaders
    from workbench.serve.workers import places_of
    from workbench.targets import described

    bundle = None if is_pipeline_bundle(Path(target)) else read_bundle(Path(target))
    with scratch_folder("load") as folder:
        tell(f"starting the service of {target}")
        with running_service(Path(target), log=folder / "serve.log", more=options) as running:
            artifact, devices = None if bundle is None else bundle.manifest.artifact, None
            if artifact is not None and (read := described(artifact.target).read_device) is not None:
                places = places_of(artifact.target, None)  # of the cards that the service uses
                readers = {place.card: read(place.device, {**os.environ, **place.environment}) for place in places}
                emulated = artifact.toolchain.emulated
                devices = DeviceReaders(readers=readers, source="the vendor's tool", emulated=emulated)
            yield Server(
                url=running.url, named=target, api_key=running.api_key, bundle=bundle, pid=running.pid, devices=devices
            )


def facts_of(server: Server) -> dict[str, Any]:
    """What the service says of itself (GET /info); empty where it is no service of ours."""
    from workbench.load.http1 import asked

    headers = {"X-API-Key": server.api_key} if server.api_key else {}
    try:
        status, found, _ = asked(server.url, "GET", "/info", None, headers)
    except (ConfigError, MeasureError):
        return {}
    return found if status == 200 and isinstance(found, dict) else {}


def run_loads(
    server: Server,
    how: Asking,
    own: Iterable[ServiceLoad],
    theirs: Iterable[LoadFigures],
    common: Mapping[str, Any],
    *,
    to: Path | None = None,
    command: str = "",
    quiet: bool = False,
) -> Iterator[tuple[Question, LoadResult]]:
    """Run one load after the other, shown and kept as they end; ends early where one was interrupted.

    Args:
        own: as `how` says; what is wrong with them ends the command.
        theirs: a baseline's that are not among them, texts of their own lengths where it does not say any; what the
            data or the model cannot meet is left out with a word about it.
        common: fields of LoadPlan that all of them share.
        to: folder for results and times; None to keep none.
    """
    from workbench.load import LoadPlan, run_load
    from workbench.load.text import result_lines
    from workbench.values.service import ServiceLoad

    wanted = {(load, how.length, how.batch): True for load in own}
    for one in theirs:
        wanted.setdefault((ServiceLoad(concurrency=one.concurrency), one.length, one.batch), False)
    questions: dict[tuple[int | None, int], Question] = {}
    for (load, length, batch), ours in wanted.items():
        try:
            if (length, batch) not in questions:
                questions[length, batch] = replace(how, length=length, batch=batch).question(server, common)
        except ConfigError as error:
            if ours:
                raise
            tell(f"not loaded with {load}, as the baseline was: {error}", style="yellow")
            continue
        requests, of_requests, _ = asked = questions[length, batch]
        allowed = tuple(how.host_allowed or ())
        of = {**common, **of_requests, "length": length, "batch": batch, "allowed_hosts": allowed}
        plan = LoadPlan(url=server.url, load=load, **of)
        tell(f"loading {plan.url}: {plan.load}, {plan.warmup_s:g} + {plan.duration_s:g} s")
        name = {"closed": f"closed-{load.concurrency}", "poisson": f"poisson-{load.rate_per_s or 0:g}"}.get(
            load.arrivals
        )
        name = (name or load.arrivals) + (f"-length-{length}" if length is not None else "")
        name += f"-batch-{batch}" if batch > 1 else ""
        times = None if to is None else to / f"times-{name}.npz"
        result = run_load(
            plan,
            requests,
            api_key=server.api_key,
            server_pid=server.pid,
            devices=server.devices,
            times_to=times,
        )
        result = replace(result, times=None if times is None else times.name, command=command)
        if to is not None:
            write_json_atomically(to / f"load-{name}.json", result.to_json())
        if not quiet:
            say("\n".join(result_lines(result)))
        yield asked, result
        if result.interrupted:
            return


# --- requests: the experiment's texts, those of a file, or the bundle's golden samples --------------------------------


def _of_another_platform(server: Server, how: Asking) -> Question:
    from workbench.load import bodies_of_file
    from workbench.load.kserve.asking import ask, requests_of, samples_of
    from workbench.load.kserve.served import path_of, served_model

    renamed = {"renamed_inputs": how.renamed_inputs, "renamed_outputs": pairs(how.map_output or (), "--map-output")}
    model = served_model(server.url, how.model, how.model_version, **renamed)
    chosen = how.dataset
    if chosen is None:
        raise ConfigError(
            f"{model} takes {', '.join(t.name for t in model.inputs)}; nothing says which samples to send.",
            key="--experiment",
            hint="Name an --experiment, or a dataset's manifest with --data: its tokenizer makes the inputs.",
        )
    texts = None
    if how.data is not None and how.experiment is not None and not (texts := _texts_of(bodies_of_file(how.data))):
        raise ConfigError("holds arrays; texts are needed here.", file=how.data, key="--data")
    samples = samples_of(chosen[0], "validation", model, batch=how.batch, length=how.length, texts=texts)
    first = list(itertools.islice(samples, 1))
    for one in first:
        ask(model, one)  # an error in the server's own words, before thousands of requests fail
    requests = requests_of(model, itertools.chain(first, samples))
    tell(f"asking {model}: {len(requests)} requests ready, {model.wire}")
    plan = {"path": f"{path_of(model.name, model.version)}/infer", "wire": model.wire, "model": model.name}
    return requests, {**plan, "metrics": metrics_of(how, server.url)}, model


def _bodies(server: Server, how: Asking) -> Sequence[str | Request]:
    from workbench.bundle.golden import preprocessor_of
    from workbench.bundle.pipeline import is_pipeline_bundle, read_pipeline_bundle
    from workbench.load import bodies_of_bundle, bodies_of_dataset, bodies_of_file
    from workbench.load.requests import MOST_BODIES, bodies_of_texts, npz_bodies, texts_of_length

    chosen = how.dataset
    if how.experiment is not None and is_pipeline(how.experiment):
        assert chosen is not None  # that of its requests
        batches = chosen[0].batches("validation", 1, stop=MOST_REQUESTS)
        return npz_bodies({name: array[0] for name, array in batch.feeds.items()} for batch in batches)
    if chosen is None and how.data is None and is_pipeline_bundle(Path(server.named)):
        return npz_bodies(read_pipeline_bundle(Path(server.named)).golden()[0])
    if chosen is not None:
        bodies = bodies_of_dataset(chosen[0], model=chosen[1])
    elif how.data is not None:
        bodies = bodies_of_file(how.data)
    elif server.bundle is not None:
        bodies = bodies_of_bundle(server.bundle)
        tell(f"sending the {len(bodies)} golden samples; --experiment sends texts with the lengths of your data")
    else:
        raise ConfigError(
            "a URL does not say what to ask.", key="--data", hint="Name a file of texts, or an --experiment."
        )
    if how.length is None and how.batch == 1:
        return bodies
    texts = _texts_of(bodies)
    preprocessor = chosen[0].preprocessor if chosen is not None else None
    if preprocessor is None and server.bundle is not None:
        preprocessor = preprocessor_of(server.bundle)
    if preprocessor is None or not texts:
        raise ConfigError(
            "needs texts and their tokenizer.",
            key="--length, --batch",
            hint="Name the --experiment whose texts are sent; a BUNDLE whose samples are texts has both, too.",
        )
    if how.length is not None:
        texts = texts_of_length(preprocessor, texts, how.length, MOST_BODIES)
    bodies = bodies_of_texts(texts, how.batch)
    if not bodies:
        raise ConfigError(f"{len(texts)} texts are fewer than one request takes.", key="--batch")
    return bodies


def _texts_of(bodies: Iterable[str]) -> list[Text]:
    """The texts of requests; none where some hold arrays."""
    asked = [json.loads(body) for body in bodies]
    if any("inputs" in one for one in asked):
        return []
    return [one["text"] if "text" in one else tuple(one["words"]) for one in asked]


def metrics_of(how: Asking, url: str | None = None) -> tuple[str, int] | None:
    """Where /metrics is, if it is not at the URL itself: Triton has a port of its own for it."""
    if how.metrics_url is not None:
        parts = urlsplit(how.metrics_url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/", "/metrics"):
            raise ConfigError(f"{how.metrics_url!r} is no http://HOST:PORT.", key="--metrics-url")
        return parts.hostname, parts.port or 80
    return None if url is None else (urlsplit(url).hostname or "", _TRITON_METRICS)
