"""A request's body → samples, checked so strictly that nothing a client sends can break a batch it shares.

Checked by hand: a request is one of four small shapes, and a general validator would cost more than the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NoReturn

import numpy as np

from workbench.bundle.manifest import Manifest
from workbench.serve.refusals import Refusal
from workbench.serve.settings import Limits
from workbench.targets.base import Array
from workbench.values.model import TensorSpec
from workbench.values.preprocess import Role

Kind = Literal["text", "texts", "words", "inputs"]
KINDS: tuple[Kind, ...] = ("text", "texts", "words", "inputs")
Text = str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRule:
    """What a raw input must be.

    Attributes:
        shape: of one row; None for any size.
        empty: the axis of a row along which it may have the size 0, as a state that grows has at first; None for none.
        lowest, highest: of integers, both inclusive.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    lowest: int
    highest: int
    empty: int | None = None


def input_rules(manifest: Manifest, largest_id: int | None) -> list[InputRule]:
    """What raw inputs must be. Where the bundle knows what they mean, no value can leave an embedding table."""
    roles = {} if manifest.text is None else {entry.name: entry.role for entry in manifest.text.inputs}
    growing = {axis.name for axis in manifest.axes if axis.start is not None}
    return rules_of(manifest.model.inputs, roles, growing, largest_id)


def rules_of(
    specs: Iterable[TensorSpec],
    roles: Mapping[str, Role] = MappingProxyType({}),
    growing: Collection[str] = (),
    largest_id: int | None = None,
) -> list[InputRule]:
    """The same of tensors that no bundle describes."""
    bounds = {"ids": (0, largest_id), "mask": (0, 1), "types": (0, 1)}
    rules = []
    for spec in specs:
        dtype, text = np.dtype(spec.dtype), spec.name in roles
        whole = np.iinfo(dtype) if dtype.kind in "iu" else None
        lowest, highest = bounds[roles[spec.name]] if text else (None, None)
        rules.append(
            InputRule(
                name=spec.name,
                dtype=dtype,
                shape=tuple(size if isinstance(size, int) else None for size in spec.shape[1:]),
                lowest=lowest if lowest is not None else int(whole.min) if whole else 0,
                highest=highest if highest is not None else int(whole.max) if whole else 0,
                empty=next((axis for axis, size in enumerate(spec.shape[1:]) if size in growing and not text), None),
            )
        )
    return rules


