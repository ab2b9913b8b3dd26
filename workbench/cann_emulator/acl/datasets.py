"""Data buffers, tensor descriptions and datasets: what a program builds around its memory (pyacl.md §1.5, §1.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.cann_emulator.acl import handles, leaks


@dataclass(slots=True, kw_only=True, eq=False)
class DataBuffer:
    """A pointer and a size; the memory is the program's."""

    address: int
    size: int
    site: tuple[str, int]
    handle: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class TensorDesc:
    dtype: int
    dims: list[int]
    format: int
    site: tuple[str, int]
    handle: int = 0
    dataset: bool = False  # owned by a dataset, which destroys it


@dataclass(slots=True, kw_only=True, eq=False)
class Dataset:
    """Inputs or outputs of a model, by index.

    Attributes:
        described: tensor descriptions by index, where given.
        gear: value of `set_dynamic_*` for this dataset; kept even when the model refused it (pyacl.md §7).
    """

    site: tuple[str, int]
    handle: int = 0
    buffers: list[DataBuffer] = field(default_factory=list)
    described: dict[int, TensorDesc] = field(default_factory=dict)
    gear: tuple[int, ...] | None = None


def _left() -> list[leaks.Alive]:
    live = handles.LIVE
    found: list[leaks.Alive] = [("data buffers", b.site, live, b.handle) for b in handles.alive(DataBuffer)]
    found += [("datasets", d.site, live, d.handle) for d in handles.alive(Dataset)]
    own = [t for t in handles.alive(TensorDesc) if not t.dataset]
    return found + [("tensor descriptions", t.site, live, t.handle) for t in own]


leaks.COLLECTORS.append(_left)
