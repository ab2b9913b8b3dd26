"""Loan-approval texts from a seed: documents with a class, and the same wording with a tag on each character.

A document is a run of sentences from its own class, from two neighbouring classes, and from a stock that says
nothing about the class; then a scanner reads it badly. Three things keep both tasks from being learnt perfectly,
as real ones are: strayed sentences, notes without a cue, and annotators who disagree in a few percent of cases.

Deterministic: everything comes from one `random.Random(seed)`; the same seed gives the same texts in every process.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PHRASES: dict[str, Any] = json.loads(Path(__file__).with_name("phrases.json").read_text(encoding="utf-8"))
"""What an approval desk reads, as templates; the only place with Chinese wording.

Two marks: `[a|b|c]` is a choice, `{slot}` is filled below. Slots named after an entity type are tagged with it; `{bank}
{ratio} {months} {number} {product}` are no entities, and some (contract numbers, bank names) look like one on purpose.
A class of `subjects`, in the order of the labels, has full `sentences`, one-line `notes` of a clerk, and the classes
`near` it, whose sentences stray into it and with which annotators confuse it. `shared` sentences, `weak_notes` and
`remarks` say nothing about the class; `confusable` is what a scanner reads instead of a character.
"""
SUBJECTS = PHRASES["subjects"]
CLASSES: tuple[str, ...] = tuple(SUBJECTS)
ENTITIES = ("PERSON", "COMPANY", "AMOUNT", "DATE", "ID_NUMBER", "ADDRESS", "PHONE", "BANK_ACCOUNT")
TAGS: tuple[str, ...] = ("O", *(f"{prefix}-{entity}" for entity in ENTITIES for prefix in ("B", "I")))

MEDIAN_CHARACTERS, SPREAD, LONGEST = 36, 0.95, 480
"""Of the log-normal length a text aims at. Its last sentence carries it further: over 2000 texts the median was 52
characters, one text in ten was under 13, one in ten over 140, one in fifty over 256."""

_SHORT_NOTE = 22  # a text meant to be shorter than this is a note, not sentences
_OWN, _NEAR = 0.56, 0.12  # shares of a document's sentences from its class and its neighbours; the rest is shared
_OPENING = 0.58  # the first sentence strays less: its lot is drawn from the first part of the shares only
_WEAK_NOTE = 0.04  # share of notes that carry no cue at all
_RELABELLED = 0.02  # share of documents that a second annotator would file under a neighbouring class
_UNTAGGED = 0.015  # share of entities an annotator overlooked
_SCANNED = 0.35  # share of texts that went through a scanner
_MARK = re.compile(r"\{(\w+)\}|\[([^\]]+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text with its class and one BIO tag for each of its characters."""

    text: str
    label: str
    tags: tuple[str, ...]


Characters = list[tuple[str, str]]
"""A text under construction: (character, tag) in reading order."""


def documents(count: int, seed: int) -> Iterator[Document]:
    """`count` documents, classes in random order and about equally frequent."""
    rng = random.Random(seed)
    for _ in range(count):
        yield _document(rng, rng.choice(CLASSES))


def _document(rng: random.Random, label: str) -> Document:
    goal = min(LONGEST, max(8, round(rng.lognormvariate(math.log(MEDIAN_CHARACTERS), SPREAD))))
    written = _note(rng, label, goal) if goal < _SHORT_NOTE else _page(rng, label, goal)
    if rng.random() < _SCANNED:
        written = _scan(rng, written)
    if rng.random() < _RELABELLED:
        label = rng.choice(SUBJECTS[label]["near"])
    return Document(text="".join(c for c, _ in written), label=label, tags=tuple(t for _, t in written))


def _note(rng: random.Random, label: str, goal: int) -> Characters:
    """One line of a clerk, with a remark added where it would be too short."""
    stock = PHRASES["weak_notes"] if rng.random() < _WEAK_NOTE else SUBJECTS[label]["notes"]
    written = _fill(rng, rng.choice(stock))
    if len(written) < goal:
        written += _fill(rng, _pick(rng, "remarks"))
    return written


