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
