"""The program npu-smi: what `npu-smi info …` prints of 910B cards (pyacl.md §6.1-6.2).

Widths and keys are those of public captures and of the open source of npu-smi: table rows with fixed columns, and
`\t<key, 30 wide> : <value>` elsewhere. Load and HBM come from what processes on the emulated devices report
(`state`); power, temperature and clock follow from the load by a straight line, [inferred] between what is known of
idle and busy cards (`ascend910b.yaml`, power).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.cann_emulator.revision import emulator
from workbench.cann_emulator.state import (
    RESERVED_HBM_MB,
    ProcessUse,
    aicore_percent,
    device_count,
    hbm_mb,
    processes,
    soc_version,
)
from workbench.cann_emulator.tree import DRIVER_VERSION, FIRMWARE_VERSION
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import DeviceData, load_device_data

_LINE = "+---------------------------+---------------+----------------------------------------------------+"
_DOUBLE = _LINE.replace("-", "=")
_FULL = "+" + "-" * (len(_LINE) - 2) + "+"

_USAGE = """\
Usage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]

Commands:
       -h, --help     Show this help text and exit
       -m             Show all device's mapping information
       -l             Show all device's topology information
       -t type        Show information for type
                      type: board, common, memory, usages, temp, power, health, proc-mem

Options:
       -i %d          Card ID
       -c %d          Chip ID"""


_data = functools.cache(load_device_data)


def _chip() -> DeviceData:
    """Read only where it is asked for: this program runs often."""
    return _data(soc_version())


def _chip_name() -> str:
    return soc_version().removeprefix("Ascend")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """One card with its single chip; its NPU id equals its logic id here."""

    npu: int
    load_percent: int
    hbm_used_mb: int
    hbm_total_mb: int
    processes: tuple[ProcessUse, ...]

    @property
    def power_w(self) -> float:
        chip = _chip()
        return chip.idle_w + (chip.busy_w - chip.idle_w) * self.load_percent / 100

    @property
    def temperature_c(self) -> int:
        return 36 + round(0.3 * self.load_percent)

    @property
    def clock_mhz(self) -> int:
        return round(_chip().clock_mhz) if self.load_percent else 800

    @property
    def hbm_percent(self) -> int:
        return min(100, round(100 * self.hbm_used_mb / self.hbm_total_mb))

    @property
    def bus_id(self) -> str:
        return f"0000:{0xC1 + self.npu:02X}:00.0"


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or 1 where a parameter is wrong or no device is there [inferred]."""
    if list(argv) in (["-v"], ["--version"]):
        print(f"npu-smi version: {driver()}")
        return 0
    if list(argv[:1]) != ["info"] or any(word in ("-h", "--help") for word in argv):
        print(_USAGE)
        return 0 if any(word in ("-h", "--help") for word in argv) else 1
    try:
        soc_version()
    except ConfigError as error:
        print(f"CANN_EMULATOR_SOC: {error}")
        return 1
    if device_count() == 0:
        print("dcmi module initialize failed. ret is -8005")
        return 1
    given, wrong = _options(argv[1:])
    if wrong:
        print(f"Error parameter of {wrong}\n{_USAGE}")
        return 1
    cards = _cards()
    if not given:
        print("\n".join(_table(cards)))
    elif "-m" in given:
        print("\n".join(_mapping(cards)))
    elif "-l" in given:
        print("\n".join(_list(cards)))
    elif "-t" not in given:
        print(f"Error parameter of -t\n{_USAGE}")  # options without a command
        return 1
    elif given.get("-i") not in {str(card.npu) for card in cards}:
        print(f"Error parameter of -i\n{_USAGE}")
        return 1
    elif given.get("-c", "0") != "0":
        print(f"Error parameter of -c\n{_USAGE}")
        return 1
    else:
        print("\n".join(_shown(cards[int(given["-i"])], given["-t"], "-c" in given)))
    return 0


def driver() -> str:
    """CANN_EMULATOR_DRIVER, or the driver that belongs to the emulated CANN."""
    return os.environ.get("CANN_EMULATOR_DRIVER") or DRIVER_VERSION


