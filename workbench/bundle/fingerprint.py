"""Fingerprint: how the machine that serves a bundle differs from the one its figures come from, and how much of it
is too much.

Compiled files and measured numbers hold for the toolchain they were made with. Between two CPUs the same INT8 file
gave accuracies up to a point apart, between two releases of one runtime as much (Intel Neural Compressor v2.6, tables
of one QDQ model on several machines; an engine's accuracy tables by release). So a difference is graded:

    refuse   another target, emulator or platform; what the target binds its files to: another chip, another release of
             the runtime (its first two numbers) or an older one, another driver generation; a CPU that lacks an
             instruction set the kernels were chosen for
    warn     anything else that takes part in serving: figures have to be measured again, answers should hold
    note     what took part in compiling only; it changes nothing that is compiled already

The golden samples decide in the end and are replayed whatever is found here; but they are few and hold no times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from workbench.targets import described
from workbench.targets.description import Binding
from workbench.values.artifact import Toolchain
from workbench.values.errors import BundleError, ConfigError
from workbench.values.versions import version_key

Severity = Literal["refuse", "warn", "note"]
Policy = Literal["refuse", "warn"]

_COMPILING_ONLY = ("numpy", "onnx", "python")
"""For every target; the rest its `Binding` says."""
_ABSENT = "nothing"
_COUNTED = re.compile(r"\d+ ")
"""How features begin that are amounts, such as '2 cores': they bound speed and choose no kernel."""


class Difference(NamedTuple):
    """One fact of a toolchain that is not as it was; `words` are a clause for people."""

    severity: Severity
    words: str


def compare(made: Toolchain, here: Toolchain) -> tuple[Difference, ...]:
    """Every difference, the worst first.

    Args:
        made: what compiled and measured.
        here: what is to serve.
    """
    order = ("refuse", "warn", "note")
    return tuple(sorted(_differences(made, here), key=lambda d: order.index(d.severity)))


def admit(made: Toolchain, here: Toolchain, policy: Policy = "refuse") -> tuple[str, ...]:
    """Let a bundle be served here, and say what has to be known about it; notes are left out.

    Args:
        policy: 'warn' lets everything pass, with the same words.

    Raises:
        BundleError: the policy is 'refuse' and something must be refused.
    """
    found = [d for d in compare(made, here) if d.severity != "note"]
    refused = [d.words for d in found if d.severity == "refuse"]
    if refused and policy == "refuse":
        raise BundleError(
            f"this bundle was not made for this machine: {'; '.join(refused)}. Export it again with the toolchain "
            "here, or serve it all the same with --policy warn."
        )
    return tuple(d.words for d in found)


def _differences(made: Toolchain, here: Toolchain) -> Iterator[Difference]:
    try:
        binding = described(made.target).binding
    except ConfigError:
        binding = Binding()  # a target that is not installed here, which is refused
    if made.target != here.target:
        yield Difference("refuse", f"it is for {made.target}, this is {here.target}")
    if made.emulated != here.emulated:
        what = "an emulator" if here.emulated else "no emulator"
        yield Difference("refuse", f"this toolchain is {what}, unlike the one it came from")
    for name in sorted({*made.components, *here.components}):
        then, now = made.components.get(name, _ABSENT), here.components.get(name, _ABSENT)
        if then != now:
            words = f"{name} is {now} here, it was made with {then}"
            yield Difference(_severity(name, then, now, binding), words)
    if made.device != here.device:
        words = f"this is {here.device}; its figures are from {made.device}: measure again before relying on them"
        yield Difference("refuse" if binding.to_device else "warn", words)
    lost, gained = sorted({*made.features} - {*here.features}), sorted({*here.features} - {*made.features})
    kernels = [name for name in lost if not binding.to_device and not _COUNTED.match(name)]
    if kernels:
        yield Difference("refuse", f"this machine lacks {', '.join(kernels)}, which the kernels of its figures use")
    rest = [name for name in lost if name not in kernels]
    if changed := [f"{', '.join(names)} {when}" for names, when in ((rest, "then"), (gained, "here")) if names]:
        yield Difference("warn", f"facts that bound speed differ: {'; '.join(changed)}: measure again")


def _severity(name: str, made: str, here: str, binding: Binding) -> Severity:
    if name in (*_COMPILING_ONLY, *binding.compiling_only):
        return "note"
    if name == "platform":
        return "refuse"
    then, now = version_key(made), version_key(here)
    if name in binding.runtimes and _release(made) != _release(here):
        return "refuse"
    if name in binding.not_older and now < then:
        return "refuse"
    if name in binding.generations and then[0][:1] != now[0][:1]:
        return "refuse"
    return "warn"


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers: 1.31 of 1.31.1."""
    return (*version_key(version)[0], 0, 0)[:2]
