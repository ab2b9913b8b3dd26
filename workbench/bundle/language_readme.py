"""The README of a language model's bundle, from the facts of its manifest alone: a model card in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.bundle.manifest import DEPLOY, INTEGRITY, MANIFEST, MODEL, Manifest
from workbench.bundle.sums import SIGNATURE
from workbench.values.candidate_words import describe
from workbench.values.documents.input_files import size_text

_RECIPE = "recipe.yaml"


def language_readme(manifest: Manifest, figures: Sequence[str]) -> str:
    """Markdown: what it is, how to check and serve it, what was found of it and how, what is in it.

    Args:
        figures: lines of the table that every bundle has.
    """
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
        "## Check it after every copy",
        "",
        "```",
        "sha256sum -c SHA256SUMS     # any machine",
        "workbench verify .          # reads the checkpoint as the engine would, and replays the golden prompts",
        "```",
        "",
        f"The {INTEGRITY}. Where `{SIGNATURE}` lies beside them, `workbench verify . --trusted-keys FILE` proves whose "
        "they are, and so does minisign.",
        "",
        "What it is made of: `sbom.cdx.json` (CycloneDX). How it was made: `provenance.intoto.json` (in-toto, SLSA).",
        "",
        "## Serve it",
        "",
        f"`workbench serve` does not serve language models; engines do. `{DEPLOY}/README.md` says which, from which "
        "version on, and what does not work; its files hold their commands:",
        "",
        *(f"- `{name}`" for name in manifest.deploy_files),
        "",
        "## Acceptance figures",
        "",
        *(figures if manifest.evaluations else ["Not measured: the checkpoint was bundled without a sweep."]),
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
