"""A bundle in words: its README for operations, and what a registry of models says of it; from its manifest alone."""

from __future__ import annotations

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import DEPLOY, INTEGRITY, MANIFEST, MODEL, README, Manifest
from workbench.bundle.opened import Bundle
from workbench.bundle.paths import SIGNATURE
from workbench.targets import described
from workbench.values.candidate import Serving
from workbench.values.documents.canonical import canonical_json
from workbench.values.documents.input_files import size_text
from workbench.values.measurement import Estimate, ServiceFigures
from workbench.values.metrics import metrics
from workbench.values.model import TensorSpec
from workbench.values.results import Evaluation
from workbench.values.setting_groups import describe


def readme(manifest: Manifest) -> str:
    """Markdown: what it is, how to check it, what it needs, its limits and acceptance figures."""
    if manifest.task == LANGUAGE:
        return _language_readme(manifest)
    artifact, candidate = manifest.artifact, manifest.candidate
    lines = [f"# {manifest.name}", ""]
    if artifact.toolchain.emulated:
        lines += ["**Emulated: made without a device. For rehearsals only; no figure here was measured.**", ""]
    if manifest.unconfirmed:
        lines += [f"**Not confirmed. {manifest.unconfirmed}**", ""]
    if manifest.about:
        lines += [manifest.about, ""]
    lines += [
        f"Candidate `{manifest.candidate_id[:12]}`: {describe(candidate)}.",
        f"Made {manifest.created_at} by workbench {manifest.workbench} from `{manifest.model.file}` "
        f"(sha256 `{manifest.model.sha256[:12]}…`).",
        "",
        *_checks("the serving machine: loads the model and replays golden samples"),
        "## What it needs",
        "",
        f"- target `{artifact.target}`, {', '.join(f'{k} {v}' for k, v in artifact.toolchain.components.items())}",
        f"- figures below are from {artifact.toolchain.device} ({', '.join(artifact.toolchain.features)})",
        f"- {_serving(candidate.serving, candidate.target)}",
        *(f"- {words}" for words in described(artifact.target).loading(artifact, candidate)),
        "",
        "## Serve it",
        "",
        "```",
        "workbench serve .           # POST /predict, /health, /info, /metrics on 127.0.0.1:8000",
        "```",
        "",
        *_service(manifest),
        "",
        "## Inputs and limits",
        "",
        f"Task: {manifest.task}." + (f" {len(manifest.labels)} labels in `labels.json`." if manifest.labels else ""),
        "",
    ]
    lines += [f"- input `{s.name}`: {s.dtype} {_shape(s)}" for s in manifest.model.inputs]
    lines += [f"- output `{s.name}`: {s.dtype} {_shape(s)}" for s in manifest.model.outputs]
    lines += _prepared(manifest)
    if manifest.text is not None:
        lines += [
            f"- texts are tokenized by `{manifest.text.tokenizer}` and cut to {manifest.text.max_length} tokens, "
            "special tokens included",
            f"- a batch is padded to the smallest of {', '.join(map(str, manifest.text.bins))} that holds it",
        ]
    for axis in (axis for axis in manifest.axes if axis.bins):
        lines.append(
            f"- arrays of any size up to {axis.bins[-1]} along `{axis.name}` may be sent: they are padded with "
            f"{axis.pad:g} to the smallest of {', '.join(map(str, axis.bins))} that holds them; answers are cut back"
        )
    lines += ["", "## Acceptance figures", "", *figures(manifest), "", "## Files", ""]
    lines += [f"- `model/{f.file}`: {f.size_bytes / 1e6:.1f} MB" for f in artifact.files]
    cfg = candidate.quantization.cfg
    lines += [
        *([f"- `{manifest.record}`: scale and zero point of every INT8 layer"] if manifest.record is not None else []),
        *([f"- the configuration it follows: `candidate.quantization.cfg` of `{MANIFEST}`"] if cfg is not None else []),
        f"- {artifact.int8_ops} operators run in integer kernels, "
        f"{artifact.float_matmuls_left} matrix products in float",
        f"- `{manifest.golden}`: golden samples; a replay may differ by {manifest.tolerance.absolute:g} + "
        f"{manifest.tolerance.relative:g} of the value",
        f"- `{MANIFEST}`: all of this and more for programs",
        "",
    ]
    return "\n".join(lines)


