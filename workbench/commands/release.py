"""`workbench promote`, `rollback` and `releases`: which bundle is in production, and the log of how it came to be.

The gate itself is `workbench.shipping.promotion`, the registry `workbench.tracking.versions`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.options import AsJson, TrustedKeysFile, one_of, share, tell_damage_of_last
from workbench.values.errors import BundleError, ConfigError, ToolchainError
from workbench.values.exit_codes import FAILED

if TYPE_CHECKING:  # types only: quick to start without them
    from workbench.bundle.opened import Bundle
    from workbench.inputs.dataset import Dataset
    from workbench.shipping.promotion import LoadOnce, Verdict
    from workbench.tracking.champion import Moved
    from workbench.tracking.versions import Version, Versions
    from workbench.values.measurement import ServiceFigures

NOBODY = "none"


def promote(
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`")],
    against: Annotated[
        str,
        typer.Option(help="what it replaces: champion, the folder of a bundle, or none for the first"),
    ],
    workspace: Annotated[Path, typer.Option(help="folder of mlruns/")] = Path(),
    experiment: Annotated[
        Path | None,
        typer.Option(help="score both afresh on its holdout split, and load them with its texts", dir_okay=False),
    ] = None,
    max_loss_pp: Annotated[float, typer.Option(help="accuracy that may be lost, percentage points")] = 0.5,
    max_loss: Annotated[
        float | None, typer.Option(help="the same of a metric that is no share, in its own unit")
    ] = None,
    require_proof: Annotated[
        bool, typer.Option("--require-proof", help="the whole 95 % interval of the loss must be within it")
    ] = False,
    zone: Annotated[
        float | None,
        typer.Option(min=0, help="around the limit, in its unit, where either answer is right; undecided fails then"),
    ] = None,
    max_p99_increase: Annotated[str, typer.Option(help="P99 under load, above the current one's")] = "20%",
    min_throughput: Annotated[str, typer.Option(help="requests per second, of the current one's")] = "80%",
    max_size_increase: Annotated[str, typer.Option(help="model files, above the current one's")] = "20%",
    load: Annotated[bool, typer.Option("--load/--no-load", help="serve both and load them in turns")] = True,
    concurrency: Annotated[int, typer.Option(min=1, help="clients of the load, closed loop")] = 100,
    load_seconds: Annotated[float, typer.Option(min=1.0, help="of each bundle in each round")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, help="of the load")] = 3,
    policy: Annotated[
        str, typer.Option(help="refuse or warn, where this machine is another than the measured")
    ] = "refuse",
    allow_emulated: Annotated[bool, typer.Option("--allow-emulated", help="a rehearsal without a device")] = False,
    check_only: Annotated[bool, typer.Option("--check-only", help="register and move nothing")] = False,
    trusted_keys: TrustedKeysFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="the verdict on stdout, machine-readable")] = False,
) -> None:
    """Make a bundle the champion if it is no worse than the current one; exit code 1 when a check failed.

    The accuracy that was lost decides, against the float model and the current bundle; a gate says how often it is
    wrong (--zone), and where the interval reaches beyond the limit the check passes as "not proven".
    Nothing moves when a check failed. What was champion stays at hand as `previous`: see `workbench rollback`.
    """
    from workbench.api.bundle import kept_bundle, version_of, versions_of
    from workbench.bundle.fingerprint import Policy
    from workbench.bundle.opened import read_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.inputs.experiment import read_experiment
    from workbench.shipping.promotion import Limits, evaluate
    from workbench.tracking.champion import promote as make_champion
    from workbench.tracking.versions import CHAMPION

    if not math.isfinite(max_loss_pp):
        raise ConfigError(f"{max_loss_pp} is no limit.", key="--max-loss-pp", hint="Write percentage points: 0.5.")
    if max_loss is not None and not math.isfinite(max_loss):
        raise ConfigError(f"{max_loss} is no limit.", key="--max-loss", hint="Write a number in the metric's unit.")
    limits = Limits(
        max_loss_pp=max_loss_pp,
        max_loss=max_loss,
        require_proof=require_proof,
        zone=zone,
        max_p99_increase=share(max_p99_increase, "--max-p99-increase"),
        min_throughput=share(min_throughput, "--min-throughput"),
        max_size_increase=share(max_size_increase, "--max-size-increase"),
    )
    chosen_policy: Policy = one_of(policy, Policy, "--policy")
    trusted = trusted_keys_of(trusted_keys)
    opened = read_bundle(bundle)
    tell_damage_of_last(workspace, opened.manifest.name)
    holdout = None if experiment is None else read_experiment(experiment).dataset
    with versions_of(workspace, opened) as versions:
        champion = versions.with_alias(CHAMPION)
        if champion is not None and champion.manifest_sha256 == opened.manifest_sha256:
            kept_bundle(versions, champion)
            said = f"version {champion.number} of {opened.manifest.name!r} is this very bundle, and champion already"
            if as_json:
                same = {
                    "name": opened.manifest.name,
                    "candidate": champion.manifest_sha256,
                    "champion": champion.number,
                }
                print_json({"version": 1, "passed": True, "promoted": False, "checks": [], "reason": said, **same})
            else:
                say(said)
            return
        current = _current(against, champion, versions, opened)
        verdict = evaluate(
            bundle,
            current,
            limits=limits,
            policy=chosen_policy,
            allow_emulated=allow_emulated,
            holdout=holdout,
            load=_loader(opened, holdout, concurrency, load_seconds) if load and opened.served_here else None,
            rounds=rounds,
            trusted=trusted,
        )
        moved: Moved | None = None
        version: Version | None = None
        if verdict.sound and not check_only:
            version, text = version_of(versions, opened), json.dumps(verdict.to_json(), indent=1)
            versions.keep_verdict(version, passed=verdict.passed, text=text)
            if verdict.passed:
                former = (
                    version_of(versions, read_bundle(current)) if current is not None and champion is None else None
                )
                moved = make_champion(versions, version, over=champion, former=former, verdict=text)
            else:
                failed = ", ".join(check.name for check in verdict.checks if check.outcome == "failed")
                versions.note_refused("promotion", version, failed, text)
    _say_verdict(verdict, version, moved, as_json)
    if not verdict.passed:
        raise SystemExit(FAILED)


def rollback(
    name: Annotated[str, typer.Argument(help="name of the experiment whose champion is meant")],
    workspace: Annotated[Path, typer.Option(help="folder of mlruns/")] = Path(),
    files_only: Annotated[
        bool, typer.Option("--files-only", help="do not replay golden samples: this machine cannot run the bundle")
    ] = False,
    trusted_keys: TrustedKeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Make the previous version champion again, after its bundle was found whole and its golden samples right.

    Nothing moves otherwise. A bundle that is served already has to be started anew.
    """
    from workbench.api.bundle import kept_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.bundle.verify import verify_bundle
    from workbench.tracking.champion import open_versions, restorable
    from workbench.tracking.champion import rollback as restore

    trusted = trusted_keys_of(trusted_keys)
    with open_versions(workspace, name, create=False) as versions:
        champion, previous = restorable(versions)
        try:
            folder = kept_bundle(versions, previous).directory
            report = verify_bundle(folder, replay=not files_only, trusted=trusted)
        except (BundleError, ToolchainError) as error:
            versions.note_refused("rollback", previous, str(error))
            still = "there is no champion" if champion is None else f"version {champion.number} is still champion"
            raise type(error)(f"{error} Nothing was moved: {still}.") from error
        for warning in report.warnings:
            tell(f"warning: {warning}", style="yellow")
        moved = restore(versions, previous, over=champion, reason=report.summary)
    if as_json:
        print_json({"version": 1, "name": name, **aliases(moved), "bundle": str(folder)})
        return
    before = _number(aliases(moved)["before"])
    again = f"{name}: champion is version {moved.champion.number} again, it was {before}"
    say(f"{again}. {report.summary}. Its bundle: {folder}")


