"""The guide for admins says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from allowlist.model import ACTIONS, AUTHOR_ASSOCIATIONS, EVENTS
from allowlist.parse import MAX_BYTES, parse
from allowlist.settings import DEVICE_KEY, KEYS
from allowlist.tree import MAX_DEPTH, MAX_VALUES

GUIDE = (Path(__file__).parents[2] / "allowlist" / "README.md").read_text()
FLAT = " ".join(GUIDE.split())


def test_the_table_of_keys_is_the_code_s():
    """Every key with its default and its meaning, and no key more."""
    section = GUIDE.split("## Keys of an entry")[1].split("## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section, re.MULTILINE)

    assert [(key.name, key.default, key.meaning) for key in KEYS] == [row for row in rows if row[0] != DEVICE_KEY]
    assert ["L3's key, else none"] == [default for name, default, _ in rows if name == DEVICE_KEY]


def test_the_default_in_the_table_is_what_an_entry_gets():
    """Written out as the guide has it, a default changes nothing."""
    plain = parse("L2: [org/x]").entries[0]

    for key in KEYS:
        if key.default not in {"all", "unfiltered", "none"}:
            assert plain == parse(f"L2: [org/x: {{{key.name}: {key.default}}}]").entries[0], key.name
        else:
            assert not getattr(plain, key.name), key.name


def test_every_block_of_yaml_in_the_guide_is_good():
    """What people copy has no fault."""
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)

    assert 3 == len(blocks)
    assert [((), True)] * 3 == [(found.faults, bool(found.entries)) for found in map(parse, blocks)]


def test_words_and_bounds_in_the_guide_are_the_code_s():
    """Lists of allowed words and the limits stand in the guide as they stand in the code."""
    for name, words in {"events": EVENTS, "actions": ACTIONS, "authors": AUTHOR_ASSOCIATIONS}.items():
        said = re.search(rf"- `{name}`: (.*?)\.", FLAT)
        assert said is not None
        assert words == set(re.findall(r"`(\w+)`", said[1]))
    assert f"deeper than {MAX_DEPTH}, more than {MAX_VALUES:,} values or {MAX_BYTES:,} bytes" in FLAT


def test_the_fault_in_the_guide_is_printed_like_this():
    """The example of a fault is a real one."""
    (fault,) = parse("L1:\n" + "\n" * 7 + "  - org2/scalar @alice,bob\n").faults

    assert fault.render(".github/allowlist.yml") in GUIDE
