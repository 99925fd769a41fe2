"""Thirty simulated nights on two fake GPUs with noise, and what was planted in them."""

import json

from tests.conftest import receiving
from tests.golden.place import Place
from tests.golden.story import TOML, commit

NIGHTS = 30
GPUS = ("script", "second")
SECOND = 19
"""From this night on, there are two GPUs: each takes as long as the first."""
SETTINGS = """
[check]
enabled = false

[dashboard]
enabled = false

[notify]
targets = { team = "TEAM_URL" }
"""
VARIANTS = ("alpha", "beta", "gamma")
NOISE = {"within": 0.001, "between": 0.001}

COMMITS = {
    5: {"beta": 1.08},  # a step
    9: {"beta": 1 / 1.08},  # the step is taken back
    11: {"gamma": 0.9},  # an improvement
    **{night: {"alpha": 1.006} for night in range(12, 20)},  # a slow drift
    28: {"gamma": 1.05},  # a late step
}
"""By night: the factors of the times of the code that is committed before it."""
WEATHER = {
    7: (1.2, 1.2, "gamma"),  # a spike
    15: (1.1, 1.1, "*"),  # a bad night of the host
    **dict.fromkeys(range(22, 26), (1.0, 1.08, "*")),  # the second GPU is slow
}
"""By night: the factors of both GPUs, and the variant that they apply to."""
WRONG = (17, 18)
"""On these nights, beta returns a wrong result on the first GPU."""
MISSING = (20, 21)
"""On these nights, the suite has no gamma."""
WHOLE = (5, 7, 8, 9, 15, 17, 20, 22, 26, 28)
"""These nights are whole. Of the others only the run is done, in half of the time; the next message has their news."""
GAMMA = ', variant("gamma", params={"REPEAT": 2})'
MODULES = """
SELECT DISTINCT sha256, variant FROM binary_files JOIN measurements USING (binary_id) JOIN cases ON cases.id = case_id
WHERE role = 'module'
"""
VERDICTS = """
SELECT verdict, variant, uuid, metric, round(ratio, 6), baseline_run_id, cause, verdict_reason
FROM levels JOIN series ON series.id = series_id
JOIN cases ON cases.id = case_id JOIN devices ON devices.id = device_id
WHERE run_id = ? AND verdict <> 'unchanged' ORDER BY variant, uuid, metric
"""


class Code:
    """The times of the code: each binary keeps the speed that it had when it was built."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._now = dict.fromkeys(VARIANTS, 1e-4)
        self._built: dict[str, tuple[str, float]] = {}

    def change(self, factors: dict[str, float], message: str) -> None:
        """Commit a change of the source, after which variants take longer by these factors."""
        for digest, variant in self._place.rows(MODULES):
            self._built.setdefault(digest, (variant, self._now[variant]))
        for variant, factor in factors.items():
            self._now[variant] *= factor
        commit(self._place, message, message)

    def play(self, night: int) -> None:
        """Write the scripts of a night."""
        for number, name in enumerate(GPUS):
            *factors, affected = WEATHER.get(night, (1.0, 1.0, "*"))

            def entry(variant: str, seconds: float, factor: float = factors[number], only: str = affected) -> dict:
                return {"seconds": seconds * (factor if only in {variant, "*"} else 1.0), **NOISE}

            cases = {f"scale/{variant}": entry(variant, seconds) for variant, seconds in self._now.items()}
            cases |= {digest: entry(*built) for digest, built in self._built.items()}
            if night in WRONG and not number:
                cases["scale/beta"] = {"fault": "wrong"}
            script = {"cases": cases, "uuid": f"FAKE-{number}", "model": "Fake H100", "seed": 10 * night + number}
            (self._place.folder / f"{name}.json").write_text(json.dumps(script))


def of_thirty_nights(place: Place) -> None:
    """Tell of thirty nights: the verdicts other than unchanged, the messages, and the findings at the end."""
    place.chapter("nights")
    place.own("scale")
    place.git("init", "-q", "-b", "main")
    commit(place, "Begin")
    settings = place.folder / "perfsvc.toml"
    settings.write_text(TOML.format(more=SETTINGS).replace(', "fake:second.json"', ""))
    code = Code(place)
    with receiving() as receiver:
        place.environment["TEAM_URL"] = receiver.address()
        for night in range(1, NIGHTS + 1):
            place.next_day()
            if night == SECOND:
                settings.write_text(TOML.format(more=SETTINGS))
            bench = place.folder / "scale" / "scale" / "bench.py"
            if night == MISSING[0]:
                place.change("scale/scale/bench.py", GAMMA, "")
                commit(place, "Remove gamma")
            if night == MISSING[-1] + 1:
                bench.write_text(place.git("show", "HEAD~1:scale/bench.py") + "\n")
                commit(place, "Bring gamma back")
            if night in COMMITS:
                code.change(COMMITS[night], f"night {night}")
            code.play(night)
            receiver.received.clear()
            command = ("nightly",) if night in WHOLE else ("run", "--confirm", "--seed", str(night))
            ended = place(*command)
            place.write(f"night {night}", "\n".join([f"exit code {ended.code}", *judged(place, ended.out)]))
            for message in receiver.received:
                place.write(f"a message of night {night}", f"{message.json['title']}\n\n{message.json['message']}")
    place.step("the findings", "findings", "--all", widths=(100,))
    for number in (finding["id"] for finding in place("findings", "--all", "--format", "json").json):
        place.step(f"finding {number}", "findings", "show", number, widths=(160,))


def judged(place: Place, out: str) -> list[str]:
    """Return the stages of a night that judge, and its verdicts other than unchanged."""
    told = ("judge", "confirm", "findings", "expect", "measured again")
    stages = [line.rstrip() for line in out.splitlines() if line.removeprefix("✓  ").startswith(told)]
    ((run,),) = place.rows("SELECT max(id) FROM runs")
    return [*stages, *(" | ".join(map(str, verdict)) for verdict in place.rows(VERDICTS, run))]
