"""What leaves the store for readers: one clean line, whichever way it was made clean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.store.reading.pages import Page, bounded, name_of, paged
from relay.texts.markup import plain

LIKELY = st.text(st.characters(codec="ascii"), max_size=300)


@given(st.one_of(LIKELY, st.text(max_size=300)), st.integers(min_value=5, max_value=300))
def test_the_short_way_for_plain_text_ends_where_the_long_one_does(text: str, most: int) -> None:
    """Text that needs no closer look is not treated differently, only faster."""
    assert plain(text, most) == name_of(text, most)


@pytest.mark.parametrize(("asked", "served"), [(-5, 1), (0, 1), (1, 1), (100, 100), (101, 100), (10**9, 100)])
def test_a_page_has_a_bound_whatever_is_asked_for(asked: int, served: int) -> None:
    """Nobody can ask for everything at once."""
    assert served == bounded(asked)


def test_a_full_last_page_is_the_last() -> None:
    """Another page is promised only where there is one more item."""
    assert Page((1, 2), None) == paged([1, 2], 2, ["1", "2"])
    assert Page((1, 2), "2") == paged([1, 2, 3], 2, ["1", "2", "3"])