def parse(body: bytes, limits: Limits) -> tuple[Kind, tuple[Text, ...], Mapping[str, Any]]:
    """(kind, texts within the limits, raw inputs that are still lists) of a body; texts or inputs are empty.

    Raises:
        Refusal: kind 'not_json', or 'fields' with the place of what is wrong.
    """
    try:
        data = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Refusal("not_json", f"The body is not UTF-8: byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise Refusal("not_json", f"The body is not JSON: {error.msg} at character {error.pos}.") from None
    except RecursionError:
        raise Refusal("not_json", "The body is nested too deeply.") from None
    except ValueError:  # NaN and Infinity, and integers of thousands of digits
        raise Refusal("not_json", "The body holds a number that JSON does not know or that is too long.") from None
    if not isinstance(data, dict):
        raise Refusal("fields", f"The body must be an object with one of {', '.join(KINDS)}.")
    found = [kind for kind in KINDS if kind in data]
    if len(found) != 1 or len(data) != 1:
        raise Refusal("fields", f"The body must have exactly one field, one of {', '.join(KINDS)}.")
    kind, value = found[0], data[found[0]]
    if kind == "text" and not isinstance(value, str):
        _refuse(kind, "must be a string")
    if kind == "words" and not isinstance(value, list):
        _refuse(kind, f"must be a list of 1 to {limits.words} words")
    if kind in ("text", "words"):
        return kind, (text_or_words(value, kind, limits),), {}
    if kind == "texts":
        if not isinstance(value, list) or not 1 <= len(value) <= limits.texts:
            raise Refusal("fields", f"texts must be a list of 1 to {limits.texts} texts.")
        return kind, tuple(text_or_words(item, f"texts[{i}]", limits) for i, item in enumerate(value)), {}
    if not isinstance(value, dict):
        raise Refusal("fields", "inputs must be an object: name of the input, nested lists of numbers.")
    return kind, (), value


def arrays(
    inputs: Mapping[str, Any], rules: Sequence[InputRule], limits: Limits, longest: int | None
) -> dict[str, Array]:
    """Raw inputs as the arrays the model takes, equal rows in all of them.

    Args:
        longest: bound of every free size; None for none.

    Raises:
        Refusal: kind 'inputs': a name, type, shape or value does not fit.
    """
    _check_names(inputs, rules)
    found = fitted({rule.name: _array(inputs[rule.name], rule) for rule in rules}, rules, longest)
    if len(next(iter(found.values()))) > limits.texts:
        raise Refusal("inputs", f"inputs must have 1 to {limits.texts} rows.")
    return found


def fitted(inputs: Mapping[str, Array], rules: Sequence[InputRule], longest: int | None) -> dict[str, Array]:
    """The same for arrays, which may have any number of rows.

    Raises:
        Refusal: as `arrays`.
    """
    _check_names(inputs, rules)
    found = {rule.name: _fitting(inputs[rule.name], rule, longest) for rule in rules}
    rows = {len(array) for array in found.values()}
    if len(rows) > 1:
        raise Refusal("inputs", "inputs must all have the same number of rows.")
    free = {
        size
        for rule in rules
        for size, wanted in zip(found[rule.name].shape[1:], rule.shape, strict=True)
        if wanted is None
    }
    if longest is not None and len(free) > 1:
        raise Refusal("inputs", "inputs must all have the same length.")
    return found


def _check_names(inputs: Mapping[str, object], rules: Sequence[InputRule]) -> None:
    names = {rule.name for rule in rules}
    if missing := sorted(names - inputs.keys()):
        raise Refusal("inputs", f"inputs.{missing[0]} is missing.")
    if len(inputs) > len(names):
        raise Refusal("inputs", f"inputs may hold {', '.join(sorted(names))} only.")


def _array(value: object, rule: InputRule) -> Array:
    where = f"inputs.{rule.name}"
    if not isinstance(value, list):
        raise Refusal("inputs", f"{where} must be nested lists of numbers.")
    waiting = [value]
    while waiting:  # one long text among many short ones would become an array of long ones
        items = waiting.pop()
        kinds = set(map(type, items))
        if not kinds <= {int, float, bool, list}:
            raise Refusal("inputs", f"{where} must hold {rule.dtype} numbers only.")
        if list in kinds:
            waiting.extend(item for item in items if type(item) is list)
    try:
        return np.array(value)
    except (ValueError, OverflowError):  # rows of unequal length, or deeper than NumPy goes
        raise Refusal("inputs", f"{where} must be nested lists of equal length.") from None


def _fitting(array: Array, rule: InputRule, longest: int | None) -> Array:
    where = f"inputs.{rule.name}"
    if not array.size and rule.empty is not None:
        return _nothing_yet(array, rule)
    allowed = {"i": "iu", "u": "iu", "f": "iuf", "b": "b"}.get(rule.dtype.kind, "")
    if array.size and array.dtype.kind not in allowed:
        raise Refusal("inputs", f"{where} must hold {rule.dtype} numbers only.")
    if array.ndim != len(rule.shape) + 1 or not array.size:
        raise Refusal("inputs", f"{where} must have {len(rule.shape) + 1} dimensions and not be empty.")
    for axis, (size, wanted) in enumerate(zip(array.shape[1:], rule.shape, strict=True), 1):
        if wanted is not None and size != wanted:
            raise Refusal("inputs", f"{where} must have the size {wanted} along axis {axis}, not {size}.")
        if wanted is None and longest is not None and size > longest:
            raise Refusal("inputs", f"{where} may have at most {longest} along axis {axis}, not {size}.")
    if rule.dtype.kind in "iu" and not (rule.lowest <= int(array.min()) and int(array.max()) <= rule.highest):
        raise Refusal("inputs", f"{where} must hold {rule.lowest} to {rule.highest} only.")
    with np.errstate(over="ignore"):
        cast = array.astype(rule.dtype)
    if rule.dtype.kind == "f" and not np.isfinite(cast).all():
        raise Refusal("inputs", f"{where} holds a number that {rule.dtype} cannot.")
    return cast


def _nothing_yet(array: Array, rule: InputRule) -> Array:
    """A state before the first step; nested lists end where nothing is in them."""
    axis = rule.empty
    assert axis is not None
    sizes = [*rule.shape[:axis], 0, *rule.shape[axis + 1 :]]
    given = array.shape[1 : axis + 2]
    fits = len(given) == axis + 1 and all(b is None or a == b for a, b in zip(given, sizes, strict=False))
    if not fits or None in rule.shape[axis + 1 :]:
        raise Refusal("inputs", f"inputs.{rule.name} is empty where it may not be.")
    return np.zeros((len(array), *given, *(size or 0 for size in sizes[axis + 1 :])), dtype=rule.dtype)


def text_or_words(value: object, where: str, limits: Limits) -> Text:
    """One text of a request: a string, or a list of words.

    Raises:
        Refusal: kind 'fields': it is neither, is empty, or is longer than the limits.
    """
    if isinstance(value, list) and not 1 <= len(value) <= limits.words:
        _refuse(where, f"must be a list of 1 to {limits.words} words")
    left = limits.characters
    for index, word in enumerate(value if isinstance(value, list) else [value]):
        place = f"{where}[{index}]" if isinstance(value, list) else where
        if not isinstance(word, str):
            _refuse(place, "must be a string")
        left -= len(word)
        if left < 0 and isinstance(value, list):
            _refuse(where, f"has more than {limits.characters} characters")
        if left < 0:
            _refuse(where, f"has {len(word)} characters; {limits.characters} are allowed")
        if not word or word.isspace():
            _refuse(place, "is empty")
        try:
            word.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, written as an escape
            _refuse(place, "has a character that is not Unicode")
    return tuple(value) if isinstance(value, list) else str(value)


def _refuse(where: str, why: str) -> NoReturn:
    raise Refusal("fields", f"{where} {why}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
