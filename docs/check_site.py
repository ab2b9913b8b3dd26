"""Refuse a built site that loads anything from elsewhere, or whose pages link to what is not there.

python docs/check_site.py site
"""

import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

LOADED = (("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"))


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    pages = {page: BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser") for page in site.rglob("*.html")}
    anchors = {page: {tag["id"] for tag in soup.find_all(id=True)} for page, soup in pages.items()}
    wrong = [
        f"{page.relative_to(site)}: {fault}" for page, soup in pages.items() for fault in _faults(page, soup, anchors)
    ]
    wrong += [f"{sheet.relative_to(site)}: loads from elsewhere" for sheet in site.rglob("*.css") if _loads(sheet)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} pages: every link leads somewhere, nothing is loaded from elsewhere")


def _faults(page: Path, soup: BeautifulSoup, anchors: dict[Path, set[str]]) -> list[str]:
    found = [
        f"loads {tag[name]}"
        for kind, name in LOADED
        for tag in soup.find_all(kind)
        if urlsplit(str(tag.get(name) or "")).netloc and "canonical" not in (tag.get("rel") or ())
    ]
    for tag in soup.find_all("a", href=True):
        link = urlsplit(str(tag["href"]))
        if link.scheme or link.netloc:
            continue
        target = (page.parent / unquote(link.path)).resolve() if link.path else page
        if not target.exists():
            found.append(f"links to {tag['href']}, which is not there")
        elif link.fragment and target in anchors and unquote(link.fragment) not in anchors[target]:
            found.append(f"links to {tag['href']}, which has no such heading")
    return found


def _loads(sheet: Path) -> bool:
    text = sheet.read_text(encoding="utf-8")
    return any(
        f"{start}{quote}{to}" in text
        for start in ("url(", "@import ")
        for quote in ("", "'", '"')
        for to in ("http", "//")
    )


if __name__ == "__main__":
    main()
