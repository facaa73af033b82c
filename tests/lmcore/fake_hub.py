"""A hub on 127.0.0.1, as far as `huggingface_hub` asks for it: the listing of a model, and files by HEAD and GET."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `files` as the model `repo`. Its attributes say how it misbehaves; `asked` is what it was asked."""

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        self.repo, self.files = repo, files
        self.revisions = {"main", COMMIT}
        self.sizes: dict[str, int] = {}
        self.status, self.headers = 200, {}
        self.listing: bytes | None = None
        self.delay_s = self.pause_s = 0.0
        self.asked: list[str] = []
        self.sent = 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def downloaded(self) -> list[str]:
        return [
            line.split("/resolve/")[1].split("/", 1)[1] for line in self.asked if line.startswith("GET /" + self.repo)
        ]

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = unquote(urlsplit(request.path).path)
        self.asked.append(f"{request.command} {path}")
        time.sleep(self.delay_s)
        try:
            if self.status != 200:
                return self.send(request, self.status, b"{}", self.headers, body)
            if path.startswith("/api/models/"):
                return self.list(request, path.removeprefix("/api/models/"), body)
            return self.file(request, path, body)
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True

    def list(self, request: BaseHTTPRequestHandler, path: str, body: bool) -> None:
        repo, _, revision = path.partition("/revision/")
        if repo != self.repo:
            return self.send(request, 401, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
        if revision and revision not in self.revisions:
            return self.send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
        files = [
            {"rfilename": name, "size": self.sizes.get(name, len(data)), "blobId": self.etag(name)}
            for name, data in self.files.items()
        ]
        listing = {"id": repo, "modelId": repo, "sha": COMMIT, "private": False, "tags": [], "siblings": files}
        return self.send(request, 200, self.listing or json.dumps(listing).encode(), {}, body)

    def file(self, request: BaseHTTPRequestHandler, path: str, body: bool) -> None:
        repo, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo != self.repo or revision not in self.revisions or name not in self.files:
            return self.send(request, 404, b"", {"X-Error-Code": "EntryNotFound"}, body)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.etag(name)}"', "Accept-Ranges": "bytes"}
        return self.send(request, 200, self.files[name], headers, body)

    def etag(self, name: str) -> str:
        return hashlib.sha1(self.files[name]).hexdigest()

    def send(self, request: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict, body: bool) -> None:
        request.send_response(status)
        for key, value in ({"Content-Type": "application/json"} | headers).items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        step = 65536
        for at in range(0, len(data) if body else 0, step):
            request.wfile.write(data[at : at + step])
            self.sent += len(data[at : at + step])
            if len(data) > step:
                time.sleep(self.pause_s)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
