"""Make the pictures of the README and the site from a swept workspace.

    python docs/pictures.py experiments/loan-intent-mini.yaml [--workspace DIR] [--to docs/images]

`pareto.png` is the report's page in a headless chromium, `table.svg` what `workbench show` prints, and beside them are
written reports in both languages. All hold figures of the machine that swept.
"""

import argparse
import io
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import get_args

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from workbench.api.opening import journal_of, summary_of
from workbench.api.report import report
from workbench.commands.options import next_lines
from workbench.inputs.experiment import read_experiment
from workbench.report import Summary
from workbench.report.brief import brief_lines
from workbench.report.page import pareto_html
from workbench.report.written.document import Language

COLUMNS = 104
PAGE = (1280, 1000)  # pixels of the window: the head of the page, with the first plot
_FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "images")
    given = parser.parse_args()
    question = read_experiment(given.experiment, given.workspace)
    summary = replace(summary_of(question, journal_of(question)), experiment_file=str(given.experiment))
    given.to.mkdir(parents=True, exist_ok=True)
    (given.to / "table.svg").write_text(table_svg(summary, given.experiment), encoding="utf-8")
    screenshot(pareto_html(summary), given.to / "pareto.png")
    for language in get_args(Language):
        report(given.experiment, given.to / f"report.{language}.html", language=language, workspace=given.workspace)


def table_svg(summary: Summary, experiment: Path) -> str:
    """The table as a terminal shows it. Rich's own template asks a CDN for a font; here the reader's system has it."""
    console = Console(record=True, width=COLUMNS, force_terminal=True, file=io.StringIO())
    for text, style in brief_lines(summary, next_lines(experiment, None, summary)):
        console.print(text, style=style or None, markup=False, highlight=False)
    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = template.replace("font-family: Fira Code, monospace", f"font-family: {_FONTS}")
    svg = console.export_svg(title=f"workbench show {experiment}", code_format=template, unique_id="table")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def screenshot(page: str, to: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    width, height = PAGE
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pareto.html").write_text(page, encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=10000")
        size, out = f"--window-size={width},{height}", f"--screenshot={to.resolve()}"
        url = (Path(folder) / "pareto.html").as_uri()
        subprocess.run(
            [chromium, *options, f"--user-data-dir={folder}/profile", size, out, url], check=True, timeout=120
        )


if __name__ == "__main__":
    main()