def _page(rng: random.Random, label: str, goal: int) -> Characters:
    """Sentences until `goal` characters are reached; the first is of the class itself in most cases.

    No sentence comes twice until its stock is used up, as a long page does not repeat its clauses.
    """
    subject = SUBJECTS[label]
    stocks: dict[str, list[str]] = {}

    def draw(name: str, sentences: list[str]) -> Characters:
        if not stocks.get(name):
            stocks[name] = rng.sample(sentences, len(sentences))
        return _fill(rng, stocks[name].pop())

    written: Characters = []
    while len(written) < goal:
        lot = rng.random() * (_OPENING if not written else 1.0)
        if lot < _OWN:
            written += draw(label, subject["sentences"])
        elif lot < _OWN + _NEAR:
            neighbour = rng.choice(subject["near"])
            written += draw(neighbour, SUBJECTS[neighbour]["sentences"])
        else:
            written += draw("", PHRASES["shared"])
    return written


def _fill(rng: random.Random, template: str) -> Characters:
    """Resolve choices and slots; a slot's characters carry its tags."""
    written: Characters = []
    end = 0
    for mark in _MARK.finditer(template):
        written += _tagged(template[end : mark.start()])
        end = mark.end()
        slot, choice = mark.groups()
        if choice is not None:
            # a choice may hold slots of its own
            written += _fill(rng, rng.choice(choice.split("|")))
        elif slot in ENTITIES:
            written += _tagged(_SLOTS[slot](rng), slot if rng.random() >= _UNTAGGED else None)
        else:
            written += _tagged(_SLOTS[slot](rng))
    return written + _tagged(template[end:])


def _pick(rng: random.Random, stock: str) -> str:
    return str(rng.choice(PHRASES[stock]))


def _tagged(text: str, entity: str | None = None) -> Characters:
    return [(character, "O" if entity is None else f"{'I' if i else 'B'}-{entity}") for i, character in enumerate(text)]


def _person(rng: random.Random) -> str:
    surname = _pick(rng, "surnames") if rng.random() < 0.96 else _pick(rng, "compound_surnames")
    form = rng.random()
    if form < 0.06:
        return surname + "某" * rng.choice((1, 2))
    if form < 0.12:
        return surname + _pick(rng, "titles")
    return surname + "".join(_pick(rng, "given") for _ in range(rng.choice((1, 2, 2))))


def _company(rng: random.Random) -> str:
    name = _pick(rng, "firm_names")
    trade = _pick(rng, "firm_trades")
    if rng.random() < 0.15:
        return name + trade  # what people write once the full name has been given
    city = rng.choice(PHRASES["places"])[0][-3:-1] if rng.random() < 0.8 else ""
    return f"{city}{name}{trade}{rng.choice(PHRASES['firm_forms'])}"


def _amount(rng: random.Random) -> str:
    ten_thousands = rng.choice((1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 80, 100, 120, 200, 350, 500))
    exact = ten_thousands * 10_000 + rng.randrange(0, 10_000)
    return rng.choice(
        (
            f"{ten_thousands}万元",
            f"{ten_thousands}万",
            f"人民币{_in_words(ten_thousands)}万元整",
            f"{exact:,}.{rng.randrange(100):02d}元",
            f"{exact}元",
            f"¥{exact:,}",
            f"{rng.randrange(1, 99) * 100}块",
            f"{ten_thousands}w",
            f"RMB{exact}",
        )
    )


def _in_words(number: int) -> str:
    """1 to 999 in the capital numerals of contracts: 120 is 壹佰贰拾."""
    digits = "零壹贰叁肆伍陆柒捌玖"
    hundreds, tens, ones = number // 100, number // 10 % 10, number % 10
    words = f"{digits[hundreds]}佰" if hundreds else ""
    if tens:
        words += f"{digits[tens]}拾"
    elif hundreds and ones:
        words += "零"
    return words + (digits[ones] if ones else "")


def _date(rng: random.Random) -> str:
    year, month, day = rng.randrange(2018, 2026), rng.randrange(1, 13), rng.randrange(1, 29)
    return rng.choice(
        (
            f"{year}年{month}月{day}日",
            f"{year}-{month:02d}-{day:02d}",
            f"{year}.{month}.{day}",
            f"{year % 100}.{month}.{day}",
            f"{month}月{day}日",
            f"{month}月{day}号",
            f"{year}年{month}月",
            f"{year}{month:02d}{day:02d}",
            f"上月{day}号",
        )
    )


