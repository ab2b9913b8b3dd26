"""CompileSettings: what a candidate says to its target's compiler, and what the target says about such candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from workbench.values.errors import ConfigError

if TYPE_CHECKING:
    from workbench.values.candidate import Candidate


def check_literal(kind: Any, key: str, value: object) -> None:
    """Raises ConfigError where a setting has none of a Literal's values."""
    if value not in get_args(kind):
        raise ConfigError(f"{value!r} is none of {', '.join(map(repr, get_args(kind)))}.", key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """The `compile` part of a candidate. A target derives its own: a frozen, keyword-only dataclass of scalars and
    tuples of them with defaults, which checks its own values in `__post_init__` and raises ConfigError.

    A field that comes later is written `name: int = added_later(0)` (`workbench.values.documents.canonical`): while it
    has its default, candidates keep their ids.

    Attributes:
        part: what its settings are called by in spaces and tables: 'compile' in 'compile.level'.
        compiles_shapes: every batch size and padded length is compiled, so that what is called decides what is built.
    """

    part: ClassVar[str] = "compile"
    compiles_shapes: ClassVar[bool] = False

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """A candidate's own; every candidate has those of its target."""
        assert isinstance(candidate.compile, cls), candidate.target
        return candidate.compile

    @classmethod
    def of_space(cls, given: Mapping[str, Any], served: tuple[int, ...]) -> Self:
        """The settings of a space's choices.

        Args:
            served: batch sizes that the candidate and the space's service form, ascending.

        Raises:
            ConfigError: a value, or a combination of them, that does not exist.
        """
        return cls(**given)

    def setting(self, name: str) -> Any:
        """The value of what a space calls 'compile.NAME'; None where it is left out, or is none of these settings."""
        return getattr(self, name, None)

    def check(self, candidate: Candidate) -> None:
        """Refuse what this target's candidates cannot be across their parts; `candidate.compile` is self.

        Raises:
            ConfigError: with the key of the setting and what to do.
        """

    def compiled_batches(self) -> tuple[int, ...]:
        """Batch sizes that are compiled, ascending; empty where one compiled file takes any."""
        return ()

    def compiled_lengths(self) -> tuple[int, ...]:
        """Padded lengths that are compiled, ascending; empty where one compiled file takes any."""
        return ()

    def one_file_a_shape(self) -> bool:
        """Whether each compiled batch size and length is a file of its own, which other candidates' may hold too."""
        return False

    def for_shapes(self, batches: tuple[int, ...], lengths: tuple[int, ...]) -> Self:
        """The same settings for a part of the compiled shapes; asked only with `one_file_a_shape`.

        Args:
            lengths: () for a model without a sequence axis.
        """
        return self

    def handed_files(self) -> Mapping[str, tuple[str, str]]:
        """The texts of files that the compiler reads beside the model: flag → (file name, content).

        Raises:
            ConfigError: settings that cannot be written; compiling fails of them too.
        """
        return {}

    def rounds_further(self) -> bool:
        """Whether they let the compiler round what is not quantized further than float32 does."""
        return False

    def shown(self) -> Mapping[str, Any]:
        """Field → value for tables."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def numbers(self, candidate: Candidate) -> str:
        """What it computes in, in place of the words for precision and quantization; '' for these."""
        return ""

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        """What of the settings differs from the compiler's own, in a few words each; lengths are said without it."""
        usual, found = type(self)(), []
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if value != getattr(usual, name):
                found.append(f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else str(value).lower()}")
        return tuple(found)
