"""What compiling a candidate gives: files, what is inside them, and everything that took part in making them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.values.documents.canonical import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything outside the candidate that can change a compiled file or a measured number.

    Attributes:
        components: name → version of each library, compiler and driver that takes part.
        device: what executes, such as the CPU model name.
        features: instruction sets or device facts that select kernels, sorted.
        emulated: True when any part is our emulator; such results are never mixed with measured ones.
    """

    target: str
    components: Mapping[str, str]
    device: str
    features: tuple[str, ...] = ()
    emulated: bool = False

    @property
    def fingerprint(self) -> str:
        """64 hex digits that change when any field does."""
        return digest(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFile:
    """One executable file of an artifact.

    Attributes:
        batch, sequence_bin: the fixed shape it was compiled for; None where that dimension is dynamic.
        file: path relative to the artifact's directory.
    """

    batch: int | None
    sequence_bin: int | None
    file: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A compiled candidate: a set of files, one per (batch, sequence bin), and what is inside them.

    The directory is not part of the value: an artifact is the same wherever it lies.

    Attributes:
        int8_ops: operators that execute in integer kernels, counted in the compiled graph.
        float_matmuls_left: MatMul, Gemm and Conv operators (fused forms included) left in float.
        kernels: operator type → count in the compiled graph.
    """

    target: str
    files: tuple[CompiledFile, ...]
    toolchain: Toolchain
    int8_ops: int
    float_matmuls_left: int
    kernels: Mapping[str, int]

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)
