"""pyacl.md §2.6: every return code of CANN 8.5.0, and what it asks of whom."""

import re

import pytest

from tests.reference_pages import acl_codes, acl_tables
from workbench.targets.ascend.acl.calls import describe, meanings


def test_the_table_holds_every_code_and_name_that_the_reference_page_prints_and_no_other() -> None:
    assert set(meanings()) == acl_codes()
    pairs = re.findall(r"\| (\d{6}) \| ([A-Z][A-Z0-9_]{4,})", acl_tables())
    assert len(pairs) > 60
    assert [(code, name) for code, name in pairs if not describe(int(code)).name.startswith(name)] == []


@pytest.mark.parametrize(
    ("listed", "kind"),
    [
        ("207001 207018 245000", "memory"),
        ("507046 507011 507014 507017 507034 507048", "retry_process"),
        ("507010 507053 507054 507055 507056 507899 507901", "device_lost"),
        ("207004 207006", "environment"),
        ("100000 107000 107002 107003 145003 145012 145013", "caller"),
    ],
    ids=["memory", "rebuild", "unhealthy", "machine", "never retried"],
)
def test_the_retry_policy_of_the_reference_decides(listed: str, kind: str) -> None:
    assert {describe(int(code)).kind for code in listed.split()} == {kind}


@pytest.mark.parametrize(
    ("code", "kind"), [(107555, "caller"), (207555, "environment"), (507555, "internal"), (7, "internal")]
)
def test_a_code_of_a_later_release_is_told_by_its_first_digit(code: int, kind: str) -> None:
    meaning = describe(code)

    assert (meaning.name, meaning.kind) == ("UNKNOWN", kind)
    assert "8.5.0" in meaning.meaning
