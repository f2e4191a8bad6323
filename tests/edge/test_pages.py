"""The pages: what a reviewer, a maintainer and an admin read, whatever hostile text stands in the record."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from allowlist.model import Entry, Fault, Level, RepoName
from relay.dashboard.theme import load_theme
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.browsing import Read, every_page, words
from tests.edge.shown import Shown, history


def test_a_reviewer_learns_whether_to_merge_and_whether_it_is_this_change(shown: Shown) -> None:
    """The page behind a check's details link answers both, names the tests, and says what to do."""
    said = words(shown.page(f"/changes/{history(shown)}"))

    for sentence in (
        "May I merge? No, the gate blocks",
        "org/npu failed; no verdict: org/quiet could not be told",
        "It passed 6 of its last 6 results on other changes: this change is the likelier cause.",
        "test_attention.TestSDPA. test_backward_fp16[npu]".replace(". test", ".test"),
        "Could not be told: the app is not installed on org/quiet",
        "On-call: alice, bob.",
        "Asks for nightly, this is pull_request",
    ):
        assert sentence in said


def test_a_backend_that_fails_elsewhere_is_not_blamed_on_this_change(shown: Shown) -> None:
    """Three in five failures on other changes speak against the backend."""
    for number in range(1, 6):
        told = shown.record.told(shown.record.change(f"{number:x}" * 40, number=number))
        shown.record.report(told, "failure" if number < 4 else "success", run=str(number))
    change = shown.record.change("f" * 40, number=9)
    shown.record.report(shown.record.told(change), "failure")

    said = words(shown.page(f"/changes/{change}"))

    assert "It passed 2 of its last 5 results on other changes: the backend is likelier in trouble" in said


def test_a_backend_that_may_not_report_is_not_said_to_be_queued(shown: Shown) -> None:
    """Told is all that an L1 backend is: nobody waits for it, so no page counts or shows a result of it."""
    change = shown.record.change("1" * 40)
    shown.record.told(change, "org/listening", Level.L1)
    shown.list_backends(Entry(RepoName("org", "listening"), Level.L1, 4))

    pages = [
        words(shown.page(path)) for path in (f"/changes/{change}", "/changes", "/backends", "/backends/org/listening")
    ]

    assert [False] * 4 == ["1 queued" in page or "Queued since" in page for page in pages]
    assert [1, 0, 0, 1] == [page.count("owes none") for page in pages]


def test_a_superseded_head_leads_to_the_current_one(shown: Shown) -> None:
    """A reviewer with an old link finds the head that counts."""
    old = shown.record.change("1" * 40)
    shown.record.edit_change(old, state="superseded")
    new = shown.record.change("2" * 40)

    page = shown.page(f"/changes/{old}")

    assert "May I merge? Superseded" in words(page)
    assert f'<a href="/changes/{new}">Go to the current head' in page


def test_pull_leads_to_the_newest_head(shown: Shown) -> None:
    """A pull request's number is what people know; its open head wins over one that was replaced later."""
    old = shown.record.change("1" * 40)
    new = shown.record.change("2" * 40)
    shown.record.edit_change(old, state="superseded")

    answer = shown.client.get("/pull/7")

    assert (302, f"/changes/{new}") == (answer.status_code, answer.headers["location"])


def test_every_page_is_well_formed_and_can_be_walked_without_eyes(shown: Shown) -> None:
    """Landmarks, one first heading, a title, table headers with scope, captions, and no level of heading left out."""
    for path, html in every_page(shown, history(shown)).items():
        page = Read(html)
        assert [] == page.open, path
        for landmark in ("header", "main", "footer", "h1", "title"):
            assert 1 == len(page.all(landmark)), (path, landmark)
        assert all(head.get("scope") in {"col", "row", "rowgroup"} for head in page.all("th")), path
        assert len(page.all("table")) == len(page.all("caption")), path
        levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), path
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        assert set(ids) >= {link["href"][1:] for link in page.all("a") if link["href"].startswith("#")}, path
        assert "en" == page.all("html")[0]["lang"]


