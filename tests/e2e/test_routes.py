"""What arrives at which target on which night: routes, reminders and digests, by whole nights and a real web server."""

import shutil
import sqlite3
from collections import defaultdict

import pytest

from tests.e2e.history import git
from tests.e2e.nights import SLOW, USUAL, Nights

SETTINGS = """
[notify]
targets = {team = "TEAM_URL", alice = "ALICE_URL", ops = "OPS_URL"}
digest = "weekly"

[[notify.route]]
targets = "alice"
cases = "*/gamma"
severity = "regression"

[[notify.route]]
targets = "ops"
severity = ["failed", "missing"]
"""
VARIANTS = {"alpha", "beta", "gamma"}
DIGESTS = """
select distinct sha256 from binary_files join measurements using (binary_id) join cases on cases.id = case_id
where role = 'module' and variant = ?
"""
A_WEEK_AGO = "update {table} set {column} = strftime('%Y-%m-%d %H:%M:%f000', {column}, '-7 days')"


class RoutedNights:
    """Nights of a suite in a git repository that send to three targets of one web server."""

    def __init__(self, perfsvc, receiver):
        self.perfsvc, self.receiver = perfsvc, receiver
        self.nights = Nights(perfsvc, SETTINGS)
        for name in ("team", "alice", "ops"):
            perfsvc.environment[f"{name.upper()}_URL"] = receiver.address(path=name)
        self._binaries: dict[str, dict] = {}
        self._slow: dict[str, dict] = {}
        self.git("init", "-q", "-b", "main")
        self.commit("Add a suite")

    def git(self, *arguments, author="Ada"):
        return git(self.nights.suite, *arguments, author=author)

    def commit(self, subject, author="Ada"):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject, author=author)

    def change(self, slow=(), subject="Rebuild it", seconds=SLOW):
        """Commit new binaries of all cases; those of some variants are slower. Older binaries stay as they are."""
        for variant in VARIANTS:
            for (digest,) in self.perfsvc.rows(DIGESTS, variant):
                self._binaries.setdefault(digest, self._slow.get(variant, USUAL))
        self.perfsvc.rebuild(self.nights.suite)
        self.commit(subject)
        self._slow = dict.fromkeys(slow, seconds)
        self.perfsvc.play(
            {"*": USUAL} | {f"scale/{name}": level for name, level in self._slow.items()} | self._binaries
        )

    def night(self):
        """Do a night, and return the message of each target by the target's name."""
        before = len(self.receiver.received)
        self.nights()
        messages = defaultdict(list)
        for request in self.receiver.received[before:]:
            messages[request.path.strip("/")].append(request.json)
        assert all(len(of_target) == 1 for of_target in messages.values())
        return {target: message for target, (message,) in messages.items()}

    def titles(self):
        return {target: message["title"] for target, message in self.night().items()}

    def let_a_week_pass(self):
        """Date back everything that reminders and digests count from."""
        for table, column in (("finding_events", "done_at"), ("messages", "created_at"), ("nights", "started_at")):
            self.execute(A_WEEK_AGO.format(table=table, column=column))
        shutil.rmtree(self.perfsvc.folder / "data")  # it would remember another time

    def execute(self, statement):
        connection = sqlite3.connect(self.perfsvc.database)
        with connection:
            connection.execute(statement)
        connection.close()


@pytest.fixture
def nights(perfsvc, receiver):
    return RoutedNights(perfsvc, receiver)


def test_each_target_receives_what_its_routes_take_on_the_night_it_happens(nights):
    assert nights.titles() == {}
    nights.change(slow=["beta"])
    assert nights.titles() == {"team": "scale/beta[n=100] slower by 5 %"}
    nights.change(slow=["beta", "gamma"])
    both = "scale/gamma[n=100] slower by 5 %"
    assert nights.titles() == {"team": both, "alice": both}
    assert nights.titles() == {}
    nights.perfsvc.play({"*": USUAL, "scale/alpha": {"fault": "wrong"}})
    titles = nights.titles()
    assert titles == {"team": titles["team"], "ops": "scale/alpha[n=100] has a wrong result"}
    assert titles["team"].startswith("scale/alpha[n=100] has a wrong result, 2 resolved findings")
    nights.nights.usual()
    assert nights.titles() == {"team": "scale/alpha correct again"}


def test_a_finding_comes_with_its_commits_its_levels_and_the_command_that_shows_more(nights):
    for _ in range(3):
        nights.night()
    for number in range(5):
        nights.commit(f"Prepare {number}")
    nights.commit("Greet @everyone [here](http://evil)", author="Eve <!channel>")
    nights.change(slow=["beta"], subject="Use float4 loads")
    body = nights.night()["team"]["message"]
    lines = body.splitlines()
    assert "scale/beta[n=100] in the last 4 nights: ▁▁▁█" in lines
    first, second, *_, more = lines[lines.index("Commits:") + 1 : lines.index("perfsvc findings show 1")]
    head = nights.git("rev-parse", "--short=9", "HEAD")
    assert first == f"- {head} Use float4 loads (Ada)"
    assert "Greet @\u200beveryone [here]\u200b(http://evil) (Eve" in second
    assert more == f"- and 2 more: git log {nights.git('rev-parse', '--short=9', 'HEAD~7')}..{head}"
    assert "@everyone" not in body


def test_an_unseen_finding_is_repeated_after_a_week_until_a_person_answers(nights):
    nights.night()
    nights.change(slow=["gamma"])
    assert set(nights.titles()) == {"team", "alice"}
    assert nights.titles() == {}
    nights.let_a_week_pass()
    reminder = "scale/gamma[n=100] slower by 5 %, unanswered for 7 days"
    titles = nights.titles()
    assert titles == {"team": reminder, "alice": reminder, "ops": titles["ops"]}
    assert titles["ops"].startswith("a quiet week: ")
    assert "reminded" in nights.perfsvc("findings", "show", "1", code=0).out
    assert nights.titles() == {}
    nights.perfsvc("findings", "comment", "1", "I look at it", code=0)
    nights.let_a_week_pass()
    assert all(title.startswith("a quiet week: ") for title in nights.titles().values())
