"""Asking `npu-smi`, reading what it prints, and looking at one card again and again.

CANN does not define these texts and they differ between drivers, so everything here is lenient: rows are told by what
they hold, values by their key, and what cannot be read is None. A text without any known row is refused, which is not
the same as "no device". Shapes: pyacl.md §6.1-6.2.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.targets.apart import run_apart
from workbench.values.device_use import DeviceReading, Reader
from workbench.values.errors import ToolchainError

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"
"""Which devices a process sees, and how it counts them (pyacl.md §6.6)."""
TIMEOUT_S = 20.0
USUAL_PLACES = (Path("/usr/local/bin/npu-smi"), Path("/usr/local/sbin/npu-smi"))
"""Where the driver puts the program."""
INTERVAL_S = 1.0
MIB = 1 << 20
"""npu-smi's MB: a card of 64 GiB shows 65536 (pyacl.md §6.1)."""

_ONE_AT_A_TIME = threading.Lock()
"""npu-smi is not to be run by several threads at once (its manual)."""
_STOPPING_S = 5.0
_UNLOADED = ". The driver is not loaded, or /dev/davinci* is not visible here."
_HINTS = (
    (
        "-8020",
        ". Another container holds a card that this one was given too: give each container its own cards "
        "(ASCEND_VISIBLE_DEVICES), or stop the other.",
    ),
    ("-8005", _UNLOADED),
    ("initialize failed", _UNLOADED),
)
_ID_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One chip as `npu-smi info` shows it.

    Attributes:
        npu_id: what npu-smi calls the card; need not start at 0.
        chip: of the card, 0 on cards with one chip.
        name: without blanks, such as 910B3.
        reading: what it did at that moment.
        processes: on it, as 'name (pid)'.
        logic_id: the device id of ACL, before ASCEND_RT_VISIBLE_DEVICES renumbers it, from `npu-smi info -m`; None
            where that does not tell.
    """

    npu_id: int
    chip: int
    name: str
    health: str
    reading: DeviceReading
    processes: tuple[str, ...] = ()
    logic_id: int | None = None


def npu_smi_path(environment: Mapping[str, str]) -> Path | None:
    """The program on PATH, or where the driver puts it; None where it is not."""
    found = shutil.which("npu-smi", path=environment.get("PATH", os.defpath))
    return Path(found) if found else next((place for place in USUAL_PLACES if os.access(place, os.X_OK)), None)


def run_npu_smi(
    arguments: Sequence[str], *, environment: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S
) -> str:
    """What `npu-smi <arguments>` prints, one call at a time in this process.

    Raises:
        ToolchainError: it is missing, does not answer in time, or fails; with its own words.
    """
    program = npu_smi_path(environment)
    if program is None:
        raise ToolchainError(
            "npu-smi is not on PATH. Install the NPU driver; in a container, mount it from the host "
            "(-v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi -v /usr/local/Ascend/driver:/usr/local/Ascend/driver)."
        )
    said = " ".join(["npu-smi", *arguments])
    with _ONE_AT_A_TIME:
        try:
            done = run_apart([str(program), *arguments], environment=environment, timeout_s=timeout_s)
        except OSError as error:
            raise ToolchainError(f"`{said}` cannot be started: {error}") from error
    if done.code is None:
        raise ToolchainError(
            f"`{said}` did not answer within {timeout_s:g} s. A card may hang: look at dmesg, and run it by hand."
        )
    if done.code != 0:
        words = " ".join(done.output.split())[:300] or "no output"
        hint = next((hint for word, hint in _HINTS if word in words), "")
        raise ToolchainError(f"`{said}` failed with exit code {done.code}: {words}{hint}")
    return done.output


def overview(environment: Mapping[str, str] = os.environ) -> tuple[tuple[Card, ...], str]:
    """The cards of `npu-smi info`, with the logic ids of `npu-smi info -m` where that answers, and the driver's
    version, '' where the text has none.

    Raises:
        ToolchainError: see `run_npu_smi`; or the text has neither the table's head nor a row of it.
    """
    text = run_npu_smi(["info"], environment=environment)
    cards = parse_info(text)
    if not cards and not re.search(r"\|\s*NPU\s+Name", text):
        raise ToolchainError("npu-smi gives a text that cannot be read")
    logic: dict[tuple[int, int], int] = {}
    with suppress(ToolchainError):  # logic ids stay None: older drivers have no -m
        logic = parse_mapping(run_npu_smi(["info", "-m"], environment=environment))
    version = re.search(r"Version:\s*([^\s|]+)", text)
    known = (replace(card, logic_id=logic.get((card.npu_id, card.chip))) for card in cards)
    return tuple(known), version.group(1) if version else ""


def seen_cards(environment: Mapping[str, str]) -> tuple[tuple[Card, ...], str, str]:
    """As `overview`, and why there are none where there are none."""
    try:
        return *overview(environment), "npu-smi lists no card"
    except ToolchainError as error:
        return (), "", str(error).rstrip(".")


def details(kind: str, npu_id: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`npu-smi info -t <kind> -i <npu_id>`, see `parse_pairs`; empty where npu-smi does not answer it: not every driver
    knows every kind.

    Args:
        kind: usages, power, common, temp, memory, board, health or proc-mem.
    """
    try:
        return parse_pairs(run_npu_smi(["info", "-t", kind, "-i", str(npu_id)], environment=environment))
    except ToolchainError:
        return {}


