"""The story: what users do with perfsvc, from the first command on. Each tale has a database of its own."""

import io
import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import pandas as pd

import perfsvc
from perfsvc.config import ServerSettings, Settings
from perfsvc.server.app import make_app
from perfsvc.server.serving import Serving
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store
from tests.conftest import Receiver, receiving
from tests.e2e.history import History
from tests.golden.masks import without_code, without_times
from tests.golden.place import Place
from tests.golden.shown import Database, csv_text, frame_text, json_text, markdown_text, page_text
from tests.unit.formats.test_formats import DATA, FILES

USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.05e-4}
BETA = "scale/beta[n=100]"
TOML = """suite = "scale"

[run]
devices = ["fake:script.json", "fake:second.json"]
points = "smoke"
replicas = 2
{more}"""


def of_a_suite(place: Place) -> None:
    """Tell of a suite on two GPUs, from its first run to the pages of its results."""
    first_runs(place)
    a_regression(place)
    faults(place)
    a_rename(place)
    an_exclusion(place)
    findings(place)
    comparisons(place)
    exports(place)
    frames(place)
    site(place)
    server(place)
    databases(place)


def play(place: Place, cases: dict[str, object], second: dict[str, object] | None = None) -> None:
    """Write the scripts of both GPUs."""
    for number, (name, scripted) in enumerate((("script", cases), ("second", second or cases))):
        script = {"cases": {"*": USUAL, **scripted}, "uuid": f"FAKE-{number}", "model": "Fake H100"}
        (place.folder / f"{name}.json").write_text(json.dumps(script))


def binaries(place: Place) -> dict[str, object]:
    """Return the usual times of all binaries so far."""
    return dict.fromkeys((digest for (digest,) in place.rows("SELECT DISTINCT sha256 FROM binary_files")), USUAL)


def commit(place: Place, message: str, text: str = "") -> None:
    """Commit the suite, with other binaries if a text is added to its source."""
    if text:
        source = place.folder / "scale" / "scale" / "scale.cu"
        source.write_text(f"{source.read_text()}// {text}\n")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", message)


def first_runs(place: Place) -> None:
    """Initialise a folder, list its cases, and measure twice."""
    place.chapter("first-runs")
    place.own("scale")
    place.git("init", "-q", "-b", "main")
    commit(place, "Begin")
    play(place, {})
    place.step("help", "--help")
    place.step("init", "init", "--suite", "scale", widths=(100,))
    place.write("the file perfsvc.toml", (place.folder / "perfsvc.toml").read_text())
    (place.folder / "perfsvc.toml").write_text(TOML.format(more=""))
    place.step("the cases", "list")
    place.step("the cases as JSON", "list", "--format", "json")
    place.step("the settings", "config", "show")
    place.step("the suite is no option of devices", "devices", "--suite", "scale")
    place.step("no database yet", "runs")
    place.step("a mistake in an option", "run", "--replicas", "none")
    place.step("a case that is not there", "run", "--select", "scale/betta")
    one = ("--device", "fake:script.json")  # on two GPUs, the first case to be stored would be a matter of chance
    place.step("the first run", "run", "--seed", "1", *one, widths=(100,))
    place.next_day()
    place.step("the second run", "run", "--seed", "2", "--label", "second", widths=(100,))


def a_regression(place: Place) -> None:
    """Slow a kernel on both GPUs, and speed another one up."""
    place.chapter("regression")
    old = binaries(place)
    commit(place, "Slow beta, speed gamma up", "changed")
    moved = {"scale/beta": SLOW, "scale/gamma": {"seconds": 6e-5}, **old}
    play(place, moved)
    place.next_day()
    place.step("a regression", "run", "--seed", "3", stores=True)
    place.next_day()
    place.step("the regression is confirmed", "run", "--confirm", "--seed", "4", stores=True)
    place.next_day()
    place.step("confirmed, as JSON", "run", "--confirm", "--seed", "5", "--format", "json")
    place.step("the runs", "runs")
    place.step("the runs as JSON", "runs", "--format", "json")
    place.step("the history", "show", BETA)
    place.step("the history as JSON", "show", BETA, "--device", "FAKE-0", "--format", "json")
    place.step("the findings", "findings")
    place.step("a finding", "findings", "show", "1")
    place.step("a finding as JSON", "findings", "show", "1", "--format", "json")
    place.step("a suspect again", "confirm", "--help", widths=(100,))


