# SPDX-License-Identifier: Apache-2.0
"""Renders the page of `rankstore stats --html` in headless Chromium and checks what is really there: each picture has its
marks, as large as their numbers say, and its labels, none outside, none on another; colours with contrast in light, dark and on
paper; nothing from elsewhere, and hostile names as text."""
import base64
import collections
import html.parser
import json
import os
import random
import re
import subprocess
import sys
import tempfile

from support.report import SEED

HOSTILE = "</title><script>document.title='gone'</script>\"'&amp;\u202e\x1b[31m"
LIMIT = 900  # seconds: only ends what hangs
WORDS = {"lengths", "column", "padding", "balance", "largest", "bytes", "tokens"}


def rankstore(*words):
    return subprocess.run(["rankstore", *words], check=True, capture_output=True, timeout=LIMIT).stdout


def chromium(*words, home):
    return subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions",
                           "--disable-dev-shm-usage",  # which may be small, as in a container
                           "--virtual-time-budget=2000", f"--user-data-dir={home}", *words],
                          check=True, capture_output=True, timeout=LIMIT).stdout.decode()


def dark(wanted):
    return ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if wanted else []


def render(path, home, is_dark, width):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    with open(os.path.join(os.path.dirname(__file__), "page_probe.js"), encoding="utf-8") as file:
        probe = file.read()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; [^"]*">', page).group()
    measured = path + ".probe.html"
    with open(measured, "w", encoding="utf-8") as file:  # the policy would forbid the probe, too
        file.write(page.replace(policy, "").replace("</body>", f"<script>{probe}</script></body>"))
    dom = chromium("--dump-dom", f"--window-size={width},1200", *dark(is_dark), "file://" + measured, home=home)
    return json.loads(base64.b64decode(re.search(r'<pre id="probe">([^<]+)</pre>', dom).group(1)))


# ---- colours ----------------------------------------------------------------------------------

def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# ---- what is asked of every page ---------------------------------------------------------------

class Balance(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "rect", "line", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "line", "path") and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def self_contained(path):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    balance = Balance()
    balance.feed(page)
    assert not balance.wrong and not balance.open, (balance.wrong, balance.open)
    for foreign in ("http:", "https:", "//", "<script", "<link", "<img", "<iframe", "@import", "url(", " src=", " href=", " on"):
        where = re.search(re.escape(foreign), re.sub(r"<[^>]*>|<style>.*?</style>", lambda tag: tag.group() if foreign[0] in "< u@" else "",
                                                       page, flags=re.S))
        assert where is None or foreign == " on", f"{foreign} at {where.start()}"
    assert not re.search(r"<[^>]*\son\w+=", page)
    assert not re.search("[\u0000-\u0008\u000b-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2060-\u206f]", page)
    assert os.path.getsize(path) < 600_000, os.path.getsize(path)


def overlap(one, other):
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return across > 1 and down > 2.5  # boxes of lines of text have air above and below


def drawn_well(picture):
    name, frame = picture["id"], picture["box"]
    assert picture["role"] == "img" and all(len(text) > 10 for text in picture["labelled"]), picture["labelled"]
    assert len(picture["caption"]) > 20 and len(picture["table"]) > 1
    assert picture["labelled"][0] == picture["heading"]
    assert frame[2] - frame[0] > 500 and frame[3] - frame[1] > 100, frame
    for node in picture["marks"] + picture["texts"]:
        left, top, right, bottom = node["box"]
        assert not node["hidden"], node
        assert left >= frame[0] - 1 and right <= frame[2] + 1 and top >= frame[1] - 1 and bottom <= frame[3] + 1, (name, node, frame)
        assert right - left > 0 or bottom - top > 0, (name, node)
    for i, one in enumerate(picture["texts"]):
        for other in picture["texts"][i + 1:]:
            assert not overlap(one["box"], other["box"]), (name, one["text"], other["text"])
    kinds = collections.Counter(text["class"].split()[0] for text in picture["texts"])
    assert kinds["tick"] >= (1 if name == "largest" else 2) and kinds["axis"] >= 1, (name, kinds)


def contrasts(result):
    page = result["page"]
    for words in result["words"]:
        assert contrast(words, page) >= 4.5, (words, page)
    shades = {}
    for picture in result["pictures"]:
        for text in picture["texts"]:
            assert contrast(text["fill"], page) >= 4.5, (picture["id"], text)
        for mark in picture["marks"]:
            kinds = mark["class"].split()
            paint = mark["stroke"] if kinds[-1] in ("line", "edge", "limit", "quantile", "frame") else mark["fill"]
            if kinds[-1].startswith("shade"):
                shades[kinds[-1]] = luminance(mark["fill"])
            elif kinds[-1] != "band":
                assert contrast(paint, page) >= 3, (picture["id"], mark)
    order = [shades[name] for name in sorted(shades)]
    assert order == sorted(order, reverse=not result["dark"]) and len(set(order)) == len(order), shades


# ---- each picture beside its numbers --------------------------------------------------------------

def marks(picture, kind):
    return [mark for mark in picture["marks"] if mark["class"] == kind]


def proportional(lengths, numbers, what):
    """Rendered sizes are to each other as their numbers, to a pixel and a half; what is not 0 shows."""
    assert len(lengths) == len(numbers), (what, len(lengths), len(numbers))
    most = max(range(len(numbers)), key=numbers.__getitem__)
    for length, number in zip(lengths, numbers):
        assert abs(length - lengths[most] * number / numbers[most]) < 1.5, (what, length, number, lengths[most], numbers[most])
        assert length > 0.5, (what, number)


def height(mark):
    return mark["box"][3] - mark["box"][1]


def width(mark):
    return mark["box"][2] - mark["box"][0]


def number(text):
    return int(text.replace(",", ""))


def check_histogram(picture, numbers, unit):
    """The table counts what the numbers say, the bars are as high as the table's counts."""
    rows = [(row[0], number(row[1])) for row in picture["table"][1:]]
    assert sum(count for _, count in rows) == len(numbers)
    if unit:
        for text, count in rows:
            low, high = [number(part) for part in (text.split(" – ") * 2)[:2]]
            assert count == sum(low <= one <= high for one in numbers), (text, count)
    proportional([height(mark) for mark in marks(picture, "mark one")], [count for _, count in rows if count > 0], "bars")
    assert len(marks(picture, "quantile")) == 3
    words = " ".join(text["text"] for text in picture["texts"])
    for name in ("median", "p90", "p99"):
        assert name in words, words
    assert "samples" in words


def check_bounds(picture, bounds):
    edges = marks(picture, "edge")
    assert 0 < len(edges) <= len(bounds)
    assert len(bounds) > 300 or len(edges) >= len(bounds) * 0.8, (len(edges), len(bounds))
    assert any(f"{len(bounds):,} bucket edges" in text["text"] for text in picture["texts"])


def check_padding(picture, plans):
    for plan, row in zip(plans, picture["table"][1:], strict=True):
        assert row[0] == plan["strategy"]
        if "error" in plan:
            assert row[1] == plan["error"]
        else:
            assert [number(row[i]) for i in (1, 2, 3, 6)] == [plan[name] for name in ("steps", "tokens", "padded_tokens", "largest_batch")]
            assert row[7] == f"{plan['relative_time']:.2f}" and row[5] == f"{plan['balance']:.3f}"
    good = [plan for plan in plans if "error" not in plan]
    proportional([width(mark) for mark in marks(picture, "mark one")], [plan["tokens"] for plan in good], "tokens")
    bars = {round(mark["box"][1]): mark for mark in marks(picture, "mark two") if width(mark) > 0}
    tokens = {round(mark["box"][1]): mark for mark in marks(picture, "mark one")}
    scale = width(marks(picture, "mark one")[0]) / good[0]["tokens"]
    for (top, mark), plan in zip(sorted(tokens.items()), good):
        padding = (plan["padded_tokens"] - plan["tokens"]) * scale
        if padding > 4:
            assert abs(bars[top]["box"][2] - mark["box"][2] - padding) < 1.5, plan["strategy"]
    names = [text["text"] for text in picture["texts"] if text["class"].startswith("name")]
    assert names == ["random", "sequential", "sorted", "bucket"]


def check_balance(picture, world, steps):
    frame = marks(picture, "frame")[0]["box"]
    rectangles = []
    for mark in picture["marks"]:
        for x, y, across, down in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h", mark["d"] or ""):
            if "shade" in mark["class"]:
                rectangles.append((float(x), float(y), float(across), float(down)))
    pixel = (picture["box"][2] - picture["box"][0]) / picture["view"][0]
    area = sum(across * down for _, _, across, down in rectangles) * pixel * pixel
    assert abs(area / ((frame[2] - frame[0]) * (frame[3] - frame[1])) - 1) < 0.01, (area, frame)  # every cell, each once
    rows = {round(y, 1) for _, y, _, _ in rectangles}
    assert len(rows) == min(world, 64) and len(picture["table"]) == 1 + min(world, 64)
    assert len(rectangles) >= len(rows) and steps > 0
    assert sum("%" in text["text"] for text in picture["texts"]) == 7  # the key


def check_ranks(picture, kinds, world):
    assert len(picture["table"]) == 1 + min(world, 64)
    for column, kind in enumerate(kinds, 1):
        counts = [row[column] for row in picture["table"][1:] if row[column] not in ("0", "0 B")]
        if picture["id"] == "largest":
            proportional([height(mark) for mark in marks(picture, kind)], [number(count) for count in counts], kind)
        else:
            assert len(marks(picture, kind)) == len(counts), (kind, len(marks(picture, kind)), counts)


def check_tokens(picture, plan):
    line, band = marks(picture, "mark line")[0], marks(picture, "mark band")[0]
    assert width(line) > 500 and width(band) > 500 and height(line) <= height(band) + 3
    rows = [[number(cell) for cell in row[1:]] for row in picture["table"][1:]]
    assert len(rows) == min(plan["steps"], 120) and all(least <= mean <= most for least, mean, most in rows)
    if plan["steps"] <= 120:
        assert sum(mean for _, mean, _ in rows) == plan["tokens"]


def check_page(work, name, store, lengths, column, options, home, scheme=False, size=900):
    path = os.path.join(work, name + ".html")
    rankstore("stats", store, "--html", path, *options)
    self_contained(path)
    with open(path, encoding="utf-8") as file:
        gain = re.search('</h1>\n<p class="gain"[^>]*>([^<]*)</p>\n<dl>', file.read())[1]
    result = render(path, home, scheme, size)
    assert result["dark"] == scheme and not {"script", "iframe", "img", "b"} - {"script"} & set(result["elements"])
    world = int(options[options.index("--world") + 1])
    by = "--by" in options
    picture = {one["id"]: one for one in result["pictures"]}
    assert set(picture) == WORDS - ({"column"} if not by else set()), set(picture)
    for one in result["pictures"]:
        drawn_well(one)
    contrasts(result)
    assert result["overflow"] <= 0, result["overflow"]
    asked = [word for i, word in enumerate(options) if word != "--by" and (i == 0 or options[i - 1] != "--by")]
    plans = json.loads(rankstore("plan", store, "--compare", "--json", *asked))["plans"]
    bounds = json.loads(rankstore("stats", store, "--json", *asked))["bounds"]
    check_histogram(picture["lengths"], lengths, True)
    check_bounds(picture["lengths"], bounds)
    if by:
        check_histogram(picture["column"], column, False)
    check_padding(picture["padding"], plans)
    base, plan = ({one["strategy"]: one for one in plans}[name] for name in ("random", plans[3]["strategy"]))
    fewer = 100 * (1 - plan["padded_tokens"] / base["padded_tokens"])
    assert gain.startswith(f"{plan['strategy']}: {fewer:.1f} % fewer padded tokens than random, an epoch takes "), (gain, fewer)
    check_balance(picture["balance"], world, plans[3]["steps"])
    check_ranks(picture["largest"], ["mark one"], world)
    check_ranks(picture["bytes"], ["mark one", "mark two"], world)
    check_tokens(picture["tokens"], plans[3])
    return result


def check_bytes(result, store):
    """Four ranks that see all shards: bytes as `info` counts them, each shard to the rank with the fewest."""
    owned = [0] * 4
    for shard in json.loads(rankstore("info", store, "--json"))["shards"]:
        owned[owned.index(min(owned))] += shard["bytes"]
    picture = next(one for one in result["pictures"] if one["id"] == "bytes")
    proportional([height(mark) for mark in marks(picture, "mark one")], [count for count in owned if count > 0], "owned")


# ---- the tests ------------------------------------------------------------------------------------

def make(work):
    print(f"page: SEED={SEED} replays this run")
    source = random.Random(SEED)
    lengths = [min(8000, max(1, int(source.lognormvariate(5, 1)))) for _ in range(6000)]
    column = [source.gauss(0, 3) for _ in lengths]
    path = os.path.join(work, "made.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for length, one in zip(lengths, column):
            file.write(json.dumps({"text": "x" * length, "<score> & \"co\"": one}) + "\n")
    store = os.path.join(work, "store")
    rankstore("build", path, "-o", store, "--length", "text", "--index", "<score> & \"co\"", "--unit-size", "128k", "-j", "3")
    return store, lengths, column


def paper(work, home):
    """Printed with dark preferred: white paper, dark words, all pictures."""
    pdf, image = os.path.join(work, "page.pdf"), os.path.join(work, "paper")
    chromium("--no-pdf-header-footer", f"--print-to-pdf={pdf}", *dark(True), "file://" + os.path.join(work, "dark.html"), home=home)
    subprocess.run(["pdftoppm", "-r", "50", "-gray", pdf, image], check=True, timeout=LIMIT)
    sheets = sorted(name for name in os.listdir(work) if name.startswith("paper"))
    dark_sheets = 0
    for name in sheets:
        with open(os.path.join(work, name), "rb") as file:
            head, size, most, pixels = file.read().split(b"\n", 3)
        assert head == b"P5" and most == b"255", (head, size)
        shades = collections.Counter(pixels)
        assert shades.most_common(1)[0][0] >= 250, "paper is white"
        dark_sheets += sum(shades[shade] for shade in range(90)) > 200
    words = subprocess.run(["pdftotext", pdf, "-"], check=True, capture_output=True, timeout=LIMIT).stdout.decode()
    for expected in ("bucket edges", "padding", "step of the epoch", "budget", "owned", "tokens a step"):
        assert expected in words, expected
    assert dark_sheets >= 2, "ink on it"


def hostile(work, home, made):
    store = os.path.join(work, "h" + HOSTILE.replace("/", "\\"))
    rankstore("build", made, "-o", store, "--length", "text")
    path = os.path.join(work, "hostile.html")
    rankstore("stats", store, "--html", path)
    self_contained(path)
    result = render(path, home, False, 900)
    assert "gone" not in result["title"][:4] and "<script>document.title='gone'<\\script>" in result["heading"], result["heading"]
    assert "\\xe2\\x80\\xae\\x1b[31m" in result["heading"], result["heading"]
    assert "script" in result["elements"], "the probe's own"


def no_plan(work, home, store):
    path = os.path.join(work, "none.html")
    rankstore("stats", store, "--max-tokens", "2", "--html", path)
    self_contained(path)
    result = render(path, home, False, 900)
    assert [one["id"] for one in result["pictures"]] == ["lengths", "padding"]
    assert all("above max_tokens 2" in row[1] for row in result["pictures"][1]["table"][1:])


def at_the_edge(work, home):
    """The most padded tokens are 100,000 by all strategies, so that the axis has that number at its very end."""
    made, store, path = (os.path.join(work, "edge" + end) for end in (".jsonl", "", ".html"))
    with open(made, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": "x" * 1000}) + "\n" for _ in range(100))
    rankstore("build", made, "-o", store, "--length", "text")
    rankstore("stats", store, "--batch-size", "10", "--world", "1", "--html", path)
    for picture in render(path, home, False, 900)["pictures"]:
        if picture["id"] == "padding":
            drawn_well(picture)
            assert [text["text"] for text in picture["texts"] if text["class"] == "tick"][-1] == "100 k"


def readme_picture(work):
    """The picture of docs/cli.md: lengths as the command draws them, with the page's style. UPDATE=1 writes it anew."""
    made, page = os.path.join(work, "readme.jsonl"), os.path.join(work, "readme.html")
    source = random.Random(1)
    with open(made, "w", encoding="utf-8") as file:
        for _ in range(20000):
            file.write(json.dumps({"text": "x" * min(8000, max(1, int(source.lognormvariate(5, 1))))}) + "\n")
    rankstore("build", made, "-o", os.path.join(work, "readme"), "--length", "text")
    rankstore("stats", os.path.join(work, "readme"), "--max-tokens", "16k", "--world", "8", "--html", page)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    style = re.search(r"<style>.*?</style>", text, re.S).group()
    drawn = re.search(r'<svg id="lengths".*?</svg>\n', text, re.S).group().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    drawn = drawn.replace(">\n", f">\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n{style}\n"
                          '<rect width="100%" height="100%" fill="var(--page)"/>\n', 1)
    path = os.path.join(os.path.dirname(__file__), "..", "docs", "lengths.svg")
    if os.environ.get("UPDATE"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(drawn)
    with open(path, encoding="utf-8") as file:
        assert file.read() == drawn, "docs/lengths.svg is not what the command draws; UPDATE=1 writes it"
    assert len(drawn) < 60_000


def attempt(name, test):
    try:
        test()
        print(f"ok {name}")
    except (AssertionError, subprocess.SubprocessError, OSError, AttributeError, ValueError, KeyError, IndexError, TypeError) as error:
        what = error.stderr.decode(errors="replace")[-500:] if getattr(error, "stderr", None) else ""
        line = error.__traceback__
        while line.tb_next is not None:
            line = line.tb_next
        print(f"FAIL {name}: {type(error).__name__} at line {line.tb_lineno}: {error} {what}".replace("\n", " "))


def main():
    os.environ["PATH"] = os.path.join(os.path.abspath(sys.argv[1]), "tools", "rankstore") + ":" + os.environ["PATH"]
    with tempfile.TemporaryDirectory(prefix="rankstore-page-") as work:
        home = os.path.join(work, "home")
        store, lengths, column = make(work)
        by = ["--by", "<score> & \"co\""]

        def light():
            check_bytes(check_page(work, "light", store, lengths, column, [*by, "--max-tokens", "8k", "--world", "4"], home), store)

        def at_night():
            check_page(work, "dark", store, lengths, column, [*by, "--max-tokens", "8k", "--world", "4"], home, scheme=True)

        attempt("every_picture_has_its_marks_and_labels_in_light", light)
        attempt("and_in_dark", at_night)
        attempt("and_on_paper", lambda: paper(work, home))
        attempt("many_ranks_and_steps_are_drawn_as_bins", lambda: check_page(
            work, "wide", store, lengths, column, ["--batch-size", "2", "--world", "300"], home))
        attempt("more_steps_than_columns_are_drawn_as_bins", lambda: check_page(
            work, "long", store, lengths, column, ["--batch-size", "4", "--world", "2", "--epoch", "3"], home))
        attempt("one_rank_has_pictures_too", lambda: check_page(
            work, "one", store, lengths, column, ["--batch-size", "64", "--world", "1"], home))
        attempt("a_number_at_the_end_of_an_axis_stays_in_the_picture", lambda: at_the_edge(work, home))
        attempt("a_telephone_scrolls_pictures_and_not_the_page", lambda: check_page(
            work, "small", store, lengths, column, ["--max-tokens", "8k", "--world", "4"], home, size=500))
        attempt("hostile_names_are_text", lambda: hostile(work, home, os.path.join(work, "made.jsonl")))
        attempt("the_readme_s_picture_is_what_the_command_draws", lambda: readme_picture(work))
        attempt("where_no_plan_can_be_made_the_page_says_why", lambda: no_plan(work, home, store))


if __name__ == "__main__":
    main()
