"""pyacl.md §2.6: every return code of CANN 8.5.0, and what it asks of whom."""

import re
from pathlib import Path
from typing import get_args

import pytest

from workbench.targets.ascend.acl.codes import Kind, describe, meanings

REFERENCE = Path(__file__).parents[4] / "docs/reference/pyacl.md"

ASCENDCL = "0 100000-100045 148046-148053 200000-200007 300000 500000-500005"
RUNTIME = "107000-107038 207000-207019 507000-507057 507899-507911"
GRAPH_ENGINE = "145000-145003 145006-145009 145011-145022 245000-245002 545000-545009 545601"
"""The codes of §2.6, written off its tables."""


def codes(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


ALL = codes(f"{ASCENDCL} {RUNTIME} {GRAPH_ENGINE}")


def test_the_table_holds_every_code_of_the_reference_and_no_other() -> None:
    assert set(meanings()) == ALL


def test_every_code_and_name_that_the_reference_page_prints_is_in_the_table() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    section = text[text.index("### 2.6 Return code tables") : text.index("### 2.7")]
    tables = section[: section.index("Codes above those")] + section[section.index("**Graph engine**") :]
    printed = codes(" ".join(re.findall(r"\b\d{6}(?:-\d{6})?\b", tables.split("Retry policy")[0])))
    pairs = re.findall(r"\| (\d{6}) \| ([A-Z][A-Z0-9_]{4,})", tables)

    assert printed <= set(meanings())
    assert len(pairs) > 60
    wrong = [(code, name) for code, name in pairs if not describe(int(code)).name.startswith(name)]
    assert wrong == []


@pytest.mark.parametrize("code", sorted(ALL - {0}), ids=str)
def test_every_code_has_a_name_a_meaning_a_remedy_and_someone_who_can_act(code: int) -> None:
    meaning = describe(code)

    assert meaning.code == code
    assert re.fullmatch(r"[A-Z][A-Z0-9_]+", meaning.name)
    assert meaning.meaning
    assert meaning.meaning[0].islower() or meaning.meaning.startswith(("ASCEND", "AI", "acl"))
    assert meaning.remedy.endswith(".")
    assert meaning.kind in get_args(Kind)


@pytest.mark.parametrize(
    ("listed", "kind"),
    [
        ("207001 207018 245000", "memory"),
        ("507046 507011 507014 507017 507034 507048", "retry_process"),
        ("507010 507053-507056 507899 507901", "device_lost"),
        ("207004 207006", "environment"),
        ("100000 107000 107002 107003 145003 145012 145013", "caller"),
    ],
    ids=["memory", "rebuild", "unhealthy", "machine", "never retried"],
)
def test_the_retry_policy_of_the_reference_decides(listed: str, kind: str) -> None:
    assert {describe(code).kind for code in codes(listed)} == {kind}


def test_first_digits_agree_with_the_vendors_rules() -> None:
    """1xxxxx is never the device's fault, except where a time-out was put among them (page aclError, rules 1 to 4)."""
    caller_side = {describe(code).kind for code in ALL if code // 100000 == 1}

    assert caller_side <= {"caller", "model", "environment", "retry_process"}
    assert all(describe(code).kind != "caller" for code in ALL if code // 100000 == 5 and code not in CALLERS_FAULT)


CALLERS_FAULT = {507007, 507910, 507911}
"""reset_device once too often; host memory registered twice, or not: ours, whatever the first digit."""


@pytest.mark.parametrize(
    ("code", "kind"), [(107555, "caller"), (207555, "environment"), (507555, "internal"), (7, "internal")]
)
def test_a_code_of_a_later_release_is_told_by_its_first_digit(code: int, kind: str) -> None:
    meaning = describe(code)

    assert (meaning.name, meaning.kind) == ("UNKNOWN", kind)
    assert "8.5.0" in meaning.meaning