def _current(against: str, champion: Version | None, versions: Versions, new: Bundle) -> Path | None:
    """The folder of what is to be replaced; None for nothing."""
    from workbench.api.bundle import kept_bundle
    from workbench.bundle.opened import read_bundle

    def refused(rule: str, hint: str | None = "Compare with what would be replaced: --against champion") -> ConfigError:
        return ConfigError(rule, key="--against", hint=hint)

    name = new.manifest.name
    if against == NOBODY:
        if champion is not None:
            raise refused(f"{name!r} has a champion, version {champion.number}.")
        return None
    if against == "champion":
        if champion is None:
            hint = "Name the folder of the bundle in production, or none for the first one."
            raise refused(f"{name!r} has no champion yet.", hint)
        return kept_bundle(versions, champion).directory
    folder = Path(against)
    if not folder.is_dir():
        raise refused(f"{against!r} is no folder.", "Write champion, none, or the folder of a bundle.")
    old = read_bundle(folder)
    if old.manifest.name != name:
        rule = f"{folder} holds {old.manifest.name!r}, not {name!r}: another experiment has a champion of its own."
        raise refused(rule, None)
    if champion is not None and champion.manifest_sha256 != old.manifest_sha256:
        raise refused(f"{folder} is not the champion of {name!r}, version {champion.number}.")
    return folder