def faults(place: Place) -> None:
    """Measure wrong results, a crash, a noisy case and a missing case."""
    place.chapter("faults")
    moved = {"scale/beta": SLOW, "scale/gamma": {"seconds": 6e-5}}
    place.next_day()
    play(place, {**moved, "scale/alpha": {"fault": "wrong"}, "scale/gamma": {"fault": "crash", "replica": 1}}, moved)
    place.step("a wrong result and a crash", "run", "--seed", "6", stores=True)
    place.next_day()
    play(place, {**moved, "scale/alpha": {"fault": "refused"}, "scale/gamma": {"fault": "overrun"}}, moved)
    place.step("a refused launch and an overrun", "run", "--seed", "7", "--format", "json")
    place.step("the failures", "report")
    place.next_day()
    noisy = {"seconds": [[8e-5, 1e-4, 1.3e-4, 9e-5], [1.2e-4, 7e-5, 1.4e-4]]}
    play(place, {**moved, "scale/alpha": noisy}, moved)
    place.step("noise", "run", "--strict", "--seed", "8", widths=(100,))
    place.next_day()
    play(place, moved)
    place.change("scale/scale/bench.py", ', variant("gamma", params={"REPEAT": 2})', "")
    place.step("a missing case and an uncommitted change", "run", "--seed", "9", widths=(100,))
    place.git("checkout", "-q", ".")
    place.step("findings of all kinds", "findings")


def a_rename(place: Place) -> None:
    """Rename a variant; its history goes on."""
    place.chapter("rename")
    place.next_day()
    place.change("scale/scale/bench.py", 'variant("alpha")', 'variant("first", formerly="alpha")')
    commit(place, "Rename alpha")
    play(place, {"scale/beta": SLOW, "scale/gamma": {"seconds": 6e-5}})
    place.step("a run of a renamed case", "run", "--seed", "10", widths=(100,))
    place.step("its history", "show", "scale/first", "--device", "FAKE-0")
    place.step("its former name", "show", "scale/alpha[n=100]", "--device", "FAKE-0")
    place.step("the cases", "list")


def an_exclusion(place: Place) -> None:
    """Exclude a slow night of both GPUs, include it again, exclude a case, and delete a run."""
    place.chapter("exclusion")
    place.next_day()
    play(place, {name: {"seconds": 1.2e-4} for name in ("scale/first", "scale/beta", "scale/gamma")})
    place.step("a slow night", "run", "--seed", "11", stores=True)
    place.step("its findings", "findings")
    place.step("a reason is required", "runs", "exclude", "11")
    place.step("exclude it", "runs", "exclude", "11", "--reason", "a training job shared the GPU", stores=True)
    place.step("the runs", "runs")
    place.step("the history", "show", "scale/first", "--device", "FAKE-1")
    place.step("the run", "report", "11")
    place.step("include it", "runs", "include", "11", stores=True)
    place.step("exclude a case", "runs", "exclude", "11", "scale/first", "--reason", "only this one", stores=True)
    place.step("exclude it again", "runs", "exclude", "11", "--reason", "all of it", "--format", "json")
    place.step("who did what", "runs", "history")
    place.step("who did what as JSON", "runs", "history", "--format", "json")
    place.next_day()
    play(place, {"scale/beta": SLOW, "scale/gamma": {"seconds": 6e-5}})
    place.step("the night after", "run", "--seed", "12", widths=(100,))
    place.step("a run that a finding needs", "runs", "delete", "4", "--yes", "--reason", "no", stores=True)
    place.step("delete a run", "runs", "delete", "8", "--yes", "--reason", "it was noisy", stores=True)
    place.step("environments", "runs", "environment", "1", "12")


