"""A small hub on loopback: one model repository served from a folder, with byte ranges, a log, and planned faults."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Serves `folder` as the model `hub_id`; `log` holds (method, file, range) of every file request.

    cut: file name -> how many bytes to send before the connection drops, once. stall: files whose second half waits for
    `released`. gone: files that are listed but cannot be had. gated: refuse everything. tokens: what was shown.
    """

    def __init__(self, folder: Path, hub_id: str = "someone/model") -> None:
        self.folder = folder
        self.hub_id = hub_id
        self.log: list[tuple[str, str, str | None]] = []
        self.cut: dict[str, int] = {}
        self.gone: set[str] = set()
        self.stall: set[str] = set()
        self.released = threading.Event()
        self.gated = False
        self.tokens: set[str | None] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def fetched(self) -> set[str]:
        """Files whose content was asked for."""
        return {file for method, file, _ in self.log if method == "GET"}


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._serve(body=False)

        def do_GET(self) -> None:
            self._serve(body=True)

        def _serve(self, body: bool) -> None:
            path = self.path.split("?")[0]
            hub.tokens.add(self.headers.get("Authorization"))
            known = re.fullmatch(rf"/(?:api/models/)?{hub.hub_id}(/.*)?", path)
            if known is None:
                return self._error(404, "RepoNotFound")
            if hub.gated:
                return self._error(403, "GatedRepo")
            if path.startswith("/api/"):
                return self._api(known[1] or "")
            match = re.fullmatch(r"/resolve/([^/]+)/(.+)", known[1] or "")
            if match is None or match[1] not in ("main", COMMIT):
                return self._error(404, "RevisionNotFound")
            self._file(match[2], body)

        def _api(self, rest: str) -> None:
            sizes = {name: (hub.folder / name).stat().st_size for name in hub.files()}
            match = re.fullmatch(r"/(?:revision|tree)/([^/]+)/?", rest)
            if match is not None and match[1] not in ("main", COMMIT):
                return self._error(404, "RevisionNotFound")
            if rest.startswith("/tree/"):
                return self._json([{"type": "file", "path": n, "size": s, "oid": _etag(n)} for n, s in sizes.items()])
            siblings = [{"rfilename": n} for n in sizes]
            self._json(
                {
                    "id": hub.hub_id,
                    "modelId": hub.hub_id,
                    "sha": COMMIT,
                    "private": False,
                    "tags": [],
                    "downloads": 0,
                    "likes": 0,
                    "siblings": siblings,
                }
            )

        def _file(self, name: str, body: bool) -> None:
            asked = self.headers.get("Range")
            hub.log.append((self.command, name, asked))
            path = hub.folder / name
            if name in hub.gone or not path.is_file():
                return self._error(404, "EntryNotFound")
            data = path.read_bytes()
            start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("ETag", f'"{_etag(name)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if not body:
                return
            if name in hub.cut:
                self.wfile.write(data[start : start + hub.cut.pop(name)])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            half = (start + len(data)) // 2
            try:
                self.wfile.write(data[start:half])
                self.wfile.flush()
                if name in hub.stall:
                    hub.released.wait()
                self.wfile.write(data[half:])
            except OSError:
                self.close_connection = True  # the client was killed

        def _json(self, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _error(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


def _etag(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()
