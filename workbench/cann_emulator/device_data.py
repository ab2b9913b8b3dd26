"""What the time model knows of a chip: the shipped file, and over it one that was fitted to measurements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError

SHIPPED = Path(__file__).with_name("ascend910b3.yaml")
OVERRIDE_VARIABLE = "CANN_EMULATOR_DEVICE_DATA"
_KINDS = ("source", "fitted", "inferred", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Kernels that are timed alike; see `kinds` in the file.

    Attributes:
        like: the kind that it takes from what it is not given itself.
        launches: what a start takes, in `kernel_launch_us`; None for `full_launches`.
        instructions: of the vector cores for each number.
        row_instructions: for each row.
        in_pieces: what rows of other lengths than whole blocks of memory cost more.
        on_cube: None without a product; 'halves' where the cube multiplies float16 whatever the type, '' else.
        of_cube: how much of the cube's efficiency it reaches.
        error_class: of `DeviceData.errors`.
        fitted_on: operators, and how many timed cases of each.
    """

    like: str
    launches: float | None
    instructions: float
    row_instructions: float
    in_pieces: float
    on_cube: Literal["", "halves"] | None
    of_cube: float
    error_class: str
    fitted_on: str
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorClass:
    """What modelled times of some kernels, or of another part of a call, are off by.

    Attributes:
        about: whose time it is.
        moves: parts of a call's costs that share it.
        refitted_by: parameters that a refit to a device's kernels has measured where this is settled.
        median: of |modelled / measured - 1|; 0 where nothing was measured and factor_95 is a judgement.
        factor_95: 95 % of measured times lie within it, in either direction.
        rows: that it was found on.
    """

    about: str
    moves: tuple[str, ...]
    refitted_by: tuple[str, ...]
    median: float
    factor_95: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceData:
    """Parameters of one chip; units in the names, meanings and origins in `ascend910b3.yaml`.

    Attributes:
        kinds: of kernels, by name; `operators` says whose they are, 'elementwise' is all others.
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
    dynamic_launch_us: float
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
    errors: Mapping[str, ErrorClass]
    idle_w: float
    busy_w: float
    origins: Mapping[str, str]

    def kind_of(self, operator: str) -> str | None:
        """The kind that names it; None for all others, which are element-wise."""
        return self.operators.get(operator)


_CHIP = ("cube_cores", "vector_cores", "clock_mhz", "hbm_gib", "hbm_tb_per_s", "l2_mib")
_REST = ("soc_version", "kinds", "operators", "errors", "idle_w", "busy_w", "origins")
PARAMETERS = tuple(f.name for f in fields(DeviceData) if f.name not in (*_CHIP, *_REST))


def load_device_data(soc_version: str, override: Path | None = None, *, known: bool = False) -> DeviceData:
    """Parameters of a chip.

    Args:
        soc_version: as ATC spells it; names that the file lacks get 910B3's figures [inferred].
        override: a file of `fit`; by default the one that CANN_EMULATOR_DEVICE_DATA names. It holds for the chip it
            names and leaves others alone.
        known: refuse a chip that the file lacks.

    Raises:
        ConfigError: a file that cannot be read, or with a number that is missing, negative or without an origin.
    """
    if override is None and (named := os.environ.get(OVERRIDE_VARIABLE)):
        override = Path(named)
    with read_yaml(SHIPPED) as top:
        data = _shipped(top, soc_version, known)
    if override is None:
        return data
    with read_yaml(override) as top:
        chip = top.text("soc_version")
        top.raw("fitted_to", default=None)
        found, origins = _numbers(top.section("parameters"), None)
    if chip != soc_version:
        return data
    return replace(with_parameters(data, found), origins={**data.origins, **origins})


def with_parameters(data: DeviceData, values: Mapping[str, float]) -> DeviceData:
    """The same chip with other values of some `PARAMETERS`."""
    changed: Mapping[str, Any] = values
    return replace(data, **changed)


def _shipped(top: Section, soc_version: str, known: bool) -> DeviceData:
    chips = {name: _chip(section) for name, section in top.sections("chips")}
    if known and soc_version not in chips:
        raise ConfigError(f"{soc_version!r} is no chip whose times are modelled: {', '.join(chips)}.")
    values, origins = _numbers(top.section("parameters"), PARAMETERS)
    power, power_origins = _numbers(top.section("power"), ("idle_w", "busy_w"), prefix="power.")
    kinds = _kinds(top.sections("kinds"))
    numbers: Mapping[str, Any] = values
    return DeviceData(
        soc_version=soc_version,
        **chips.get(soc_version, chips["Ascend910B3"]),
        **numbers,
        kinds=kinds,
        operators={operator: name for name, kind in kinds.items() for operator in (name, *kind.operators)},
        errors={name: _error(section) for name, section in top.sections("errors")},
        idle_w=power["idle_w"],
        busy_w=power["busy_w"],
        origins={**origins, **power_origins},
    )


def _kinds(sections: Iterable[tuple[str, Section]]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for name, section in sections:
        like = section.text("like", default="")
        if like and like not in found:
            raise section.error("like", f"{like!r} is no kind above it.")
        found[name] = _kind(section, like, found.get(like))
    return found


def _kind(section: Section, like: str, alike: Kind | None) -> Kind:
    on_cube = section.text("on_cube", choices=("", "halves")) if section.has("on_cube") else None
    launches = alike.launches if alike else None
    return Kind(
        like=like,
        launches=section.number("launches", minimum=0) if section.has("launches") else launches,
        instructions=section.number("instructions", default=alike.instructions if alike else 0.0, minimum=0),
        row_instructions=section.number(
            "row_instructions", default=alike.row_instructions if alike else 0.0, minimum=0
        ),
        in_pieces=section.number("in_pieces", default=alike.in_pieces if alike else 1.0, minimum=1),
        on_cube=None if on_cube is None else "halves" if on_cube else "",
        of_cube=section.number("of_cube", default=1.0, minimum=0),
        error_class=section.text("error_class"),
        fitted_on=section.text("fitted_on"),
        operators=section.texts("operators", default=()),
    )


def _error(section: Section) -> ErrorClass:
    return ErrorClass(
        about=section.text("about"),
        moves=section.texts("moves"),
        refitted_by=section.texts("refitted_by", default=()),
        median=section.number("median", default=0.0, minimum=0),
        factor_95=section.number("factor_95", minimum=1),
        rows=int(section.number("rows", default=0.0, minimum=0)),
    )


def _chip(section: Section) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: section.number(name, minimum=0.1) for name in _CHIP}
    return {**numbers, "cube_cores": int(numbers["cube_cores"]), "vector_cores": int(numbers["vector_cores"])}


def _numbers(
    parent: Section, wanted: tuple[str, ...] | None, prefix: str = ""
) -> tuple[dict[str, float], dict[str, str]]:
    """Name → value and name → origin; all of `wanted`, or whichever parameters are there."""
    values, origins = {}, {}
    for name in parent.names() if wanted is None else wanted:
        if wanted is None and name not in PARAMETERS:
            raise ConfigError("is no parameter of the time model.", file=parent.file, key=f"{parent.path}.{name}")
        entry = parent.section(name)
        values[name] = entry.number("value", minimum=0)
        if values[name] == 0 and not name.endswith(("_us", "_ms", "_ns")):
            raise entry.error("value", "must be positive.")
        origins[prefix + name] = f"{entry.text('kind', choices=_KINDS)}: {entry.text('origin')}"
    return values, origins
