"""Problems: what is wrong in one file, gathered while it is read, so that its reader is told all of it at once."""

from __future__ import annotations

from workbench.values.errors import ConfigError

MISSING, UNKNOWN = "missing.", "unknown key."
_MOST_SHOWN = 15


class Problems:
    """The errors of one file in the order they were met: at most one for a key, none for what lies below a wrong one.

    Attributes:
        gathering: whether an error waits for the end of the file; otherwise it is raised where it is met.
    """

    def __init__(self) -> None:
        self.gathering = False
        self._found: list[ConfigError] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def wrong(self, key: str) -> bool:
        """Whether something is known to be wrong with a key, by its full path, or with a section it lies in."""
        return any(error.key is not None and f"{key}.".startswith(f"{error.key}.") for error in self._found)

    def add(self, error: ConfigError) -> None:
        if error.key is None or not self.wrong(error.key):
            self._found.append(error)

    def error(self) -> ConfigError:
        """The one error where it is alone, else one that lists them by line."""
        found = sorted(self._without_misspelt(), key=lambda error: error.line or 0)
        if len(found) == 1:
            return found[0]
        file = next((error.file for error in found if error.file is not None), None)
        lines = [_line(error, alone=error.file == file) for error in found[:_MOST_SHOWN]]
        if len(found) > _MOST_SHOWN:
            lines.append(f"… and {len(found) - _MOST_SHOWN} more")
        return ConfigError("\n  ".join([f"{len(found)} things are wrong:", *lines]), file=file)

    def _without_misspelt(self) -> list[ConfigError]:
        """A misspelt key is one mistake: the key that it should have been is not reported as missing too."""
        meant = {
            f"{(error.key or '').rpartition('.')[0]}|{word}"
            for error in self._found
            if error.rule == UNKNOWN and (error.hint or "").startswith("Did you mean")
            for word in (error.hint or "").split("'")[1::2]
        }
        return [
            error
            for error in self._found
            if error.rule != MISSING or "|".join((error.key or "").rpartition(".")[::2]) not in meant
        ]


def _line(error: ConfigError, *, alone: bool) -> str:
    if not alone or error.line is None:
        return str(error) if not alone else ": ".join(part for part in (error.key, error.rule) if part)
    place = f"line {error.line}: " + (f"{error.key}: " if error.key else "")
    return f"{place}{error.rule}" + (f" {error.hint}" if error.hint else "")
