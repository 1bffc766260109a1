import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.support.service import (
    Service,
    accept_late,
    accept_then_close,
    answer,
    close_before_read,
    closed_port,
    duplicate,
    hang,
    held,
    interim,
    redirect,
    reset,
)


def post(port: int, key: str = "k1", path: str = "/do") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, b"{}", {"Idempotency-Key": key, "Connection": "close"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def found(port: int, key: str = "k1") -> list[dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", f"/do?key={key}")
        items: list[dict[str, str]] = json.loads(connection.getresponse().read())["items"]
        return items
    finally:
        connection.close()


def test_an_effect_is_found_by_its_key_and_lookups_take_no_step() -> None:
    with Service(answer(201), answer(400), answer(202)) as service:
        assert found(service.port) == []
        assert post(service.port) == 201
        assert found(service.port) == [{"id": "ref-1", "key": "k1"}]
        assert found(service.port, "k2") == []
        assert [post(service.port, "k2"), post(service.port, "k2")] == [400, 202]
        assert service.effects_of("k2") == 1
        assert service.counts() | {"closed": 0} == {
            "connections": 6,
            "handshakes_failed": 0,
            "closed": 0,
            "requests": 3,
            "lookups": 3,
            "effects": 2,
        }
        received = service.requests[0]
        assert (received.method, received.path, received.body) == ("POST", "/do", b"{}")


def test_a_request_that_no_script_announced_has_no_effect() -> None:
    with Service() as service:
        assert post(service.port) == 599
        assert (len(service.requests), service.effects) == (1, ())


@pytest.mark.parametrize(
    ("step", "requests", "effects"),
    [
        (accept_then_close, 1, 1),
        (close_before_read, 0, 0),
        (reset, 1, 0),
        (accept_late, 1, 1),
    ],
)
def test_connections_requests_and_effects_are_counted_apart(
    step: Callable[[], object], requests: int, effects: int
) -> None:
    with Service() as service:
        service.then(step())  # type: ignore[arg-type]  # each of them returns a step
        with pytest.raises((OSError, http.client.HTTPException)):
            post(service.port)
        service.wait_for(closed=1)
        assert (service.connections, len(service.requests), len(service.effects)) == (1, requests, effects)


def test_a_late_effect_is_found_once_its_gate_opens() -> None:
    with Service(accept_late()) as service:
        with pytest.raises(http.client.HTTPException):
            post(service.port)
        assert found(service.port) == []
        service.gate("late").set()
        assert len(found(service.port)) == 1


def test_a_late_effect_may_also_come_by_time() -> None:
    with Service(accept_late(seconds=0.0), accept_late(seconds=3600.0)) as service:
        for key in ("now", "later"):
            with pytest.raises(http.client.HTTPException):
                post(service.port, key)
        assert (len(found(service.port, "now")), len(found(service.port, "later"))) == (1, 0)


def test_a_held_answer_waits_for_the_test_and_not_for_time() -> None:
    answers: list[int] = []
    with Service(held("go", answer(201))) as service:
        client = threading.Thread(target=lambda: answers.append(post(service.port)))
        client.start()
        service.wait_for(requests=1)
        assert (answers, service.effects) == ([], ())
        service.gate("go").set()
        client.join(20)
        assert (answers, len(service.effects)) == ([201], 1)


def test_leaving_ends_what_hangs() -> None:
    def lose() -> None:
        with pytest.raises(http.client.HTTPException):
            post(service.port)

    with Service(hang(effect=True)) as service:
        client = threading.Thread(target=lose)
        client.start()
        service.wait_for(effects=1)
    client.join(20)
    assert not client.is_alive()


def test_duplicates_redirects_and_interim_answers_are_what_they_say() -> None:
    with Service(duplicate(), redirect("/elsewhere"), interim(status=100)) as service:
        assert [post(service.port), post(service.port), post(service.port)] == [201, 302, 201]
        assert service.effects_of("k1") == 3


def test_many_clients_at_once_are_counted_exactly() -> None:
    with Service(*[answer(201)] * 40) as service:
        clients = [threading.Thread(target=post, args=(service.port, f"k{number}")) for number in range(40)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(20)
        assert service.counts()["effects"] == 40
        assert {effect.key for effect in service.effects} == {f"k{number}" for number in range(40)}


def test_a_closed_port_refuses() -> None:
    with closed_port() as port, pytest.raises(ConnectionRefusedError):
        post(port)


def test_a_step_of_a_test_that_fails_fails_the_test() -> None:
    def act(_exchange: object) -> None:
        raise LookupError("mine")

    def visit() -> None:
        with Service() as service:
            service.then(type(answer())(name="broken", act=act))
            with pytest.raises(http.client.HTTPException):
                post(service.port)

    with pytest.raises(LookupError, match="mine"):
        visit()


def test_it_serves_other_processes_by_its_port_and_ends_with_their_input() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.service"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        process.stdin.write('{"script": [["answer", {"status": 201}]]}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["requests"] == 0
        assert post(port) == 201
        process.stdin.write("{}\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["effects"] == 1
        process.stdin.close()
        assert process.wait(20) == 0
