"""The composite action itself, run by an independent implementation of GitHub's runner (act, without containers)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import BEARER, CAPABILITY, DISPATCH, JWT, REPORT, Reply, Services

GIT = shutil.which("git") or "git"
LISTENER = """\
name: listener
on:
  repository_dispatch:
    types: [pull_request]
permissions: {}
jobs:
  tests:
    runs-on: ubuntu-latest
    permissions:
      contents: read
      id-token: write
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
      - uses: ./callback_action
        with:
          status: in_progress
          job-name: ${{ github.event.client_payload.payload.pull_request.title }}
          callback-url: CALLBACK_URL
      - run: mkdir reports && echo '<testsuite><testcase name="t"/></testsuite>' > reports/junit.xml
      - id: crcr
        if: always()
        uses: ./callback_action
        with:
          status: completed
          conclusion: ${{ job.status }}
          job-name: ${{ github.event.client_payload.payload.pull_request.title }}
          backend-version: '2.9'
          environment: |
            python=3.11
            arch=aarch64
          junit: reports/*.xml
          callback-url: CALLBACK_URL
      - env:
          SAID: ${{ toJson(steps.crcr.outputs) }}
        run: printf '%s' "$SAID" > "$KEPT"
"""


@pytest.mark.slow
def test_a_listener_reports_through_the_real_action(tmp_path: Path, services: Services) -> None:
    """Inputs arrive whole, a hostile title stays text, outputs flow to the next step, secrets are masked."""
    title = "$(touch owned) `touch owned`; \"'\n::error::x"
    payload = {**DISPATCH, "payload": {**DISPATCH["payload"], "pull_request": {"number": 7, "title": title}}}
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"action": "pull_request", "client_payload": payload}))
    services.relay_script = [Reply(), Reply(body=b'{"ok": true, "status": "recorded", "replayed": true}')]
    repository = tmp_path / "repository"
    workflow = repository / ".github" / "workflows" / "listener.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(LISTENER.replace("CALLBACK_URL", services.callback_url))
    shutil.copytree(REPORT.parent, repository / "callback_action", ignore=shutil.ignore_patterns("__pycache__"))
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q", "-b", "main", "."], ["add", "-A"], [*identity, "commit", "-q", "-m", "listener"]):
        subprocess.run([GIT, *command], cwd=repository, check=True)
    act = [str(Path(sys.executable).parent / "act"), "repository_dispatch", "-e", str(event)]
    act += ["-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--action-cache-path", str(tmp_path / "cache")]
    kept = tmp_path / "kept.json"
    extra = {"ACTIONS_ID_TOKEN_REQUEST_URL": services.token_url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": BEARER}
    for name, value in (extra | {"CRCR_RETRY_BASE": "0.01", "KEPT": str(kept)}).items():
        act += ["--env", f"{name}={value}"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = subprocess.run(act, cwd=repository, env=env, capture_output=True, text=True, timeout=90, check=False)

    log = done.stdout + done.stderr
    assert 0 == done.returncode, log
    bodies = [json.loads(report.body) for report in services.reports]
    assert ["in_progress", "completed"] == [body["workflow"]["status"] for body in bodies]
    assert [None, "success"] == [body["workflow"]["conclusion"] for body in bodies]
    assert {title.strip()} == {body["workflow"]["job_name"] for body in bodies}
    assert {"backend_version": "2.9", "environment": {"python": "3.11", "arch": "aarch64"}} == bodies[1]["workflow"][
        "combination"
    ]
    assert 1 == bodies[1]["workflow"]["test_results"]["passed"]
    assert CAPABILITY == bodies[1]["relay"]["token"]
    assert {f"Bearer {JWT}"} == {report.headers["Authorization"] for report in services.reports}
    expected = {"ok": "true", "status": "recorded", "http-status": "200", "replayed": "true"}
    assert expected == json.loads(kept.read_text())
    assert [] == list(tmp_path.rglob("owned"))
    assert CAPABILITY not in log
