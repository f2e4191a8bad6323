"""Pages against those who write into the record: nothing they say becomes an element, an attribute or a link."""

from __future__ import annotations

import pytest

from allowlist.model import Fault
from relay.deciding.gaps import Cause
from relay.store.documents import audit
from relay.store.gaps import NewGap, note_gap
from relay.store.tables import Delivery
from tests.edge.browsing import Read, every_page
from tests.edge.shown import Shown, history

SCRIPT = "<script>alert(1)</script>"
BREAKOUT = "\"><img src=x onerror=alert(1)> ' onmouseover='alert(2)"
UNSAFE = ("javascript:alert(1)", "data:text/html,<script>", "https://user:pass@evil.test/", 'https://evil.test/"onx=1')


def test_hostile_text_stays_text_on_every_page(shown: Shown) -> None:
    """Titles, names, labels, versions, tests, reasons and senders: none becomes an element or an attribute."""
    change = history(shown)
    shown.describe(change, title=SCRIPT, author=BREAKOUT, labels=f'["{SCRIPT}"]', ref=SCRIPT, base_ref=SCRIPT)
    told = shown.record.told(change)
    shown.record.report(
        told,
        "failure",
        job=SCRIPT + BREAKOUT,
        workflow=SCRIPT,
        version=SCRIPT,
        suite=BREAKOUT,
        run=SCRIPT,
        environment={SCRIPT: BREAKOUT},
        failure_class=SCRIPT,
        tests=[(SCRIPT, BREAKOUT, SCRIPT)],
    )
    shown.record.edit_dispatch(told, origin_delivery=SCRIPT)
    shown.know("org/npu", last_error=SCRIPT, pause_reason=BREAKOUT, paused_until=shown.clock.now())
    decision = f'{{"effect": "none", "backend": "org/npu", "reason": "x", "detail": "{SCRIPT}"}}'
    shown.record.planned(change, [{"effect": "none", "backend": "org/q", "reason": "x", "detail": decision}])
    shown.edit(Delivery, shown.json("/deliveries")["items"][0]["id"], sender=SCRIPT, event=BREAKOUT, action=SCRIPT)
    shown.listed.faults = (Fault(1, "r", SCRIPT, BREAKOUT),)
    shown.listed.trouble = SCRIPT
    now = shown.clock.now()
    shown.store.write_now(lambda conn: audit(conn, at=now, who=SCRIPT, what=BREAKOUT, subject=SCRIPT, why=BREAKOUT))
    missed = NewGap(Cause.PUSH_MISSED, f"push {SCRIPT}", BREAKOUT, now, None, SCRIPT, BREAKOUT)
    shown.store.write_now(lambda conn: note_gap(conn, missed, now))

    for path, html in every_page(shown, change).items():
        page = Read(html)
        assert [] == page.all("script"), path
        assert [] == page.all("img"), path
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")], path
        assert "&lt;script&gt;" in html, path


@pytest.mark.parametrize("url", UNSAFE)
def test_only_safe_urls_become_links(by_sqlite: Shown, url: str) -> None:
    """Scripts, data and user info never stand in an href, wherever they were reported."""
    change = by_sqlite.record.change()
    by_sqlite.describe(change, html_url=url)
    by_sqlite.record.report(by_sqlite.record.told(change), "failure", url=url)

    page = Read(by_sqlite.page(f"/changes/{change}"))

    assert [] == [link["href"] for link in page.all("a") if not link["href"].startswith(("/", "#"))]


def test_reported_links_tell_their_target_nothing(by_sqlite: Shown) -> None:
    """A link to somebody else's site carries neither an opener nor a referrer, nor our reputation."""
    change = by_sqlite.record.change()
    by_sqlite.record.report(by_sqlite.record.told(change), "success", url="https://ci.test/runs/1?a=1&b=<2>")
    by_sqlite.record.report(by_sqlite.record.told(change, "org/xpu"), "success", url="https://ci.test/runs/2")

    outside = [link for link in Read(by_sqlite.page(f"/changes/{change}")).all("a") if "ci.test" in link["href"]]

    assert [{"href": "https://ci.test/runs/2", "rel": "noopener noreferrer nofollow"}] == outside


def test_text_cannot_turn_the_reading_order_or_hide(by_sqlite: Shown) -> None:
    """Marks that reorder text, controls and piles of accents are dropped, and long text is cut."""
    change = by_sqlite.record.change()
    by_sqlite.describe(change, title="safe\u202egnp.exe\x07 z" + "\u0301" * 50 + "x" * 5_000)

    html = by_sqlite.page(f"/changes/{change}")

    assert "\u202e" not in html
    assert "\x07" not in html
    assert "safegnp.exe" in html
    assert len(html) < 8_000


def test_a_private_backend_shows_private_and_nothing_of_its_tests(shown: Shown) -> None:
    """Its results count, its insides are nobody's business; and it says so."""
    change = shown.record.change()
    told = shown.record.told(change, "org/hidden", private=True)
    shown.record.report(
        told, "failure", url="https://internal.test/1", counts=(0, 1, 0), tests=[("secret", "secret", "secret")]
    )

    page = shown.page(f"/changes/{change}")

    assert "secret" not in page
    assert "internal.test" not in page
    assert "The failing tests of a private backend are not shown." in page
    assert '<span class="mute">private</span>' in page


@pytest.mark.parametrize("path", ["/", "/changes", "/nowhere", "/changes/99"])
def test_every_page_forbids_scripts_frames_forms_and_guessing(by_sqlite: Shown, path: str) -> None:
    """The policy holds on errors too; and the page obeys it, since it has neither script nor style of its own."""
    answer = by_sqlite.client.get(path)

    policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'none'", "style-src 'self'", "img-src 'self'", "form-action 'none'"):
        assert rule in policy
    assert "frame-ancestors 'none'; base-uri 'none'" in policy
    assert ("nosniff", "no-referrer") == (answer.headers["x-content-type-options"], answer.headers["referrer-policy"])
    page = Read(answer.text)
    assert not {"script", "style", "form", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert not [attributes for _, attributes in page.elements if "style" in attributes]
