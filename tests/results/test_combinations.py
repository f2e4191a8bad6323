"""Combination ids: equal exactly for equal combinations, and computable by anybody."""

from __future__ import annotations

import hashlib

import pytest

from relay.results.combinations import Combination, combination_id


def test_the_id_is_the_start_of_the_digest_of_canonical_json() -> None:
    """Written out, so that nobody changes it unnoticed."""
    text = '{"backend_version":"2.8","environment":{"arch":"aarch64","python":"3.10"},"suite_version":"é"}'

    found = combination_id("2.8", "é", {"python": "3.10", "arch": "aarch64"})

    assert hashlib.sha256(text.encode()).hexdigest()[:12] == found


def test_absent_parts_are_left_out() -> None:
    """A part that nobody states does not make another combination."""
    assert hashlib.sha256(b'{"backend_version":"2.8"}').hexdigest()[:12] == combination_id("2.8", None, {})
    assert combination_id("2.8", None) == combination_id("2.8", "", {})


@pytest.mark.parametrize("stated", [Combination(), Combination("", "", {})])
def test_what_is_unstated_has_no_id(stated: Combination) -> None:
    """And stays apart from everything that is stated."""
    assert "" == stated.id


def test_parts_do_not_run_into_each_other() -> None:
    """A backend version is not a suite version, and a key is not a value."""
    ids = {
        combination_id("a", None),
        combination_id(None, "a"),
        combination_id(None, None, {"a": "b"}),
        combination_id(None, None, {"b": "a"}),
        combination_id("a", "b"),
        combination_id("b", "a"),
    }

    assert 6 == len(ids)


def test_the_environment_is_kept_in_one_order() -> None:
    """Equal environments are equal texts."""
    assert '{"a":"1","b":"2"}' == Combination(None, None, {"b": "2", "a": "1"}).environment_json
