"""the first tables

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("who", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("what", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("subject", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_at"), ["at"], unique=False)

    op.create_table(
        "backend",
        sa.Column("repo", sqlmodel.sql.sqltypes.AutoString(length=160), nullable=False),
        sa.Column("repository_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("owner_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("installation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("pinned_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("paused_until", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("pause_reason", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("last_seen_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("last_sent_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("last_error_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("repo"),
    )
    op.create_table(
        "change",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("thread", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("head_sha", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("ref", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("base_ref", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("base_sha", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("merge_sha", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("landed_sha", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("title", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("author", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("author_association", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("html_url", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("draft", sa.Boolean(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("state", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("delivery_id", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("updated_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("received_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("ended_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("thread", "head_sha", name="uq_change_thread_head"),
    )
    with op.batch_alter_table("change", schema=None) as batch_op:
        batch_op.create_index("ix_change_ended_at", ["ended_at"], unique=False)
        batch_op.create_index("ix_change_head_sha", ["head_sha"], unique=False)
        batch_op.create_index(batch_op.f("ix_change_number"), ["number"], unique=False)
        batch_op.create_index("ix_change_updated_at", ["updated_at"], unique=False)

    op.create_table(
        "check",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("head_sha", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("name", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("wanted", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("applied", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("github_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("creating", sa.Boolean(), nullable=False),
        sa.Column("status", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("conclusion", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("details_url", sa.Text(), nullable=False),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("written_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("writes", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("head_sha", "name", name="uq_check_head_name"),
    )
    with op.batch_alter_table("check", schema=None) as batch_op:
        batch_op.create_index(
            "ix_check_owed",
            ["id"],
            unique=False,
            sqlite_where=sa.text("wanted IS NOT applied"),
            postgresql_where=sa.text("wanted IS DISTINCT FROM applied"),
        )

    op.create_table(
        "delivery",
        sa.Column("id", sqlmodel.sql.sqltypes.AutoString(length=128), nullable=False),
        sa.Column("event", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("action", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("repository", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("sender", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("received_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_delivery_change_id"), ["change_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_delivery_received_at"), ["received_at"], unique=False)

    op.create_table(
        "document",
        sa.Column("key", sqlmodel.sql.sqltypes.AutoString(length=128), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("etag", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("digest", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("updated_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("checked_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "effect",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("lane", sqlmodel.sql.sqltypes.AutoString(length=512), nullable=False),
        sa.Column("pacing", sqlmodel.sql.sqltypes.AutoString(length=128), nullable=False),
        sa.Column("kind", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("subject_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("subject", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("coalesce_key", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("state", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("due", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("lease", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("owner", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("finished_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("reason", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("effect", schema=None) as batch_op:
        batch_op.create_index(
            "ix_effect_dead",
            ["id"],
            unique=False,
            sqlite_where=sa.text("state = 'dead'"),
            postgresql_where=sa.text("state = 'dead'"),
        )
        batch_op.create_index(
            "ix_effect_open",
            ["lane", "id"],
            unique=False,
            sqlite_where=sa.text("state IN ('ready', 'running')"),
            postgresql_where=sa.text("state IN ('ready', 'running')"),
        )
        batch_op.create_index("ix_effect_subject", ["kind", "subject_id"], unique=False)
        batch_op.create_index(
            "uq_effect_coalesced",
            ["coalesce_key"],
            unique=True,
            sqlite_where=sa.text("state = 'ready' AND coalesce_key IS NOT NULL"),
            postgresql_where=sa.text("state = 'ready' AND coalesce_key IS NOT NULL"),
        )

    op.create_table(
        "pacing",
        sa.Column("key", sqlmodel.sql.sqltypes.AutoString(length=128), nullable=False),
        sa.Column("not_before", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("effect_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("finished_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("outcome", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("reason", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["effect_id"],
            ["effect.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_attempt_effect_id"), ["effect_id"], unique=False)

    op.create_table(
        "dispatch",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("device", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("purpose", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("event_type", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("delivery_id", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("origin_delivery", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("payload_delivery", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("state", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("reason_code", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("sent_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("started_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("give_up_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("next_deadline", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("concluded", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("concluded_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("outcome", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("outcome_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("legs_reported", sa.Integer(), nullable=False),
        sa.Column("legs_expected", sa.Integer(), nullable=True),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["change_id"],
            ["change.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("delivery_id", "backend", name="uq_dispatch_delivery_backend"),
    )
    with op.batch_alter_table("dispatch", schema=None) as batch_op:
        batch_op.create_index("ix_dispatch_backend_id", ["backend", "id"], unique=False)
        batch_op.create_index("ix_dispatch_change_backend", ["change_id", "backend"], unique=False)
        batch_op.create_index(
            "ix_dispatch_next_deadline",
            ["next_deadline"],
            unique=False,
            sqlite_where=sa.text("next_deadline IS NOT NULL"),
            postgresql_where=sa.text("next_deadline IS NOT NULL"),
        )

    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dispatch_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("report_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_name", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("combination", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("backend_version", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("suite_version", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("check_run_id", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("status", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("conclusion", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("observed", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("started_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("completed_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("queue_seconds", sa.Float(), nullable=True),
        sa.Column("execution_seconds", sa.Float(), nullable=True),
        sa.Column("passed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("failed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("skipped", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("total", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("failure_class", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("conflicting", sa.Boolean(), nullable=False),
        sa.Column("deciding", sa.Boolean(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("artifact_url", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dispatch_id"],
            ["dispatch.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index("ix_job_dispatch", ["dispatch_id", "job_name"], unique=False)

    op.create_table(
        "report",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("digest", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("dispatch_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("issuer", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("event_name", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("decides", sa.Boolean(), nullable=False),
        sa.Column("decides_reason", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("run_id", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_name", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("combination", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("backend_version", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("suite_version", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("check_run_id", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("status", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("conclusion", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("received_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("claimed_started_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("claimed_completed_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("passed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("failed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("skipped", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("total", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("errors", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("suite_digest", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("expected_jobs", sa.Integer(), nullable=True),
        sa.Column("failure_class", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("workflow_name", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("artifact_url", sa.Text(), nullable=False),
        sa.Column("jti", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dispatch_id"],
            ["dispatch.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest", name="uq_report_digest"),
    )
    with op.batch_alter_table("report", schema=None) as batch_op:
        batch_op.create_index("ix_report_dispatch_job", ["dispatch_id", "job_name"], unique=False)

    op.create_table(
        "test_result",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("report_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("classname", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("stacktrace", sa.Text(), nullable=False),
        sa.Column("duration", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["report_id"],
            ["report.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("test_result", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_test_result_report_id"), ["report_id"], unique=False)


def downgrade() -> None:
    """Undo this revision."""
    with op.batch_alter_table("test_result", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_test_result_report_id"))

    op.drop_table("test_result")
    with op.batch_alter_table("report", schema=None) as batch_op:
        batch_op.drop_index("ix_report_dispatch_job")

    op.drop_table("report")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index("ix_job_dispatch")

    op.drop_table("job")
    with op.batch_alter_table("dispatch", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_dispatch_next_deadline",
            sqlite_where=sa.text("next_deadline IS NOT NULL"),
            postgresql_where=sa.text("next_deadline IS NOT NULL"),
        )
        batch_op.drop_index("ix_dispatch_change_backend")
        batch_op.drop_index("ix_dispatch_backend_id")

    op.drop_table("dispatch")
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_attempt_effect_id"))

    op.drop_table("attempt")
    op.drop_table("pacing")
    with op.batch_alter_table("effect", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_effect_coalesced",
            sqlite_where=sa.text("state = 'ready' AND coalesce_key IS NOT NULL"),
            postgresql_where=sa.text("state = 'ready' AND coalesce_key IS NOT NULL"),
        )
        batch_op.drop_index("ix_effect_subject")
        batch_op.drop_index(
            "ix_effect_open",
            sqlite_where=sa.text("state IN ('ready', 'running')"),
            postgresql_where=sa.text("state IN ('ready', 'running')"),
        )
        batch_op.drop_index(
            "ix_effect_dead", sqlite_where=sa.text("state = 'dead'"), postgresql_where=sa.text("state = 'dead'")
        )

    op.drop_table("effect")
    op.drop_table("document")
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_delivery_received_at"))
        batch_op.drop_index(batch_op.f("ix_delivery_change_id"))

    op.drop_table("delivery")
    with op.batch_alter_table("check", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_check_owed",
            sqlite_where=sa.text("wanted IS NOT applied"),
            postgresql_where=sa.text("wanted IS DISTINCT FROM applied"),
        )

    op.drop_table("check")
    with op.batch_alter_table("change", schema=None) as batch_op:
        batch_op.drop_index("ix_change_updated_at")
        batch_op.drop_index(batch_op.f("ix_change_number"))
        batch_op.drop_index("ix_change_head_sha")
        batch_op.drop_index("ix_change_ended_at")

    op.drop_table("change")
    op.drop_table("backend")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_at"))

    op.drop_table("audit")
