"""What the time model knows of a chip: the shipped file, and over it one that was fitted to measurements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError

SHIPPED = Path(__file__).with_name("ascend910b3.yaml")
OVERRIDE_VARIABLE = "CANN_EMULATOR_DEVICE_DATA"
_SHEET = ("cube_float16_tflops", "cube_int8_tops", "hbm_tb_per_s")
_KINDS = ("source", "fitted", "inferred", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The service that published figures were measured through.

    Attributes:
        request_latency_ms: what a request waits for besides the device, alone in the system.
        request_worker_ms: of the worker's own time per request, in which the device idles.
        batch: requests to an execution under load.
        workers: processes with a model each on the one device.
    """

    request_latency_ms: float
    request_worker_ms: float
    batch: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPoint:
    """What only a measurement on a device would tell; see `unknowns` in the file.

    Attributes:
        parameters: of `DeviceData`, those that a refit would have measured.
        moves: prices of `cost_statement`.
        data_sheet: in `unit`; None where it says nothing.
    """

    name: str
    about: str
    parameters: tuple[str, ...]
    moves: tuple[str, ...]
    unit: str
    reads: Literal["rate", "time"]
    factor_95: float
    data_sheet: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceData:
    """Parameters of one chip; units in the names, meanings and origins in `ascend910b3.yaml`.

    Attributes:
        instructions: ONNX operator → vector instructions per element; "" for all others.
        data_sheet: what is published for the card as a whole; the time model does not run on it.
        unknowns: what is open about the parameters.
        origins: parameter → "kind: origin".
    """

    soc_version: str
    cube_cores: int
    vector_cores: int
    clock_mhz: float
    hbm_gib: float
    l2_mib: float
    cube_macs_float16: float
    cube_macs_bfloat16: float
    cube_macs_int8: float
    cube_macs_float32: float
    l2_read_bytes_per_cycle: float
    l2_write_bytes_per_cycle: float
    hbm_bytes_per_cycle: float
    l2_share: float
    vector_bytes_per_cycle: float
    cube_efficiency_float16: float
    cube_efficiency_bfloat16: float
    cube_efficiency_int8: float
    cube_efficiency_float32: float
    vector_efficiency: float
    memory_efficiency: float
    kernel_launch_us: float
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
    instructions: Mapping[str, float]
    service: Service
    data_sheet: Mapping[str, float]
    idle_w: float
    busy_w: float
    unknowns: tuple[OpenPoint, ...]
    origins: Mapping[str, str]


_CHIP = ("cube_cores", "vector_cores", "clock_mhz", "hbm_gib", "l2_mib")
_REST = ("soc_version", "instructions", "service", "data_sheet", "idle_w", "busy_w", "unknowns", "origins")
PARAMETERS = tuple(f.name for f in fields(DeviceData) if f.name not in (*_CHIP, *_REST))


def load_device_data(soc_version: str, override: Path | None = None) -> DeviceData:
    """Parameters of a chip.

    Args:
        soc_version: as ATC spells it; names that the file lacks get 910B3's figures [inferred].
        override: a file of `fit`; by default the one that CANN_EMULATOR_DEVICE_DATA names. It holds for the chip it
            names and leaves others alone.

    Raises:
        ConfigError: a file that cannot be read, or with a number that is missing, negative or without an origin.
    """
    if override is None and (named := os.environ.get(OVERRIDE_VARIABLE)):
        override = Path(named)
    with read_yaml(SHIPPED) as top:
        data = _shipped(top, soc_version)
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


def _shipped(top: Section, soc_version: str) -> DeviceData:
    chips = {name: _chip(section) for name, section in top.sections("chips")}
    values, origins = _numbers(top.section("parameters"), PARAMETERS)
    service, service_origins = _numbers(
        top.section("service"), ("request_latency_ms", "request_worker_ms", "batch", "workers"), prefix="service."
    )
    sheet, sheet_origins = _numbers(top.section("data_sheet"), _SHEET, prefix="data_sheet.")
    power, power_origins = _numbers(top.section("power"), ("idle_w", "busy_w"), prefix="power.")
    section = top.section("instructions")
    origins["instructions"] = f"{section.text('kind', choices=_KINDS)}: {section.text('origin')}"
    default, table = section.number("default", minimum=0), section.section("values")
    numbers: Mapping[str, Any] = values
    return DeviceData(
        soc_version=soc_version,
        **chips.get(soc_version, chips["Ascend910B3"]),
        **numbers,
        instructions={"": default, **{name: table.number(name, minimum=0) for name in table.names()}},
        service=Service(
            request_latency_ms=service["request_latency_ms"],
            request_worker_ms=service["request_worker_ms"],
            batch=int(service["batch"]),
            workers=int(service["workers"]),
        ),
        data_sheet=sheet,
        idle_w=power["idle_w"],
        busy_w=power["busy_w"],
        unknowns=tuple(_open_point(name, section) for name, section in top.sections("unknowns")),
        origins={**origins, **service_origins, **sheet_origins, **power_origins},
    )


def _open_point(name: str, section: Section) -> OpenPoint:
    reads = section.text("reads", choices=("rate", "time"))
    return OpenPoint(
        name=name,
        about=section.text("about"),
        parameters=section.texts("parameters"),
        moves=section.texts("moves"),
        unit=section.text("unit"),
        reads="rate" if reads == "rate" else "time",
        factor_95=section.number("factor_95", minimum=1),
        data_sheet=section.number("data_sheet", minimum=0) if section.has("data_sheet") else None,
        source=section.text("source"),
    )


def _chip(section: Section) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: section.number(name, minimum=1) for name in _CHIP}
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
