"""A trace is found from what GitHub shows, without asking anybody."""

from __future__ import annotations

import pytest

from relay.tracing import trace_id


def test_a_deliverys_guid_is_its_trace() -> None:
    """GitHub's delivery page shows the GUID; without its dashes it is what to look for."""
    assert trace_id("8a3c1d5e-0000-11ef-9f2b-0242ac120002") == "8a3c1d5e000011ef9f2b0242ac120002"


@pytest.mark.parametrize("cause", ["", "D1", "nightly 4f", "0" * 32, "8A3C1D5E-0000-11EF-9F2B-0242AC12000G", "\ud800"])
def test_any_other_cause_has_a_trace_as_well(cause: str) -> None:
    """32 hex digits and not all zero, which the Trace Context forbids; the same each time."""
    found = trace_id(cause)

    assert (32, True) == (len(found), found == trace_id(cause))
    assert 0 < int(found, 16)


def test_case_makes_no_other_trace() -> None:
    """A GUID is the same in capitals."""
    assert trace_id("8a3c1d5e-0000-11ef-9f2b-0242ac120002") == trace_id("8A3C1D5E-0000-11EF-9F2B-0242AC120002")
