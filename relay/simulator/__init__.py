"""A GitHub on loopback: upstream, backends and their runners, for the demo, the tests and the benchmarks.

It speaks HTTP and nothing else to the relay, and nothing in the relay knows that it talks to it::

    with Simulator(now=clock.now) as sim:
        app = sim.create_app()                      # .id, .private_key_pem, .webhook_secret
        up = sim.create_upstream("pytorch/pytorch", files={".github/allowlist.yml": "L1:\\n  - org/npu\\n"})
        be = sim.create_backend("org/npu", listener=Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT))
        sim.webhook_url = "http://127.0.0.1:8000/github/webhook"
        pr = up.open_pull_request(title="Faster add", labels=["ciflow/crcr/npu"])
        pr.delivery.response.status                 # what the relay answered
        be.wait_until_done()[0].jobs[0].reports     # what each reporting step said
        up.checks(pr.head_sha)["crcr/gate"]         # the newest of a name, as GitHub shows it
        up.required_status(pr)                      # the merge box of the ruleset (up.require(...))
        sim.log.dispatches("org/npu")               # every request that took effect
        sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$"), times=3))

``python -m relay.simulator --port N`` serves it as a process of its own, with the same verbs under ``/_sim/``
(``control.py`` lists them). Rules are in the ``api_*`` modules, each with the page of GitHub's documentation it
comes from.
"""

from relay.simulator.backend import Backend, CallbackAnswer
from relay.simulator.faults import Fault, Kind, Match
from relay.simulator.hud import HudRow
from relay.simulator.listener import JobPlan, Listener, Mode, Reports
from relay.simulator.log import LoggedRequest, RequestLog
from relay.simulator.merging import MergeBox
from relay.simulator.model import App, CheckRun, Job, Run, StepOutcome
from relay.simulator.simulator import EVENTS, PERMISSIONS, Simulator
from relay.simulator.site import wait_until
from relay.simulator.upstream import MergeGroup, PullRequest, Upstream
from relay.simulator.webhooks import Delivery, signature

__all__ = [
    "EVENTS",
    "PERMISSIONS",
    "App",
    "Backend",
    "CallbackAnswer",
    "CheckRun",
    "Delivery",
    "Fault",
    "HudRow",
    "Job",
    "JobPlan",
    "Kind",
    "Listener",
    "LoggedRequest",
    "Match",
    "MergeBox",
    "MergeGroup",
    "Mode",
    "PullRequest",
    "Reports",
    "RequestLog",
    "Run",
    "Simulator",
    "StepOutcome",
    "Upstream",
    "signature",
    "wait_until",
]