def findings(place: Place) -> None:
    """Do everything that people do with findings."""
    place.chapter("findings")
    place.step("the open findings", "findings")
    place.step("all findings as JSON", "findings", "--all", "--format", "json")
    place.step("acknowledge", "findings", "ack", "1", "--comment", "looking", stores=True)
    place.step("assign", "findings", "assign", "1", "grace", stores=True)
    place.step("comment", "findings", "comment", "1", "it is the new tile", stores=True)
    place.step("resolve", "findings", "resolve", "1", "--comment", "fixed", stores=True)
    place.step("reopen", "findings", "reopen", "1", "--comment", "not fixed", stores=True)
    place.step("ignore", "findings", "ignore", "1", "--until", "14d", stores=True)
    place.step("accept", "findings", "accept", "1", "--reason", "more accurate", stores=True)
    place.step("accept twice", "findings", "accept", "1", "--reason", "again")
    place.step("no such finding", "findings", "show", "99")
    place.step("its history", "findings", "show", "1")
    place.step("all findings", "findings", "--all")


REDUCED = dict.fromkeys(("json", "sarif", "codequality"), json_text)
REDUCED |= {"html": page_text, "csv": csv_text, "markdown": markdown_text}
COMPARED = ("json", "github", "junit", "csv", "html", "sarif", "codequality")


def comparisons(place: Place) -> None:
    """Compare two runs, revisions, GPUs and variants, and a run with its baseline, in each format."""
    place.chapter("compare")
    place.step("two runs", "compare", "2", "3")
    for form in COMPARED:
        ended = place("compare", "2", "3", "--format", form)
        shown = REDUCED.get(form, str)(ended.out)
        place.write(f"two runs as {form}", f"exit code {ended.code}\n{shown}\n{ended.err}")
    files = [word for suffix in ("md", "csv", "html") for word in ("--output", f"compared.{suffix}")]
    place.step("into files", "compare", "2", "3", *files)
    place.step("the baseline", "compare", "@baseline", "latest")
    place.step("faults", "compare", "2", "6")
    place.step("revisions", "compare", "HEAD~2", "HEAD~1")
    place.step("a threshold", "compare", "2", "3", "--threshold", "10%", "--select", "scale/beta")
    place.step("two GPUs", "compare", "--gpus", "FAKE-0", "FAKE-1", "6")
    place.step("two variants", "compare", "--variants", "scale/beta", "scale/gamma", "12")
    place.step("two variants as JSON", "compare", "--variants", "scale/beta", "scale/gamma", "12", "--format", "json")
    place.step("no such run", "compare", "2", "77")
    place.step("pin the baseline", "baseline", "set", "2", "--select", "scale/gamma", "--comment", "v1", stores=True)
    place.step("the pins", "baseline", "show")
    place.step("the baseline with a pin", "compare", "@baseline", "12")
    place.step("unpin", "baseline", "clear", stores=True)


def exports(place: Place) -> None:
    """Export measurements in each format."""
    place.chapter("report")
    place.step("a table", "report", "3")
    for form in ("csv", "json", "markdown", "html"):
        ended = place("report", "3", "--format", form)
        place.write(f"a run as {form}", REDUCED.get(form, str)(ended.out))
    ended = place("report", "--all", "--summary", "--format", "csv")
    place.write("a summary of all runs as csv", csv_text(ended.out))
    for name, read in (("all.parquet", pd.read_parquet), ("all.xlsx", pd.read_excel)):
        place.step(f"into {name}", "report", "2", "--output", name)
        place.write(f"the frame of {name}", frame_text(read(place.folder / name)))


def frames(place: Place) -> None:
    """Read everything with the Python API."""
    place.chapter("frames")
    with perfsvc.open(place.database, suite=place.folder / "scale", config="/dev/null") as opened:
        for title, frame in (
            ("runs", opened.runs()),
            ("measurements", opened.measurements(runs=[3, 6])),
            ("summary", opened.summary(select="scale/beta")),
            ("samples", opened.samples(runs=1, select="scale/beta", device="FAKE-0").head(12)),
            ("verdicts", opened.verdicts()),
            ("findings", opened.findings()),
            ("finding_series", opened.finding_series()),
            ("compare", opened.compare("2", "3")),
            ("history", opened.history(BETA, device="FAKE-1")),
        ):
            place.write(title, frame_text(frame))


def site(place: Place) -> None:
    """Build the dashboard, and read its pages."""
    place.chapter("dashboard")
    place.step("build", "dashboard", "build", "pages", widths=(100,))
    pages = place.folder / "pages"
    names = sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*") if path.is_file())
    place.write("the files", "\n".join(names))
    wanted = [name for name in names if name.endswith(".html") and not name.startswith(("series/", "compare/"))]
    wanted += ["compare/12.html", next(name for name in names if name.startswith("series/scale-beta"))]
    for name in wanted:
        place.write(name, page_text((pages / name).read_text()))


