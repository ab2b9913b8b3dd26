"""A text in every language of the reports, side by side, so that one is not changed without the other."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.report.written.document import Language


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The same said in each language; `{name}` is filled in."""

    zh: str
    en: str

    def __call__(self, language: Language, **values: object) -> str:
        return (self.zh if language == "zh" else self.en).format(**values)
