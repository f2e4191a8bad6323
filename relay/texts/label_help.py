"""A label that looks like one of ours and asks for nothing: what we say about it, once for each pull request. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from allowlist.filters import waits_for_label
from allowlist.model import Allowlist, Level
from relay.deciding.events import PullRequestEvent
from relay.texts.markup import code
from relay.texts.words import listing

#: The comment's topic. A second wrong label rewrites the first one's comment and adds none.
TOPIC = "label help"

_MOST_DEVICES = 40


def label_help(event: PullRequestEvent, allowlist: Allowlist, prefixes: Sequence[str]) -> str | None:
    """The comment owed for the label that was just put on, or None where the label is fine or none of ours.

    ``prefixes``: the present one first, then the old ones. A label that any entry knows, whatever it makes of it, is
    fine: by its device, or by its ``labels``.
    """
    if event.action != "labeled" or event.label is None or event.closed:
        return None
    label = event.label.strip().lower()  # GitHub compares label names without case.
    prefix = next((one for one in prefixes if _belongs(label, one.lower())), None)
    if prefix is None or any(waits_for_label(entry, event.label) for entry in allowlist.entries):
        return None
    known = {entry.device.lower() for entry in allowlist.entries if entry.device is not None}
    if label == event.label.lower() and label.removeprefix(prefix.lower()) in known:
        return None
    devices = sorted({entry.device for entry in allowlist.entries if entry.level is Level.L3 and entry.device})
    return "\n\n".join(
        (
            f"The label {code(event.label)} asks for no backend: {_why(label, prefix.lower())}",
            _known(devices, prefixes[0]),
            "Take the label off and put one of these on. If the device should be known, its entry in the allowlist "
            "names it."
            if devices
            else "Take the label off; nothing waits for it.",
        )
    )


def _belongs(label: str, prefix: str) -> bool:
    """Whether a label was meant as one of ours: it has the prefix, or the prefix without its last character."""
    return label.startswith(prefix) or label == prefix.rstrip("/")


def _why(label: str, prefix: str) -> str:
    device = label[len(prefix) :].strip()
    return f"no backend has the device {code(device)}." if device else "it names no device."


def _known(devices: Sequence[str], prefix: str) -> str:
    if not devices:
        return "No backend can be asked for by a label at present."
    told = [code(f"{prefix}{device}") for device in devices]
    return f"These are known: {listing(told, _MOST_DEVICES)}."