SERVED = (
    *("runs?limit=3", "runs/3", "runs/3/results?limit=2", "runs/3/verdicts", "runs/99", "runs?limit=none"),
    *("series?text=beta", "findings?limit=4", "findings/1", "explanations?finding=1", "compare?base=2&new=3"),
)


def server(place: Place) -> None:
    """Ask the server for its API, its feeds, its badges and its pages."""
    place.chapter("server")
    with asking(place) as client:
        for path in SERVED:
            answer = client.get(f"/api/v1/{path}")
            place.write(f"GET /api/v1/{path}", f"{answer.status_code}\n{json_text(answer.text)}")
        described = client.get("/api/v1/openapi.json").json()
        place.write("GET /api/v1/openapi.json", "\n".join(outlined(described)))
        key = client.get("/api/v1/series?text=beta").json()["items"][0]["key"]
        for path in ("feeds/findings.atom", "badges/findings.svg", f"badges/series/{key}.svg", "metrics", "healthz"):
            answer = client.get(f"/{path}")
            place.write(f"GET /{path}", f"{answer.status_code}\n{answer.text}")
        built = place.folder / "pages"
        for path in ("index.html", "findings.html", "findings/1.html", f"series/{key}.html", "compare/12.html", "none"):
            answer = client.get(f"/{path}", headers={"accept": "text/html"})
            text = page_text(answer.text)
            file = built / path
            same = file.exists() and page_text(file.read_text()) == text
            place.write(f"GET /{path}", f"{answer.status_code}\n{'same as the built page' if same else text}")


@contextmanager
def asking(place: Place) -> Iterator[object]:
    """Yield a client of the server's application."""
    with warnings.catch_warnings(action="ignore"):  # it prefers another package than httpx
        from starlette.testclient import TestClient
    quiet = redirect_stdout(io.StringIO())  # the log of the server
    with quiet, Store.open(place.database, create=False, read_only=True) as store:
        settings = Settings(server=ServerSettings())
        app = make_app(Serving(store, settings, LivePages(store), None, place.folder / "scale"))
        with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
            yield client


def outlined(described: dict) -> Iterator[str]:
    """Yield the operations of the API, their parameters and the fields of their answers."""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            named = [f"{each.get('name', each)}:{each.get('in', '')}" for each in operation.get("parameters", [])]
            yield f"{method} {path} ({', '.join(named)}) -> {', '.join(operation['responses'])}"
    for name, schema in described.get("components", {}).get("schemas", {}).items():
        yield f"{name}: {', '.join(schema.get('properties', {}))}"


def databases(place: Place) -> None:
    """Check and copy the database, and write all of its rows down."""
    place.chapter("database")
    place.step("check", "db", "check", widths=(100,))
    place.step("what would be copied", "sync", "--dry-run", "perfsvc.db", "copy.db")
    place.step("copy", "sync", "perfsvc.db", "copy.db", widths=(100,))
    place.step("copy again", "sync", "perfsvc.db", "copy.db", widths=(100,))
    place.step("the copied runs", "runs", "--db", "copy.db")
    place.write("all rows", Database(place.database).text())


# --- other tales -----------------------------------------------------------------------------------------------------


def of_imports(place: Place) -> None:
    """Tell of the results of other tools."""
    place.chapter("imports")
    for form, name in FILES.items():
        (shutil.copytree if (DATA / name).is_dir() else shutil.copy)(DATA / name, place.folder / name)
        at = () if form == "asv" else ("--at", "2026-03-01T03:00")
        place.step(f"import {form}", "import", form, name, "--label", form, *at, widths=(100,))
    place.step("once more", "import", "hyperfine", "hyperfine.json")
    place.step("as JSON", "import", "csv", "csv.csv", "--format", "json", "--suite-name", "other")
    place.step("a file of another format", "import", "nvbench", "csv.csv")
    place.step("the runs", "runs")
    place.step("a report", "report", "nvbench")
    place.write("all results", csv_text(place("report", "--all", "--summary", "--format", "csv").out))


