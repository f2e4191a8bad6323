"""A capability binds a callback to one dispatch, and nothing but our keys makes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.capability import CapabilityKeys

OLD, NEW = "an old key, long enough", "a new key, long enough"


def test_a_capability_leads_to_its_dispatch() -> None:
    """What we issued we recognise, and it names the dispatch it was issued for."""
    keys = CapabilityKeys.of([NEW])

    assert keys.dispatch_of(keys.issue(42)) == 42


def test_keys_rotate_with_overlap() -> None:
    """A run that started before a rotation reports after it: the old key still verifies, the new one signs."""
    issued_before = CapabilityKeys.of([OLD]).issue(7)
    during, after = CapabilityKeys.of([NEW, OLD]), CapabilityKeys.of([NEW])

    assert during.dispatch_of(issued_before) == 7
    assert after.dispatch_of(during.issue(7)) == 7
    assert after.dispatch_of(issued_before) is None


@given(st.text())
def test_no_text_is_a_capability_by_chance(text: str) -> None:
    """Whatever a caller sends is answered with no, never with an error."""
    assert CapabilityKeys.of([NEW]).dispatch_of(text) is None


def test_a_capability_has_one_form() -> None:
    """A second text that is taken for the same capability would slip past whatever compares texts."""
    keys = CapabilityKeys.of([NEW])
    prefix, number, mac = keys.issue(42).split(".")

    others = [f"{prefix}.0{number}.{mac}", f"{prefix}.{number}.{mac.upper()}", f"{prefix}.{number}.{mac}."]

    assert [None, None, None] == [keys.dispatch_of(other) for other in others]


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_capability_of_one_dispatch_opens_no_other(mine: int, other: int) -> None:
    """The dispatch's id is part of what is signed."""
    keys = CapabilityKeys.of([NEW])
    prefix, _, mac = keys.issue(mine).split(".")

    assert (other == mine) == (keys.dispatch_of(f"{prefix}.{other}.{mac}") is not None)


@pytest.mark.parametrize("texts", [[], [""], ["short"], [NEW, "short"]])
def test_a_weak_key_is_refused_at_start(texts: list[str]) -> None:
    """A key that can be guessed would let anybody report for any dispatch."""
    with pytest.raises(ValueError, match="16 characters"):
        CapabilityKeys.of(texts)


def test_keys_do_not_show() -> None:
    """Objects end up in tracebacks and logs."""
    assert NEW not in repr(CapabilityKeys.of([NEW]))