def parse_info(text: str) -> tuple[Card, ...]:
    """The table of `npu-smi info`: two rows for each chip, then the processes.

    | 0     910B3        | OK            | 94.3   53   0    / 0        |   an id, then a name that is no number
    | 0                  | 0000:C1:00.0  | 0   0 / 0   4487 / 65536    |   the chip, on some cards with a second number
    """
    cards: list[Card] = []
    processes: dict[tuple[int, int], list[str]] = {}
    first: list[str] | None = None
    in_processes = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        words = cells[0].split()
        ids = len(words) in (1, 2) and all(map(_is_id, words))
        in_processes = in_processes or "Process id" in line
        if len(cells) < 3 or not words or not _is_id(words[0]):
            continue
        if in_processes:
            if len(cells) > 3 and ids and len(words) == 2 and _is_id(cells[1]):
                place = int(words[0]), int(words[1])
                processes.setdefault(place, []).append(f"{cells[2] or 'process'} ({int(cells[1])})")
        elif len(words) > 1 and not _is_id(words[1]):
            first = cells
        elif first is not None and ids:
            cards.append(_card(first, cells))
            first = None
    return tuple(replace(card, processes=tuple(processes.get((card.npu_id, card.chip), ()))) for card in cards)


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """`npu-smi info -m`: (npu id, chip) → logic id; rows without one, as of the board's controller, are left out."""
    rows = (line.split() for line in text.splitlines())
    found = [words[:3] for words in rows if len(words) >= 4 and all(map(_is_id, words[:3]))]
    return {(int(npu_id), int(chip)): int(logic_id) for npu_id, chip, logic_id in found}


