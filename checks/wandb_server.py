"""As much of W&B's server as its own client needs for sending runs: what arrives is kept, on this machine."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """A server in place of W&B's.

    `runs` has the number of beginnings, the history, the summary, the artifacts and the exit code of each run id.
    `views` has the workspaces.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, dict[str, Any]] = {}
        self.views: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client hangs up as it likes."""

    def answered(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that a GraphQL query asks for."""
        project = {"id": "P", "name": "project", "entity": {"id": "E", "name": "me"}}
        if "upsertBucket" in query:
            run = self.runs.setdefault(variables["name"], {"begun": 0, "history": {}, "summary": {}, "artifacts": []})
            run["begun"] += variables["project"] != "project"  # later calls go by what they were answered
            bucket = {"id": "B", "name": variables["name"], "displayName": "x", "historyLineCount": 0}
            return {"upsertBucket": {"bucket": bucket | {"project": project}, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/up/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "B", "uploadHeaders": [], "files": files}}
        if "createArtifact" in query:
            artifact = variables["input"]
            self.runs[artifact["runName"]]["artifacts"].append(artifact["artifactTypeName"])
            sequence = {"id": "S", "latestArtifact": {"id": "A", "versionIndex": 0}}
            return {"createArtifact": {"artifact": {"id": "A", "state": "COMMITTED", "artifactSequence": sequence}}}
        if "query ArtifactType(" in query:  # no artifact of this name has another type
            return {"project": None}
        if "upsertView" in query:
            self.views.append(variables)
            return {"upsertView": {"view": {"id": "V", "name": variables["name"]}, "inserted": True}}
        if "serverInfo" in query:
            return {"serverInfo": {"features": [], "cliVersionInfo": {}, "latestLocalVersionInfo": None}}
        viewer = {"id": "V", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer} if "viewer" in query else {}

    def streamed(self, run: dict[str, Any], sent: dict[str, Any]) -> None:
        """Lines of a run's files, from an offset on, and in the end its exit code."""
        run["exit_code"] = sent.get("exitcode", run.get("exit_code"))
        for name, chunk in (sent.get("files") or {}).items():
            rows = [json.loads(line) for line in chunk["content"]]
            if name == "wandb-history.jsonl":
                run["history"] |= dict(enumerate(rows, chunk["offset"]))
            elif name == "wandb-summary.json":
                run["summary"] = rows[-1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        raw = gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw
        answer: dict[str, Any] = {}
        if self.path.endswith("graphql"):
            asked = json.loads(raw)
            answer = {"data": self.server.answered(asked["query"], asked.get("variables") or {})}
        elif self.path.endswith("file_stream"):
            self.server.streamed(self.server.runs[self.path.split("/")[-2]], json.loads(raw))
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST  # noqa: N815


@contextmanager
def serving() -> Iterator[Server]:
    """A server, for as long as the block lasts."""
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