@pytest.mark.slow
def test_no_link_of_ours_leads_nowhere(by_sqlite: Shown) -> None:
    """Every address on every page that is ours is answered."""
    pages = every_page(by_sqlite, history(by_sqlite))
    links = {link["href"].partition("#")[0] for html in pages.values() for link in Read(html).all("a")}
    served = sorted(link for link in links if link.startswith("/") and link != "/readyz")
    known = {one for one in served if "/deliveries/d" not in one}  # The record's dispatches name no kept webhook.

    assert {path for path in known if by_sqlite.client.get(path).status_code not in {200, 302}} == set()
    assert len(known) > 20


def test_times_are_read_by_programs_too(by_sqlite: Shown) -> None:
    """A time element with UTC in both."""
    change = by_sqlite.record.change()

    assert '<time datetime="2026-11-30T12:00:00Z">2026-11-30 12:00 UTC</time>' in by_sqlite.page(f"/changes/{change}")


def test_colour_is_never_all_that_tells(by_sqlite: Shown) -> None:
    """Each coloured mark holds a word."""
    html = by_sqlite.page(f"/changes/{history(by_sqlite)}")
    chips = re.findall(r'<span class="chip [a-z]+">([^<]*)</span>', html)

    assert len(chips) > 10
    assert all(re.search(r"[a-z]{4,}", chip) for chip in chips)


def test_contrast_is_enough_in_light_and_dark() -> None:
    """Every pair of text and ground in the style sheet reaches 4.5, as WCAG 2.2 wants for small text."""
    css = load_theme().assets["site.css"].body.decode()
    light, dark = (dict(pairs(block)) for block in re.findall(r":root \{(.*?)\}", css, re.S))
    for colours in (light, dark):
        grounds = [colours["back"], colours["raised"]]
        tones = ("good", "bad", "wait", "warn", "mute")
        told = [(colours[tone], colours[f"{tone}-back"]) for tone in tones]
        told += [(colours[text], ground) for text in ("text", "soft", "link") for ground in grounds]
        told += [(colours[text], colours[f"{tone}-back"]) for text in ("text", "link") for tone in tones]
        for text, ground in told:
            assert contrast(text, ground) >= 4.5, (text, ground)


def pairs(block: str) -> list[tuple[str, str]]:
    """The colours that a block of the style sheet names."""
    return re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block)


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/", "let the webhook go to https://relay.test/github/webhook"),
        ("/changes", "No change here."),
        ("/backends", "No backend is listed. Add one to the allowlist"),
        ("/deliveries", "No delivery here."),
    ],
)
def test_an_empty_page_says_what_to_do(by_sqlite: Shown, path: str, told: str) -> None:
    """A newcomer who sees nothing is told what would put something there."""
    assert told in words(by_sqlite.page(path))


def test_an_unread_allowlist_is_told_first(by_sqlite: Shown) -> None:
    """Without a list nobody is called, and the first page says so with the reason."""
    by_sqlite.listed.loaded = False
    by_sqlite.listed.checked_at = None
    by_sqlite.listed.trouble = "cannot read allow.yml: No such file"

    said = words(by_sqlite.page("/"))

    assert "No allowlist was read yet" in said
    assert "cannot read allow.yml: No such file" in said


def test_faults_of_the_allowlist_stand_with_their_fix(by_sqlite: Shown) -> None:
    """An admin repairs the file from what the page says."""
    by_sqlite.list_backends(Entry(RepoName("org", "npu"), Level.L4))
    by_sqlite.listed.faults = (Fault(7, "level", "L9 is no level", "Use L1 to L4."),)

    assert "7 error L9 is no level Use L1 to L4." in words(by_sqlite.page("/backends"))


