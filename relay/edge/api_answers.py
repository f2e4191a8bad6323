"""Facts from the store put into the API's models."""

from __future__ import annotations

from datetime import datetime

from allowlist.model import Entry
from relay.deciding.facts import Place
from relay.edge import api_models as models
from relay.edge import api_service_models as service
from relay.edge.reader import InForce
from relay.phrases import gate_answer, gate_title, meaning, what_happened, why_line
from relay.store.reading.backends import BackendLine
from relay.store.reading.change import BackendOnChange, ChangePage, Told
from relay.store.reading.legs import Combination, LegLine
from relay.store.reading.why import Why
from relay.texts.base_text import todo
from relay.texts.markup import plain
from relay.texts.rendering import render

_MOST_TROUBLE = 600


def change_detail(page: ChangePage, place: Place) -> models.ChangeDetail:
    """One change with its gate as the check says it."""
    over = page.gate is None or page.change.state != "open"
    effect = None if page.gate is None or over else page.gate.verdict(place.overrides).effect
    overridden = page.gate is not None and page.gate.answered_for(place.overrides)
    answer = gate_answer(page.change.state, effect, overridden=overridden)
    kept = "" if page.change.gate is None else page.change.gate.title
    rendered = None if page.gate is None else render(page.gate, place)
    return models.ChangeDetail(
        change=models.ChangeModel.model_validate(page.change),
        gate=models.GateModel(effect=effect, answer=answer.word, title=gate_title(rendered, kept)),
        backends=[_backend_on_change(one) for one in page.backends],
        not_called=[models.DecidedModel.model_validate(one) for one in page.not_called],
        checks=[models.CheckModel.model_validate(check) for check in page.checks],
        heads=[models.HeadModel.model_validate(head) for head in page.heads],
        deliveries=list(page.deliveries),
        asked=[models.AskedModel.model_validate(one) for one in page.asked],
    )


def _backend_on_change(one: BackendOnChange) -> models.BackendOnChangeModel:
    facts = one.told.facts
    return models.BackendOnChangeModel(
        backend=str(facts.backend),
        level_now=None if facts.level is None else str(facts.level),
        private=facts.private,
        gate=one.effect,
        title=what_happened(facts),
        meaning=meaning(facts),
        todo=todo(facts),
        dispatch=_dispatch(one.told),
        override=None if facts.override is None else models.OverrideModel.model_validate(facts.override),
        missing_versions=list(facts.missing_versions),
        elsewhere=None if one.elsewhere is None else models.ElsewhereModel.model_validate(one.elsewhere),
        base=None if facts.base is None else models.OnBaseModel.model_validate(facts.base),
        combinations=[_combination(combination) for combination in one.combinations],
        replaced_legs=[_leg(leg) for leg in one.replaced],
        legs_left_out=one.legs_left_out,
        others=[_dispatch(other) for other in one.others],
    )


def _dispatch(told: Told) -> models.DispatchModel:
    facts = told.facts
    return models.DispatchModel(
        id=facts.id,
        level=str(facts.level_then),
        device=facts.device,
        purpose=told.purpose,
        event_type=told.event_type,
        delivery_id=told.delivery_id,
        origin_delivery=told.origin_delivery,
        state=facts.state,
        reason_code=facts.reason_code,
        reason=facts.reason,
        outcome=facts.outcome,
        outcome_at=facts.outcome_at,
        created_at=facts.created_at,
        sent_at=facts.sent_at,
        started_at=facts.started_at,
        concluded_at=facts.concluded_at,
        next_deadline=facts.next_deadline,
        give_up_at=facts.give_up_at,
        legs_reported=facts.legs_reported,
        legs_expected=facts.legs_expected,
        late=facts.late,
        observed_at=facts.observed_at,
        observe_note=facts.observe_note,
        cause=facts.cause,
        rerun_at=facts.rerun_at,
        rerun_by=facts.rerun_by,
    )


def _combination(one: Combination) -> models.CombinationModel:
    return models.CombinationModel(
        id=one.id,
        backend_version=one.backend_version,
        suite_version=one.suite_version,
        environment=dict(one.environment),
        outcome=one.outcome,
        failing=one.failing,
        legs=[_leg(leg) for leg in one.legs],
    )


