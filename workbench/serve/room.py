"""How large a body may be where samples are arrays: what one of them takes as JSON, and some room."""

from __future__ import annotations

import math
from dataclasses import replace

from workbench.bundle import Bundle, golden_batches
from workbench.serve.settings import ServeSettings

_BYTES_OF_A_NUMBER = 26
"""As JSON writes a float64 with its sign, its comma and a space."""
_SAMPLES = 2
_LARGER = 4
"""Times the golden samples, where an axis is free and has no bins: others may be larger."""
_BODIES = 16
"""That may come in at the same time."""


def with_room(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """The same settings with limits that a picture fits into; a service of texts or of small arrays keeps its own.

    The largest bin tells the size of a free axis, else the golden samples do.
    """
    manifest = bundle.manifest
    if manifest.text is not None:
        return settings
    bins = {axis.name: axis.bins[-1] for axis in manifest.axes if axis.bins}
    shown: dict[str, tuple[int, ...]] = {}
    for golden in golden_batches(bundle):
        for name, array in golden.feeds.items():
            known = shown.get(name, array.shape)
            shown[name] = tuple(map(max, known, array.shape))
    numbers, larger = 0, 1
    for spec in manifest.model.inputs:
        free = shown.get(spec.name, ())[1:]
        sizes = [axis if isinstance(axis, int) else bins.get(str(axis), 0) for axis in spec.shape[1:]]
        larger = larger if all(sizes) else _LARGER
        numbers += math.prod(size or (free[at] if at < len(free) else 1) for at, size in enumerate(sizes))
    body_bytes = max(settings.limits.body_bytes, _SAMPLES * larger * _BYTES_OF_A_NUMBER * numbers)
    unread_bytes = max(settings.limits.unread_bytes, _BODIES * body_bytes)
    return replace(settings, limits=replace(settings.limits, body_bytes=body_bytes, unread_bytes=unread_bytes))
