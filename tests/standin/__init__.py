"""A target whose cards are made up: compiling and timing sleep, and its figures follow from the candidate's digest.

    environment = installed(folder)       # of processes that are to find it, Ray's nodes among them

STANDIN_CARDS      how many cards this machine has
STANDIN_COMPILE_S  what a compile sleeps, half to one and a half times of it, by the candidate
STANDIN_TIMING_S   what opening a candidate that is no baseline sleeps
STANDIN_HANGS      the card on which opening takes for ever
STANDIN_VERSION    of its made-up compiler
STANDIN_LOG        a file that gains a line for every candidate opened, with its card
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.targets.description import Card, TargetDescription
from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import Dimension

if TYPE_CHECKING:
    from workbench.targets.base import Target

ROOT = Path(__file__).parents[2]
RESOURCE = "STANDIN"

SPACE = """
version: 1
target: standin
parameters:
  quantization.scheme: {{choices: [none, static]}}
  quantization.algorithm: {{choices: [minmax], when: {{quantization.scheme: [static]}}}}
  quantization.activation_symmetric: {{choices: [false], when: {{quantization.scheme: [static]}}}}
  quantization.weight_granularity: {{choices: [channel], when: {{quantization.scheme: [static]}}}}
  quantization.attention_matmul: {{choices: [false], when: {{quantization.scheme: [static]}}}}
  quantization.keep_float: {{choices: [0], when: {{quantization.scheme: [static]}}}}
  compile.variant: {{choices: [{variants}]}}
"""


def space(variants: int) -> str:
    return SPACE.format(variants=", ".join(map(str, range(variants))))


@dataclass(frozen=True, slots=True, kw_only=True)
class StandinSettings(CompileSettings):
    variant: int = 0


def _make() -> Target:
    from tests.standin.target import StandinTarget

    return StandinTarget()


def _cards() -> tuple[Card, ...]:
    count = int(os.environ.get("STANDIN_CARDS", "8"))
    return tuple(Card(name=str(n), environment={"STANDIN_CARD": str(n)}) for n in range(count))


TARGET = TargetDescription(
    name="standin",
    title="stand-in",
    on_host=False,
    settings=StandinSettings,
    dimensions={"compile.variant": Dimension(about="changes the digest, and what it sleeps", kind=int)},
    make=_make,
    cards=_cards,
    cluster_resource=RESOURCE,
)


def installed(folder: Path) -> dict[str, str]:
    """Leave its metadata in a folder, as pip does; the variables of processes that find it there."""
    info = folder / "standin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: standin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[workbench.targets]\nstandin = tests.standin:TARGET\n")
    before = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), str(ROOT), before)))}