def of_three_nights(place: Place) -> None:
    """Tell of three unattended nights and the messages that they send."""
    place.chapter("nightly")
    place.own("scale")
    place.git("init", "-q", "-b", "main")
    commit(place, "Begin")
    more = '[check]\nenabled = false\n[notify]\ntargets = { team = "TEAM_URL" }\npage = "https://perf.example.org"\n'
    (place.folder / "perfsvc.toml").write_text(TOML.format(more=more))
    with receiving() as receiver:
        place.environment["TEAM_URL"] = receiver.address()
        play(place, {})
        place("run", "--device", "fake:script.json", "--seed", "1", code=0)
        a_night(place, receiver, "a usual night")
        old = binaries(place)
        commit(place, "Slow beta", "changed")
        play(place, {"scale/beta": SLOW, **old})
        a_night(place, receiver, "a regression")
        play(place, {"scale/alpha": {"fault": "wrong"}})
        a_night(place, receiver, "beta is back, alpha is wrong", "--format", "json")
    place.step("the findings", "findings", "--all")
    place.step("what each night should have", "expect")
    place.step("hosts", "watchdog", widths=(100,))
    place.write("the database", Database(place.database).text())


def a_night(place: Place, receiver: Receiver, title: str, *options: str) -> None:
    """Run a night, and write down its messages."""
    place.next_day()
    receiver.received.clear()
    place.step(title, "nightly", *options, widths=(100,))
    for message in receiver.received:
        place.write("a message", "\n".join(f"{name}: {value}" for name, value in message.json.items()))
    place.write("messages", f"{len(receiver.received)}")


def of_a_search(place: Place) -> None:
    """Tell of a commit that slowed a kernel, found by bisection and by comparing two revisions."""
    place.chapter("bisect")
    history = History(place)
    history.line("aa.bBB")
    history.source.write_text("#error not yet\n")
    history.commit("half done")
    history.line("C")
    where = ("--suite", "repository/gpu/kernels", "--device", "fake:script.json")
    place.step("the slow commit", "bisect", BETA, "--good", "HEAD~7", *where, "--seed", "1")
    place.step("as JSON", "bisect", BETA, "--good", "HEAD~7", *where, "--seed", "1", "--format", "json")
    place.step("a search without a change", "bisect", BETA, "--good", "HEAD~7", "--bad", "HEAD~5", *where)
    place.step("the commit that broke it", "bisect", BETA, "--good", "HEAD~7", "--bad", "HEAD~1", *where)
    place.step("two revisions", "compare", "--interleaved", "HEAD~7", "HEAD", *where)
    place.step("as JSON", "compare", "--interleaved", "HEAD~7", "HEAD", *where, "--format", "json")


def of_a_check(place: Place) -> None:
    """Tell of kernels that are compiled and not run; what depends on the version of nvcc is masked."""
    place.chapter("check")
    place.mask_more = without_code
    place.own("scale")
    place.change(
        "scale/scale/bench.py", 'variant("gamma", params={"REPEAT": 2})', 'variant("gamma", shared_bytes=16384)'
    )
    place.git("init", "-q", "-b", "main")
    commit(place, "Begin")
    place.environment["PERFSVC_CACHE"] = str(place.shared_cache)
    where = ("--suite", "scale", "--arch", "sm_90", "--points", "smoke")
    place.step("the first check", "check", *where, stores=True)
    place.change("scale/scale/bench.py", "shared_bytes=16384", "shared_bytes=65536")
    place.step("less occupancy", "check", *where, stores=True)
    place.step("against a revision", "check", *where, "--base", "HEAD")
    for form in ("json", "markdown", "junit", "github", "sarif", "codequality"):
        place.step(f"as {form}", "check", *where, "--base", "HEAD", "--format", form)
    place.step("all facts", "check", *where, "--all", stores=True)
    commit(place, "More tiles")
    place.step("accept", "check", *where, "--accept", "more tiles", stores=True)
    place.step("after that", "check", *where, widths=(100,))


def of_the_cpu(place: Place) -> None:
    """Tell of a run on the CPU device, whose times are masked."""
    place.chapter("cpu")
    place.mask_more = without_times
    place.environment["PERFSVC_CACHE"] = str(place.shared_cache)
    place.own("ladder")
    run = ("run", "--device", "cpu", "--suite", "ladder", "--replicas", "1", "--seed", "1")
    place.step("a run", *run, widths=(100,))
    place.step("as JSON", *run, "--db", "other.db", "--format", "json")
