"""A stand-in for `vllm serve MODEL --uds=PATH`, with the standard library only: the model's name says how it behaves.

Made executable by `conftest.fake_vllm`, which puts an interpreter line before it.
"""

import json
import os
import signal
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def address_string(self):
        return "unix"

    def send(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.send(self.server.health)
        elif self.path == "/metrics":
            self.send(200, self.server.figures().encode(), "text/plain")
        elif self.path == "/v1/models":
            self.send(200, b'{"object":"list","data":[{"id":"m","parent":null,"max_model_len":2048}]}')
        else:
            self.send(404, b'{"detail":"Not Found"}')

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/health/"):
            self.server.health = int(self.path.rpartition("/")[2])
            self.send(200)
        elif self.path.startswith("/running/"):
            self.server.running = int(self.path.rpartition("/")[2])
            self.send(200)
        elif self.path == "/v1/chat/completions":
            chunk = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
            self.send(200, b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n", "text/event-stream")
        else:
            self.send(404, b'{"detail":"Not Found"}')


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    health = 200
    running = 0

    def figures(self):
        return (
            f'vllm:num_requests_running{{engine="0"}} {self.running}.0\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'
        )


def serve(path):
    server = Server(path, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("serving", flush=True)
    while True:
        time.sleep(60)


def fork_stubborn_family():
    """A child in a session of its own, and its child: none of them minds SIGTERM, and neither does this process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid:
            os.write(tell, f"{os.getpid()} {pid}".encode())
        while True:
            time.sleep(60)
    print("family", os.getpid(), os.read(ready, 100).decode(), flush=True)


if __name__ == "__main__":
    model = sys.argv[2]
    path = next(word.removeprefix("--uds=") for word in sys.argv if word.startswith("--uds="))
    print("arguments", *sys.argv[2:], flush=True)
    print("environment", *sorted(name for name in os.environ if name.startswith(("TAILRACE", "VLLM"))), flush=True)
    if model == "crashes":
        print("cannot load the model", file=sys.stderr, flush=True)
        sys.exit(3)
    if model == "stubborn":
        fork_stubborn_family()
    if model == "hangs":
        time.sleep(600)
    serve(path)
