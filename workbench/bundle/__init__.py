"""Bundle: the folder production receives, complete enough to be checked and served without the workspace.

Nothing here knows a sweep; how a bundle is filled and brought to production is a matter of `shipping`.

    manifest.json     candidate, toolchain, metrics with intervals, provenance, sha256 and size of every other file
    SHA256SUMS        the same sums in sha256sum's format, manifest.json included
    SHA256SUMS.minisig    where it was signed: a signature over the sums, hence over every file
    README.md         for operations, generated from the manifest
    model/            the compiled files, as the target wrote them
    golden/           samples with the outputs this very artifact gave, and their texts; of a language model prompts,
                      with greedy answers and the logits there
    agreement.json     how far its answers lie from float32 and others, where that was measured
    record.json       the QuantizationRecord, for static INT8
    outcomes/         what became of every holdout sample: two bundles are compared by it without the data
    deploy/           container recipe, service unit, Kubernetes manifests, dashboard; or files for an engine of others
    sbom.cdx.json     what it is made of (CycloneDX): model, what that was made from, packages of serving
    tokenizer.json …  what turns a request into feeds

The sums find damage: one changed byte anywhere. They are no signature: whoever can change a file can change the sums.
Who wrote a bundle is proved by the signature alone, against a file of trusted keys that lies elsewhere.
"""

from workbench.bundle.golden import GoldenBatch, bundle_agreement, golden_batches, preprocessor_of
from workbench.bundle.manifest import HoldoutOutcomes, Manifest, Tolerance
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.readme import description, provenance
from workbench.bundle.sbom import SBOM
from workbench.bundle.verify import (
    Signer,
    VerifyReport,
    check_bundle,
    check_files,
    check_signature,
    replay_golden,
    verify_bundle,
)
from workbench.bundle.write import BundleContents, check_free, sign_bundle, write_bundle

__all__ = [
    "SBOM",
    "Bundle",
    "BundleContents",
    "GoldenBatch",
    "HoldoutOutcomes",
    "Manifest",
    "Signer",
    "Tolerance",
    "VerifyReport",
    "bundle_agreement",
    "check_bundle",
    "check_files",
    "check_free",
    "check_signature",
    "description",
    "golden_batches",
    "preprocessor_of",
    "provenance",
    "read_bundle",
    "replay_golden",
    "sign_bundle",
    "verify_bundle",
    "write_bundle",
]
