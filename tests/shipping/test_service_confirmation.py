"""The real service of a real candidate, loaded and believed only when it answers as its bundle says."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.bundle.making import emulated
from workbench.bundle.golden import GoldenBatch
from workbench.bundle.opened import read_bundle
from workbench.bundle.write import BundleContents, write_bundle
from workbench.load import bodies_of_texts
from workbench.load.service_process import running_service
from workbench.shipping.service_confirmation import check_answers, confirm_bundle, load_bundle, load_seconds
from workbench.values.errors import MeasureError
from workbench.values.measurement import Estimate, ServiceFigures
from workbench.values.service import ServiceLoad, ServiceSettings

ONE = Estimate(value=1.0, low=1.0, high=1.0)


def predicted(settings: ServiceSettings, load: ServiceLoad, devices: int = 1) -> ServiceFigures:
    return ServiceFigures(
        kind="predicted",
        settings=settings,
        load=load,
        requests=1,
        throughput_per_s=ONE,
        p50_ms=ONE,
        p95_ms=ONE,
        p99_ms=ONE,
        mean_batch=1.0,
        padding_share=0.0,
        devices=devices,
    )


def test_a_bundle_is_served_with_other_settings_and_loaded_as_predicted(
    contents: BundleContents, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "bundle", contents)
    best = predicted(ServiceSettings(max_batch_size=8, batch_timeout_ms=1.0), ServiceLoad(concurrency=16))

    found = confirm_bundle(bundle, best, 2.0, bodies_of_texts(["loan pay", "due"]), seed=0)

    assert isinstance(found, ServiceFigures)
    assert (found.kind, found.settings, found.load) == ("measured", best.settings, best.load)
    assert 1 < found.mean_batch <= 8
    assert found.errors == 0
    assert found.p50_ms.value <= found.p95_ms.value <= found.p99_ms.value
    assert found.host is None
    assert load_seconds(best, 1.0) == 6, "a prediction of 1 answer a second asks for six times as long"


def test_golden_samples_are_asked_for_before_the_load_and_the_bundles_own_settings_used(
    contents: BundleContents, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "bundle", contents)

    figures = load_bundle(bundle, ServiceLoad(arrivals="poisson", rate_per_s=100), 1.0)

    assert figures.settings == contents.service
    assert figures.padding_share > 0
    assert not figures.reliable, "a hundred answers give no P99"
    assert "P99" in figures.note


def turned(contents: BundleContents) -> BundleContents:
    """With golden outputs of the other sign."""
    golden = tuple(
        GoldenBatch(feeds=g.feeds, outputs={n: -np.asarray(a) for n, a in g.outputs.items()}, texts=g.texts)
        for g in contents.golden
    )
    return dataclasses.replace(contents, golden=golden)


def test_a_service_that_decides_otherwise_confirms_nothing(contents: BundleContents, tmp_path: Path) -> None:
    """The service is right by its own bundle, and wrong by this one."""
    served = write_bundle(tmp_path / "served", contents)
    other = write_bundle(tmp_path / "other", turned(contents))
    with running_service(served, log=tmp_path / "log") as running:
        assert check_answers(running, read_bundle(served)) == sum(len(g.texts) for g in contents.golden)
        with pytest.raises(MeasureError, match=r"golden sample 0: .*says something else"):
            check_answers(running, read_bundle(other))


def test_what_says_nothing_of_the_device_is_answered_and_not_timed(contents: BundleContents, tmp_path: Path) -> None:
    for number, (made, devices, reason) in enumerate(
        ((contents, 4, "predicted for 4 devices"), (emulated(contents), 1, "the device is emulated"))
    ):
        bundle = write_bundle(tmp_path / f"{number}", made, allow_emulated=True)
        best = predicted(ServiceSettings(max_batch_size=4), ServiceLoad(concurrency=4), devices=devices)

        found = confirm_bundle(bundle, best, 60.0, ["{}"], seed=0)

        assert isinstance(found, str)
        assert reason in found


def test_a_service_ends_with_a_loader_that_is_killed(contents: BundleContents, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", contents)
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from workbench.load.service_process import running_service\n"
        "with running_service(Path(sys.argv[1]), log=Path(sys.argv[2])) as running:\n"
        "    print(running.pid, flush=True)\n"
        "    time.sleep(1000)\n"
    )
    command = [sys.executable, "-c", code, str(bundle), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loader:
        assert loader.stdout is not None
        service = psutil.Process(int(loader.stdout.readline()))
        everything = [service, *service.children(recursive=True)]
        loader.kill()
        _, alive = psutil.wait_procs(everything, timeout=300)

    assert len(everything) >= 2
    assert alive == []
