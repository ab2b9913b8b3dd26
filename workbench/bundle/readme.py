"""The bundle's README for operations, from the facts of its manifest alone."""

from __future__ import annotations

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import DEPLOY, INTEGRITY, MANIFEST, MODEL, Manifest
from workbench.bundle.paths import SIGNATURE
from workbench.targets import described
from workbench.values.candidate import Serving
from workbench.values.documents.input_files import size_text
from workbench.values.measurement import ServiceFigures
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
    lines += [
        *_quantization_files(manifest),
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
    if m.accuracy is not None:
        found |= {name: f"{value:.4f}" for name, value in m.accuracy.values.items()}
        found["samples scored" if m.language is None else "windows scored"] = str(m.accuracy.samples)
        if m.accuracy.comparison is not None:
            drop = m.accuracy.comparison.drop_pp
            found[
                f"accuracy loss against {'float32' if m.accuracy.reference else 'float'}, {m.accuracy.comparison.unit}"
            ] = f"{drop.value:.2f} [{drop.low:.2f}, {drop.high:.2f}]"
        if m.accuracy.against_baseline is not None:
            drop = m.accuracy.against_baseline.drop_pp
            found[f"of it beyond the float model's own, {m.accuracy.against_baseline.unit}"] = (
                f"{drop.value:.2f} [{drop.low:.2f}, {drop.high:.2f}]"
            )
    for name, words in _AGREEMENT.items():
        if evaluation.agreement is not None and name in numbers:
            found[words] = f"{numbers[name]:.6g}"
    if m.language is not None:
        for name, at in (("prefill", m.language.prefill_ms), ("decode of one token", m.language.decode_ms)):
            found[f"{name}, ms, modelled"] = f"{at.value:.3g} [{at.low:.3g}, {at.high:.3g}]"
        found["cache of a token, kB"] = f"{numbers['kv_kb_per_token']:.4g}"
    elif m.latency is not None:
        p50 = m.latency.undrifted_p50_ms
        found["latency P50, ms"] = f"{p50.value:.3g} [{p50.low:.3g}, {p50.high:.3g}]"
        found["latency P95, ms"] = f"{numbers['latency_p95_ms']:.3g}"
        if "latency_p99_ms" in numbers:
            found["latency P99, ms"] = f"{numbers['latency_p99_ms']:.3g}"
        found["throughput, samples/s"] = f"{numbers['throughput_per_s']:.4g}"
        speedup = m.latency.speedup
        found["speed-up over float"] = f"{speedup.value:.2f} [{speedup.low:.2f}, {speedup.high:.2f}]"
    if "size_mb" in numbers:
        found["size, MB"] = f"{numbers['size_mb']:.1f}"
    if "peak_memory_mb" in numbers:
        found["peak memory, MB"] = f"{numbers['peak_memory_mb']:.0f}"
    return found


def _quantization_files(manifest: Manifest) -> list[str]:
    lines = [] if manifest.record is None else [f"- `{manifest.record}`: scale and zero point of every INT8 layer"]
    if manifest.candidate.quantization.cfg is not None:
        lines.append(f"- the configuration it follows: `candidate.quantization.cfg` of `{MANIFEST}`")
    return lines


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
