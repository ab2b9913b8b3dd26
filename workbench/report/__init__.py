"""What a sweep found, said so that one can decide: the front, who cannot be told apart, which one to ship and why.

`summary` has the values, `verdict` makes them from evaluations with `alike` (who cannot be told apart) and
`recommendation` (which one to ship). `text` writes them for a terminal and for programs, `page` as an interactive HTML
file.
"""

from workbench.report.summary import Member, Recommendation, Summary
from workbench.report.text import detail, lines, report_lines, to_json
from workbench.report.verdict import summarize

__all__ = ["Member", "Recommendation", "Summary", "detail", "lines", "report_lines", "summarize", "to_json"]
