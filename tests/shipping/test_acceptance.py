"""Criteria against another platform's figures: what was not measured, or cannot be proved, is not passed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import estimate
from tests.report.written.materials import LOAD, SERVER
from workbench.load import LoadResult, ServerProcesses
from workbench.shipping.acceptance.baseline import (
    Baseline,
    LoadFigures,
    Resource,
    of_load,
    read_baseline,
    write_baseline,
)
from workbench.shipping.acceptance.criteria import evaluate
from workbench.shipping.acceptance.verdict import Criterion, Verdict, read_verdict, verdict_lines
from workbench.values.agreement import Agreement, AgreementPath, Agreements, OutputAgreement
from workbench.values.errors import ConfigError
from workbench.values.measurement import Estimate
from workbench.values.service import ServiceLoad

FILE = Path(__file__).parents[2] / "experiments" / "baselines" / "a100-triton.yaml"


def result(concurrency: int, *, rate: float = 2000.0, p99_ms: float = 9.0, answered: int = 50_000) -> LoadResult:
    return replace(
        LOAD,
        load=ServiceLoad(concurrency=concurrency),
        requests=answered,
        answered=answered,
        statuses={"200": answered},
        throughput_per_s=estimate(rate),
        p50_ms=estimate(4.0),
        p95_ms=estimate(6.0),
        p99_ms=estimate(p99_ms),
        server=None,
        device=(),
        processes=ServerProcesses(
            processes=3,
            cores=1.5,
            resident_begin_bytes=1,
            resident_end_bytes=1,
            resident_peak_bytes=600_000_000,
            grown_bytes=0,
        ),
        length=512 if concurrency == 1 else None,
    )


def figures(*results: LoadResult) -> list[LoadFigures]:
    return [found for one in results if (found := of_load(one)) is not None]


def agreement(path: AgreementPath, reference: AgreementPath, **changed: object) -> Agreement:
    output = OutputAgreement(
        output="logits", samples=1000, elements=12000, worst_cosine=0.9995, mean_cosine=0.9999, max_abs=5e-4, mae=5e-5
    )
    same = Estimate(value=0.999, low=0.998, high=1.0)
    made = Agreement(path=path, reference=reference, outputs=(output,), samples=1000, top1=same, accuracy={})
    return replace(made, **changed)  # type: ignore[arg-type]  # fields of the value


def agreements(*paths: Agreement) -> Agreements:
    found = paths or (agreement("float32 compiled", "float32"), agreement("served", "float32"))
    return Agreements(candidate_id="c", data="validation", paths=found, missing={"pytorch": "no checkpoint is known"})


def complete(**changed: object) -> Verdict:
    """Everything measured and kept, but for what is changed."""
    given: dict[str, object] = {
        "loads": figures(result(1), result(100)),
        "agreement": agreements(),
        "accuracy_loss_pp": estimate(0.1),
        "int8": False,
    }
    return evaluate(read_baseline(FILE), **(given | changed))  # type: ignore[arg-type]  # arguments of evaluate


def row(verdict: Verdict, name: str) -> Criterion:
    (found,) = [c for c in verdict.criteria if c.name == name]
    return found


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {c.name: c.outcome for c in verdict.criteria}


def test_the_shipped_verdict_can_be_passed_and_nothing_measured_is_nothing_passed() -> None:
    verdict, nothing = complete(), evaluate(read_baseline(FILE))

    assert (nothing.outcome, set(outcomes(nothing).values())) == ("not decided", {"not measured"})
    assert verdict.outcome == "passed", "\n".join(verdict_lines(verdict))
    assert verdict.level == "measured"
    assert row(verdict, "INT8 throughput over float's").outcome == "does not apply"


def test_one_broken_limit_fails_the_verdict_by_its_criterion() -> None:
    for rate, p99_ms, drop, name in (
        (1300, 9.0, 0.1, "throughput"),
        (2000, 15.0, 0.1, "P99"),
        (2000, 9.0, 0.6, "accuracy loss"),
    ):
        loads = figures(result(1, p99_ms=p99_ms), result(100, rate=rate))

        verdict = complete(loads=loads, accuracy_loss_pp=estimate(drop))

        assert {c.name for c in verdict.criteria if c.outcome == "failed"} == {name}
        assert verdict.outcome == "failed"
    for changed, name in (
        ({"worst_cosine": 0.998}, "cosine of the float path"),
        ({"max_abs": 2e-3}, "max abs of the float path"),
        ({"mae": 2e-4}, "MAE of the float path"),
        ({"not_finite": 3}, "cosine of the float path"),
    ):
        made = agreement("float32 compiled", "float32")
        far = replace(made, outputs=(replace(made.outputs[0], **changed),))  # type: ignore[arg-type]  # fields

        assert row(complete(agreement=agreements(far, agreement("served", "float32"))), name).outcome == "failed"


def test_answers_of_the_old_platform_come_before_our_own_reference() -> None:
    other = agreement("served", "old platform", top1=Estimate(value=0.98, low=0.97, high=0.99))
    paths = (agreement("float32 compiled", "float32"), agreement("served", "float32"), other)

    verdict = complete(agreement=agreements(*paths))

    assert row(verdict, "top-1 change").outcome == "failed"
    assert "old platform" in row(verdict, "top-1 change").note
    missing = row(verdict, "cosine of the float path")
    assert missing.outcome == "not measured"
    assert "--reference" in missing.note


def test_an_interval_that_holds_the_limit_proves_nothing_on_either_side_of_it() -> None:
    for value in (0.3, 0.6):
        wide = Estimate(value=value, low=value - 0.4, high=value + 0.4)

        drop = row(complete(accuracy_loss_pp=wide, accuracy_samples=1000), "accuracy loss")

        assert drop.outcome == "not provable"
        assert complete(accuracy_loss_pp=wide).outcome == "not decided"
        assert "samples instead of 1000" in drop.needed


def test_a_zone_around_the_limit_is_the_users_and_its_errors_are_said(tmp_path: Path) -> None:
    file = tmp_path / "zone.yaml"
    file.write_text(FILE.read_text(encoding="utf-8") + "  accuracy_zone_pp: 0.25\n", encoding="utf-8")
    for value, outcome in ((0.3, "passed"), (0.8, "failed"), (0.49, "not provable")):
        near = Estimate(value=value, low=value - 0.3, high=value + 0.3)
        found = evaluate(read_baseline(file), accuracy_loss_pp=near, accuracy_samples=1000)

        assert row(found, "accuracy loss").outcome == outcome
        assert "false pass and false alarm at most 5 % each" in row(found, "accuracy loss").note
    assert "false pass and false alarm at most 2.5 % each" in verdict_lines(found)[-2]


def test_a_recorded_baselines_own_interval_counts() -> None:
    baseline = read_baseline(FILE)
    at_1, at_100 = baseline.loads
    recorded = replace(baseline, loads=(at_1, replace(at_100, throughput_per_s=estimate(1803, 0.3))))

    exact = evaluate(baseline, loads=figures(result(100, rate=1600)))
    uncertain = evaluate(recorded, loads=figures(result(100, rate=1600)))

    assert row(exact, "throughput").outcome == "passed"
    assert row(uncertain, "throughput").outcome == "not provable"
    assert "record the baseline longer" in row(uncertain, "throughput").needed


def test_a_load_under_other_conditions_is_no_figure() -> None:
    for changed, says in (
        ({"length": None}, "ours with 1 client, texts of their own lengths, theirs with 1 client, length 512"),
        ({"batch": 8}, "ours with 1 client, length 512, batch 8"),
        ({"load": ServiceLoad(concurrency=64)}, "needs a load with --concurrency 1 --length 512"),
        ({"load": ServiceLoad(arrivals="poisson", rate_per_s=100)}, "needs a load with --concurrency 1"),
        ({"reliable": False, "notes": ("the load generator used 95% of a core",)}, "95% of a core"),
        ({"answered": 900}, "900 answers give no P99"),
    ):
        loads = figures(replace(result(1), **changed), result(100))  # type: ignore[arg-type]  # fields of the result

        p99 = row(complete(loads=loads), "P99")

        assert p99.outcome == "not measured"
        assert says in p99.note
    rate = row(complete(loads=figures(result(1), replace(result(100), length=512))), "throughput")
    assert rate.outcome == "not measured"
    assert "load with --concurrency 100 and without --length" in rate.note


def test_memory_of_the_host_is_not_compared_with_memory_of_a_device() -> None:
    baseline = replace(read_baseline(FILE), limits={"memory_at_most_percent": 100.0})
    server = replace(SERVER, device_memory_bytes=700_000_000)

    on_host = evaluate(baseline, loads=figures(result(100)))
    on_card = evaluate(baseline, loads=figures(replace(result(100), server=server)))
    whole = evaluate(replace(baseline, memory=Resource(value=0.75, of="device")), loads=figures(result(100)))
    unknown = evaluate(replace(baseline, memory=Resource(value=0.75, of=None)), loads=figures(result(100)))

    assert (
        "theirs is of the service on its card, ours is known of the service's processes" in row(on_host, "memory").note
    )
    assert row(on_card, "memory").outcome == "passed"
    assert row(whole, "memory").outcome == row(unknown, "memory").outcome == "not measured"


def test_what_int8_promises_is_held_against_the_float_service_under_the_same_load() -> None:
    for floats, outcome in (
        (1000, "passed"),
        (1300, "failed"),
        (1136, "not provable"),
    ):
        theirs = figures(result(100, rate=floats))

        promise = row(complete(int8=True, float_loads=theirs), "INT8 throughput over float's")

        assert promise.outcome == outcome
        assert row(complete(int8=True), promise.name).outcome == "not measured"


def test_an_emulators_times_are_no_figures_and_the_rest_is_a_rehearsal() -> None:
    verdict = complete(emulated=True)

    found = outcomes(verdict)
    assert found["throughput"] == found["P99"] == found["memory"] == found["power"] == "not measured"
    assert (found["accuracy loss"], verdict.outcome, verdict.level) == ("passed", "not decided", "modelled")
    assert verdict_lines(verdict)[-1].startswith("verdict: not decided (a rehearsal")


def test_a_wrong_baseline_file_is_refused_by_its_key(tmp_path: Path) -> None:
    for before, after, says in (
        (", p99_ms: 11.24", "", "p99_at_most_percent"),
        ("p95_ms", "p95", "unknown key"),
        ("throughput_per_s: 1803", "throughput_per_s: -4", "less than 0"),
        ("throughput_per_s: 1803", "throughput_per_s: {value: 3, low: 4, high: 5}", "outside of its interval"),
        ("source: >-", "origin: >-", "source"),
        ("of: service", "of: gpu", "of"),
        ("concurrency: 100,", "concurrency: 1, length: 512,", "two entries are of one load"),
    ):
        text = FILE.read_text(encoding="utf-8")
        assert before in text
        (tmp_path / "b.yaml").write_text(text.replace(before, after), encoding="utf-8")

        with pytest.raises(ConfigError, match=says):
            read_baseline(tmp_path / "b.yaml")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    load = LoadFigures(
        concurrency=100,
        length=512,
        batch=8,
        wire="kserve-v2/grpc",
        seconds=30.0,
        answers=5000,
        throughput_per_s=estimate(800),
        p50_ms=estimate(4.0),
        p99_ms=estimate(9.5),
    )
    baseline = Baseline(
        name='a "server": of 张三',
        about="line # no comment",
        source="yes",
        level="measured",
        loads=(load, replace(load, concurrency=1)),
        memory=Resource(value=1.25, of="device", source="nv_gpu_memory_used_bytes"),
        power=None,
        limits={"p99_at_most_percent": 120.0, "mae_at_most": 1e-4},
        answers=tmp_path / "answers.npz",
    )

    write_baseline(baseline, tmp_path / "b.yaml")

    assert read_baseline(tmp_path / "b.yaml") == baseline


def test_a_verdict_is_kept_and_read_again(tmp_path: Path) -> None:
    verdict, file = complete(), tmp_path / "verdict.json"

    file.write_text(json.dumps({"verdict": verdict.to_json()}), encoding="utf-8")
    assert read_verdict(file) == verdict
    file.write_text(json.dumps({**verdict.to_json(), "version": 1}), encoding="utf-8")
    with pytest.raises(ConfigError, match="version 1"):
        read_verdict(file)


def test_a_limit_by_its_name_of_before_is_read_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shipped = FILE.read_text(encoding="utf-8")
    assert "accuracy_loss_pp:" in shipped
    file = tmp_path / "old.yaml"
    file.write_text(shipped.replace("accuracy_loss_pp:", "accuracy_drop_pp:"), encoding="utf-8")
    assert read_baseline(file).limits["accuracy_loss_pp"] == 0.5
    assert "`accuracy_drop_pp` is called `accuracy_loss_pp` now" in caplog.text
