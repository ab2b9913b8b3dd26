"""Which facts of the machine that compiled an artifact hold for every machine that serves it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Names are those of the toolchain's components. A difference in any other is a warning.

    Attributes:
        runtimes: of which another release, the first two numbers, is refused.
        not_older: of these, an older one is refused too.
        generations: of which another first number is refused.
        compiling_only: that changes nothing once the files are compiled.
        to_device: another kind of device is refused; else its figures are only to be measured again. Instruction sets
            of the host then choose no kernel.
    """

    runtimes: tuple[str, ...] = ()
    not_older: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    compiling_only: tuple[str, ...] = ()
    to_device: bool = False


UNBOUND = Binding()
"""Every difference but those that hold for all targets is a warning."""
