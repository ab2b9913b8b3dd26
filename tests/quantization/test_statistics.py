"""Statistics: stability, and how they are kept on disk."""

from pathlib import Path

import numpy as np
import pytest

from tests.quantization.histograms import content
from workbench.quantization.observe import observe
from workbench.quantization.statistics import load_statistics, save_statistics
from workbench.testing.encoder import ids
from workbench.values.errors import CalibrationError
from workbench.values.model import Model


def test_stored_statistics_come_back_whole(encoder: Model, tmp_path: Path) -> None:
    statistics = observe(encoder, [ids(3, 8)])

    save_statistics(statistics, tmp_path / "statistics.npz")
    restored = load_statistics(tmp_path / "statistics.npz")

    assert statistics.digest == restored.digest
    assert statistics.layers == restored.layers
    seen, again = statistics.tensors["embed_y"], restored.tensors["embed_y"]
    assert content(seen.histogram) == content(again.histogram)
    for name in ("samples", "minimum_sum", "maximum_sum", "halves"):
        assert getattr(seen, name) == getattr(again, name)
    for name in ("minima", "maxima", "sums", "squares", "sums_error", "squares_error"):
        np.testing.assert_array_equal(getattr(seen.channels, name), getattr(again.channels, name))
    assert seen.channels.rows == again.channels.rows == 3 * 8
    assert (restored.tensors["query_t_y"].channels, restored.variant) == (None, "")
    assert [p.name for p in tmp_path.iterdir()] == ["statistics.npz"]


def test_a_flipped_byte_is_refused_or_changes_nothing(encoder: Model, tmp_path: Path) -> None:
    path = tmp_path / "statistics.npz"
    statistics = observe(encoder, [ids(2, 8)])
    save_statistics(statistics, path)
    content = path.read_bytes()
    random = np.random.default_rng(0)

    for position in random.integers(0, len(content), 60).tolist():
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            restored = load_statistics(path)
        except CalibrationError:
            continue
        assert statistics.digest == restored.digest  # it hit what nothing reads, such as a time stamp


def test_statistics_of_another_version_are_refused(tmp_path: Path) -> None:
    header = np.frombuffer(b'{"version":1}', np.uint8)
    np.savez(tmp_path / "statistics.npz", header=header)

    with pytest.raises(CalibrationError, match="version 4"):
        load_statistics(tmp_path / "statistics.npz")
