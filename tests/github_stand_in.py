"""A stand-in for GitHub's REST API on this machine, with GitHub's limits and errors, and a runner of ``action.yml``."""

import json
import re
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

ROOT = Path(__file__).parents[1]
REPOSITORY = "ada/kernels"
BOT = {"login": "github-actions[bot]", "type": "Bot"}
PERSON = {"login": "mallory", "type": "User"}


class Refused(Exception):  # noqa: N818 - an answer
    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


@dataclass
class Github:
    """What GitHub holds.

    Attributes:
        faults: answers for the next requests: for each, a pattern of method and path, and the answer. A fault ``after``
            is answered although GitHub has done what was asked.
        writable: whether the token may write.
        requests: all requests, as ``POST /path``.
    """

    token: str = "a-secret-token"  # noqa: S105 - of the stand-in
    writable: bool = True
    check_runs: list[dict] = field(default_factory=list)
    comments: list[dict] = field(default_factory=list)
    pulls: dict[int, dict] = field(default_factory=dict)
    faults: list[tuple[str, Refused]] = field(default_factory=list)
    faults_after: list[tuple[str, Refused]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def answer(self, method: str, url: str, headers, body: Any) -> Any:
        parts = urlsplit(url)
        path, query = parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append(f"{method} {path}")
        self._fault(self.faults, method, path)
        if headers["Authorization"] != f"Bearer {self.token}":
            raise Refused(401, "Bad credentials")
        if method != "GET" and not self.writable:
            raise Refused(403, "Resource not accessible by integration")
        answer = self._answer(method, path.removeprefix(f"/repos/{REPOSITORY}"), query, body)
        self._fault(self.faults_after, method, path)
        return answer

    def _fault(self, faults, method: str, path: str) -> None:
        for fault in faults:
            pattern, refused = fault
            if re.search(pattern, f"{method} {path}"):
                faults.remove(fault)
                raise refused

    def _answer(self, method: str, path: str, query: dict, body: Any) -> Any:  # noqa: PLR0911 - one for each request
        match method, path.strip("/").split("/"):
            case "POST", ["check-runs"]:
                valid(re.fullmatch("[0-9a-f]{40}", body["head_sha"]), "head_sha")
                run = {"id": 100 + len(self.check_runs), "output": {"annotations": []}}
                self.check_runs.append(run)
                return update_check_run(run, body)
            case "PATCH", ["check-runs", number]:
                (run,) = [run for run in self.check_runs if str(run["id"]) == number]
                return update_check_run(run, body)
            case "GET", ["issues", number, "comments"]:
                size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
                valid(size <= 100, "per_page")
                found = [comment for comment in self.comments if str(comment["issue"]) == number]
                return found[size * (page - 1) : size * page]
            case "POST", ["issues", number, "comments"]:
                valid(len(body["body"]) <= 65_536, "body is too long")
                self.comments.append(
                    {"id": 500 + len(self.comments), "issue": int(number), "user": BOT, "body": body["body"]}
                )
                return self.comments[-1]
            case "PATCH", ["issues", "comments", number]:
                valid(len(body["body"]) <= 65_536, "body is too long")
                (comment,) = [comment for comment in self.comments if str(comment["id"]) == number]
                comment["body"] = body["body"]
                return comment
            case "GET", ["pulls", number]:
                return self.pulls[int(number)]
            case "GET", ["pulls"]:
                return [pull for pull in self.pulls.values() if pull["head"]["label"] == query["head"]]
        raise Refused(404, "Not Found")


def valid(condition: Any, what: str) -> None:
    if not condition:
        raise Refused(422, f"Invalid request: {what}")


def update_check_run(run: dict, body: dict) -> dict:
    out = body["output"]
    valid(len(out["annotations"]) <= 50, "no more than 50 annotations")
    valid(out["title"] and len(out["title"]) <= 255, "title")
    valid(len(out["summary"]) <= 65_535, "summary")
    for annotation in out["annotations"]:
        valid(annotation["path"] and not annotation["path"].startswith("/"), "path")
        valid(annotation["start_line"] >= 1 and annotation["end_line"] >= annotation["start_line"], "line")
        valid(annotation["annotation_level"] in {"notice", "warning", "failure"}, "annotation_level")
        valid(len(annotation["title"]) <= 255, "annotation title")
        valid(annotation["message"] and len(annotation["message"].encode()) <= 65_536, "message")
    earlier = run["output"]["annotations"]
    run |= body
    run["output"] = {**out, "annotations": [*earlier, *out["annotations"]]}  # GitHub adds them, and removes none
    return run


class Handler(BaseHTTPRequestHandler):
    def handle_request(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        github = self.server.github  # type: ignore[attr-defined] # set by serve()
        try:
            status, extra = 200, {}
            answer = github.answer(self.command, self.path, self.headers, json.loads(content) if content else None)
        except Refused as refused:
            status, extra, answer = refused.status, refused.headers, {"message": str(refused)}
        written = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**extra, "Content-Length": str(len(written))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(written)

    do_GET = do_POST = do_PATCH = handle_request  # noqa: N815 - the names of the base class

    def log_message(self, *_: Any) -> None:
        pass


class Serving:
    """A context manager that serves a ``Github`` on the loopback interface; its value is the API's address."""

    def __init__(self, github: Github) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.github = github  # type: ignore[attr-defined] # read by Handler

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


# --- the runner -------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """What the steps of the action did, and the exit code of the first that failed."""

    code: int = 0
    printed: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


class Runner:
    """Runs the steps of ``action.yml`` as GitHub's runner does: the values of expressions are in variables.

    Args:
        folder: an empty folder for the files of the runner.
        environment: the variables of every step.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.action = yaml.safe_load((ROOT / "action.yml").read_text())

    def run(self, checkout: Path, **inputs: str) -> Job:
        """Run the action in a checkout with these inputs; ``-`` is written ``_`` in their names."""
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(given) <= set(self.action["inputs"])
        values = {f"inputs.{name}": given.get(name, entry.get("default", "")) for name, entry in self._inputs()}
        values |= {"github.action_path": str(ROOT), "github.token": self.environment.get("GITHUB_TOKEN", "")}
        values = {name: self._filled(str(value), values) for name, value in values.items()}
        job = Job()
        for number, step in enumerate(self.action["runs"]["steps"]):
            condition = step.get("if", "")
            if (job.code and "always()" not in condition) or not true(condition, values):
                continue
            self._step(step, number, values, checkout, job)
        job.outputs = {name: self._filled(entry["value"], values) for name, entry in self.action["outputs"].items()}
        return job

    def _inputs(self):
        return self.action["inputs"].items()

    def _step(self, step: dict, number: int, values: dict[str, str], checkout: Path, job: Job) -> None:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
        written, script = self.folder / f"output-{number}", self.folder / f"step-{number}.sh"
        summary = self.folder / f"summary-{number}"
        for file in (written, summary):
            file.write_text("")
        script.write_text(step["run"])
        variables = {name: self._filled(value, values) for name, value in step["env"].items()}
        files = {"GITHUB_OUTPUT": str(written), "GITHUB_STEP_SUMMARY": str(summary), "RUNNER_TEMP": str(self.folder)}
        environment = {name: value for name, value in self.environment.items() if name != "GITHUB_TOKEN"}
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=checkout,
            env=environment | files | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        job.code = job.code or ended.returncode
        job.printed += ended.stdout
        job.summary += summary.read_text()
        for line in written.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{name}"] = value

    def _filled(self, text: str, values: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: value_of(match[1], values), text)


def value_of(expression: str, values: dict[str, str]) -> str:
    """Return the value of a name, of a quoted text, or of the first of several that is not empty."""
    for term in expression.split(" || "):
        known = re.fullmatch(r"(?:inputs|steps|github)\.[\w.-]+", term)
        assert known or re.fullmatch("'[^']*'", term), term
        if value := values.get(term, "") if known else term.strip("'"):
            return value
    return ""


def true(condition: str, values: dict[str, str]) -> bool:
    """Return whether a condition of a step holds: comparisons with ``&&`` and ``||``."""
    return not condition or any(
        all(comparison(term, values) for term in part.split(" && ")) for part in condition.split(" || ")
    )


def comparison(term: str, values: dict[str, str]) -> bool:
    if term == "always()":
        return True
    left, operator, right = term.split(" ")
    assert operator in {"==", "!="}
    return (value_of(left, values) == value_of(right, values)) is (operator == "==")
