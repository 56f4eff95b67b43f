"""A real web server on this machine, for notifications."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from model_checkpoint.hooks import WebhookNotifierHook


class Receiver:
    """A server on this machine that keeps what it gets and answers as it is told."""

    def __init__(self, context=None):
        self.got, self.answers, self.arrived, self.gate = [], [], threading.Event(), None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                receiver.arrived.set()
                if receiver.gate is not None:
                    receiver.gate.wait(60)
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_): ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def notifier(self, **options):
        options = {"private_network": True, "first_pause": 0.001, **options}
        return WebhookNotifierHook(f"http://127.0.0.1:{self.port}/hook?token=t", **options)

    def close(self):
        if self.gate is not None:
            self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def receiver_with():
    """Makes receivers that speak TLS with a context."""
    made = []

    def make(context):
        made.append(Receiver(context))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()
