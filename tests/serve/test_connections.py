"""How many may connect, who gives way to a newcomer, and how much of each is read."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator

import pytest

from tests.serve.attacks import posted
from tests.serve.sockets import serving, talk
from workbench.serve.connections import Connections


@contextlib.contextmanager
def clients(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=300)) for _ in range(count)]
        for client in made:
            client.sendall(sent)
        yield made


def closed(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return client.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("bounds", [(4, 100), (100, 4)], ids=["in all", "of one address"])
def test_beyond_the_bound_who_has_sent_no_request_gives_way(bounds: tuple[int, int]) -> None:
    connections = Connections(most=bounds[0], most_of_address=bounds[1])
    with serving(connections) as server, clients(server.port, 4, b"POST /predict HT") as silent:
        time.sleep(1.1)  # who has just come is left alone
        said, _ = talk(server.port, posted(b"{}"), answers=1, wait_s=0.1)

        assert said.startswith(b"HTTP/1.1 200 ")
        assert select.select(silent, [], [], 60)[0], "nobody gave way"
        assert [closed(client) for client in silent].count(True) == 1
        assert (connections.displaced, connections.refused) == (1, 0)
        for _ in range(20):  # those that are closed leave their place
            assert talk(server.port, posted(b"{}", head=b"Connection: close\r\n"))[0].startswith(b"HTTP/1.1 200 ")
        assert connections.refused == 0


def test_who_is_being_answered_never_gives_way_and_the_newcomer_is_told() -> None:
    connections = Connections(most=4, most_of_address=4)
    unfinished = posted(b"x" * 100)[:-1]
    with serving(connections) as server, clients(server.port, 4, unfinished) as asking:
        time.sleep(1.1)
        said, _ = talk(server.port, answers=1, wait_s=0.1)
        for client in asking:
            client.sendall(b"x")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")

    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in said
    assert connections.refused == 1
