"""`workbench promote`, `workbench rollback`, and registering what `workbench export` wrote.

`cli` registers the commands; heavy libraries are imported inside them. The gate itself is
`workbench.shipping.promotion`, the registry `workbench.tracking.versions`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from workbench.commands.console import err, out
from workbench.commands.opening import tell_damage_of_last
from workbench.commands.options import share
from workbench.commands.signing import TrustedKeysFile
from workbench.values.errors import BundleError, ConfigError, ToolchainError
from workbench.values.exit_codes import FAILED

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.bundle import Bundle
    from workbench.bundle.fingerprint import Policy
    from workbench.inputs.dataset import Dataset
    from workbench.shipping.promotion import LoadOnce, Verdict
    from workbench.tracking.releases import Act
    from workbench.tracking.versions import Moved, Version, Versions
    from workbench.values.results import ServiceFigures

NOBODY = "none"
_MARKS = {"passed": "ok", "failed": "FAILED", "not checked": "-"}


def register(bundle: Path, workspace: Path) -> Version:
    """The version of a bundle in the workspace's registry, made when it is new; repeating it changes nothing.

    Raises:
        BundleError: no bundle, or damaged.
        ToolchainError: the store cannot be written.
    """
    from workbench.bundle import check_files, read_bundle

    opened = read_bundle(bundle)
    check_files(opened)
    with _versions(workspace, opened) as versions:
        return _register(versions, opened, act="export")


def promote(
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`", show_default=False)],
    against: Annotated[
        str,
        typer.Option(
            help="what it replaces: champion, the folder of a bundle, or none for the first", show_default=False
        ),
    ],
    workspace: Annotated[Path, typer.Option("--workspace", help="folder of mlruns/")] = Path(),
    experiment: Annotated[
        Path | None,
        typer.Option(help="score both afresh on its holdout split, and load them with its texts", dir_okay=False),
    ] = None,
    max_drop_pp: Annotated[float, typer.Option(help="accuracy that may be lost, percentage points")] = 0.5,
    require_proof: Annotated[
        bool, typer.Option("--require-proof", help="the whole 95 % interval of the drop must be within it")
    ] = False,
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

    The accuracy that was lost decides; where its interval reaches beyond the limit the check passes as "not proven".
    Nothing moves when a check failed. What was champion stays at hand as `previous`: see `workbench rollback`.
    """
    from workbench.bundle import manifest_sha256, read_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.shipping.promotion import Limits, judge
    from workbench.tracking.versions import CHAMPION

    if not math.isfinite(max_drop_pp):
        raise ConfigError(f"{max_drop_pp} is no limit.", key="--max-drop-pp", hint="Write percentage points: 0.5.")
    limits = Limits(
        max_drop_pp=max_drop_pp,
        require_proof=require_proof,
        max_p99_increase=share(max_p99_increase, "--max-p99-increase"),
        min_throughput=share(min_throughput, "--min-throughput"),
        max_size_increase=share(max_size_increase, "--max-size-increase"),
    )
    chosen_policy, trusted = _policy(policy), trusted_keys_of(trusted_keys)
    opened = read_bundle(bundle)
    tell_damage_of_last(workspace, opened.manifest.name)
    holdout = _holdout(experiment)
    with _versions(workspace, opened) as versions:
        champion = versions.with_alias(CHAMPION)
        if champion is not None and champion.manifest_sha256 == manifest_sha256(opened):
            _stored(versions, champion)
            _say_already(opened, champion, as_json)
            return
        current = _current(against, champion, versions, opened)
        verdict = judge(
            bundle,
            current,
            limits=limits,
            policy=chosen_policy,
            allow_emulated=allow_emulated,
            holdout=holdout,
            load=_loader(opened, holdout, concurrency, load_seconds) if load else None,
            rounds=rounds,
            trusted=trusted,
        )
        moved: Moved | None = None
        version: Version | None = None
        if verdict.sound and not check_only:
            version, text = _register(versions, opened), json.dumps(verdict.to_json(), indent=1)
            versions.keep_verdict(version, passed=verdict.passed, text=text)
            if verdict.passed:
                former = _register(versions, read_bundle(current)) if current is not None and champion is None else None
                moved = versions.promote(version, over=champion, former=former, verdict=text)
            else:
                failed = ", ".join(check.name for check in verdict.checks if check.outcome == "failed")
                versions.note_refused("promotion", version, failed, text)
    _report(verdict, version, moved, as_json)
    if not verdict.passed:
        raise SystemExit(FAILED)


