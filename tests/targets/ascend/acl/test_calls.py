import re
from types import ModuleType

import pytest

from tests.reference_pages import acl_codes, acl_tables
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl.calls import describe, meanings
from workbench.values.errors import MeasureError, ToolchainError


@pytest.fixture
def ready(acl: ModuleType) -> ModuleType:
    acl.init()
    acl.rt.set_device(0)
    return acl


@pytest.fixture(autouse=True)
def down(acl: ModuleType) -> object:
    yield
    while acl.rt.reset_device(0) == 0:
        pass
    acl.finalize()
    acl_calls.clear_doubt()


def test_a_failure_has_the_code_its_meaning_cann_s_own_words_and_a_remedy(ready: ModuleType) -> None:
    with pytest.raises(MeasureError) as caught:
        acl_calls.take("rt.malloc", 0, 0, about="input 'ids'")

    text = str(caught.value)
    assert text.startswith("input 'ids': acl.rt.malloc failed with 100000 (INVALID_PARAM): ")
    assert "CANN says: " in text
    assert "EH0001" in text
    assert text.endswith(describe(100000).remedy)
    assert "\n" not in text


def test_the_words_are_those_of_this_failure_and_not_of_an_older_one(ready: ModuleType) -> None:
    assert acl_calls.do("init", accept=(100002,)) == 100002
    ready.rt.malloc(0, 0)  # a failure that nobody asked about
    assert acl_calls.do("init", accept=(100002,)) == 100002, "an accepted failure takes its words along"

    with pytest.raises(MeasureError) as caught:
        acl_calls.do("mdl.unload", 12345)

    assert "EH0001" not in str(caught.value)


@pytest.mark.parametrize("code", sorted(set(meanings()) - {0}), ids=str)
def test_every_code_becomes_an_error_by_who_can_act(acl: ModuleType, code: int) -> None:
    kind = describe(code).kind

    error = acl_calls.failure("rt.free", code)

    assert f"failed with {code} ({describe(code).name})" in str(error)
    if kind in ("device_lost", "environment"):
        assert isinstance(error, ToolchainError)
    else:
        assert isinstance(error, MeasureError)
        assert error.transient is (kind in ("memory", "busy", "retry_process", "internal"))
    assert bool(acl_calls.doubt()) is (kind in ("retry_process", "device_lost"))


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
