"""docs/quickstart.ipynb: its cells run as they stand, on a small model, and the outputs it shows are whole."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.tiny_texts import LABELS, write_text_workspace

NOTEBOOK = Path(__file__).parents[1] / "docs" / "quickstart.ipynb"


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def printed(notebook: Any) -> list[str]:
    """What each cell of code shows, as text."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        "".join(o.get("text", "") + str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs)
        for cell in cells
    ]


@pytest.mark.filterwarnings("default")  # of Jupyter's own packages
def test_every_cell_runs(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSTART_EXPERIMENT", str(write_text_workspace(tmp_path)))
    monkeypatch.setenv("QUICKSTART_TRIALS", "2")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))

    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()

    shown = printed(notebook)
    assert any("2 candidates, " in text and "on the Pareto front" in text for text in shown)
    assert any("measured held-out" in text for text in shown)
    assert any("golden samples replayed" in text for text in shown)
    assert any(sum(text.count(label) for label in LABELS) == 3 for text in shown)
    assert shown[-1] == "True"


def test_what_it_shows_comes_from_one_run_and_names_no_folder_of_a_machine(notebook: Any) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = printed(notebook)

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert "Recommended:" in "".join(shown)
    assert shown[-1] == "True"
    assert re.findall(r"/(?:home|root|tmp|work|Users)/\S+", NOTEBOOK.read_text(encoding="utf-8")) == []
