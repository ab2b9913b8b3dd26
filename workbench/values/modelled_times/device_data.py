"""What the time model knows of a chip: the shipped file, and over it one that was fitted to measurements; and what it
says of itself: what its parts cost, and how far off each may be."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.canonical import decode
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.statement import TimingModel, Unknown

SHIPPED = Path(__file__).with_name("ascend910b.yaml")
OVERRIDE_VARIABLE = "CANN_EMULATOR_DEVICE_DATA"
_KINDS = ("source", "fitted", "inferred", "measured")
_REFITTED_95 = 1.1
"""What a refit to a device's own kernels leaves open [inferred]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Kernels that are timed alike; see `kinds` in the file.

    Attributes:
        like: the kind that it takes from what it is not given itself.
        launches: what a start takes, in `kernel_launch_us`; None for `full_launches`.
        instructions: of the vector cores for each number.
        row_instructions: for each row.
        in_pieces: what rows of other lengths than whole blocks of memory cost more.
        on_cube: None without a product; 'halves' where the cube multiplies float16 whatever the float type, '' else.
        of_cube: how much of the cube's efficiency it reaches.
        error_class: of `DeviceData.errors`.
        fitted_on: operators, and how many timed cases of each.
        operators, others: that it stands for, those of the cases and those of which no case was seen.
    """

    like: str = ""
    launches: float | None = None
    instructions: float = 0.0
    row_instructions: float = 0.0
    in_pieces: float = 1.0
    on_cube: Literal["", "halves"] | None = None
    of_cube: float = 1.0
    error_class: str
    fitted_on: str
    operators: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_SHARED = ("launches", "instructions", "row_instructions", "in_pieces")
"""What a kind has of the one that it is like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorClass:
    """What modelled times of some kernels, or of another part of a call, are off by.

    Attributes:
        about: whose time it is.
        moves: parts of a call's costs that share it.
        refitted_by: parameters that a refit to a device's kernels has measured where this is settled.
        median: of |modelled / measured - 1|; 0 where nothing was measured and factor_95 is a judgement.
        factor_95: 95 % of measured times lie within it, in either direction.
        others_95: the same for operators of which no case was seen, where that is known to be wider.
        rows: that it was found on.
    """

    about: str
    moves: tuple[str, ...]
    refitted_by: tuple[str, ...] = ()
    median: float = 0.0
    factor_95: float
    others_95: float | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceData:
    """Parameters of one chip; units in the names, meanings and origins in `ascend910b.yaml`.

    Attributes:
        kinds: of kernels, by name; `operators` says whose they are, 'elementwise' is all others.
        timed: operators that the kinds were fitted on.
        errors: by class.
        origins: parameter → "kind: origin".
    """

    soc_version: str
    cube_cores: int
    vector_cores: int
    clock_mhz: float
    hbm_gib: float
    hbm_tb_per_s: float
    l2_mib: float
    cube_macs_float16: float
    cube_macs_bfloat16: float
    cube_macs_int8: float
    cube_macs_float32: float
    l2_read_bytes_per_cycle: float
    l2_write_bytes_per_cycle: float
    l2_share: float
    cube_efficiency_float16: float
    cube_efficiency_bfloat16: float
    cube_efficiency_int8: float
    cube_efficiency_float32: float
    vector_efficiency: float
    memory_efficiency: float
    core_load_bytes_per_cycle: float
    short_axis_factor: float
    atomic_factor: float
    kernel_launch_us: float
    full_launches: float
    one_core_launches: float
    aicpu_launch_us: float
    aicpu_element_ns: float
    execute_launch_us: float
    gear_us: float
    copy_latency_us: float
    host_to_device_gb_per_s: float
    device_to_host_gb_per_s: float
    device_to_device_gb_per_s: float
    high_precision_factor: float
    high_performance_factor: float
    kinds: Mapping[str, Kind]
    operators: Mapping[str, str]
    timed: frozenset[str]
    errors: Mapping[str, ErrorClass]
    idle_w: float
    busy_w: float
    origins: Mapping[str, str]

    def kind_of(self, operator: str) -> str | None:
        """The kind that names it; None for all others, which are element-wise."""
        return self.operators.get(operator)

    def error_class(self, kind: str, operators: Sequence[str], *, int8: bool = False) -> str:
        """Whose error a kernel of this kind has: its kind's, that of others of it, or of operators that none names.

        Args:
            operators: that it covers, what gives the kernel its name first.
            int8: integers are multiplied, of which kinds that multiply halves have no case.
        """
        name, *covered = operators
        own = self.kinds[kind].error_class
        if name not in self.operators and any(one not in self.operators for one in covered or [name]):
            return "unnamed"
        moved = {part for error in self.errors.values() for part in error.moves}
        unseen = name not in self.timed or (int8 and self.kinds[kind].on_cube == "halves")
        return f"{own}_others" if unseen and f"{own}_others" in moved else own


_CHIP = ("cube_cores", "vector_cores", "clock_mhz", "hbm_gib", "hbm_tb_per_s", "l2_mib")
_REST = ("soc_version", "kinds", "operators", "timed", "errors", "idle_w", "busy_w", "origins")
PARAMETERS = tuple(f.name for f in fields(DeviceData) if f.name not in (*_CHIP, *_REST))


