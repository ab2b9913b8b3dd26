"""Bundles of tiny language models, as `workbench export-llm` writes them."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.targets.ascend_llm.checkpoints import STATIC, checkpoint
from tests.targets.ascend_llm.folders import TEXTS
from workbench.shipping.handover import checkpoint_contents, hand_over
from workbench.targets import open_target


@cache
def language_bundle(dtype: str = "bfloat16", lines: tuple[str, ...] = (STATIC,)) -> Path:
    """A folder that nobody may change."""
    made = checkpoint("qwen2", dtype, lines)
    base = Path(tempfile.mkdtemp(prefix="tiny-bundle-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    contents = checkpoint_contents(
        made,
        made.parent / "model",
        open_target("ascend-llm"),
        name="tiny",
        recipe=made.parent / "recipe.yaml",
        texts=TEXTS,
    )
    return hand_over(base / "bundle", contents)
