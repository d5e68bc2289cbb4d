"""A server that restarts, connections that drop: a transaction is carried out once, or not at all.

Real connections, cut in the middle by a proxy or ended by the server.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from _postgres import PostgresServer
from _store_samples import candidates, spec
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from lamps.errors import StoreError
from lamps.store import Store, transactions
from lamps.store.engine import open_engine, parse_url
from lamps.store.transactions import read, write

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


class Proxy:
    """Hands bytes to a server and back, and cuts its connections when told to.

    Args:
        port: Of the server.
        at: What a client says before the cut.
        forward: Whether the server still hears it; the client hears nothing in either case.
    """

    def __init__(self, port: int, at: bytes = b"", *, forward: bool = False) -> None:
        self.port, self.at, self.forward = port, at, forward
        self.armed = False
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url_port(self) -> int:
        """Where clients connect."""
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
                self._sockets += [client, server]
                for source, sink, watched in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, watched), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if watched and self.armed and self.at in data:
                    self.armed = False
                    self.cuts += 1
                    if self.forward:
                        # The client's side goes first, so that no answer gets through.
                        source.shutdown(socket.SHUT_RDWR)
                        sink.sendall(data)
                        time.sleep(0.3)
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        for end in (self._listener, *self._sockets):
            end.close()


@pytest.fixture
def table(postgres_url: str) -> Iterator[Engine]:
    """An engine on a schema with an empty table ``seen``; not through the proxy."""
    engine = create_engine(parse_url(postgres_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE seen (n INTEGER)"))
    yield engine
    engine.dispose()


@contextlib.contextmanager
def through(proxy: Proxy, url: str) -> Iterator[Engine]:
    """An engine that reaches the server by the proxy and has been answered once."""
    engine = open_engine(parse_url(url).set(port=proxy.url_port))
    read(engine, lambda c: c.scalar(text("SELECT 1")))
    try:
        yield engine
    finally:
        engine.dispose()
        proxy.close()


def count(table: Engine) -> int:
    with table.connect() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM seen")) or 0)


@pytest.mark.parametrize("forward", [False, True], ids=["lost on the way", "lost on the way back"])
@pytest.mark.parametrize("at", [b"INSERT", b"pg_current_xact_id", b"COMMIT"])
def test_a_write_is_carried_out_once_wherever_the_connection_is_cut(
    at: bytes, forward: bool, table: Engine, postgres: PostgresServer, postgres_url: str
) -> None:
    calls = 0

    def work(connection: Connection) -> str:
        nonlocal calls
        calls += 1
        connection.execute(text("INSERT INTO seen VALUES (1)"))
        return "result"

    proxy = Proxy(postgres.port, at, forward=forward)
    with through(proxy, postgres_url) as engine:
        proxy.armed = True
        assert write(engine, work) == "result"
    assert proxy.cuts == 1
    assert count(table) == 1
    # A commit that went through is not done again, although its answer never came.
    assert calls == (1 if (at, forward) == (b"COMMIT", True) else 2)


def test_a_read_is_repeated(postgres: PostgresServer, postgres_url: str) -> None:
    proxy = Proxy(postgres.port, b"SELECT 42")
    with through(proxy, postgres_url) as engine:
        proxy.armed = True
        assert read(engine, lambda c: c.scalar(text("SELECT 42"))) == 42
    assert proxy.cuts == 1


def test_connections_that_the_server_ends_are_replaced(table: Engine, postgres_url: str) -> None:
    engine = open_engine(parse_url(postgres_url))
    done = []

    def work(connection: Connection) -> None:
        connection.execute(text("INSERT INTO seen VALUES (1)"))
        if not done:
            done.append(True)
            with table.begin() as other:
                other.execute(
                    text("SELECT pg_terminate_backend(:pid)"),
                    {"pid": connection.scalar(text("SELECT pg_backend_pid()"))},
                )
        connection.execute(text("INSERT INTO seen VALUES (2)"))

    read(engine, lambda c: c.scalar(text("SELECT 1")))
    write(engine, work)
    engine.dispose()
    assert count(table) == 2


def test_a_server_that_restarts_is_waited_for(postgres_url: str, postgres: PostgresServer) -> None:
    with Store.open(postgres_url) as store:
        store.create_run(spec("before"), candidates(2))
        postgres.stop("immediate")
        threading.Timer(1.5, postgres.start).start()
        started = time.monotonic()
        store.create_run(spec("after"), candidates(2))
        assert time.monotonic() - started > 1.0
        assert {r.name for r in store.runs()} == {"before", "after"}
        assert store.check() == []


def test_a_server_that_stays_away_is_given_up_in_one_line(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, postgres: PostgresServer
) -> None:
    monkeypatch.setattr(transactions, "RECONNECT_S", 1.0)
    with Store.open(postgres_url) as store:
        postgres.stop("fast")
        try:
            started = time.monotonic()
            with pytest.raises(StoreError, match="it was tried for 1 s") as caught:
                store.runs()
            assert time.monotonic() - started < 20
            assert "\n" not in str(caught.value)
            assert "s3cret" not in str(caught.value)
        finally:
            postgres.start()
        assert store.runs() == []


def test_a_server_that_was_never_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(StoreError, match="check host, port"):
        Store.open(f"postgresql://lamps@127.0.0.1:{port}/lamps")
    assert time.monotonic() - started < 10


def test_what_is_wrong_with_the_question_is_not_asked_again(table: Engine) -> None:
    calls = []

    def work(connection: Connection) -> None:
        calls.append(1)
        connection.execute(text("SELECT no_such_column FROM seen"))

    with pytest.raises(StoreError, match="no_such_column"):
        write(table, work)
    assert len(calls) == 1
    with pytest.raises(DBAPIError), table.connect() as connection:
        work(connection)
