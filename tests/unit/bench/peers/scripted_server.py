"""A server as the bench starts it: streams as many tokens as are asked for; what it does wrong is told.

python scripted_server.py PORT right|short|refuses|empty|dies
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, manner = int(sys.argv[1]), sys.argv[2]
if manner == "dies":
    sys.exit("cannot load the model")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert body["ignore_eos"]
        assert body["stream"]
        assert body["temperature"] == 0
        assert body["model"] == "m"
        if manner == "refuses":
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"too long")
            return
        count = body["max_tokens"] - (manner == "short")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for index in range(0 if manner == "empty" else count):
            reason = "length" if index == count - 1 else None
            self._say({"choices": [{"index": 0, "text": "a", "finish_reason": reason}]})
        self._say({"choices": [], "usage": {"completion_tokens": count}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, data: object) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