def _options(words: Sequence[str]) -> tuple[dict[str, str], str]:
    """(option → value, '') or ({}, the option that is wrong)."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        option = rest.pop(0)
        if option in ("-m", "-l"):
            given[option] = ""
        elif option in ("-t", "-i", "-c") and rest:
            given[option] = rest.pop(0)
        else:
            return {}, option
    if given.get("-t", "board") not in _TYPES:
        return {}, "-t"
    return given, ""


def _cards() -> list[_Card]:
    uses = processes()
    total = hbm_mb()
    cards = []
    for npu in range(device_count()):
        here = tuple(use for use in uses if npu in use.devices)
        used = RESERVED_HBM_MB + sum(use.devices[npu].hbm_bytes for use in here) // 2**20
        load = round(aicore_percent(npu, uses))
        cards.append(
            _Card(npu=npu, load_percent=load, hbm_used_mb=min(used, total), hbm_total_mb=total, processes=here)
        )
    return cards


def _table(cards: Sequence[_Card]) -> list[str]:
    lines = [
        _FULL,
        f"| npu-smi {driver():<24} Version: {driver():<52} |",
        _LINE,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        _DOUBLE,
    ]
    for card in cards:
        hbm = f"{card.hbm_used_mb:<5}/ {card.hbm_total_mb:<13}"
        lines += [
            f"| {card.npu:<5} {_chip_name():<20}| {'OK':<13} | {card.power_w:<11.1f} {card.temperature_c:<17} "
            f"{0:<5}/ {0:<13} |",
            f"| {0:<26}| {card.bus_id:<13} | {card.load_percent:<11} {0:<5}/ {0:<10} {hbm} |",
            _DOUBLE,
        ]
    lines += [
        _LINE,
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        _DOUBLE,
    ]
    for card in cards:
        for use in card.processes:
            megabytes = use.devices[card.npu].hbm_bytes // 2**20
            lines.append(f"| {card.npu:<7} {0:<18}| {use.pid:<13} | {use.name:<24} | {megabytes:<23} |")
        if not card.processes:
            lines.append(f"| {f'No running processes found in NPU {card.npu:<7}':<94} |")
        lines.append(_DOUBLE)
    return lines


def _mapping(cards: Sequence[_Card]) -> list[str]:
    lines = [f"\t{'NPU ID':<30} {'Chip ID':<30} {'Chip Logic ID':<30} {'Chip Name':<30}"]
    for card in cards:
        lines.append(f"\t{card.npu:<30} {0:<30} {card.npu:<30} Ascend {_chip_name()}")
        lines.append(f"\t{card.npu:<30} {1:<30} {'-':<30} {'Mcu':<30}")
    return lines


def _list(cards: Sequence[_Card]) -> list[str]:
    lines = [_pair("Total Count", len(cards)), ""]
    for card in cards:
        lines += [_pair("NPU ID", card.npu), _pair("Chip Count", 1), ""]
    return lines


def _pair(key: str, value: object) -> str:
    return f"\t{key:<30} : {value}"


_Pairs = list[tuple[str, object]]


def _shown(card: _Card, kind: str, one_chip: bool) -> list[str]:
    """With -c only the chip's own lines are printed [inferred from captures of -t health -c 0]."""
    if kind == "proc-mem":
        pairs: _Pairs = [] if one_chip else [("NPU ID", card.npu), ("Chip ID", 0)]
        found = [_process(use, card) for use in card.processes] or ["\tNo process in device."]
        return [*(_pair(*pair) for pair in pairs), *found]
    if kind == "board":
        return [_pair(*pair) for pair in (_chip_board(card) if one_chip else _card_board(card))]
    lines = [_pair(*pair) for pair in _OF_CHIP[kind](card)]
    if one_chip:
        return lines
    head = [_pair("NPU ID", card.npu), _pair("Chip Count", 1), ""]
    if kind == "health":
        lines.append(_pair("Chip ID", 0))
    return head + lines + (["", *(_pair(*pair) for pair in _MCU[kind])] if kind in _MCU else [])


