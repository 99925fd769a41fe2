"""The line of each key of a TOML file, however the file is written."""

import tomllib

from perfsvc.config.file import lines_of

TEXT = '''# a comment with key = 1
suite = "x # no comment" # one
"quo.ted" = """
multi = 1
[not]
"""
[run]
devices = [
  "a",  # one
  'b]', "c",
]
a.b = {x = 1, y = [1, {z = 3.5}]}
[[thresholds]]
change = 1979-05-27T07:32:00Z
[[thresholds]]

change = """a"""""
[thresholds.sub]
k = [[1],
 [2, [3]]]
[notify . "targets"]
 t = '\\'
last = true'''

PATHS = {
    2: "suite",
    3: "quo.ted",
    7: "run",
    8: "run/devices",
    9: "run/devices/0",
    10: "run/devices/1 run/devices/2",
    12: "run/a run/a/b run/a/b/x run/a/b/y run/a/b/y/0 run/a/b/y/1 run/a/b/y/1/z",
    13: "thresholds thresholds/0",
    14: "thresholds/0/change",
    15: "thresholds/1",
    17: "thresholds/1/change",
    18: "thresholds/1/sub",
    19: "thresholds/1/sub/k thresholds/1/sub/k/0 thresholds/1/sub/k/0/0",
    20: "thresholds/1/sub/k/1 thresholds/1/sub/k/1/0 thresholds/1/sub/k/1/1 thresholds/1/sub/k/1/1/0",
    21: "notify notify/targets",
    22: "notify/targets/t",
    23: "notify/targets/last",
}
LINES = {
    tuple(int(key) if key.isdigit() else key for key in path.split("/")): line
    for line, paths in PATHS.items()
    for path in paths.split()
}


def key_paths(value, path=()):
    """The path of every value inside a parsed one."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} - {()} | {inner for key, child in children for inner in key_paths(child, (*path, key))}


def test_every_key_has_its_line():
    assert dict(lines_of(TEXT)) == LINES
    assert key_paths(tomllib.loads(TEXT)) == set(LINES)


def test_an_element_of_several_lines_has_the_line_that_it_begins_with():
    text = '[run]\nselect = [\n  "a",\n  ["b",\n   "c"],\n  """d\ne""",\n  "f",\n]\n'
    lines = lines_of(text)
    assert [lines["run", "select", element] for element in range(4)] == [3, 4, 6, 8]


def test_each_element_of_a_long_array_has_its_line():
    elements = [f'"x{number}"' if number % 3 else f'[{number}, "[,"]' for number in range(1000)]
    with_comments = "".join(f"  {element}, # {element}\n\n" for element in elements)
    commas_first = "".join(f"  , {element}\n" for element in elements[1:])
    text = f"[run]\na.'b]' = [\n{with_comments}]\nlast = [ {elements[0]}\n{commas_first}]\nend = 1\n"
    lines = lines_of(text)
    assert key_paths(tomllib.loads(text)) == set(lines)
    for number in range(1000):
        assert lines["run", "a", "b]", number] == 3 + 2 * number
        assert lines["run", "last", number] == 2004 + number
    assert lines["run", "a", "b]", 999, 1] == 2001
    assert lines["run", "end"] == 3005


def test_text_that_is_not_toml_raises_nothing():
    for text in ("", "x", "= 3", "x = [1,", "]]]", "a = }", "a = {,\n]", "x = [ }", '"'):
        assert len(lines_of(text)) < 4
