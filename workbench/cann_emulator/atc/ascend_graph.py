"""The compiler's own graph: operators of Ascend, each covering some ONNX nodes, that passes join and annotate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.cann_emulator.atc.folding import Constants
from workbench.cann_emulator.atc.onnx_parser import dependency_order
from workbench.cann_emulator.atc.shapes import Shape
from workbench.cann_emulator.om import Core, Dtype

FLOATS: frozenset[Dtype] = frozenset({"float32", "float16", "bfloat16"})


@dataclass(slots=True, kw_only=True, eq=False)
class Op:
    """One operator; mutable, since passes work on it."""

    name: str
    type: str  # of Ascend
    onnx: str = ""  # ONNX operator of its first node, for patterns; "" for what the compiler added
    core: Core
    nodes: list[str] = field(default_factory=list)  # ONNX node names; none for what the compiler added
    inputs: list[str]
    outputs: list[str]
    order: int  # position; a joined operator has its last part's
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ()  # types of what was joined into it, in order; (type,) at first
    library: tuple[str, ...] = ()  # types of library operators that fusion made of the model's, its own among them
    dtype: Dtype = "float32"  # of its computation, once the precision is settled
    reads: Dtype = "float32"  # reads, writes: float dtype of its inputs and outputs
    writes: Dtype = "float32"
    cube: tuple[tuple[int, int, int, int], ...] = ()  # (batch, m, k, n) of its products
    passes: tuple[str, ...] = ()
    implementation: str = ""
    # how constants of what was joined are stored, where that is not as `reads` says
    constant_dtypes: Mapping[str, Dtype] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.parts:
            self.parts = (self.type,)

    @property
    def types(self) -> tuple[str, ...]:
        """What files and flags may call it: its type, also without the D of static kernels, and the third version of a
        product, which it may become later."""
        third = f"{self.type.removesuffix('2')}3" if self.type in ("MatMulV2", "BatchMatMulV2") else self.type
        return tuple(dict.fromkeys((self.type, self.type.removesuffix("D"), third)))

    @property
    def view(self) -> bool:
        return self.core == "none"


class AscendGraph:
    """Operators with their wiring, kept up to date under joins."""

    def __init__(
        self,
        ops: Iterable[Op],
        *,
        constants: Constants,
        shapes: dict[str, Shape],
        dtypes: dict[str, Dtype],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        self.constants, self.shapes, self.dtypes = constants, shapes, dtypes
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.casts: list[str] = []
        self.settled = False  # whether dtypes are
        self._ops: dict[int, Op] = {}
        self._producers: dict[str, Op] = {}
        self._readers: dict[str, dict[int, Op]] = {}
        for op in ops:
            self.add(op)

    def add(self, op: Op) -> None:
        self._ops[id(op)] = op
        for name in op.outputs:
            self._producers[name] = op
        for name in op.inputs:
            self._readers.setdefault(name, {})[id(op)] = op

    def remove(self, op: Op) -> None:
        del self._ops[id(op)]
        for name in op.outputs:
            if self._producers.get(name) is op:
                del self._producers[name]
        for name in op.inputs:
            self._readers.get(name, {}).pop(id(op), None)

    def replace_input(self, op: Op, old: str, new: str) -> None:
        op.inputs = [new if name == old else name for name in op.inputs]
        self._readers.get(old, {}).pop(id(op), None)
        self._readers.setdefault(new, {})[id(op)] = op

    def __contains__(self, op: Op) -> bool:
        return id(op) in self._ops

    def ops(self) -> list[Op]:
        """In execution order."""
        ops = list(self._ops.values())
        place = {id(op): index for index, op in enumerate(ops)}
        makers = [{place[id(self._producers[n])] for n in op.inputs if n in self._producers} for op in ops]
        return [ops[i] for i in dependency_order([m - {i} for i, m in enumerate(makers)], [op.order for op in ops])]

    def producer(self, tensor: str) -> Op | None:
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[Op]:
        return list(self._readers.get(tensor, {}).values())

    def only_reader(self, tensor: str) -> Op | None:
        """The one operator that reads a tensor, where nobody else needs it."""
        readers = self._readers.get(tensor, {})
        return next(iter(readers.values())) if len(readers) == 1 and tensor not in self.outputs else None

    def is_constant(self, tensor: str) -> bool:
        return tensor in self.constants

    def scalar(self, tensor: str) -> float | None:
        """Value of a constant of one element."""
        values = self.constants.get(tensor)
        return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None

    def stored_dtype(self, op: Op, name: str) -> Dtype:
        """How an operator's input lies in memory: constants are converted when the model is compiled."""
        dtype = self.dtypes[name]
        if dtype not in FLOATS or name not in self.constants:
            return dtype
        return op.constant_dtypes.get(name, op.reads if op.reads in FLOATS else dtype)

    def join(
        self,
        group: Sequence[Op],
        pass_name: str,
        *,
        type: str,
        core: Core,
        absorbed: Collection[str] = (),
        whole: bool = False,
    ) -> Op | None:
        """Make one operator of several, the last of which gives the result; None where order forbids it.

        Args:
            absorbed: constants that become attributes, so that they are no inputs any more.
            whole: the result is one operator of the library, not a chain of the parts.
        """
        members, last = {id(op) for op in group}, group[-1]
        made = [name for op in group for name in op.outputs]
        escaping = [n for n in made if n in self.outputs or any(id(r) not in members for r in self.readers(n))]
        if any(name not in last.outputs for name in escaping) and self._returns(escaping, members):
            return None
        inside = {*made, *absorbed}
        results = [*(name for name in last.outputs if name in escaping or name == last.outputs[0]), *escaping]
        joined = Op(
            name=last.name,
            type=type,
            core=core,
            nodes=[node for op in group for node in op.nodes],
            inputs=list(dict.fromkeys(name for op in group for name in op.inputs if name not in inside)),
            outputs=list(dict.fromkeys(results)),
            order=max(op.order for op in group),
            parts=(type,) if whole else tuple(part for op in group for part in op.parts),
            library=(*(kind for op in group for kind in op.library), *((type,) if whole else ())),
            dtype=_dtype(group),
            constant_dtypes={n: self.stored_dtype(op, n) for op in group for n in op.inputs if n in self.constants}
            if self.settled
            else {},
            reads=group[0].reads,
            writes=last.writes,
            cube=tuple(product for op in group for product in op.cube),
            passes=tuple(filter(None, dict.fromkeys([*(p for op in group for p in op.passes), pass_name]))),
            implementation=next((op.implementation for op in group if op.implementation), ""),
        )
        for op in group:
            self.remove(op)
        self.add(joined)
        return joined

    def _returns(self, escaping: Iterable[str], members: set[int]) -> bool:
        """Whether a way leads out of the group and back into it."""
        seen: set[int] = set()
        todo = [op for name in escaping for op in self.readers(name) if id(op) not in members]
        while todo:
            op = todo.pop()
            if id(op) in members:
                return True
            if id(op) not in seen:
                seen.add(id(op))
                todo += [reader for name in op.outputs for reader in self.readers(name)]
        return False


def _dtype(group: Sequence[Op]) -> Dtype:
    """Of a joined operator: its product's, where it has one; what AscendQuant is joined to stays float."""
    if product := next((op for op in group if op.cube), None):
        return product.dtype
    return group[0].dtype if group[-1].dtype == "int8" else group[-1].dtype