def _loader(new: Bundle, holdout: Dataset | None, concurrency: int, seconds: float) -> LoadOnce:
    """Both bundles get the same requests: the holdout texts, else the golden samples of the new one."""
    from workbench.load import bodies_of_bundle, bodies_of_dataset
    from workbench.shipping.service_confirmation import load_bundle
    from workbench.values.service import ServiceLoad

    asked = ServiceLoad(arrivals="closed", concurrency=concurrency)
    golden = holdout is None or holdout.interface.state  # steps have states that only the float model tells
    bodies = bodies_of_bundle(new) if golden or holdout is None else bodies_of_dataset(holdout, "holdout")

    def load_once(folder: Path) -> ServiceFigures:
        tell(f"loading {folder}: {asked}, {seconds:g} s")
        return load_bundle(folder, asked, seconds, bodies=bodies)

    return load_once


_MARKS = {"passed": "ok", "failed": "FAILED", "not checked": "-"}


def _say_verdict(verdict: Verdict, version: Version | None, moved: Moved | None, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {**verdict.to_json(), "promoted": moved is not None}
        body["registered"] = version.number if version is not None else None
        print_json(body | (aliases(moved) if moved is not None else {}))
        return
    width = max(len(check.name) for check in verdict.checks)
    for check in verdict.checks:
        figure, unit = "", check.unit if check.unit in ("", "%") else f" {check.unit}"
        if check.figure is not None and check.limit is not None:
            figure = f"{check.figure:.3g}{unit}, limit {check.limit:g}{unit}: "
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


def aliases(moved: Moved) -> dict[str, int | None]:
    found = {"champion": moved.champion, "previous": moved.previous, "before": moved.before}
    return {name: None if version is None else version.number for name, version in found.items()}


def releases(
    name: Annotated[str, typer.Argument(help="name of the experiment whose releases are meant")],
    workspace: Annotated[Path, typer.Option(help="folder of mlruns/")] = Path(),
    contains: Annotated[
        str | None, typer.Option(help="sha256 of a line, kept elsewhere: the log must still hold that line")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Who released what and when, and whether the log is as it was written; exit code 1 when it is not.

    Keep the digest of the last line elsewhere (a ticket, a mail): with --contains it proves later that nothing up to
    there was changed, not even by someone who can write to log and registry.
    """
    from workbench.tracking.champion import open_versions

    with open_versions(workspace, name, create=False, finish=False) as versions:
        log, file = versions.releases(), versions.log_name
    problems = list(log.problems)
    if contains is not None:
        wanted = contains.strip().lower()
        if len(wanted) != 64 or not all(character in "0123456789abcdef" for character in wanted):
            raise ConfigError(f"{contains!r} is no sha256.", key="--contains", hint="Write its 64 hexadecimal digits.")
        if all(line["sha256"] != wanted for line in log.lines):
            problems.append(f"no line has sha256 {wanted}: it was changed or removed")
    if as_json:
        body = {"version": 1, "name": name, "file": file, "whole": not problems, "problems": problems}
        print_json({**body, "lines": log.lines})
    else:
        end = [f"sha256 of the last line: {line['sha256']}" for line in log.lines[-1:]]
        say("\n".join([*_rows(log.lines), *end] if end else [f"{name}: nothing was released yet"]))
        for problem in problems:
            tell(f"DAMAGED  {file}: {problem}", style="bold red")
    if problems:
        raise SystemExit(FAILED)


def _rows(lines: Sequence[dict[str, Any]]) -> list[str]:
    """One line each, in columns; no column is ever cut, so a narrow terminal folds the lines."""
    rows = [["line", "when (UTC)", "what", "version", "champion", "manifest", "who", "verdict"]]
    for line in lines:
        said = line["release"]
        before, after = _number(said.get("champion_before")), _number(said.get("champion_after"))
        row = [line.get("number"), str(line.get("at") or "")[:19], said.get("act"), _number(said.get("version"))]
        row += [f"{before} -> {after}" if before != after else after, str(said.get("manifest_sha256") or "")[:12]]
        row += [line.get("by"), " ".join(filter(None, (said.get("verdict"), said.get("reason"))))]
        rows.append([_plain(cell) for cell in row])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _number(value: object) -> str:
    return "none" if value is None else _plain(value)


def _plain(value: object) -> str:
    """A line may have been written by anybody: nothing in it may command the terminal."""
    return "".join(c if c.isprintable() else "?" for c in str("" if value is None else value))
