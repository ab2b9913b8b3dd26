"""What a sweep found, said so that one can decide: the front, who cannot be told apart, which one to ship and why.

`summarize` makes the value; `text` writes it for a terminal and for programs, `page` as an interactive HTML file,
`importance` ranks the parameters.
"""

from workbench.report.summary import Member, Recommendation, Summary, summarize
from workbench.report.text import detail, lines, table, to_json

__all__ = ["Member", "Recommendation", "Summary", "detail", "lines", "summarize", "table", "to_json"]