def load_device_data(soc_version: str, *, known: bool = False) -> DeviceData:
    """Parameters of a chip. A file of `fit` that CANN_EMULATOR_DEVICE_DATA names holds for its own chip.

    Args:
        soc_version: as ATC spells it; names that the file lacks get 910B3's figures [inferred].
        known: refuse a chip that the file lacks.

    Raises:
        ConfigError: a file that cannot be read, or with a number that is missing, negative or without an origin.
    """
    shipped, chips = _shipped()
    if known and soc_version not in chips:
        raise ConfigError(f"{soc_version!r} is no chip whose times are modelled: {', '.join(chips)}.")
    data = replace(shipped, soc_version=soc_version, **chips.get(soc_version, {}))
    if not (named := os.environ.get(OVERRIDE_VARIABLE)):
        return data
    with read_yaml(Path(named)) as top:
        chip = top.text("soc_version")
        top.raw("fitted_to", default=None)
        found, origins = _numbers(top.section("parameters"))
    if chip != soc_version:
        return data
    return replace(with_parameters(data, found), origins={**data.origins, **origins})


def chip_names() -> tuple[str, ...]:
    """As ATC spells them."""
    return tuple(_shipped()[1])


def with_parameters(data: DeviceData, values: Mapping[str, float]) -> DeviceData:
    """The same chip with other values of some `PARAMETERS`."""
    changed: Mapping[str, Any] = values
    return replace(data, **changed)


@functools.cache
def _shipped() -> tuple[DeviceData, Mapping[str, Mapping[str, Any]]]:
    """910B3's parameters, and what is other for each chip."""
    with read_yaml(SHIPPED) as top:
        values, origins = _numbers(top.section("parameters"))
        chips: dict[str, dict[str, Any]] = {
            name: {key: value if key.endswith("_cores") else float(value) for key, value in chip.items()}
            for name, chip in top.raw("chips").items()
        }
        power, written, errors = top.raw("power"), top.raw("kinds"), top.raw("errors")
    kinds: dict[str, Kind] = {}
    for name, kind in written.items():
        alike = written.get(kind.get("like"), {})
        written[name] = {**{key: alike[key] for key in _SHARED if key in alike}, **kind}
        kinds[name] = decode(Kind, written[name], f"{SHIPPED.name}: kinds.{name}")
    numbers: Mapping[str, Any] = values
    data = DeviceData(
        soc_version="Ascend910B3",
        **chips["Ascend910B3"],
        **numbers,
        kinds=kinds,
        operators={one: name for name, kind in kinds.items() for one in (name, *kind.operators, *kind.others)},
        timed=frozenset(one for name, kind in kinds.items() for one in (name, *kind.operators)),
        errors=_errors({name: decode(ErrorClass, error, name) for name, error in errors.items()}),
        idle_w=power["idle_w"]["value"],
        busy_w=float(power["busy_w"]["value"]),
        origins={**origins, **{f"power.{name}": f"{one['kind']}: {one['origin']}" for name, one in power.items()}},
    )
    return data, chips


def _errors(known: Mapping[str, ErrorClass]) -> dict[str, ErrorClass]:
    """The errors, and behind each what operators of which no case was seen have beside it."""
    unseen = {f"{part}_others" for error in known.values() if error.others_95 is not None for part in error.moves}
    found: dict[str, ErrorClass] = {}
    for name, error in known.items():
        others = tuple(f"{part}_others" for part in error.moves)
        found[name] = replace(error, moves=(*error.moves, *sorted(unseen.intersection(others))))
        if error.others_95 is not None:
            whole, own = math.log(error.others_95), math.log(error.factor_95)
            found[f"{name}_others"] = replace(
                error,
                about=f"{error.about}, operators of which no case was timed",
                moves=others,
                median=0.0,
                factor_95=math.exp(math.sqrt(whole**2 - own**2)),
            )
    return found


def _numbers(parameters: Section) -> tuple[dict[str, float], dict[str, str]]:
    """Name → value and name → origin."""
    values, origins = {}, {}
    for name in parameters.names():
        if name not in PARAMETERS:
            rule = "is no parameter of the time model."
            raise ConfigError(rule, file=parameters.file, key=f"{parameters.path}.{name}")
        entry = parameters.section(name)
        values[name] = entry.number("value", minimum=0)
        if values[name] == 0 and not name.endswith(("_us", "_ms", "_ns")):
            raise entry.error("value", "must be positive.")
        origins[name] = f"{entry.text('kind', choices=_KINDS)}: {entry.text('origin')}"
    return values, origins


def timing_model(device: DeviceData, name: str) -> TimingModel:
    """The times of a chip; a kernel is its start and the rest, both in microseconds.

    Args:
        name: of what takes them, such as an emulator as it stands in toolchains.
    """
    prices = {part: 1.0 for error in device.errors.values() for part in error.moves}
    prices |= {
        "aicpu_elements": 1e3 * device.aicpu_element_ns,
        "execute_launch": device.execute_launch_us,
        "gear": device.gear_us,
        "copy_latency": device.copy_latency_us,
        "to_device": 1e3 / device.host_to_device_gb_per_s,
        "to_host": 1e3 / device.device_to_host_gb_per_s,
    }
    unknowns = []
    for known, error in device.errors.items():
        half = f", half of them within {error.median:.0%}" if error.median else " with their whole operator"
        source = f"{error.rows} timed cases that were left out{half}" if error.rows else "[inferred]"
        factor = error.factor_95
        if error.refitted_by and all(device.origins[one].startswith("measured") for one in error.refitted_by):
            source, factor = "refitted to kernels of a device", _REFITTED_95
        unknowns.append(Unknown(name=known, about=error.about, moves=error.moves, factor_95=factor, source=source))
    return TimingModel(name=f"{device.soc_version}, {name}", prices=tuple(prices.items()), unknowns=tuple(unknowns))
