"""What `promote` and `rollback` say, to people and to programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.commands.console import print_json, say

if TYPE_CHECKING:  # types only: quick to start without them
    from workbench.bundle import Bundle
    from workbench.shipping.promotion import Verdict
    from workbench.tracking.champion import Moved
    from workbench.tracking.versions import Version

_MARKS = {"passed": "ok", "failed": "FAILED", "not checked": "-"}


def verdict_words(verdict: Verdict, version: Version | None, moved: Moved | None, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {**verdict.to_json(), "promoted": moved is not None}
        body["registered"] = version.number if version is not None else None
        print_json(body | (aliases(moved) if moved is not None else {}))
        return
    width = max(len(check.name) for check in verdict.checks)
    for check in verdict.checks:
        figure = ""
        if check.figure is not None and check.limit is not None:
            figure = f"{check.figure:.3g}{_unit(check.unit)}, limit {check.limit:g}{_unit(check.unit)}: "
        if check.outcome == "passed" and check.proven is False:
            figure += "passed, NOT PROVEN: "
        line = f"{_MARKS[check.outcome]:<6}  {check.name:<{width}}  {figure}{check.reason}"
        say(line, style="bold red" if check.outcome == "failed" else None)
    if moved is not None:
        before = f"version {moved.previous.number} is previous" if moved.previous else "there was none before"
        end = f"promoted: {verdict.name} version {moved.champion.number} is champion; {before}"
    elif not verdict.passed:
        end = "not promoted: nothing was moved"
    else:
        end = "would be promoted; nothing was registered or moved (--check-only)"
    if verdict.passed and verdict.unproven:
        end += f". Not proven: {', '.join(verdict.unproven)}, whose interval reaches beyond the limit"
    say(end)


def already_words(bundle: Bundle, champion: Version, as_json: bool) -> None:
    words = f"version {champion.number} of {bundle.manifest.name!r} is this very bundle, and champion already"
    if as_json:
        same = {"name": bundle.manifest.name, "candidate": champion.manifest_sha256, "champion": champion.number}
        print_json({"version": 1, "passed": True, "promoted": False, "checks": [], "reason": words, **same})
    else:
        say(words)


def still(champion: Version | None) -> str:
    return "there is no champion" if champion is None else f"version {champion.number} is still champion"


def aliases(moved: Moved) -> dict[str, int | None]:
    return {
        "champion": moved.champion.number,
        "previous": moved.previous.number if moved.previous is not None else None,
        "before": moved.before.number if moved.before is not None else None,
    }


def _unit(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"
