"""The rules and the dashboard that people import ask for figures that the service shows."""

from __future__ import annotations

import json
import re
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from relay.texts.words import span
from relay.work.schedule import SCHEDULE
from tests.stories.world import World

FOLDER = Path(__file__).parents[2] / "examples" / "observability"
GUIDE = (FOLDER.parent / "OPERATIONS.md").read_text()
RULES: list[dict[str, Any]] = [
    rule for group in YAML(typ="safe").load(FOLDER / "prometheus-rules.yml")["groups"] for rule in group["rules"]
]
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
ASKED = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]

_NAME = re.compile(r"\b(?:crcr|process)_\w+|\bcrcr:[\w:]+")
_SELECTOR = re.compile(r"\b((?:crcr|process)_\w+)\{([^}]*)\}")
_EQUALS = re.compile(r'(\w+)="([^"]*)"')
_CLOSES = {")": "(", "]": "[", "}": "{"}


def balanced(expression: str) -> bool:
    """Whether every bracket outside quotes has its other half."""
    waiting: list[str] = []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in _CLOSES.values():
            waiting.append(sign)
        elif sign in _CLOSES and (not waiting or waiting.pop() != _CLOSES[sign]):
            return False
    return not waiting


def unknown(shown: str, asked: list[str]) -> set[str]:
    """What is asked for and not shown: names, and values of labels of figures that have a sample."""
    samples = [line.rpartition(" ")[0] for line in shown.splitlines() if not line.startswith("#")]
    families = re.findall(r"^# TYPE (\S+) (\S+)$", shown, re.MULTILINE)
    names = {sample.partition("{")[0] for sample in samples} | {name for name, _ in families}
    names |= {f"{name}_{end}" for name, kind in families if kind == "histogram" for end in ("bucket", "sum", "count")}
    missing = {name for text in asked for name in _NAME.findall(text)} - names - RECORDED
    labels: dict[str, set[str]] = {}
    for sample in samples:
        name, _, rest = sample.partition("{")
        labels.setdefault(name, set()).update(f"{label}={value}" for label, value in _EQUALS.findall(rest))
    for name, selector in (found for text in asked for found in _SELECTOR.findall(text)):
        wanted = {f"{label}={value}" for label, value in _EQUALS.findall(selector)}
        missing |= {f"{name} {one}" for one in wanted - labels.get(name, wanted)}
    return missing


def test_every_figure_that_is_asked_for_is_shown(world: World) -> None:
    """A name that is misspelt makes an alert that never fires, and a panel that is empty for ever."""
    world.start()
    with urllib.request.urlopen(f"{world.url}/metrics", timeout=10) as answer:
        shown = answer.read().decode()

    assert set() == unknown(shown, [*ASKED, *re.findall(r"`(crcr_\w+)`", GUIDE)])
    misspelt = ['rate(crcr_atempts_total{kind="x"}[5m])', 'crcr_answer_seconds_count{what="webhok"}', "crcr:nothing:p9"]
    assert {"crcr_atempts_total", "crcr_answer_seconds_count what=webhok", "crcr:nothing:p9"} == unknown(
        shown, misspelt
    )


@pytest.mark.parametrize("expression", ASKED)
def test_every_expression_closes_what_it_opens(expression: str) -> None:
    """Prometheus refuses the whole file for one bracket."""
    assert balanced(expression)
    assert not balanced(f"{expression})")
    assert not balanced(f"sum({expression}")


@pytest.mark.parametrize("alert", [rule for rule in RULES if "alert" in rule], ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_it_means_and_where_to_look(alert: dict[str, Any]) -> None:
    """Somebody is woken up by it."""
    chapters = dict(part.split("\n", 1) for part in GUIDE.split("\n## ")[1:])
    texts = {title.lower().replace(" ", "-"): text for title, text in chapters.items()}
    page, _, chapter = alert["annotations"]["runbook"].partition("#")

    assert re.fullmatch(r"[1-9]\d*[smh]", alert["for"])
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert all(alert["annotations"][text].endswith(".") for text in ("summary", "description"))
    assert "examples/OPERATIONS.md" == page
    (row,) = [line for line in texts[chapter].splitlines() if line.startswith(f"| `{alert['alert']}` |")]
    assert all(cell.strip() for cell in row.strip("|").split(" | "))
    assert 3 == len(row.strip("|").split(" | "))


def test_the_guide_has_no_row_for_an_alert_that_is_not_there() -> None:
    """Nobody looks for what cannot fire, and each stands where it stands in the rules."""
    alerts = [rule["alert"] for rule in RULES if "alert" in rule]

    assert alerts == re.findall(r"^\| `(Crcr\w+)` \|", GUIDE, re.MULTILINE)


def test_an_alert_says_of_retries_what_the_schedule_says() -> None:
    """What it calls half a day would be given up long before."""
    (undelivered,) = [rule for rule in RULES if rule.get("alert") == "CrcrUndelivered"]

    assert f"tried for {span(sum(SCHEDULE, timedelta()))} in vain" in undelivered["annotations"]["description"]


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """It names no server of anybody's: which Prometheus is meant is chosen at its top."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    sources = [panel["datasource"] for panel in PANELS] + [
        target["datasource"] for panel in PANELS for target in panel["targets"] if "datasource" in target
    ]

    assert BOARD["schemaVersion"] >= 36
    assert len(ids) == len(set(ids))
    assert ["datasource"] == [one["name"] for one in BOARD["templating"]["list"] if one["type"] == "datasource"]
    assert {"${datasource}"} == {source["uid"] for source in sources}
    assert "://" not in json.dumps(BOARD)
    assert all(panel["title"] and panel["gridPos"]["w"] <= 24 for panel in PANELS)


def test_the_guide_names_figures_that_are_there() -> None:
    """The table of objectives is about the same figures as the rules and the dashboard."""
    asked = {name for text in ASKED for name in _NAME.findall(text)}
    named = set(re.findall(r"`(crcr_[a-z_]*[a-z])[`{]", (FOLDER / "README.md").read_text()))

    assert set() == {name for name in named if name not in asked and f"{name}_bucket" not in asked}
