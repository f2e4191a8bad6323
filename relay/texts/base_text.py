"""What is said of failing tests that fail on the base branch too, in checks, comments and pages."""

from __future__ import annotations

from relay.deciding.facts import DispatchFacts, OnBase, Place
from relay.texts.markup import code, plain
from relay.texts.words import PHRASES, clock, several

#: What stands beside a test that fails on the base as well.
KNOWN = "known on base"

_MOST_BRANCH = 80

_TODO = (
    "All its failing tests fail on the base too, so look there first. Run it again once the base is mended; to merge "
    "before that, somebody else with write access can override it."
)


def known_whole(one: DispatchFacts) -> bool:
    """Whether all that failed of this backend fails on the base too."""
    return one.base is not None and one.base.whole


def todo(one: DispatchFacts) -> str:
    """What a reader can do about the outcome; empty where there is nothing to do."""
    return _TODO if known_whole(one) else PHRASES[one.outcome].todo


def base_markdown(one: DispatchFacts, place: Place) -> str:
    """The sentences for a check or a comment, with a link to our page of the base's commit; empty without a base."""
    if one.base is None:
        return ""
    branch = code(one.base.branch, _MOST_BRANCH)
    if one.base.run is None:
        return _unknown(one, f"`{one.backend}`", branch)
    at = f"[`{one.base.run.head_sha[:7]}`](<{place.public_url}/changes/{one.base.run.change_id}>)"
    return _told(one, one.base, branch, at)


def base_plain(one: DispatchFacts) -> str:
    """The same in plain text, for pages and programs, which link the commit themselves."""
    if one.base is None:
        return ""
    branch = plain(one.base.branch, _MOST_BRANCH)
    if one.base.run is None:
        return _unknown(one, str(one.backend), branch)
    return _told(one, one.base, branch, one.base.run.head_sha[:7])


def _unknown(one: DispatchFacts, backend: str, branch: str) -> str:
    these = "this test fails" if one.base is not None and one.base.failing == 1 else "these tests fail"
    return f"{backend} has no results for {branch} yet, so we cannot say whether {these} there too."


def _told(one: DispatchFacts, base: OnBase, branch: str, commit: str) -> str:
    run = base.run
    if run is None:
        return ""
    at = f"{commit}, {clock(run.at, one.created_at)}"
    tests = several(base.failing, "failing test")
    all_of_them = "Its only failing test fails" if base.failing == 1 else f"All {tests} fail"
    if base.whole:
        return f"{all_of_them} on {branch} too ({at}): {KNOWN}, not blamed on this change."
    if base.known == base.failing:
        return (
            f"{all_of_them} on {branch} too ({at}): {KNOWN}. Something else of it failed or is missing here, so this "
            "change may still have a part in it."
        )
    if base.known:
        fail = "fails" if base.known == 1 else "fail"
        one_left = base.failing - base.known == 1
        rest = ("The other one does not" if one_left else "The others do not") if base.sure else "Of the others it is"
        rest += "." if base.sure else " not known."
        return f"{base.known:,} of {tests} {fail} on {branch} too ({at}): {KNOWN}. {rest}"
    if run.passed:
        return f"{branch} passes there ({at}), so none of this is {KNOWN}."
    if run.named:
        these = "this one does not fail" if base.failing == 1 else "none of these fails"
        so_far = "" if base.sure else " as far as they are named"
        return f"{branch} fails there too ({at}), but by other tests{so_far}: {these} there."
    return f"{branch} fails there too ({at}), without naming its tests, so we cannot say whether it is by the same."
