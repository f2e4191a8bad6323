"""A page as a browser, and as a reader, takes it apart."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from tests.edge.shown import Shown

#: Elements without an end tag.
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Read(HTMLParser):
    """A page as a browser takes it apart: its elements, in order, and whether every one is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it, and that it is open."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must be the one opened last."""
        assert tag == self.open.pop()

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each element of this kind."""
        return [attributes for name, attributes in self.elements if name == tag]


def words(html: str) -> str:
    """The text of a page's main part, as one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", html[html.index("<main") :]).split())


def every_page(shown: Shown, change: int) -> dict[str, str]:
    """Each page there is, with its HTML."""
    delivery = shown.json("/deliveries")["items"][0]["id"]
    paths = ("/", "/changes", f"/changes/{change}", "/backends", "/backends/org/npu", "/deliveries", "/gaps", "/audit")
    return {path: shown.page(path) for path in (*paths, f"/deliveries/{delivery}")}