def _id_number(rng: random.Random) -> str:
    region = rng.choice(("440305", "330106", "320506", "510107", "420111", "370202", "110105", "310115"))
    born = f"{rng.randrange(1960, 2003)}{rng.randrange(1, 13):02d}{rng.randrange(1, 29):02d}"
    number = f"{region}{born}{rng.randrange(1000):03d}{rng.choice('0123456789X')}"
    return number[:6] + "********" + number[14:] if rng.random() < 0.2 else number


def _address(rng: random.Random) -> str:
    city, districts = rng.choice(PHRASES["places"])
    place: str = city if rng.random() < 0.6 else city[-3:-1]
    place += rng.choice(districts)
    road = f"{rng.choice(PHRASES['roads'])}{rng.randrange(1, 999)}号"
    estate = f"{rng.choice(PHRASES['estates'])}{rng.randrange(1, 30)}{rng.choice(('栋', '幢', '号楼'))}"
    room = f"{rng.randrange(1, 30)}{rng.randrange(1, 9):02d}室"
    return place + rng.choice((road, road + estate + room, estate + room, estate, road + room))


def _phone(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return f"{rng.choice(('0755', '0571', '010', '021', '027'))}-{rng.randrange(20_000_000, 89_999_999)}"
    number = f"1{rng.choice('3578')}{rng.randrange(10**9):09d}"
    form = rng.random()
    if form < 0.15:
        return f"{number[:3]}-{number[3:7]}-{number[7:]}"
    return f"{number[:3]}****{number[7:]}" if form < 0.3 else number


def _bank_account(rng: random.Random) -> str:
    number = rng.choice(("6222", "6217", "6228", "6214")) + f"{rng.randrange(10**15):015d}"
    form = rng.random()
    if form < 0.2:
        return " ".join(number[i : i + 4] for i in range(0, len(number), 4))
    return f"尾号{number[-4:]}" if form < 0.35 else number


def _number(rng: random.Random) -> str:
    """A contract, serial or area number: digits that are no entity."""
    return rng.choice(
        (
            f"JK{rng.randrange(2018, 2026)}{rng.randrange(10**4):04d}",
            f"{rng.randrange(60, 400)}",
            f"91{rng.randrange(10**15):015d}{rng.choice('ABCDEFGH')}",
            f"{rng.randrange(10**10, 10**11)}",
            f"第{rng.randrange(10**6):06d}号",
        )
    )


_SLOTS: Mapping[str, Callable[[random.Random], str]] = {
    "PERSON": _person,
    "COMPANY": _company,
    "AMOUNT": _amount,
    "DATE": _date,
    "ID_NUMBER": _id_number,
    "ADDRESS": _address,
    "PHONE": _phone,
    "BANK_ACCOUNT": _bank_account,
    "bank": lambda rng: _pick(rng, "banks") + _pick(rng, "branches"),
    "number": _number,
    "ratio": lambda rng: rng.choice(
        (f"{rng.uniform(3, 18):.2f}%", f"{rng.uniform(3, 9):.1f}%", f"{rng.randrange(3, 80)}%")
    ),
    "months": lambda rng: rng.choice(("3", "6", "12", "24", "36", "60", "十二", "二十四")),
    "product": lambda rng: _pick(rng, "products"),
}

_FULL_WIDTH = {chr(code): chr(code + 0xFEE0) for code in (*range(0x30, 0x3A), 0x2C, 0x2E, 0x2D, 0x3A)}
_PUNCTUATION = frozenset("，。、：；！？,.:-")


def _scan(rng: random.Random, written: Characters) -> Characters:
    """What a scanner makes of a text: confused, lost and full-width characters. Tags stay valid BIO."""
    full_width = rng.random() < 0.3
    seen: Characters = []
    for character, tag in written:
        if rng.random() < (0.25 if character in _PUNCTUATION else 0.004):
            continue
        if rng.random() < 0.04:
            character = PHRASES["confusable"].get(character, character)
        if full_width:
            character = _FULL_WIDTH.get(character, character)
        seen.append((character, tag))
    return _repaired(seen or written)


def _repaired(written: Characters) -> Characters:
    """Turn an I- whose B- was lost into a B-."""
    repaired: Characters = []
    before = "O"
    for character, tag in written:
        if tag.startswith("I-") and before[2:] != tag[2:]:
            tag = f"B-{tag[2:]}"
        repaired.append((character, tag))
        before = tag
    return repaired
