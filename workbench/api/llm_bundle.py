"""The bundle of a language model's finished checkpoint, without a sweep."""

from __future__ import annotations

from pathlib import Path

from workbench.bundle import VerifyReport, check_free, verify_bundle
from workbench.bundle.signing import SecretKey, only_key
from workbench.shipping.handover import hand_over
from workbench.shipping.language_handover import checkpoint_contents
from workbench.study.language import language_target_name
from workbench.targets import open_target
from workbench.targets.ascend_llm.texts import read_texts


def export_llm(
    checkpoint: Path | str,
    to: Path | str,
    *,
    model: Path | str,
    cfg: Path | str,
    prompts: Path | str,
    name: str | None = None,
    secret: SecretKey | None = None,
) -> VerifyReport:
    """Write the bundle of a finished checkpoint, and verify it.

    Args:
        to: folder to create.
        model: folder of the float model that it was made from.
        cfg: the quantizer's YAML that it was made by.
        prompts: texts whose beginnings become golden prompts.
        name: of the bundle; the checkpoint folder's when None.
        secret: key to sign the bundle with.

    Raises:
        ConfigError: a file is missing or damaged, or the folder exists.
        BundleError: the engine that serves such checkpoints would refuse it.
        ToolchainError: a package of the extra `[llm]` is missing, or the folder cannot be written.
    """
    folder, source = Path(to), Path(checkpoint)
    check_free(folder)
    contents = checkpoint_contents(
        source,
        Path(model),
        open_target(language_target_name()),
        name=name or source.resolve().name,
        recipe=Path(cfg),
        texts=read_texts(Path(prompts)),
    )
    hand_over(folder, contents, secret=secret)
    return verify_bundle(folder, trusted=None if secret is None else only_key(secret.public))