def _checks(verified: str) -> list[str]:
    """How whoever received it checks it, and what else says what it is."""
    return [
        "## Check it after every copy",
        "",
        "```",
        "sha256sum -c SHA256SUMS     # any machine",
        f"workbench verify .          # {verified}",
        "```",
        "",
        f"The {INTEGRITY}. Where `{SIGNATURE}` lies beside them, `workbench verify . --trusted-keys FILE` proves whose "
        "they are, and so does minisign.",
        "",
        "What it is made of: `sbom.cdx.json` (CycloneDX).",
        "",
    ]


def _prepared(manifest: Manifest) -> list[str]:
    """How the interface above came from the user's file."""
    origin = manifest.model.origin
    if origin is None:
        return []
    lines = ["", f"Prepared from `{origin.path.name}` (sha256 `{origin.sha256}`), opset {origin.opset}:", ""]
    for step in origin.steps:
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in step.figures)
        lines.append(f"- {step.name}: {step.words}" + (f" ({figures})" if figures else ""))
    if (origin.inputs, origin.outputs) != (manifest.model.inputs, manifest.model.outputs):
        lines += ["", "So what is fed differs from that file, which has:", ""]
        lines += [f"- input `{s.name}`: {s.dtype} {_shape(s)}" for s in origin.inputs]
        lines += [f"- output `{s.name}`: {s.dtype} {_shape(s)}" for s in origin.outputs]
    return lines


def _service(manifest: Manifest) -> list[str]:
    found = next((e.measurement.service for e in reversed(manifest.evaluations) if e.measurement.service), None)
    lines = [f"- settings: {manifest.service}; `--workers`, `--max-batch-size` and `--batch-timeout-ms` override them"]
    if manifest.text is not None:
        lines.append(
            f"- requests wait in one queue for each padded length: {', '.join(map(str, manifest.text.bins))} tokens"
        )
    if found is not None:
        for figures in filter(None, (found.best or found.closest, found.confirmed)):
            kind = "modelled" if figures.clock == "modelled" else figures.kind
            lines.append(f"- {kind}: {_service_figures(figures)}")
    if manifest.deploy_files:
        names = ", ".join(f"`{name.removeprefix(f'{DEPLOY}/')}`" for name in manifest.deploy_files)
        lines.append(f"- in production: {names} in `{DEPLOY}/`, examples to adapt to your site; its README says how")
    return lines


def _service_figures(figures: ServiceFigures) -> str:
    words = (
        f"{figures.throughput_per_s.value:.4g} requests/s, P50 {figures.p50_ms.value:.3g} ms, "
        f"P99 {figures.p99_ms.value:.3g} ms under {figures.load}"
    )
    if figures.settings.workers > 1 or figures.devices > 1:
        words += f", {_count(figures.settings.workers, 'worker')} on {_count(figures.devices, 'device')}"
    if figures.clock == "modelled":
        words += "; the model's times are an emulator's, not measured"
    return words if figures.reliable else f"{words}; not to be relied on: {figures.note}"


