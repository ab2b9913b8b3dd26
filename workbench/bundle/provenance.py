"""Where a bundle comes from, in the words of a registry of models."""

from __future__ import annotations

from workbench.bundle.manifest import README, Manifest
from workbench.bundle.opened import Bundle
from workbench.values.documents.canonical import canonical_json
from workbench.values.metrics import metrics
from workbench.values.setting_groups import describe


def provenance(bundle: Bundle) -> dict[str, str]:
    """Tags of a registered version: what it is, what it was made from, with and where. Few, since MLflow lists all.

    `data` is JSON, split → digest; `components` is name and version of everything in the toolchain.
    """
    manifest = bundle.manifest
    toolchain = manifest.artifact.toolchain
    return {
        "figures": _figures(manifest),
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
    headline = f"{emulated}{describe(manifest.candidate)}. {_figures(manifest)}"
    wanted = [part for part in parts if part.startswith(("Acceptance figures", "Serve it"))]
    return "\n## ".join([headline + "\n" + first.removeprefix(f"# {manifest.name}\n"), *wanted])


def _figures(manifest: Manifest) -> str:
    """Of the confirmation if there is one, else of the search; in words."""
    if not manifest.evaluations:
        return "not measured"
    evaluation = manifest.evaluations[-1]
    accuracy = evaluation.measurement.accuracy
    known = accuracy is None or accuracy.primary in ("accuracy", "entity_f1")
    words = {
        "accuracy": f"{'accuracy' if accuracy is None or known else accuracy.primary} {{:.4f}}",
        "accuracy_drop_pp": "{:.2f} pp below float",
        "accuracy_drop": f"{{:.2f}} {'' if accuracy is None else accuracy.unit} worse than float",
        "latency_p50_ms": "P50 {:.3g} ms",
        "latency_p99_ms": "P99 {:.3g} ms",
        "speedup": "{:.2f} times as fast as float",
    }
    numbers = metrics(evaluation)
    found = [text.format(numbers[name]) for name, text in words.items() if name in numbers]
    return f"On {evaluation.split}: {', '.join(found)}"
