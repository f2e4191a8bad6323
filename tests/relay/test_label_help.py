"""A label that asks for nothing is answered with the labels that would, and a label that is fine with nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.texts.label_help import label_help
from tests.relay.planning import NPU, PREFIXES, XPU, pull_request

GPU = Entry(RepoName("org", "gpu"), Level.L4, device="gpu")
WAITS = Entry(RepoName("org", "waits"), Level.L2, labels=("ciflow/crcr/nightly",))


def said(label: str, *entries: Entry, closed: bool = False) -> str | None:
    """What is said about a label that was just put on."""
    event = pull_request("labeled", label=label, labels=(label,), closed=closed)
    return label_help(event, Allowlist(entries or (XPU, NPU, GPU, WAITS)), PREFIXES)


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("ciflow/crcr/nvidia", "no backend has the device `nvidia`."),
        ("ciflow/oot/nvidia", "no backend has the device `nvidia`."),
        ("CIFLOW/CRCR/NVIDIA", "no backend has the device `nvidia`."),
        ("ciflow/crcr/npu/extra", "no backend has the device `npu/extra`."),
        ("ciflow/crcr/npu ", "no backend has the device"),
        ("ciflow/crcr/", "it names no device."),
        ("ciflow/crcr", "it names no device."),
    ],
)
def test_a_wrong_label_is_answered_with_those_that_are_right(label: str, why: str) -> None:
    """The reason, and each label that would start a run, under the present prefix."""
    body = said(label) or ""

    assert why in body
    assert "These are known: `ciflow/crcr/npu`." in body


@pytest.mark.parametrize(
    "label",
    [
        "ciflow/crcr/npu",
        "ciflow/oot/NPU",
        "ciflow/crcr/gpu",
        "ciflow/crcr/nightly",
        "bug",
        "ciflow/trunk",
        "xciflow/crcr/a",
    ],
)
def test_a_label_that_is_fine_or_none_of_ours_is_not_answered(label: str) -> None:
    """Known by its device whatever the level, waited for by an entry's filter, or somebody else's."""
    assert said(label) is None


@pytest.mark.parametrize("action", ["unlabeled", "opened", "synchronize", "closed"])
def test_only_putting_a_label_on_is_answered(action: str) -> None:
    """A wrong label that is merely there, or is taken off, was answered before."""
    event = pull_request(action, label="ciflow/crcr/nvidia", labels=("ciflow/crcr/nvidia",))

    assert label_help(event, Allowlist((NPU,)), PREFIXES) is None


def test_nobody_is_told_about_a_closed_pull_request() -> None:
    """Nothing would be run there whatever the label."""
    assert said("ciflow/crcr/nvidia", closed=True) is None


def test_without_l3_backends_the_answer_says_so() -> None:
    """No label helps, and the reader need not try others."""
    assert "No backend can be asked for by a label at present." in (said("ciflow/crcr/npu", XPU) or "")


def test_many_devices_are_cut_and_hostile_labels_stay_text() -> None:
    """A label is anybody's text with triage rights; an allowlist may be long."""
    many = tuple(replace(NPU, repo=RepoName("org", f"b{i}"), device=f"dev{i:02}") for i in range(60))

    body = said("ciflow/crcr/`@ada` <img src=x> | #7", *many) or ""

    assert "and 20 more" in body
    assert "@ada" not in body
    assert "``" in body