def figures(manifest: Manifest) -> list[str]:
    """A table with one column per evaluation, the numbers those of the sweep's report, and what to know about them."""
    columns = [("float", "the float model", e) for e in manifest.baseline]
    columns += [("this", "this candidate", e) for e in manifest.evaluations]
    numbers = [_numbers(evaluation) for _, _, evaluation in columns]
    names = dict.fromkeys(name for column in numbers for name in column)
    lines = [
        "| | " + " | ".join(f"{short}, {e.split}" for short, _, e in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        *(f"| {name} | {' | '.join(column.get(name, '') for column in numbers)} |" for name in names),
        "",
        "Brackets are 95 % intervals. The search saw validation and never holdout. "
        + (
            "Losses were computed on a processor, in the arithmetic of the card; modelled times are a timing model's."
            if manifest.task == LANGUAGE
            else f"Times are corrected for the drift of the machine during the sweep; raw times are in `{MANIFEST}`."
        ),
    ]
    for _, what, evaluation in columns:
        if evaluation.stop is not None:
            lines += ["", f"{what.capitalize()}, not measured in full on {evaluation.split}: {evaluation.stop.reason}"]
        latency = evaluation.measurement.latency
        if latency is not None and not latency.quiet:
            lines += ["", f"Timing of {what} on {evaluation.split}: {latency.verdict}"]
    return lines


_AGREEMENT = {
    "worst_cosine": "worst cosine with float32",
    "max_abs": "largest difference to float32",
    "mae": "mean absolute difference to float32",
    "top1_agreement": "equal decisions with float32",
}


def _numbers(evaluation: Evaluation) -> dict[str, str]:
    numbers, m = metrics(evaluation), evaluation.measurement
    found: dict[str, str] = {}

    def ranged(known: Estimate, form: str) -> str:
        return f"{known.value:{form}} [{known.low:{form}}, {known.high:{form}}]"

    if m.accuracy is not None:
        found |= {name: f"{value:.4f}" for name, value in m.accuracy.values.items()}
        found["samples scored" if m.language is None else "windows scored"] = str(m.accuracy.samples)
        for words, compared in (
            (f"accuracy loss against {'float32' if m.accuracy.reference else 'float'}", m.accuracy.comparison),
            ("of it beyond the float model's own", m.accuracy.against_baseline),
        ):
            if compared is not None:
                found[f"{words}, {compared.unit}"] = ranged(compared.drop_pp, ".2f")
    for name, words in _AGREEMENT.items():
        if evaluation.agreement is not None and name in numbers:
            found[words] = f"{numbers[name]:.6g}"
    if m.language is not None:
        found["prefill, ms, modelled"] = ranged(m.language.prefill_ms, ".3g")
        found["decode of one token, ms, modelled"] = ranged(m.language.decode_ms, ".3g")
        found["cache of a token, kB"] = f"{numbers['kv_kb_per_token']:.4g}"
    elif m.latency is not None:
        found["latency P50, ms"] = ranged(m.latency.undrifted_p50_ms, ".3g")
        found["latency P95, ms"] = f"{numbers['latency_p95_ms']:.3g}"
        if "latency_p99_ms" in numbers:
            found["latency P99, ms"] = f"{numbers['latency_p99_ms']:.3g}"
        found["throughput, samples/s"] = f"{numbers['throughput_per_s']:.4g}"
        found["speed-up over float"] = ranged(m.latency.speedup, ".2f")
    if "size_mb" in numbers:
        found["size, MB"] = f"{numbers['size_mb']:.1f}"
    if "peak_memory_mb" in numbers:
        found["peak memory, MB"] = f"{numbers['peak_memory_mb']:.0f}"
    return found


def _serving(serving: Serving, target: str) -> str:
    words = [_count(serving.intra_op_threads, "thread"), f"batch {serving.batch}"]
    words = words[not described(target).on_host :]  # beside devices the host's threads compute nothing
    if serving.streams is not None:
        words.append(_count(serving.streams, "stream"))
    return ", ".join(words)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _shape(spec: TensorSpec) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in spec.shape) + "]"


_RECIPE = "recipe.yaml"


