import numpy as np
import numpy.typing as npt

from workbench.quantization.ifmr import search_factors
from workbench.quantization.recipe import ActivationRecipe


def literal_search(
    values: npt.NDArray[np.float32], recipe: ActivationRecipe, low: np.float32, high: np.float32
) -> list[tuple[np.float32, float]]:
    """Scale and Σ (q - x)² of every candidate as AMCT's search writes it, in float32 (amct.md §4.2)."""
    found = []
    for factor in search_factors(recipe):
        if recipe.symmetric:
            clip = factor * max(high, -low)
            scale = clip / np.float32(128 if -low > high else 127)
            clipped = np.clip(values, -clip, clip)
        else:
            clip = factor * high
            scale = (clip - low) / np.float32(255)
            clipped = np.clip(values, low, clip)
        scale = scale if scale >= np.float32(1.1920929e-7) else np.float32(1)
        found.append((scale, float(np.square(np.rint(clipped / scale) * scale - values).astype(np.float64).sum())))
    return found