def rollback(
    name: Annotated[str, typer.Argument(help="name of the experiment whose champion is meant", show_default=False)],
    workspace: Annotated[Path, typer.Option("--workspace", help="folder of mlruns/")] = Path(),
    files_only: Annotated[
        bool, typer.Option("--files-only", help="do not replay golden samples: this machine cannot run the bundle")
    ] = False,
    trusted_keys: TrustedKeysFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output on stdout")] = False,
) -> None:
    """Make the previous version champion again, after its bundle was found whole and its golden samples right.

    Nothing moves otherwise. A bundle that is served already has to be started anew.
    """
    from workbench.bundle import verify_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.tracking.versions import open_versions

    trusted = trusted_keys_of(trusted_keys)
    with open_versions(workspace, name, create=False) as versions:
        champion, previous = versions.restorable()
        try:
            folder = _stored(versions, previous).directory
            report = verify_bundle(folder, replay=not files_only, trusted=trusted)
        except (BundleError, ToolchainError) as error:
            versions.note_refused("rollback", previous, str(error))
            raise type(error)(f"{error} Nothing was moved: {_still(champion)}.") from error
        for warning in report.warnings:
            err.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True, markup=False)
        moved = versions.rollback(previous, over=champion, reason=report.summary)
    if as_json:
        print(json.dumps({"version": 1, "name": name, **_aliases(moved), "bundle": str(folder)}))
        return
    before = moved.before.number if moved.before is not None else "none"
    out.print(
        f"{name}: champion is version {moved.champion.number} again, it was {before}. "
        f"{report.summary}. Its bundle: {folder}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


# --- what is compared -------------------------------------------------------------------------------------------------


def _current(against: str, champion: Version | None, versions: Versions, new: Bundle) -> Path | None:
    """The folder of what is to be replaced; None for nothing."""
    from workbench.bundle import manifest_sha256, read_bundle

    name, key = new.manifest.name, "--against"
    if against == NOBODY:
        if champion is not None:
            raise ConfigError(
                f"{name!r} has a champion, version {champion.number}.",
                key=key,
                hint="Compare with it: --against champion",
            )
        return None
    if against == "champion":
        if champion is None:
            raise ConfigError(
                f"{name!r} has no champion yet.",
                key=key,
                hint="Name the folder of the bundle in production, or none for the first one.",
            )
        return _stored(versions, champion).directory
    folder = Path(against)
    if not folder.is_dir():
        raise ConfigError(
            f"{against!r} is no folder.", key=key, hint="Write champion, none, or the folder of a bundle."
        )
    old = read_bundle(folder)
    if old.manifest.name != name:
        raise ConfigError(
            f"{folder} holds {old.manifest.name!r}, not {name!r}: another experiment has a champion of its own.",
            key=key,
        )
    if champion is not None and champion.manifest_sha256 != manifest_sha256(old):
        raise ConfigError(
            f"{folder} is not the champion of {name!r}, version {champion.number}.",
            key=key,
            hint="Compare with what would be replaced: --against champion",
        )
    return folder


def _holdout(experiment: Path | None) -> Dataset | None:
    if experiment is None:
        return None
    from workbench.inputs.experiment import read_experiment

    return read_experiment(experiment).dataset


def _loader(new: Bundle, holdout: Dataset | None, concurrency: int, seconds: float) -> LoadOnce:
    """Both bundles get the same requests: the holdout texts, else the golden samples of the new one."""
    from workbench.load import bodies_of_bundle, bodies_of_dataset
    from workbench.shipping.load_confirmation import load_bundle
    from workbench.values.service import ServiceLoad

    asked = ServiceLoad(arrivals="closed", concurrency=concurrency)
    bodies = bodies_of_bundle(new) if holdout is None else bodies_of_dataset(holdout, "holdout")

    def load_once(folder: Path) -> ServiceFigures:
        err.print(f"loading {folder}: {asked}, {seconds:g} s", highlight=False, soft_wrap=True, markup=False)
        return load_bundle(folder, asked, seconds, bodies=bodies)

    return load_once


# --- the registry -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _versions(workspace: Path, bundle: Bundle) -> Iterator[Versions]:
    from workbench.tracking.versions import open_versions

    with open_versions(workspace, bundle.manifest.name, about=bundle.manifest.about) as versions:
        yield versions


def _register(versions: Versions, bundle: Bundle, act: Act = "registration") -> Version:
    """The bundle's version, whose kept copy is as whole as the bundle: production may be served from it.

    Raises:
        BundleError: the copy that the registry keeps is damaged.
    """
    from workbench.bundle import check_files, description, provenance

    version = versions.register(
        bundle.directory,
        manifest_sha256=bundle.manifest_sha256,
        candidate_id=bundle.manifest.candidate_id,
        tags=provenance(bundle),
        description=description(bundle),
        act=act,
    )
    kept = _stored(versions, version)
    try:
        check_files(kept)
    except BundleError as error:
        raise BundleError(
            f"the copy that the registry keeps of version {version.number} is damaged: {error} To have it copied anew, "
            f"remove {kept.directory} and run this again."
        ) from error
    return version


def _stored(versions: Versions, version: Version) -> Bundle:
    """What the registry keeps of a version, and that it is the bundle which was registered.

    Raises:
        BundleError: it is no bundle any more, or another.
        ToolchainError: it is gone.
    """
    from workbench.bundle import read_bundle

    folder = versions.bundle(version)
    kept = read_bundle(folder)
    if kept.manifest_sha256 != version.manifest_sha256:
        raise BundleError(
            f"version {version.number} of {version.name!r} is not what was registered: manifest.json in {folder} has "
            f"sha256 {kept.manifest_sha256}, the registry says {version.manifest_sha256}. Restore that folder."
        )
    return kept


# --- words ------------------------------------------------------------------------------------------------------------


def _report(verdict: Verdict, version: Version | None, moved: Moved | None, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {**verdict.to_json(), "promoted": moved is not None}
        body["registered"] = version.number if version is not None else None
        print(json.dumps(body | (_aliases(moved) if moved is not None else {}), ensure_ascii=False))
        return
    width = max(len(check.name) for check in verdict.checks)
    for check in verdict.checks:
        figure = ""
        if check.figure is not None and check.limit is not None:
            figure = f"{check.figure:.3g}{_unit(check.unit)}, limit {check.limit:g}{_unit(check.unit)}: "
        if check.outcome == "passed" and check.proven is False:
            figure += "passed, NOT PROVEN: "
        line = f"{_MARKS[check.outcome]:<6}  {check.name:<{width}}  {figure}{check.reason}"
        out.print(
            line, style="bold red" if check.outcome == "failed" else None, highlight=False, soft_wrap=True, markup=False
        )
    if moved is not None:
        before = f"version {moved.previous.number} is previous" if moved.previous else "there was none before"
        end = f"promoted: {verdict.name} version {moved.champion.number} is champion; {before}"
    elif not verdict.passed:
        end = "not promoted: nothing was moved"
    else:
        end = "would be promoted; nothing was registered or moved (--check-only)"
    if verdict.passed and verdict.unproven:
        end += f". Not proven: {', '.join(verdict.unproven)}, whose interval reaches beyond the limit"
    out.print(end, highlight=False, soft_wrap=True, markup=False)


def _still(champion: Version | None) -> str:
    return "there is no champion" if champion is None else f"version {champion.number} is still champion"


def _say_already(bundle: Bundle, champion: Version, as_json: bool) -> None:
    words = f"version {champion.number} of {bundle.manifest.name!r} is this very bundle, and champion already"
    if as_json:
        same = {"name": bundle.manifest.name, "candidate": champion.manifest_sha256, "champion": champion.number}
        print(json.dumps({"version": 1, "passed": True, "promoted": False, "checks": [], "reason": words, **same}))
    else:
        out.print(words, highlight=False, soft_wrap=True, markup=False)


def _aliases(moved: Moved) -> dict[str, int | None]:
    return {
        "champion": moved.champion.number,
        "previous": moved.previous.number if moved.previous is not None else None,
        "before": moved.before.number if moved.before is not None else None,
    }


def _unit(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


def _policy(text: str) -> Policy:
    from workbench.bundle.fingerprint import Policy

    if text not in get_args(Policy):
        raise ConfigError(f"{text!r} is none of {', '.join(get_args(Policy))}.", key="--policy")
    return cast(Literal["refuse", "warn"], text)