def _process(use: ProcessUse, card: _Card) -> str:
    megabytes = use.devices[card.npu].hbm_bytes // 2**20
    return f"\tProcess id:{use.pid}  Process name:{use.name}  Process memory(MB):{megabytes}"


def _usages(card: _Card) -> _Pairs:
    load = card.load_percent
    return [
        *((f"DDR {name}", 0) for name in ("Capacity(MB)", "Usage Rate(%)")),
        *((f"DDR Hugepages {name}", 0) for name in ("Total(page)", "Usage Rate(%)")),
        ("HBM Capacity(MB)", card.hbm_total_mb),
        ("HBM Usage Rate(%)", card.hbm_percent),
        *((f"{unit} Usage Rate(%)", value) for unit, value in (("Aicore", load), ("Aivector", load), ("Aicpu", 0))),
        *((f"{unit} Usage Rate(%)", 0) for unit in ("Ctrlcpu", "DDR Bandwidth", "HBM Bandwidth")),
        ("NPU Utilization(%)", load),
        ("Aicube Usage Rate(%)", load),
        ("Chip ID", 0),
    ]


def _common(card: _Card) -> _Pairs:
    return [
        ("Chip ID", 0),
        ("Memory Usage Rate(%)", 0),
        ("HBM Usage Rate(%)", card.hbm_percent),
        ("Aicore Usage Rate(%)", card.load_percent),
        ("Aicore Freq(MHZ)", round(_chip().clock_mhz)),
        ("Aicore curFreq(MHZ)", card.clock_mhz),
        ("Aicore Count", _chip().cube_cores),
        ("Temperature(C)", card.temperature_c),
        ("NPU Real-time Power(W)", f"{card.power_w:.1f}"),
    ]


def _memory(card: _Card) -> _Pairs:
    return [
        ("DDR Capacity(MB)", 0),
        ("HBM Capacity(MB)", card.hbm_total_mb),
        ("HBM Clock Speed(MHz)", 1600),
        ("HBM Temperature(C)", card.temperature_c),
        ("Chip ID", 0),
    ]


def _chip_board(card: _Card) -> _Pairs:
    chip = [("Chip Type", "Ascend"), ("Chip Name", _chip_name()), ("Chip Version", "V1"), ("Board ID", "0x65")]
    return [("NPU ID", card.npu), ("Chip ID", 0), *chip]


def _card_board(card: _Card) -> _Pairs:
    return [
        ("NPU ID", card.npu),
        ("Product Name", f"emulated {_chip_name()} ({emulator()})"),
        ("Model", "NA"),
        ("Manufacturer", "int8-workbench"),
        ("Serial Number", "NA"),
        ("Software Version", driver()),
        ("Firmware Version", FIRMWARE_VERSION),
        ("Compatibility", "OK"),
        ("Board ID", "0x65"),
        ("PCB ID", "A"),
        ("BOM ID", 1),
        ("PCIe Bus Info", card.bus_id),
        ("Slot ID", 0),
        ("Chip Count", 1),
    ]


_OF_CHIP: dict[str, Callable[[_Card], _Pairs]] = {
    "common": _common,
    "health": lambda _: [("Health Status", "OK"), ("Error Code", "NA"), ("Error Information", "NA")],
    "memory": _memory,
    "power": lambda card: [("NPU Real-time Power(W)", f"{card.power_w:.1f}"), ("Chip ID", 0)],
    "temp": lambda card: [("NPU Temperature (C)", card.temperature_c), ("Chip ID", 0)],
    "usages": _usages,
}
_MCU: dict[str, _Pairs] = {
    "common": [("Chip Name", "mcu"), ("Temperature(C)", 34)],
    "power": [("Power Dissipation(W)", "NA"), ("Chip Name", "mcu")],
    "temp": [("LM75A_TE (C)", 34), ("LM75B_TE (C)", 34), ("Chip Name", "MCU")],
}
_TYPES = {*_OF_CHIP, "board", "proc-mem"}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
