"""What the kernels of an offline model read from and write to memory: after fusion, in the stored dtypes.

A value inside a kernel exists nowhere on a device, and so not here. Values are taken from the rounded program
(rounding.py), in which every number that a narrow type holds is exact, and given back in that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto

from workbench.cann_emulator.dump_file import Values
from workbench.cann_emulator.om import Kernel, OfflineModel, Tensor
from workbench.cann_emulator.rounding import BACK, Array, Program, graph_tensors, stored


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelValues:
    """Attributes:
    task: place of the kernel in the model's execution order.
    inside: what it rounds to halves on its way, and hands on within itself.
    """

    kernel: Kernel
    task: int
    inputs: tuple[Values, ...]
    outputs: tuple[Values, ...]
    inside: tuple[Values, ...] = ()


class Boundaries:
    """Where a rounded program holds what crosses the boundaries of one gear's kernels.

    Attributes:
        made: tensors of the program that its nodes make and kernels read or write.
    """

    def __init__(self, model: OfflineModel, gear: int, program: Program) -> None:
        self._kernels = model.gears[gear].kernels
        self._constants = program.constants
        makers = {name: (node.name, index) for node in program.nodes for index, name in enumerate(node.output)}
        fed = {value.name for value in program.inputs}
        self._origins = origins_of(model)
        self._sources = graph_tensors(self._kernels, {*makers, *fed, *program.constants, *self._origins})
        tensors = [tensor for kernel in self._kernels for tensor in (*kernel.inputs, *kernel.outputs)]
        self._places = {(t.name, t.dtype): self._place(t, makers) for t in tensors}
        self.made = [name for name in dict.fromkeys(self._places.values()) if name in makers]
        self._inside: dict[str, list[str]] = {kernel.name: [] for kernel in self._kernels}
        kernel_of = {node: kernel.name for kernel in self._kernels for node in kernel.nodes}
        for name, (node, _) in self._origins.items():
            if node in kernel_of and name not in self.made and makers.get(name, ("", 0))[0].endswith(BACK):
                self._inside[kernel_of[node]].append(name)
                self.made.append(name)

    def values(self, feeds: Mapping[str, Array], results: Mapping[str, Array]) -> tuple[KernelValues, ...]:
        """Of every kernel that is launched; views and constants are none.

        Args:
            feeds: the model's inputs, as the program was run with.
            results: `made` and the outputs, int8 as the device stores it.
        """
        known = {**self._constants, **feeds, **results}

        def held(tensor: Tensor) -> Values | None:
            place = self._places[tensor.name, tensor.dtype]
            if place not in known:
                return None  # folded away in this program
            origin = self._origins.get(self._sources.get(tensor.name, tensor.name))
            array = stored(known[place], tensor.dtype)
            return Values(array=array, dtype=tensor.dtype, format=tensor.format, origin=origin)

        return tuple(
            KernelValues(
                kernel=kernel,
                task=task,
                inputs=tuple(filter(None, map(held, kernel.inputs))),
                outputs=tuple(filter(None, map(held, kernel.outputs))),
                inside=tuple(Values(array=known[name], dtype="float16") for name in self._inside[kernel.name]),
            )
            for task, kernel in enumerate(self._kernels)
            if kernel.core != "none"
        )

    def _place(self, tensor: Tensor, makers: Mapping[str, object]) -> str:
        source = self._sources.get(tensor.name, tensor.name)
        full = f"{source}__full"  # rounding.py: an output that leaves the device in a narrower type
        return full if tensor.dtype == "float32" and full in makers else source


def origins_of(model: OfflineModel) -> dict[str, tuple[str, int]]:
    """Tensor of the model's graph → the node that makes it, and which of its outputs it is."""
    proto = ModelProto()
    proto.ParseFromString(model.graph)
    return {name: (node.name, index) for node in proto.graph.node for index, name in enumerate(node.output) if name}