def _language_readme(manifest: Manifest) -> str:
    """The same of a language model."""
    artifact, candidate = manifest.artifact, manifest.candidate
    kinds = ", ".join(
        f"{count} {kind}" for kind, count in sorted(artifact.kernels.items(), key=lambda k: (-k[1], k[0]))
    )
    weights = sum(file.size_bytes for file in artifact.files if file.file.endswith(".safetensors"))
    recipe = next((name for name in (f"{MODEL}/{_RECIPE}", _RECIPE) if name in manifest.files), None)
    lines = [
        f"# {manifest.name}",
        "",
        *([manifest.about, ""] if manifest.about else []),
        f"A quantized language model, candidate `{manifest.candidate_id[:12]}`: {describe(candidate)}.",
        f"Made {manifest.created_at} by workbench {manifest.workbench} from the folder `{manifest.model.file}` "
        f"(digest `{manifest.model.sha256[:12]}…`, {size_text(manifest.model.size_bytes)}; it is not in here).",
        "",
        f"Linears by type: {kinds}. Weights: {size_text(weights)}.",
        "",
        "**No card was there.** Losses and answers are computed on a processor in the card's arithmetic, as far as its "
        "documents say it; times are modelled.",
        "",
        *_checks("reads the checkpoint as the engine would, and replays the golden prompts"),
        "## Serve it",
        "",
        f"`workbench serve` does not serve language models; engines do. `{DEPLOY}/README.md` says which, from which "
        "version on, and what does not work; its files hold their commands:",
        "",
        *(f"- `{name}`" for name in manifest.deploy_files),
        "",
        "## Acceptance figures",
        "",
        *(figures(manifest) if manifest.evaluations else ["Not measured: the checkpoint was bundled without a sweep."]),
        "",
        "## Files",
        "",
        *(f"- `{MODEL}/{file.file}`: {size_text(file.size_bytes)}" for file in artifact.files),
        *([f"- `{recipe}` is the recipe in the quantizer's own YAML"] if recipe else []),
        f"- `{manifest.golden}`: {manifest.golden_batches} golden prompts with greedy answers and the logits there; a "
        f"replay may differ by {manifest.tolerance.absolute:.3g} + {manifest.tolerance.relative:g} of the logit; the "
        "file says where that is from",
        f"- `{MANIFEST}`: all of this and more for programs",
        "",
    ]
    return "\n".join(lines)


# --- for a registry of models ---------------------------------------------------------------------------------------


def provenance(bundle: Bundle) -> dict[str, str]:
    """Tags of a registered version: what it is, what it was made from, with and where. Few, since MLflow lists all.

    `data` is JSON, split → digest; `components` is name and version of everything in the toolchain.
    """
    manifest = bundle.manifest
    toolchain = manifest.artifact.toolchain
    return {
        "figures": _headline(manifest),
        "emulated": "true" if toolchain.emulated else "false",
        "service": str(manifest.service),
        "target": toolchain.target,
        "device": toolchain.device,
        "candidate": manifest.candidate_id,
        "model_sha256": manifest.model.sha256,
        **({} if manifest.model.origin is None else {"source_model_sha256": manifest.model.origin.sha256}),
        "data": canonical_json(manifest.datasets),
        "toolchain": toolchain.fingerprint,
        "components": ", ".join(f"{name} {version}" for name, version in sorted(toolchain.components.items())),
        "workbench": manifest.workbench,
        "size_bytes": str(sum(s.size_bytes for s in manifest.files.values())),
        "created_at": manifest.created_at,
        "source": str(bundle.directory.resolve()),
    }


def description(bundle: Bundle) -> str:
    """Markdown: a headline, which is all that a list of versions shows, then the README's settings and figures."""
    manifest = bundle.manifest
    text = bundle.read(README).decode("utf-8")
    first, *parts = text.split("\n## ")
    emulated = "EMULATED. " if manifest.artifact.toolchain.emulated else ""
    headline = f"{emulated}{describe(manifest.candidate)}. {_headline(manifest)}"
    wanted = [part for part in parts if part.startswith(("Acceptance figures", "Serve it"))]
    return "\n## ".join([headline + "\n" + first.removeprefix(f"# {manifest.name}\n"), *wanted])


def _headline(manifest: Manifest) -> str:
    """Of the confirmation if there is one, else of the search; in words."""
    if not manifest.evaluations:
        return "not measured"
    evaluation = manifest.evaluations[-1]
    accuracy = evaluation.measurement.accuracy
    known = accuracy is None or accuracy.primary in ("accuracy", "entity_f1")
    words = {
        "accuracy": f"{'accuracy' if accuracy is None or known else accuracy.primary} {{:.4f}}",
        "accuracy_loss_pp": "{:.2f} pp below float",
        "accuracy_loss": f"{{:.2f}} {'' if accuracy is None else accuracy.unit} worse than float",
        "latency_p50_ms": "P50 {:.3g} ms",
        "latency_p99_ms": "P99 {:.3g} ms",
        "speedup": "{:.2f} times as fast as float",
    }
    numbers = metrics(evaluation)
    found = [text.format(numbers[name]) for name, text in words.items() if name in numbers]
    return f"On {evaluation.split}: {', '.join(found)}"
