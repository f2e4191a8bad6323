"""Who has a database open is seen, however they were told to enter it."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from sqlalchemy import make_url, text

from relay.store.engine import Store
from relay.store.served import users_of


@pytest.mark.postgres
def test_a_name_that_the_url_gives_does_not_hide_us(postgres_url: str) -> None:
    """People name their sessions in the URL; a restore beneath a service would be the price."""
    url = make_url(postgres_url).update_query_dict({"application_name": "x"}).render_as_string(hide_password=False)
    assert users_of(url) is None
    with closing(Store(url)) as store:
        own = text("SELECT pg_backend_pid(), host(inet_client_addr())")
        pid, at = store.write_now(lambda conn: tuple(conn.execute(own).one()))

        # The tests' own server listens on a socket, which is no address; whose machine that is nobody says.
        assert f"session {pid} from {at or 'an unknown place'}" in (users_of(url) or "")


@pytest.mark.postgres
def test_a_line_that_only_listens_is_one_of_ours(postgres_url: str) -> None:
    """A service in which nothing happens may have nothing else open."""
    with closing(Store(postgres_url)) as store:
        arguments, named = store.connect_arguments()
        with psycopg.connect(*arguments, **named) as line:
            found = users_of(postgres_url)

            assert f"session {line.info.backend_pid} from" in (found or "")
