"""The program npu-smi, as far as the workbench reads it: the table of `npu-smi info`, and of `npu-smi info …` the
mapping (-m), and a card's `-t board -i N` and `-t common -i N` (pyacl.md §6.1-6.2).

Widths and keys are those of public captures and of the open source of npu-smi: table rows with fixed columns, and
`\t<key, 30 wide> : <value>` elsewhere. Load and HBM come from what processes on the emulated devices report
(`state`); power, temperature and clock follow from the load by a straight line, [inferred] between what is known of
idle and busy cards (`ascend910b.yaml`, power). An NPU id equals its logic id here, and a card has one chip.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.cann_emulator.revision import emulator
from workbench.cann_emulator.state import RESERVED_HBM_MB, device_count, hbm_mb, processes, soc_version
from workbench.cann_emulator.tree import DRIVER_VERSION, FIRMWARE_VERSION
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import DeviceData, load_device_data

_LINE = "+---------------------------+---------------+----------------------------------------------------+"
_DOUBLE = _LINE.replace("-", "=")
_FRESH_S = 2.0
_FULL = "+" + "-" * (len(_LINE) - 2) + "+"

_USAGE = """\
Usage: npu-smi info <-h|-m|-t type> [Options...]

Commands:
       -h, --help     Show this help text and exit
       -m             Show all device's mapping information
       -t type        Show information for type
                      type: board, common (the emulator has no others)

Options:
       -i %d          Card ID"""


class _Card(NamedTuple):
    npu: int
    bus: str
    load: int
    used_mb: int
    power_w: str
    temperature_c: int
    held: tuple[tuple[int, str, int], ...]  # (process id, its name, MB of HBM) of each process on the card


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or 1 where a parameter is wrong or no device is there [inferred]."""
    helps = any(word in ("-h", "--help") for word in argv)
    if list(argv) in (["-v"], ["--version"]):
        print(f"npu-smi version: {_driver()}")
        return 0
    if list(argv[:1]) != ["info"] or helps:
        print(_USAGE)
        return 0 if helps else 1
    try:
        soc = soc_version()
    except ConfigError as error:
        print(f"CANN_EMULATOR_SOC: {error}")
        return 1
    if device_count() == 0:
        print("dcmi module initialize failed. ret is -8005")
        return 1
    lines = _answer(argv[1:], soc.removeprefix("Ascend"), load_device_data(soc))
    print(f"Error parameter of {lines}\n{_USAGE}" if isinstance(lines, str) else "\n".join(lines))
    return 1 if isinstance(lines, str) else 0


def _driver() -> str:
    """CANN_EMULATOR_DRIVER, or the driver that belongs to the emulated CANN."""
    return os.environ.get("CANN_EMULATOR_DRIVER") or DRIVER_VERSION


def _answer(words: Sequence[str], name: str, chip: DeviceData) -> list[str] | str:
    """The lines to print, or the option that is wrong."""
    cards = _cards(chip)
    if not words:
        return _table(cards, name)
    if list(words) == ["-m"]:
        return _mapping(cards, name)
    given = dict(zip(words[::2], words[1::2], strict=False))
    unknown = [option for option in words[::2] if option not in ("-t", "-i")]
    if unknown or len(words) % 2:
        return unknown[0] if unknown else words[-1]
    if given.get("-t") not in ("board", "common"):
        return "-t"
    card = {str(card.npu): card for card in cards}.get(given.get("-i", ""))
    if card is None:
        return "-i"
    return _board(card, name) if given["-t"] == "board" else _common(card, chip)


def _cards(chip: DeviceData) -> list[_Card]:
    uses, now, cards = processes(), time.time(), []
    for npu in range(device_count()):
        held = tuple((u.pid, u.name, u.devices[npu].hbm_bytes // 2**20) for u in uses if npu in u.devices)
        loads = [u.devices[npu] for u in uses if npu in u.devices and now - u.devices[npu].updated_s < _FRESH_S]
        load = round(min(100.0, sum(use.aicore_percent for use in loads)))
        used_mb = min(hbm_mb(), RESERVED_HBM_MB + sum(megabytes for _, _, megabytes in held))
        power_w = f"{chip.idle_w + (chip.busy_w - chip.idle_w) * load / 100:.1f}"
        cards.append(_Card(npu, f"0000:{0xC1 + npu:02X}:00.0", load, used_mb, power_w, 36 + round(0.3 * load), held))
    return cards


def _table(cards: Sequence[_Card], name: str) -> list[str]:
    lines = [
        _FULL,
        f"| npu-smi {_driver():<24} Version: {_driver():<52} |",
        _LINE,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        _DOUBLE,
    ]
    for card in cards:
        hbm = f"{card.used_mb:<5}/ {hbm_mb():<13}"
        state = f"{card.power_w:<11} {card.temperature_c:<17} {0:<5}/ {0:<13}"
        lines.append(f"| {card.npu:<5} {name:<20}| {'OK':<13} | {state} |")
        lines.append(f"| {0:<26}| {card.bus:<13} | {card.load:<11} {0:<5}/ {0:<10} {hbm} |")
        lines.append(_DOUBLE)
    lines.append(_LINE)
    lines.append("| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |")
    lines.append(_DOUBLE)
    for card in cards:
        for pid, process, megabytes in card.held:
            lines.append(f"| {card.npu:<7} {0:<18}| {pid:<13} | {process:<24} | {megabytes:<23} |")
        if not card.held:
            lines.append(f"| {f'No running processes found in NPU {card.npu:<7}':<94} |")
        lines.append(_DOUBLE)
    return lines


def _mapping(cards: Sequence[_Card], name: str) -> list[str]:
    lines = [f"\t{'NPU ID':<30} {'Chip ID':<30} {'Chip Logic ID':<30} {'Chip Name':<30}"]
    for card in cards:
        lines.append(f"\t{card.npu:<30} {0:<30} {card.npu:<30} Ascend {name}")
        lines.append(f"\t{card.npu:<30} {1:<30} {'-':<30} {'Mcu':<30}")
    return lines


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"\t{key:<30} : {value}" for key, value in values.items()]


def _common(card: _Card, chip: DeviceData) -> list[str]:
    own = {
        "NPU ID": card.npu,
        "Chip Count": 1,
        "Chip ID": 0,
        "Memory Usage Rate(%)": 0,
        "HBM Usage Rate(%)": min(100, round(100 * card.used_mb / hbm_mb())),
        "Aicore Usage Rate(%)": card.load,
        "Aicore Freq(MHZ)": round(chip.clock_mhz),
        "Aicore curFreq(MHZ)": round(chip.clock_mhz) if card.load else 800,
        "Aicore Count": chip.cube_cores,
        "Temperature(C)": card.temperature_c,
        "NPU Real-time Power(W)": card.power_w,
    }
    return [*_pairs(own), "", *_pairs({"Chip Name": "mcu", "Temperature(C)": 34})]


def _board(card: _Card, name: str) -> list[str]:
    own = {
        "NPU ID": card.npu,
        "Product Name": f"emulated {name} ({emulator()})",
        "Software Version": _driver(),
        "Firmware Version": FIRMWARE_VERSION,
        "PCIe Bus Info": card.bus,
        "Chip Count": 1,
    }
    return _pairs(own)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