@pytest.mark.parametrize(
    "path",
    [
        "/changes/1",
        "/changes/x",
        "/changes/99999999999999999999",
        "/changes/-1",
        "/pull/5",
        "/pull/0x5",
        "/backends/org/none",
        "/backends/org/a%20b",
        "/backends/%00/x",
        "/deliveries/none",
        "/deliveries/%00",
        "/static/../theme.py",
        "/static/none.css",
        "/wp-login.php",
    ],
)
def test_what_is_not_there_is_a_page_that_leads_on(by_sqlite: Shown, path: str) -> None:
    """404 in the house's own look, with links to what there is, whatever the address was."""
    answer = by_sqlite.client.get(path)

    assert (404, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert "Not found" in words(answer.text)
    assert '<a href="/changes">' in answer.text


def test_a_program_that_errs_gets_a_problem_and_not_a_page(by_sqlite: Shown) -> None:
    """Under /api and /github everything is JSON; a wrong method says which ones are right."""
    lost = by_sqlite.client.get("/api/v1/nothing")
    wrong = by_sqlite.client.post("/api/v1/changes")

    assert (404, "no_such_path") == (lost.status_code, lost.json()["code"])
    assert (405, "method_not_allowed", "GET") == (wrong.status_code, wrong.json()["code"], wrong.headers["allow"])


def test_parameters_that_make_no_sense_are_left_aside(by_sqlite: Shown) -> None:
    """A page shows everything rather than an error for a filter that is none."""
    by_sqlite.record.change()

    query = "?kind=x&state=y&number=z&backend=%00&before=-1"
    assert "#7" in by_sqlite.page(f"/changes{query}")


def test_paging_keeps_the_filter(shown: Shown) -> None:
    """The second page of closed changes holds closed changes."""
    for number in range(1, 60):
        shown.record.change(f"{number:040x}", number=number, state="closed" if number % 10 else "open")

    first = shown.page("/changes?state=closed")
    (following,) = [link["href"] for link in Read(first).all("a") if link.get("rel") == "next"]
    second = shown.page(following.replace("&amp;", "&"))

    assert "state=closed" in following
    assert (50, 4) == (len(Read(first).all("tr")) - 1, len(Read(second).all("tr")) - 1)
    assert 'rel="next"' not in second


def test_an_unchanged_page_is_304(by_sqlite: Shown) -> None:
    """A browser that reloads costs no page until something has happened."""
    change = by_sqlite.record.change()
    tag = by_sqlite.client.get(f"/changes/{change}").headers["etag"]

    same = by_sqlite.client.get(f"/changes/{change}", headers={"If-None-Match": tag})
    by_sqlite.record.told(change)
    moved = by_sqlite.client.get(f"/changes/{change}", headers={"If-None-Match": tag})

    assert (304, b"") == (same.status_code, same.content)
    assert 200 == moved.status_code


def test_static_files_are_kept_for_ever_under_their_hash(by_sqlite: Shown) -> None:
    """A new version has a new address; an address without the hash is asked for again."""
    page = Read(by_sqlite.page("/"))
    addresses = [link["href"] for link in page.all("link")]

    for address in addresses:
        answer = by_sqlite.client.get(address)
        assert (200, "public, max-age=31536000, immutable") == (answer.status_code, answer.headers["cache-control"])
        assert "no-cache" == by_sqlite.client.get(address.partition("?")[0]).headers["cache-control"]
    assert 2 == len(addresses)


def test_a_store_that_does_not_answer_is_told_to_people(tmp_path: Path, clock: Clock) -> None:
    """503 as a page, with the time to come again, and no trace of the database."""
    shown = Shown(Store(f"sqlite:///{tmp_path / 'empty.db'}"), clock)

    for path in ("/", "/changes", "/changes/1", "/pull/1", "/backends", "/backends/a/b", "/deliveries"):
        answer = shown.client.get(path)

        assert (503, "5") == (answer.status_code, answer.headers["retry-after"]), path
        assert "The database does not answer just now." in words(answer.text)
    shown.store.close()
