"""The quantizer's YAML recipes as ours: `apiversion` says which of the two generations a file is of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.recipe import LlmRecipe
from workbench.targets.ascend_llm.recipe_v0 import read_v0
from workbench.targets.ascend_llm.recipe_v1 import read_v1
from workbench.values.documents.yaml_reader import read_yaml

APIS = ("modelslim_v0", "modelslim_v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecipe:
    """A recipe and what else its file asks for.

    Attributes:
        data, smoothing_data: names of data sets as they are written; None where the file names none.
        smoothing_batch: samples of the smoothing data that are padded to one length.
        part_bytes: the most of one weight file; 0 for one file.
    """

    recipe: LlmRecipe
    data: str | None
    smoothing_data: str | None
    smoothing_batch: int
    part_bytes: int


def read_recipe(path: Path, model: LlmModel) -> ReadRecipe:
    """A recipe file for a model.

    Raises:
        ConfigError: with file, line, key and rule: not YAML, an unknown key, a value that is refused, a name that no
            linear of the model has.
    """
    with read_yaml(path, version=None) as top:
        api = top.text("apiversion", choices=APIS)
        top.raw("metadata", None)
        top.leave_anchors()  # the vendor's own recipes write a qconfig once, at the top
        spec = top.section("spec")
        if not top.has("spec"):
            top.refuse("spec", "is missing.", "The recipe stands below it.")
        top.settle()
        with spec:
            if api == "modelslim_v0":
                recipe, saved = read_v0(spec, model)
                data, smoothing = (
                    spec.text(key) if spec.has(key) else None for key in ("calib_dataset", "anti_dataset")
                )
                batch = spec.integer("batch_size", default=4, minimum=1, maximum=1024)
            else:
                recipe, saved = read_v1(spec, model)
                data, smoothing, batch = spec.text("dataset") if spec.has("dataset") else None, None, 1
    return ReadRecipe(
        recipe=recipe, data=data, smoothing_data=smoothing, smoothing_batch=batch, part_bytes=round(saved * 1e9)
    )
