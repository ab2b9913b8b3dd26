"""What a sweep takes of the machine's memory, and when it is refused."""

from pathlib import Path

import pytest

from tests.tiny import FEATURES, SPACE, write_workspace
from workbench.inputs.experiment import read_experiment
from workbench.search.memory import check_memory, forecast_memory, memory_of
from workbench.values.errors import ConfigError
from workbench.values.system.cpu import available_memory_bytes


def test_a_large_model_takes_three_times_its_file_for_each_card_and_a_service_one_for_each_worker() -> None:
    size = 2_000_000_000

    assert forecast_memory(size, 0) == pytest.approx(0.5e9 + 2.6 * size)
    assert forecast_memory(size, 4) == pytest.approx(0.5e9 + 4 * (1.3 * size + 0.25e9))
    assert forecast_memory(1_000_000, 0) < 0.6e9
    assert forecast_memory(size, 0, 3) == pytest.approx(0.5e9 + 3 * 2.6 * size + 2 * 0.25e9)
    assert forecast_memory(size, 4, 0) == 500_000_000  # other machines do everything
    assert forecast_memory(size, 100, 3) == forecast_memory(size, 100)  # the service is larger, and comes afterwards


def test_a_sweep_that_would_swap_is_refused_before_any_work(tmp_path: Path) -> None:
    experiment = read_experiment(write_workspace(tmp_path))
    needed = memory_of(experiment)

    check_memory(experiment, needed)
    with pytest.raises(ConfigError, match="before the machine swaps") as refused:
        check_memory(experiment, needed - 1)
    assert "service.workers" in (refused.value.hint or "")
    large = SPACE.replace("  serving.intra", "  serving.batch: {choices: [1, 65536]}\n  serving.intra")
    many = memory_of(read_experiment(write_workspace(tmp_path / "many", space=large)))
    assert many - needed == 3 * (65_536 - 8) * FEATURES * 4, "calls that would fill the memory count"


def test_available_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable:    1000 kB\n")

    assert available_memory_bytes(tmp_path / "meminfo") == 1_024_000
    assert available_memory_bytes() is not None
