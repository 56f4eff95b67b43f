"""A real server: a free port, an orderly end, and a message where it cannot be."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from model_checkpoint.api.errors import ServerExtraMissing
from model_checkpoint.api.library.served_places import said
from model_checkpoint.api.serving import listening_socket, serve
from model_checkpoint.errors import CheckpointException, OptionInvalid

PROGRAM = """
import sys
from model_checkpoint.api.serving import serve
serve([sys.argv[1]], tell=lambda line: print(line, flush=True))
"""


@pytest.mark.slow
def test_a_server_takes_a_free_port_tells_its_address_and_ends_in_order(built, tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(built.folder)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = server.stdout.readline().strip().rpartition(" ")[2]
        port, token = int(address.split(":")[2].partition("/")[0]), address.partition("#token=")[2]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/runs", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert len(json.loads(answer.read())["rows"]) == built.runs
        assert "server" not in answer.headers
        connection.request("GET", "/api/runs")
        assert connection.getresponse().status == 401
        assert len(token) >= 32
        connection.close()
        listener = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        listener.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
        stream = listener.getresponse()
        assert stream.read(5) == b"retry"

        slow = socket.create_connection(("127.0.0.1", port), timeout=20)
        head = f"POST /api/retention/plan HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert slow.recv(12) == b"HTTP/1.1 408"  # a body that drips is not waited for
        slow.close()
        raw = socket.create_connection(("127.0.0.1", port), timeout=20)
        raw.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\n\r\n")
        assert raw.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 403")
        raw.close()
        server.send_signal(signal.SIGINT)  # while somebody listens
        assert stream.read().endswith(b"\n\n")  # which is told the end, and not cut off
        listener.close()
        out, err = server.communicate(timeout=30)
    finally:
        server.kill()

    assert server.returncode == 0
    assert out.strip() == "ended"
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_what_is_said_to_be_served_has_no_password():
    places = ["runs", "postgresql://me:hush@db/runs", "mysql+pymysql://me:hush@db/runs?ssl_key_password=hush"]

    told = said(places)

    assert "hush" not in told
    assert "runs, postgresql" in told


def test_others_are_never_let_in_without_a_token(tmp_path):
    with pytest.raises(OptionInvalid, match="a token is needed"):
        serve([str(tmp_path)], host="0.0.0.0", token="")


def test_a_port_that_is_taken_is_told():
    with listening_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OptionInvalid, match="cannot be listened at"):
            listening_socket("127.0.0.1", taken.getsockname()[1])


def test_a_missing_server_extra_is_told_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    with pytest.raises(ServerExtraMissing, match=r"pip install 'model-checkpoint\[server\]'") as caught:
        serve([str(tmp_path)])

    assert isinstance(caught.value, (ImportError, CheckpointException))
