from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inputs.dataset.manifests import LOADER, LOADER_CODE, refused
from workbench.inputs.dataset import Dataset
from workbench.values.errors import ConfigError


def test_a_loader_gives_rows_in_its_own_order_and_its_validation_is_divided(read: Callable[..., Dataset]) -> None:
    dataset = read(LOADER)

    rows = [i for b in dataset.batches("validation", 4) for i in b.indices.tolist()]

    assert dataset.size("calibration") == 20
    assert dataset.size("holdout") == 10
    assert rows == sorted(rows)
    for batch in dataset.batches("holdout", 4):
        assert batch.feeds["x"][:, 0].tolist() == batch.indices.tolist()
        assert batch.targets.tolist() == [i % 3 for i in batch.indices]


def test_the_loaders_source_helpers_and_samples_are_part_of_the_identity(
    read: Callable[..., Dataset], folder: Path
) -> None:
    seen = [read(LOADER).identity]
    counting = "from helping import count\n" + LOADER_CODE.replace("range(20)", "range(count())")
    helper = "from pathlib import Path\ndef count(): return int((Path(__file__).parent / 'count.txt').read_text())\n"
    for name, text in (
        ("my_loader.py", LOADER_CODE + "\n# a comment\n"),
        ("count.txt", "20"),
        ("helping.py", helper),
        ("my_loader.py", counting),
        ("helping.py", helper + "# a comment\n"),
        ("count.txt", "21"),
    ):
        (folder / name).write_text(text)
        seen.append(read(LOADER).identity)

    assert seen[1] == seen[2] == seen[3], "nothing of the loader's reads these yet"
    assert len(set(seen)) == 5


def test_a_broken_loader_is_refused_with_what_it_did(read: Callable[..., Dataset], folder: Path) -> None:
    for code, message in (
        ("def laod(split): return []", "has no function 'load'. Did you mean 'laod'?"),
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("def load(split): return []", "load('calibration') gave no samples"),
        ("def load(split): return None", "load('calibration') returned None, where samples were asked for; only"),
        ("def load(split):\n  rows = []", "A function that ends without `return` returns None"),
        ("def load(split): return [None]", "sample 0 of 'calibration' is None, not a tuple"),
        ("def load(split): return 3", "returned int, not an iterable"),
        ("def load(split): raise OSError('disk')", "failed for 'calibration': OSError: disk"),
        ("def load(split): return [({'x': [1.0]}, 0), 3]", "sample 1 of 'calibration' is a int, not a tuple"),
        ("def load(split): return [({'x': [float('nan')]}, 0)]", "sample 0 of 'calibration': input 'x' holds NaN"),
        ("def load(split): return [({'x': ['a']}, 0)]", "input 'x' holds <U1, not numbers"),
        ("def load(split): return [({'x': [1.0]}, 'a')]", "target 'a' is not a class id"),
        ("def load(split): return [({'x': [1.0]}, -1)]", "target -1 is outside the labels"),
        ("def load(split):\n  yield {'x': [1.0]}, 0\n  raise KeyError('y')", "sample 1 of 'calibration': KeyError"),
    ):
        (folder / "my_loader.py").write_text(code)

        found = refused(read, LOADER)

        assert message in found
        assert "my_loader.py" in found or "manifest.yaml" in found


def test_samples_of_different_shapes_share_no_batch(read: Callable[..., Dataset], folder: Path) -> None:
    (folder / "my_loader.py").write_text(LOADER_CODE.replace("(2,)", "(1 + row // 3 % 2,)"))
    dataset = read(LOADER)

    batches = list(dataset.batches("calibration", 4))

    assert [len(b) for b in batches[:4]] == [3, 1, 2, 2]
    assert [row for b in batches for row in b.indices.tolist()] == list(range(20))
    assert all((b.feeds["x"] == b.indices[:, None]).all() for b in batches)
    timed = dataset.sample_feeds("calibration", 5, 4, seed=0)
    assert {f["x"].shape for f in timed} == {(4, 1), (4, 2)}


def test_a_loader_that_gives_other_samples_when_asked_again_is_refused(
    read: Callable[..., Dataset], folder: Path
) -> None:
    (folder / "my_loader.py").write_text(LOADER_CODE.replace("row, dtype", "row + np.random.random() * row, dtype"))
    dataset = read(LOADER)

    with pytest.raises(ConfigError, match=r"sample 1 of 'calibration' is another one .* give random numbers a seed"):
        list(dataset.batches("calibration", 2))
