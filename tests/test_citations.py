"""Every citation of a page of docs/reference/ leads somewhere.

Code cites the vendor's contract as `atc.md §3.2`, `amct.md, fact 4` or `pyacl.md §4, row 26`: the page docs/reference/
NAME.md, the heading with that number, and below it the numbered line. A bare § belongs to the page named last above it
in the same file; inside a reference page, to that page.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = tuple(sorted(p.stem for p in REFERENCE.glob("*.md") if p.stem != "index"))
FOLDERS = ("workbench", "benchmarks", "tests", "docs", "search_spaces", "calibration", "experiments")
SUFFIXES = {".py", ".md", ".yaml", ".cfg", ".json"}

_PAGE = re.compile(r"\b([a-z]+)\.md\b")
_SECTION = re.compile(r"§\s?(\d+[a-z]?(?:\.\d+)*)(?:\s?-\s?§?(\d+(?:\.\d+)?))?")
_NUMBERED = re.compile(r"\b(fact|row|step|question)s? (\d+)(?:(?:,| and|-| to)\s*(\d+))?")
_HEADING = re.compile(r"^#+ (\d+[a-z]?(?:\.\d+)?)\.? ", re.MULTILINE)
_FOREIGN = re.compile(r"vol\. \d+, §[\d.]+")  # a book's section


@cache
def _sections(page: str) -> dict[str, str]:
    """Number → text of every numbered section, with its subsections; '' is what stands before the first."""
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    starts = [(m.start(), m[1]) for m in _HEADING.finditer(text)]
    found = {"": text[: starts[0][0]]}
    for index, (start, number) in enumerate(starts):
        below = (s for s, other in starts[index + 1 :] if not other.startswith(f"{number}."))
        found[number] = text[start : next(below, len(text))]
    return found


def _has_line(text: str, number: str) -> bool:
    """A numbered line of a list, a row of a table that begins with the number, or a step written as `(15)`."""
    return re.search(rf"^\s*(?:{number}\. |\| {number} \||\({number}\) )", text, flags=re.MULTILINE) is not None


def _section_exists(page: str, number: str) -> bool:
    if number in _sections(page):
        return True
    above, _, line = number.rpartition(".")
    return above in _sections(page) and bool(above) and _has_line(_sections(page)[above], line)


def _unresolved(text: str, page: str) -> list[str]:
    """What a piece of text about one page cites that is not there."""
    missing = []
    for first, last in _SECTION.findall(text):
        missing += [f"{page}.md §{n}" for n in (first, last) if n and not _section_exists(page, n)]
    section = ""
    for part in re.split(r"(?=§)", text):
        if named := _SECTION.match(part):
            section = named[1]
        for kind, *numbers in _NUMBERED.findall(part.split(". ")[0]):
            home = _facts(page) if kind == "fact" else _sections(page).get(section, "")
            missing += [f"{page}.md §{section} {kind} {n}" for n in numbers if n and not _has_line(home, n)]
    return missing


def _facts(page: str) -> str:
    """The numbered facts: before the first section, or in section 0."""
    return _sections(page)[""] + _sections(page).get("0", "")


def _pieces(text: str, page: str | None) -> list[tuple[str, str | None]]:
    """The text divided where pages are named, each piece with the page it speaks of."""
    pieces: list[tuple[str, str | None]] = []
    end = 0
    for named in _PAGE.finditer(text):
        if named[1] not in PAGES:
            continue
        pieces.append((text[end : named.start()], page))
        page, end = named[1], named.end()
    return [*pieces, (text[end:], page)]


def _files() -> list[Path]:
    here = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES]
    return sorted(p for p in [*here, *ROOT.glob("*.md")] if p != Path(__file__) and "__pycache__" not in p.parts)


def _is_cited(text: str) -> bool:
    return "§" in text or any(f"{page}.md" in text for page in PAGES)


CITING = [p for p in _files() if _is_cited(p.read_text(encoding="utf-8"))]


def _missing(file: Path) -> list[str]:
    text = _FOREIGN.sub("", file.read_text(encoding="utf-8"))
    text = re.sub(r"[ \t]*\n[ \t]*(?:#:? )?(?=§|\d)", " ", text)
    own = file.stem if file.parent == REFERENCE else None
    missing: list[str] = []
    for piece, about in _pieces(text, own):
        if about is None:
            missing += ["a section before any page is named"] * ("§" in piece)
        elif own not in (None, about):  # a page that names another one speaks of itself again after that
            missing += _unresolved(piece[:40], about) + _unresolved(piece[40:], own or about)
        else:
            missing += _unresolved(piece if "§" in piece else piece[:40], about)
    return [f"{file.relative_to(ROOT)}: {citation}" for citation in missing]


def test_every_cited_section_and_numbered_line_is_in_its_reference_page() -> None:
    assert [citation for file in CITING for citation in _missing(file)] == []


def test_no_page_is_cited_that_the_repository_does_not_hold() -> None:
    gone = re.compile(r"\b(?:stack|peers|style)\.md\b|shared/reference")
    lost = [str(p.relative_to(ROOT)) for p in _files() if gone.search(p.read_text(encoding="utf-8"))]
    assert lost == []
