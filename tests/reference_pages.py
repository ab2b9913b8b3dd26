"""Codes and flags as the pages of the vendor's contract in docs/reference print them."""

import re
from pathlib import Path

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def _section(page: str, start: str, end: str) -> str:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    begins = text.index(start)
    return text[begins : text.index(end, begins)]


def acl_tables() -> str:
    """The tables of pyacl.md §2.6, without codes of later releases."""
    section = _section("pyacl.md", "### 2.6 Return code tables", "### 2.7")
    later, graph_engine = section.index("Codes above those"), section.index("**Graph engine**")
    return section[:later] + section[graph_engine:].split("Retry policy")[0]


def acl_codes() -> set[int]:
    """Every return code of pyacl.md §2.6; 0, success, is one of them."""
    found = {0}
    for first, last in re.findall(r"\b(\d{6})(?:-(\d{6}))?\b", acl_tables()):
        found.update(range(int(first), int(last or first) + 1))
    return found


def atc_codes() -> set[str]:
    """Every code of atc.md §5.4 that is written out or in a range, gaps of a range included; no families (E5xxxx)."""
    found: set[str] = set()
    for cell in re.findall(r"^\| ([EW][^|]*)\|", _section("atc.md", "### 5.4 Codes", "### 5.5"), re.MULTILINE):
        for family, first, last in re.findall(r"\b([EW][A-Z0-9])(\d{4})(?:-[EW][A-Z0-9](\d{4}))?\b", cell):
            found.update(f"{family}{number:04}" for number in range(int(first), int(last or first) + 1))
    return found


def atc_flags() -> tuple[set[str], set[str]]:
    """Flags of 8.5.0 in the first column of a table of atc.md §2, and every flag that the page names at all."""
    rows = re.findall(r"^\| (`--[^|]*)\|", _section("atc.md", "## 2. Flags of 8.5.0", "## 3."), re.MULTILINE)
    listed = {name for cell in rows for name in re.findall(r"--(\w+)", cell)}
    whole = (REFERENCE / "atc.md").read_text(encoding="utf-8")
    return listed - {"h", "deterministic_level"}, set(re.findall(r"--(\w+)", whole))


def fixed_passes() -> set[str]:
    """Fusion passes that stay on whatever a switch file says (atc.md §4.3)."""
    closed = _section("atc.md", "**Not closable.**", "The 8.5 manual")
    return set(re.findall(r"\w+", closed + _section("atc.md", "- ExceptionalPassOfO1Level", "Closable candidates")))


def acl_calls() -> dict[str, int]:
    """Call, as `rt.malloc`, → values that it gives, its return code among them; those rows of pyacl.md §1 that say."""
    rows = re.findall(r"^\| (`[^|]*)\|", _section("pyacl.md", "## 1. Calls", "## 2."), re.MULTILINE)
    calls = [call for cell in rows for call in re.findall(r"([\w, ]+?) = acl\.([\w.]+)\(", cell)]
    return {name: len(given.split(",")) for given, name in calls if name != "get_version"}


def atc_values() -> dict[str, tuple[list[str], str]]:
    """Flag → values that are taken while the command line is parsed, and the code of any other (atc.md §1)."""
    section = _section("atc.md", "Values checked at parse time", "The E10001 reason lists")
    found = {}
    for names, values, code in re.findall(r"^\| (`[^|]*)\| ([^|]*) \| (E\d{5})", section, re.MULTILINE):
        listed = ["0", "1", "2", "3", "4"] if values == "0..4" else values.split(", ")
        for name in re.findall(r"`(\w+)`", names):
            found[name] = listed, "E10001" if name == "virtual_type" else code
    return found
