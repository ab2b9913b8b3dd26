"""The gate on real bundles of one dataset: what passes, what does not, what moves, and what the command says."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundle.making import body_of, exact, exported, reseal
from tests.commands.running import run
from workbench.api.bundle import register_bundle
from workbench.bundle.opened import read_bundle
from workbench.inputs.experiment import read_experiment
from workbench.inputs.metrics.outcomes import ClassificationOutcomes, load_outcomes, save_outcomes
from workbench.shipping.promotion import Check, Limits, Verdict, evaluate
from workbench.shipping.promotion.accuracy import rescored
from workbench.tracking import store
from workbench.tracking.champion import open_versions, promote
from workbench.tracking.versions import CHAMPION, PREVIOUS
from workbench.values.errors import BundleError, ConfigError, MeasureError, ToolchainError
from workbench.values.measurement import ServiceFigures
from workbench.values.service import ServiceLoad, ServiceSettings

LOOSE = Limits(max_loss_pp=5.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles of one experiment, the float model and INT8, and a registry that nobody used yet."""
    root = tmp_path_factory.mktemp("made")
    for scheme in ("none", "static"):
        exported(root / scheme, "onnxruntime", scheme, confirmed=True)
    store.prepare(root / "mlruns")
    return root


@pytest.fixture
def folders(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies that a test may change: (float, INT8)."""
    one, two = (Path(shutil.copytree(made / s / "bundle", tmp_path / s)) for s in ("none", "static"))
    return one, two


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    (tmp_path / "workspace" / "mlruns").mkdir(parents=True)
    shutil.copyfile(made / "mlruns" / "mlflow.db", tmp_path / "workspace" / "mlruns" / "mlflow.db")
    return tmp_path / "workspace"


def outcome(verdict: Verdict, name: str) -> Check:
    return next(check for check in verdict.checks if check.name == name)


def changed(bundle: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A bundle whose manifest says something else, with sums that fit."""
    manifest = body_of(bundle)
    change(manifest)
    reseal(bundle, manifest)
    return bundle


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_a_bundle_within_every_limit_passes_and_one_that_loses_too_much_fails_and_is_not_even_loaded(
    folders: tuple[Path, Path],
) -> None:
    before, after = folders

    verdict = evaluate(after, before, limits=LOOSE)

    assert verdict.passed
    assert [c.outcome for c in verdict.checks] == ["passed"] * 8 + ["not checked"] * 3
    assert outcome(verdict, "size").figure == pytest.approx(-63, abs=10)
    assert [verdict.candidate, verdict.current] == [read_bundle(f).manifest_sha256 for f in (after, before)]
    file = after / "outcomes" / "holdout.npz"
    good = load_outcomes(file)
    assert isinstance(good, ClassificationOutcomes)
    save_outcomes(file, dataclasses.replace(good, predicted=(good.target + 1) % 4))
    reseal(after, {})

    def never(folder: Path) -> ServiceFigures:
        pytest.fail(f"{folder} was loaded")

    verdict = evaluate(after, before, limits=Limits(), load=never)

    assert not verdict.passed
    assert outcome(verdict, "accuracy").outcome == "failed"
    assert outcome(verdict, "P99 under load").reason == "a check before it failed"


def outcomes_with(folder: Path, *, samples: int, wrong: int) -> Path:
    """A bundle with holdout outcomes of so many samples, the first of them wrong."""
    target = np.arange(samples, dtype=np.int64) % 3
    predicted = np.where(np.arange(samples) < wrong, target + 1, target)
    save_outcomes(
        folder / "outcomes" / "holdout.npz",
        ClassificationOutcomes(predicted=predicted, target=target),
    )
    reseal(folder, {})
    return folder


@pytest.mark.parametrize(
    ("samples", "proven"), [(400, False), (40_000, True)], ids=["few samples", "a hundred times as many"]
)
def test_a_drop_within_the_limit_is_proven_only_where_all_of_its_interval_is(
    folders: tuple[Path, Path], samples: int, proven: bool
) -> None:
    before = outcomes_with(folders[0], samples=samples, wrong=0)
    after = outcomes_with(folders[1], samples=samples, wrong=samples // 400)

    lenient = evaluate(after, before, limits=Limits(max_loss_pp=0.5))
    strict = evaluate(after, before, limits=Limits(max_loss_pp=0.5, require_proof=True))

    check = outcome(lenient, "accuracy")
    assert check.interval is not None
    assert check.figure == pytest.approx(0.25)
    assert check.outcome == "passed"
    assert check.proven is proven is (check.interval.high <= 0.5)
    assert lenient.unproven == (() if proven else ("accuracy",))
    assert outcome(strict, "accuracy").outcome == ("passed" if proven else "failed")
    assert ("score on more of them with --experiment" in outcome(strict, "accuracy").reason) is not proven


def test_what_cannot_be_compared_has_not_passed(folders: tuple[Path, Path]) -> None:
    before, after = folders
    sound = {folder: (folder / "manifest.json").read_text(encoding="utf-8") for folder in folders}
    rows: list[tuple[Path, Callable[[dict[str, Any]], None], str, str]] = [
        (after, lambda m: m["outcomes"].update(samples_sha256="f" * 64), "accuracy", "holdout outcomes are of other"),
        (before, lambda m: m.update(outcomes=None), "accuracy", "the current bundle brings no holdout outcomes along"),
        (after, lambda m: m.update(labels=["yes", "no", "later", "x"]), "answers", "other labels (with later, no, x"),
    ]
    for bundle, change, name, reason in rows:
        changed(bundle, change)

        verdict = evaluate(after, before, limits=LOOSE)

        assert (outcome(verdict, name).outcome, verdict.passed) == ("failed", False)
        assert reason in outcome(verdict, name).reason
        (bundle / "manifest.json").write_text(sound[bundle], encoding="utf-8")
        reseal(bundle, {})


def test_size_machine_and_emulation_are_held_against_limits_and_policy(folders: tuple[Path, Path]) -> None:
    before, after = folders
    grown, allowed = (
        outcome(evaluate(before, after, limits=limits), "size") for limits in (LOOSE, Limits(max_size_increase=9.0))
    )
    assert (grown.outcome, grown.limit, allowed.outcome) == ("failed", 20.0, "passed")

    changed(after, lambda m: m["artifact"]["toolchain"]["components"].update(onnxruntime="1.20.0"))
    strict, lenient = (
        outcome(evaluate(after, before, limits=LOOSE, policy=policy), "toolchain")  # type: ignore[arg-type]  # policies
        for policy in ("refuse", "warn")
    )
    assert (strict.outcome, lenient.outcome) == ("failed", "passed")
    assert "it was made with 1.20.0" in lenient.reason

    changed(after, lambda m: m["artifact"]["toolchain"].update(emulated=True))
    for current, asked, result, reason in (
        (None, False, "failed", ""),
        (None, True, "not checked", "EMULATED, a rehearsal"),
        (before, True, "failed", "can never replace a measured one"),
    ):
        check = outcome(evaluate(after, current, limits=LOOSE, policy="warn", allow_emulated=asked), "measured")
        assert check.outcome == result
        assert reason in check.reason


def test_scored_afresh_bundles_give_the_outcomes_they_were_exported_with_and_need_none(
    made: Path, folders: tuple[Path, Path]
) -> None:
    holdout = read_experiment(made / "static" / "experiments" / "tiny.yaml").dataset
    for scheme in ("none", "static"):
        bundle = read_bundle(made / scheme / "bundle")
        fresh, kept = rescored(bundle, holdout), load_outcomes(bundle.directory / "outcomes" / "holdout.npz")

        assert isinstance(fresh, ClassificationOutcomes)
        assert isinstance(kept, ClassificationOutcomes)
        np.testing.assert_array_equal(fresh.predicted, kept.predicted)
        np.testing.assert_array_equal(fresh.target, kept.target)
    before, after = folders
    changed(before, lambda m: m.update(outcomes=None))

    check = outcome(evaluate(after, before, limits=LOOSE, holdout=holdout), "accuracy")

    assert check.outcome == "passed"
    assert "(scored afresh; McNemar exact" in check.reason


def test_every_bundle_is_held_against_its_own_float_model(folders: tuple[Path, Path]) -> None:
    before, after = folders
    holdout = next(e for e in read_bundle(after).manifest.evaluations if e.split == "holdout")
    assert holdout.measurement.accuracy is not None
    assert holdout.measurement.accuracy.comparison is not None

    check = outcome(evaluate(after, None, limits=LOOSE), "accuracy against float")

    assert check.figure == holdout.measurement.accuracy.comparison.drop_pp.value
    later = evaluate(after, before, limits=Limits(max_loss_pp=check.figure - 0.1))
    assert outcome(later, "accuracy against float").outcome == "failed", "whatever the current one loses"
    stated = outcome(
        evaluate(after, before, limits=Limits(max_loss_pp=check.figure, zone=0.1)), "accuracy against float"
    )
    assert (stated.outcome, "undecided does not pass" in stated.reason) == ("failed", True)
    changed(after, lambda m: m.update(evaluations=[e for e in m["evaluations"] if e["split"] != "holdout"]))
    for current, found in ((None, "failed"), (before, "not checked")):
        check = outcome(evaluate(after, current, limits=LOOSE), "accuracy against float")
        assert (check.outcome, "was not confirmed on holdout" in check.reason) == (found, True)


# --- under load -------------------------------------------------------------------------------------------------------


def figures(throughput: float, p99_ms: float, **changes: Any) -> ServiceFigures:
    return ServiceFigures(
        **{
            "kind": "measured",
            "settings": ServiceSettings(),
            "load": ServiceLoad(concurrency=100),
            "requests": 5000,
            "throughput_per_s": exact(throughput),
            "p50_ms": exact(p99_ms / 2),
            "p95_ms": exact(p99_ms * 0.9),
            "p99_ms": exact(p99_ms),
            "mean_batch": 4.0,
            "padding_share": 0.1,
            **changes,
        }
    )


def loaded(folders: tuple[Path, Path], *rounds: tuple[ServiceFigures, ServiceFigures]) -> tuple[Verdict, list[str]]:
    """The verdict over chosen figures, (candidate, current) of each round, and the order in which they were asked."""
    before, after = folders
    order: list[str] = []
    waiting = {after: [new for new, _ in rounds], before: [old for _, old in rounds]}

    def load_once(folder: Path) -> ServiceFigures:
        order.append(folder.name)
        return waiting[folder].pop(0)

    return evaluate(after, before, limits=LOOSE, load=load_once, rounds=len(rounds)), order


def test_services_are_loaded_in_turns_and_compared_round_by_round(folders: tuple[Path, Path]) -> None:
    slow = figures(500, 20)  # a round in which the machine was half as fast for both decides nothing
    verdict, order = loaded(
        folders, (figures(900, 11), figures(1000, 10)), (slow, slow), (figures(850, 10.5), figures(1000, 10))
    )

    assert order == ["none", "static", "static", "none", "none", "static"]
    assert outcome(verdict, "throughput under load").figure == pytest.approx(90)
    assert outcome(verdict, "P99 under load").figure == pytest.approx(5)
    assert "by round 90, 100, 85 %" in outcome(verdict, "throughput under load").reason
    assert verdict.passed
    assert len(verdict.rounds) == 3


def test_each_limit_of_the_load_and_a_service_that_does_not_work_fail_it(folders: tuple[Path, Path]) -> None:
    for new, name in (
        (figures(700, 10), "throughput under load"),
        (figures(1000, 13), "P99 under load"),
        (figures(1000, 10, errors=1), "errors under load"),
        (figures(1000, 10, reliable=False, note="the clients took 90 % of a core"), "P99 under load"),
    ):
        verdict, _ = loaded(folders, (new, figures(1000, 10)))

        assert (verdict.passed, outcome(verdict, name).outcome) == (False, "failed")
    for error in (MeasureError("golden sample 3: wrong"), BundleError("The service ended")):

        def load_once(folder: Path, error: Exception = error) -> ServiceFigures:
            raise error

        verdict = evaluate(folders[1], folders[0], limits=LOOSE, load=load_once)

        assert not verdict.passed
        assert f"does not serve: {error}" in outcome(verdict, "errors under load").reason


# --- the commands -----------------------------------------------------------------------------------------------------


def aliases(workspace: Path) -> dict[str, int]:
    with open_versions(workspace, "tiny") as versions:
        return {alias: version.number for version in versions.all() for alias in version.aliases}


def test_a_release_goes_up_and_comes_back(folders: tuple[Path, Path], workspace: Path) -> None:
    before, after = folders
    loose = ("--workspace", workspace, "--no-load", "--max-loss-pp", 5, "--json")

    first = run("promote", before, "--against", "none", *loose)
    second = run("promote", after, "--against", "champion", *loose)
    again = run("promote", after, "--against", "champion", *loose)

    assert [r.exit_code for r in (first, second, again)] == [0, 0, 0], second.output
    said = json.loads(second.stdout)
    assert (said["promoted"], said["passed"], said["champion"], said["previous"]) == (True, True, 2, 1)
    assert [check["name"] for check in said["checks"]][:2] == ["sound", "current is sound"]
    assert json.loads(again.stdout)["reason"] == "version 2 of 'tiny' is this very bundle, and champion already"
    assert aliases(workspace) == {CHAMPION: 2, PREVIOUS: 1}

    back = run("rollback", "tiny", "--workspace", workspace, "--json")
    assert back.exit_code == 0
    restored = json.loads(back.stdout)
    assert (restored["champion"], restored["previous"], restored["before"]) == (1, None, 2)
    assert read_bundle(Path(restored["bundle"])).manifest_sha256 == read_bundle(before).manifest_sha256
    assert isinstance(run("rollback", "tiny", "--workspace", workspace).exception, ConfigError)


@pytest.fixture
def released(folders: tuple[Path, Path], workspace: Path) -> tuple[Path, Path]:
    """Where the registry keeps version 1, which is previous, and version 2, which is champion."""
    before, after = (register_bundle(folder, workspace) for folder in folders)
    with open_versions(workspace, "tiny") as versions:
        promote(versions, before, over=None)
        promote(versions, after, over=before)
        return versions.bundle(before), versions.bundle(after)


def other_bytes(bundle: Path) -> None:
    (bundle / "model" / "model.onnx").write_bytes(b"\0")


def other_manifest(bundle: Path) -> None:
    changed(bundle, lambda manifest: manifest.update(about="another one"))


def test_a_rollback_looks_before_it_moves(released: tuple[Path, Path], workspace: Path, tmp_path: Path) -> None:
    bundle = released[0]
    sound = shutil.copytree(bundle, tmp_path / "sound")
    rows: tuple[tuple[Callable[[Path], object], str], ...] = (
        (shutil.rmtree, "version 1 of 'tiny' has no bundle at "),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
        (other_bytes, "model/model.onnx"),
        (other_manifest, "version 1 of 'tiny' is not what was registered: manifest.json in "),
    )
    for damage, said in rows:
        damage(bundle)
        for options in ((), ("--files-only",)):
            done = run("rollback", "tiny", "--workspace", workspace, *options)

            assert isinstance(done.exception, BundleError | ToolchainError)
            assert said in str(done.exception)
            assert str(done.exception).endswith("Nothing was moved: version 2 is still champion.")
            assert aliases(workspace) == {CHAMPION: 2, PREVIOUS: 1}
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(sound, bundle)
    log = json.loads(run("releases", "tiny", "--workspace", workspace, "--json").stdout)
    assert log["whole"]
    assert [(line["release"]["act"], line["release"]["verdict"]) for line in log["lines"]][-8:] == [
        ("rollback", "failed")
    ] * 8


def test_a_rollback_replays_the_golden_samples_before_it_moves(
    folders: tuple[Path, Path], released: tuple[Path, Path], workspace: Path
) -> None:
    file = folders[0] / body_of(folders[0])["golden"]
    with np.load(file) as kept:
        arrays = {name: kept[name] for name in kept.files}
    wrong = {n: a + np.float32(1) if a.dtype == np.float32 else a for n, a in arrays.items()}
    np.savez(file, **wrong)
    reseal(folders[0], {})
    spoilt = register_bundle(folders[0], workspace)
    with open_versions(workspace, "tiny") as versions:
        promote(versions, spoilt, over=versions.version(2))
        promote(versions, versions.version(1), over=spoilt)

    refused = run("rollback", "tiny", "--workspace", workspace)

    assert isinstance(refused.exception, BundleError)
    assert "golden" in str(refused.exception)
    assert aliases(workspace) == {CHAMPION: 1, PREVIOUS: 3}
    on_faith = run("rollback", "tiny", "--workspace", workspace, "--files-only")
    assert "golden samples not replayed" in on_faith.stdout
    assert aliases(workspace)[CHAMPION] == 3


@pytest.mark.parametrize("against", ["champion", "none"])
def test_a_champion_whose_manifest_is_not_the_registered_one_is_nothing_to_compare_with(
    folders: tuple[Path, Path], released: tuple[Path, Path], workspace: Path, against: str
) -> None:
    """Nor is it said to be this very bundle."""
    other_manifest(released[1])
    bundle = folders[0] if against == "champion" else folders[1]

    done = run("promote", bundle, "--against", against, "--workspace", workspace, "--no-load", "--max-loss-pp", 9)

    assert isinstance(done.exception, BundleError)
    assert "version 2 of 'tiny' is not what was registered: manifest.json in " in str(done.exception)
    assert aliases(workspace) == {CHAMPION: 2, PREVIOUS: 1}


def test_a_bundle_whose_kept_copy_is_damaged_does_not_become_champion(
    folders: tuple[Path, Path], workspace: Path
) -> None:
    version = register_bundle(folders[0], workspace)
    with open_versions(workspace, "tiny") as versions:
        kept = versions.bundle(version)
    other_bytes(kept)
    asked = ("promote", folders[0], "--against", "none", "--workspace", workspace, "--max-loss-pp", 9)

    refused = run(*asked)

    assert isinstance(refused.exception, BundleError)
    assert "the copy that the registry keeps of version 1 is damaged" in str(refused.exception)
    assert aliases(workspace) == {}
    shutil.rmtree(kept)
    assert run(*asked).exit_code == 0
    assert aliases(workspace) == {CHAMPION: 1}


def test_the_log_of_releases_is_read_and_checked_by_a_command(released: tuple[Path, Path], workspace: Path) -> None:
    asked = ("releases", "tiny", "--workspace", workspace)
    text, machine = run(*asked), json.loads(run(*asked, "--json").stdout)
    end = machine["lines"][-1]["sha256"]

    assert text.exit_code == 0
    assert "promotion" in text.stdout
    assert f"sha256 of the last line: {end}" in text.stdout
    assert [line["release"]["act"] for line in machine["lines"]] == ["export", "export", "promotion", "promotion"]
    assert run(*asked, "--contains", end).exit_code == 0
    assert run(*asked, "--contains", "0" * 64).exit_code == 1
    assert isinstance(run(*asked, "--contains", "abc").exception, ConfigError)

    with open_versions(workspace, "tiny") as versions:
        third = versions.client.get_model_version("tiny.releases", "3")
        changed = third.tags["line"].replace('"promotion"', '"promotioN"', 1)
        versions.client.set_model_version_tag("tiny.releases", "3", "line", changed)
    damaged = run(*asked)
    assert damaged.exit_code == 1
    assert "line 4 continues no line before it: one was changed or removed" in damaged.stderr
    assert json.loads(run(*asked, "--json").stdout)["whole"] is False


def test_a_failed_check_moves_nothing_and_is_kept_and_the_champion_cannot_be_passed_by(
    folders: tuple[Path, Path], workspace: Path, tmp_path: Path
) -> None:
    before, after = folders
    run("promote", after, "--against", "none", "--workspace", workspace, "--max-loss-pp", 5)

    failed = run("promote", before, "--against", "champion", "--workspace", workspace, "--no-load")

    assert failed.exit_code == 1
    assert "FAILED  size" in failed.stdout
    assert "not promoted: nothing was moved" in failed.stdout
    assert aliases(workspace) == {CHAMPION: 1}
    with open_versions(workspace, "tiny") as versions:
        version = versions.version(2)
        kept = json.loads((versions.bundle(version).parent / version.tags["promotion_verdict"]).read_text())
    assert (version.tags["promotion_checks"], kept["passed"]) == ("failed", False)
    other = changed(Path(shutil.copytree(after, tmp_path / "other")), lambda m: m.update(about="another"))
    for against, message in (("none", "has a champion, version 1"), (other, "is not the champion of 'tiny'")):
        done = run("promote", before, "--against", against, "--workspace", workspace)
        assert isinstance(done.exception, ConfigError)
        assert message in str(done.exception)


def test_only_what_passed_reaches_the_registry_and_what_production_serves_from_a_folder_becomes_previous(
    folders: tuple[Path, Path], workspace: Path, tmp_path: Path
) -> None:
    before, after = folders
    damaged = Path(shutil.copytree(after, tmp_path / "damaged"))
    other_bytes(damaged)

    refused = run("promote", damaged, "--against", "none", "--workspace", workspace)
    alone = run("promote", before, "--against", "none", "--workspace", workspace, "--check-only")

    assert (refused.exit_code, alone.exit_code) == (1, 0)
    assert "FAILED  sound" in refused.stdout
    assert "would be promoted" in alone.stdout
    with pytest.raises(BundleError):
        register_bundle(damaged, workspace)
    with open_versions(workspace, "tiny") as versions:
        assert versions.all() == []
    done = run("promote", after, "--against", before, "--workspace", workspace, "--no-load", "--max-loss-pp", 5)
    assert done.exit_code == 0, done.output
    with open_versions(workspace, "tiny") as versions:
        sums = [found and found.manifest_sha256 for found in map(versions.with_alias, (CHAMPION, PREVIOUS))]
    assert sums == [read_bundle(after).manifest_sha256, read_bundle(before).manifest_sha256]


def test_what_a_user_gets_wrong_is_named(made: Path, workspace: Path) -> None:
    for arguments, message in (
        (("--against", "champion"), "'tiny' has no champion yet"),
        (("--against", "nowhere"), "'nowhere' is no folder"),
        (("--against", "none", "--max-p99-increase", "20"), "'20' is no share"),
        (("--against", "none", "--max-loss-pp", "nan"), "--max-loss-pp: nan is no limit"),
        (("--against", "none", "--policy", "hope"), "'hope' is none of refuse, warn"),
    ):
        done = run("promote", made / "none" / "bundle", "--workspace", workspace, *arguments)

        assert isinstance(done.exception, ConfigError)
        assert message in str(done.exception)


def test_both_services_are_really_loaded(folders: tuple[Path, Path], workspace: Path) -> None:
    before, after = folders
    limits = ("--max-loss-pp", 5, "--max-p99-increase", "900%", "--min-throughput", "1%")
    run("promote", before, "--against", "none", "--workspace", workspace)

    done = run(
        *("promote", after, "--against", "champion", "--workspace", workspace, "--json", *limits),
        *("--rounds", 1, "--load-seconds", 1, "--concurrency", 4),
    )

    said = json.loads(done.stdout)
    checks = {check["name"]: check for check in said["checks"]}
    assert checks["errors under load"]["outcome"] == "passed"
    (found,) = said["rounds"]
    assert min(found[side]["throughput_per_s"]["value"] for side in ("candidate", "current")) > 0
    assert checks["throughput under load"]["figure"] == pytest.approx(
        100 * found["candidate"]["throughput_per_s"]["value"] / found["current"]["throughput_per_s"]["value"]
    )
    reliable = all(found[side]["reliable"] for side in ("candidate", "current"))
    assert said["promoted"] is reliable