def parse_pairs(text: str) -> dict[str, str]:
    """Lines `key : value`, keys in lower case with single blanks; the first value of a key counts, so that the board's
    controller, which comes last, does not."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition(":")
        if sign and key.strip():
            pairs.setdefault(" ".join(key.lower().split()), value.strip())
    return pairs


def number(text: str) -> float | None:
    """A number as npu-smi prints it; None for '-', 'NA' and everything else that is none."""
    found = re.match(r"[-+]?[0-9]{1,300}(\.[0-9]+)?", text.strip())
    return float(found.group()) if found else None


def soc_name(name: str) -> str:
    """The value of --soc_version: '910B3', 'Ascend 910B3' and 'Ascend910B3' are Ascend910B3 (pyacl.md §6.3)."""
    plain = "".join(name.split())
    return plain if plain.lower().startswith("ascend") else f"Ascend{plain}"


def visible_devices(
    environment: Mapping[str, str] = os.environ, present: Sequence[int] | None = None
) -> tuple[int, ...] | None:
    """Logic ids in the order in which a process counts them from 0; None where ASCEND_RT_VISIBLE_DEVICES restricts
    nothing, as an empty list does [inferred].

    Args:
        present: logic ids of the machine, where they are known.

    Raises:
        ToolchainError: they do not ascend, or one is none of the machine. The runtime stops reading there.
    """
    text = environment.get(VARIABLE)
    if not text:
        return None
    devices: list[int] = []
    for word in (entry.strip() for entry in text.split(",")):
        if not word.isdecimal():
            wrong = f"{word!r} is no device id"
        elif devices and int(word) <= devices[-1]:
            wrong = f"{word} does not ascend after {devices[-1]}"
        elif present is not None and int(word) not in present:
            wrong = f"the machine has no device {word}, only {', '.join(map(str, present)) or 'none'}"
        else:
            devices.append(int(word))
            continue
        raise ToolchainError(
            f"{VARIABLE}={text}: {wrong}; the rest of the list is not read. Name devices that are there, ascending."
        )
    return tuple(devices)


def reader_of(device: int, environment: Mapping[str, str] | None = None) -> Reader:
    """A reader of the card that a process with this environment calls `device`.

    It reads the table of `npu-smi info`; the mapping of logic ids costs a process of its own and is asked for once. It
    raises ToolchainError where npu-smi is missing, does not answer, fails, or does not list the card.
    """
    surroundings = dict(os.environ if environment is None else environment)
    place: tuple[int, int] | None = None

    def read() -> DeviceReading:
        nonlocal place
        visible = visible_devices(surroundings) or ()  # npu-smi knows nothing of the renumbering
        wanted = visible[device] if device < len(visible) else device
        if place is None:
            cards, _ = overview(surroundings)
            if all(card.logic_id is None for card in cards):  # then by place in the table
                found = cards[wanted] if wanted < len(cards) else None
            else:
                found = next((card for card in cards if card.logic_id == wanted), None)
        else:
            cards = parse_info(run_npu_smi(["info"], environment=surroundings))
            found = next((card for card in cards if (card.npu_id, card.chip) == place), None)
        if found is None:
            raise ToolchainError(f"npu-smi lists no card with logic id {wanted}")
        place = found.npu_id, found.chip
        return found.reading

    return read


@contextmanager
def watched(
    device: int, *, interval_s: float = INTERVAL_S, environment: Mapping[str, str] | None = None
) -> Iterator[list[DeviceReading]]:
    """Look at a card every `interval_s` in a thread of its own for as long as the block runs, which never fails because
    of this.

    Args:
        device: as the process counts it.
        environment: of npu-smi; this process's when not given.
    """
    readings: list[DeviceReading] = []
    over = threading.Event()
    read = reader_of(device, environment)

    def collect() -> None:
        while True:
            try:
                readings.append(read())
            except ToolchainError:
                readings.append(DeviceReading())
            if over.wait(interval_s):
                return

    thread = threading.Thread(target=collect, name="npu-smi sampler", daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        over.set()
        thread.join(_STOPPING_S)  # a hanging npu-smi is left to its own time limit


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _ID_DIGITS


def _card(first: Sequence[str], second: Sequence[str]) -> Card:
    npu_id, *name = first[0].split()
    power, temperature, *_ = [*first[2].split(), "", ""]
    load, _, sizes = second[2].partition(" ")
    pairs = re.findall(r"([0-9]{1,12}|-|NA)\s{0,9}/\s{0,9}([0-9]{1,12}|-|NA)", sizes)
    # One pair is DDR alone, on cards without HBM
    used, total = (number(text) for text in (pairs[-1] if len(pairs) >= 2 else ("", "")))
    return Card(
        npu_id=int(npu_id),
        chip=int(second[0].split()[0]),
        name="".join(name),
        health=first[1],
        reading=DeviceReading(
            memory_bytes=None if used is None else used * MIB,
            power_w=number(power),
            utilization_percent=number(load),
            temperature_c=number(temperature),
            memory_total_bytes=None if total is None else total * MIB,
        ),
    )
