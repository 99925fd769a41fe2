"""A git history of a suite with scripted times."""

import shutil
import subprocess

from perfsvc.build.toolchain import FakeToolchain
from perfsvc.model import digest
from perfsvc.suite import Selection, discover

CASE = "scale/beta[n=100]"
SLOW = {"seconds": 1.05e-4}
USUAL = {"seconds": 1e-4}


def git(folder, *arguments, author="Ada"):
    """Run git in a folder as an author; return what it printed."""
    who = ("-c", f"user.name={author}", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", folder, *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class History:
    """A repository with a suite in a folder, and the scripted times of each commit's binary."""

    def __init__(self, perfsvc):
        self.perfsvc = perfsvc
        self.root = perfsvc.folder / "repository"
        self.suite = self.root / "gpu" / "kernels"
        if not self.suite.exists():  # it does in a prepared workplace
            shutil.copytree(perfsvc.suites / "scale", self.suite)
        self.source = self.suite / "scale" / "scale.cu"
        self.bench = self.suite / "scale" / "bench.py"
        self.times = {"*": USUAL}
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        return git(self.root, *arguments)

    def commit(self, subject, text="", times=None):
        """Commit a kernel with this text and these times; return the hash."""
        if text:
            kernel = (self.perfsvc.suites / "scale" / "scale" / "scale.cu").read_text()
            self.source.write_text(f"{kernel}// {text}\n")
        if times:
            self.times[self.binary()] = times
            self.perfsvc.play(self.times)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def binary(self, case=CASE):
        (spec,) = discover(self.suite).resolve(Selection((case,)), "smoke")[0]
        return digest(FakeToolchain().compile(spec.units[0]))

    def line(self, letters):
        """A commit a letter, of which equal ones have equal code: capital ones are slow, ``.`` changes no kernel."""
        for place, letter in enumerate(letters):
            (self.root / "README").write_text(str(place))
            text, times = ("", None) if letter == "." else (letter, SLOW if letter.isupper() else USUAL)
            self.commit(f"commit {place}", text, times)

    @property
    def device(self):
        return f"fake:{self.perfsvc.script}"

    def bisect(self, *arguments, good, bad="HEAD", case=CASE, code=None):
        """What ``perfsvc bisect`` says as JSON."""
        places = ("--suite", self.suite, "--device", self.device, "--format", "json")
        ended = self.perfsvc("bisect", case, "--good", good, "--bad", bad, *places, *arguments, code=code)
        return ended.json if ended.out else ended

    def compare(self, base, new="HEAD", *arguments, code=None, form="json"):
        """What ``perfsvc compare --interleaved`` says, as JSON unless another format is asked for."""
        places = ("--suite", self.suite, "--device", self.device, "--format", form)
        ended = self.perfsvc("compare", "--interleaved", base, new, *places, *arguments, code=code)
        return ended.json if form == "json" and ended.out else ended

    def untouched(self):
        """Whether nothing of a search is left in the repository."""
        return self.git("worktree", "list", "--porcelain").count("worktree ") == 1
