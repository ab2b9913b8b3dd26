"""The encoder of `workbench.testing`, under the name that the tests of all rooms know."""

from workbench.testing.encoder import (
    CLASSES,
    HEADS,
    PRODUCTS,
    VOCABULARY,
    WEIGHT_LAYERS,
    WIDTH,
    Array,
    ids,
    model_of,
    record_for,
    run,
    save,
    tiny_encoder,
    value,
)

__all__ = [
    "CLASSES",
    "HEADS",
    "PRODUCTS",
    "VOCABULARY",
    "WEIGHT_LAYERS",
    "WIDTH",
    "Array",
    "ids",
    "model_of",
    "record_for",
    "run",
    "save",
    "tiny_encoder",
    "value",
]
