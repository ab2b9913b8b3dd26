"""How the benchmark of predictions judges: by quiet runs alone, over slices of time."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.predicted_runs import (
    SETTINGS,
    Figures,
    Promised,
    Record,
    Run,
    coverage,
    read_record,
    table,
    without_quiet_runs,
    write_record,
)
from workbench.values.artifact import Toolchain
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate
from workbench.values.service import HostCosts

FOUR = SETTINGS[:4]
MACHINE = Toolchain(target="onnxruntime", components={"onnxruntime": "1"}, device="a processor")


def run(*, measured: float, others: float) -> Run:
    def figures(times: float) -> Figures:
        return Figures(throughput=100 * times, p50=10 * times, p99=20 * times, mean_batch=4.0)

    return Run(
        measured=figures(measured),
        predicted=figures(1.0),
        load="1 client",
        speed=1.0,
        others=others,
        requests=1000,
        client_share=0.1,
        together=1.9,
    )


def record() -> Record:
    """Predicted well; a mile off, but disturbed; disturbed once and then well; never run."""
    point = CurvePoint(
        batch=1,
        length=16,
        calls=15,
        p50_ms=Estimate(value=2.0, low=1.9, high=2.1),
        mean_ms=2.0,
        quantiles_ms=(1.5, 2.0, 4.0),
    )
    runs = (
        (run(measured=1.02, others=0.1), run(measured=1.04, others=0.2)),
        (run(measured=3.0, others=0.5),),
        (run(measured=3.0, others=0.9), run(measured=0.99, others=0.0)),
    )
    return Record(
        machine=MACHINE,
        scheme="dynamic",
        host=HostCosts(request_ms=0.2, origin="assumed in a test"),
        curve=BatchCurve(points=(point,), stepped=False, threads=1, clock="host"),
        quiet=True,
        yardstick_ms=2.0,
        passes=2,
        runs={str(setting): found for setting, found in zip(FOUR, runs, strict=False)},
    )


def test_a_setting_is_judged_by_its_quiet_runs_and_not_at_all_without_any() -> None:
    lines, rows = table(record(), FOUR)

    assert "throughput within 10%: 2 of 2 with quiet runs; 2 never had one" in lines
    assert [row["quiet_passes"] for row in rows] == [2, 0, 1, 0]
    assert rows[2]["p99"]["error"] == pytest.approx(1 / 0.99 - 1)
    assert lines[2].endswith("disturbed: not judged")
    assert lines[4].endswith("not run")


def test_a_prediction_beyond_its_limit_is_not_counted_as_within() -> None:
    one = replace(record(), runs={str(FOUR[0]): (run(measured=1.2, others=0.0),)})

    lines, _ = table(one, FOUR[:1])

    assert "throughput within 10%: 0 of 1 with quiet runs; 0 never had one" in lines
    assert "p99 within 25%: 1 of 1 with quiet runs; 0 never had one" in lines


def test_settings_with_fewer_than_two_quiet_runs_are_run_again() -> None:
    assert without_quiet_runs(record(), FOUR) == list(FOUR[1:])


def test_a_slice_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    file = tmp_path / "results" / "predictions.json"

    write_record(file, record(), FOUR)

    assert read_record(file, MACHINE, "dynamic") == record()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_runs_of_another_machine_are_not_mixed_with_these(tmp_path: Path) -> None:
    write_record(tmp_path / "predictions.json", record(), FOUR)

    with pytest.raises(SystemExit, match="name another with --to"):
        read_record(tmp_path / "predictions.json", replace(MACHINE, device="another"), "dynamic")


def test_predictions_from_a_busy_machine_are_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = replace(record(), quiet=False)
    write_record(tmp_path / "predictions.json", busy, FOUR)

    assert read_record(tmp_path / "predictions.json", MACHINE, "dynamic") is None
    assert "begins anew" in capsys.readouterr().out
    assert "measured on a busy machine" in table(busy, FOUR)[0][-1]


def promised(run_: Run, *, half: float) -> Run:
    def interval(value: float) -> Estimate:
        return Estimate(value=value, low=value * (1 - half), high=value * (1 + half))

    p = run_.predicted
    return replace(run_, promised=Promised(throughput=interval(p.throughput), p50=interval(p.p50), p99=interval(p.p99)))


def test_intervals_are_judged_by_the_first_quiet_runs_of_every_setting() -> None:
    """One holds both, one misses its second, one missed a third that counts no more."""
    good, off = (promised(run(measured=x, others=0.1), half=0.08) for x in (1.05, 1.2))
    disturbed = promised(run(measured=5.0, others=0.9), half=0.08)
    runs = ((good, disturbed, good), (good, off), (good, good, off))
    judged = replace(record(), runs={str(s): found for s, found in zip(FOUR, runs, strict=False)})

    lines = coverage(judged, FOUR)

    assert (
        "throughput intervals hold 2 of 3 settings (goal 90%: MISSED; pass 1: 3 of 3, pass 2: 2 of 3); half width: "
        "median 8.0%, largest 8.0%; within 10% in 3 of 3"
    ) in lines
    assert f"  not held: {FOUR[1]}: 105.0 beside 100.0 [92.0, 108.0]; 120.0 beside 100.0 [92.0, 108.0]" in lines
    assert lines[-1] == "settings with 2 quiet runs: 3 of 4"


def test_without_quiet_runs_nothing_is_said_of_intervals() -> None:
    assert coverage(record(), FOUR) == ["intervals: no quiet run to judge them by"]
