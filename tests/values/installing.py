"""Distributions on the path as pip leaves them behind, of one module and one target each."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.space import dimensions
from workbench.values import installed_targets

Install = Callable[[str, str, str, str], None]
"""(distribution, target, module, its source)"""


@contextmanager
def installing(folder: Path) -> Iterator[Install]:
    def put(distribution: str, target: str, module: str, source: str) -> None:
        info = folder / f"{distribution}-1.2.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[workbench.targets]\n{target} = {module}:TARGET\n")
        (folder / f"{module}.py").write_text(source)
        sys.modules.pop(module, None)
        _forget()

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield put
    _forget()


def _forget() -> None:
    installed_targets._entries.cache_clear()
    installed_targets.installed_target.cache_clear()
    dimensions.dimensions_of.cache_clear()