def _leg(leg: LegLine) -> models.LegModel:
    facts = leg.facts
    return models.LegModel(
        job_name=facts.job_name,
        workflow_name=facts.workflow_name,
        run_id=facts.run_id,
        run_attempt=facts.run_attempt,
        check_run_id=leg.check_run_id,
        status=facts.status,
        outcome=leg.outcome,
        conclusion=facts.conclusion,
        observed=facts.observed,
        started_at=facts.started_at,
        completed_at=facts.completed_at,
        queue_seconds=leg.queue_seconds,
        execution_seconds=facts.seconds,
        passed=facts.passed,
        failed=facts.failed,
        skipped=facts.skipped,
        total=leg.total,
        failure_class=facts.failure_class,
        deciding=leg.deciding,
        conflicting=facts.conflicting,
        late=leg.late,
        url=facts.url or None,
        artifact_url=facts.artifact_url or None,
        failed_tests=[models.FailedTestModel.model_validate(test) for test in facts.failed_tests],
        failed_tests_kept=facts.failed_tests_kept,
    )


def backend(line: BackendLine) -> service.BackendModel:
    """A backend with its entry."""
    return service.BackendModel(
        repo=str(line.repo),
        entry=None if line.entry is None else entry(line.entry),
        private=line.private,
        repository_id=line.repository_id,
        owner_id=line.owner_id,
        installation_id=line.installation_id,
        pinned_at=line.pinned_at,
        paused_until=line.paused_until,
        pause_reason=line.pause_reason,
        demoted_to=None if line.demoted_to is None else str(line.demoted_to),
        demoted_until=line.demoted_until,
        demote_reason=line.demote_reason,
        last_seen_at=line.last_seen_at,
        last_sent_at=line.last_sent_at,
        last_error=line.last_error,
        last_error_at=line.last_error_at,
        circuit=None if line.circuit is None else service.CircuitModel.model_validate(line.circuit),
        outcomes=[models.OutcomeCountModel.model_validate(count) for count in line.outcomes],
    )


def entry(one: Entry) -> service.EntryModel:
    """An entry with its defaults filled in; sets in the order of the alphabet, so that the answer can be compared."""
    return service.EntryModel(
        repo=str(one.repo),
        level=str(one.level),
        line=one.line,
        oncalls=list(one.oncalls),
        device=one.device,
        events=sorted(one.events),
        actions=sorted(one.actions),
        refs=list(one.refs),
        base=list(one.base),
        labels=list(one.labels),
        paths=list(one.paths),
        authors=sorted(one.authors),
        versions=list(one.versions),
        queue_seconds=one.timeouts.queue.total_seconds(),
        run_seconds=one.timeouts.run.total_seconds(),
        expected_jobs=one.expected_jobs,
        workflow=one.workflow,
        every_commit=one.every_commit,
        cancel_on_close=one.cancel_on_close,
        legacy=one.legacy,
        on_silence=str(one.on_silence),
    )


def why_model(one: Why) -> service.WhyModel:
    """A decision with its sentence."""
    return service.WhyModel(
        sentence=why_line(one),
        **{name: getattr(one, name) for name in service.WhyModel.model_fields if name != "sentence"},
    )


def in_force(state: InForce, now: datetime) -> service.AllowlistModel:
    """The allowlist in force, its faults and its age."""
    age = None if state.checked_at is None else max(0.0, (now - state.checked_at).total_seconds())
    return service.AllowlistModel(
        loaded=state.loaded,
        digest=state.allowlist.digest,
        checked_at=state.checked_at,
        age_seconds=age,
        trouble=plain(state.trouble, _MOST_TROUBLE),
        entries=[entry(one) for one in state.allowlist.entries],
        faults=[
            service.FaultModel(
                line=fault.line,
                rule=fault.rule,
                message=fault.message,
                fix=fault.fix,
                severity=str(fault.severity),
            )
            for fault in state.faults
        ],
    )
