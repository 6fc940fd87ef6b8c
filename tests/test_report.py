"""The report: whole, partial and of hostile names; opened in a real browser, which must fetch nothing and complain of nothing."""

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from pipeline.report.ink import PALETTE
from tests.conftest import Pbm, skip_outside_ci

HOSTILE = (
    '<script>fetch("http://example.invalid/")</script>',
    "a \"quoted\" 'id' & more",
    "\u202edetrevni\u202c $\\frac{1}{2}$ \x0b",
)
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--v=0"),
)


@pytest.fixture(scope="module")
def workspace(default_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default run, with few runs."""
    from pipeline import cli

    folder = tmp_path_factory.mktemp("reported")
    for command in (
        ("count", default_workspace / "raw" / "training.txt"),
        ("matrices", "--bootstrap", 100),
        ("fit",),
        ("simulate", "--runs", 12, "--horizon", 1000),
        ("simulate", "--experiment", "synthetic", "--runs", 12, "--horizon", 1000),
        ("simulate", "--experiment", "high-theta", "--runs", 12, "--horizon", 1000),
    ):
        assert not cli.app([*map(str, command), "-w", str(folder)], standalone_mode=False)
    return folder


class Outside(HTMLParser):
    """Everything that a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "img"):
            self.found.append(tag)
        for name, value in attributes:
            local = (
                value is None or value.startswith(("#", "data:")) or (tag == "a" and re.fullmatch(r"[\w-]+\.(svg|png)", value))
            )
            if name in ("src", "href", "xlink:href", "action") and not local:
                self.found.append(f"{tag} {name}={value}")
            if name.startswith("on"):
                self.found.append(f"{tag} {name}")


def outside(html: str) -> list[str]:
    parser = Outside()
    parser.feed(html)
    return parser.found


def test_a_page_that_loads_something_would_be_noticed() -> None:
    assert outside('<img src="x.png"><a href="http://x">x</a><b onclick="x">') == [
        "img",
        "img src=x.png",
        "a href=http://x",
        "b onclick",
    ]


def test_the_report_of_a_whole_run(workspace: Path, pbm: Pbm) -> None:
    outcome = pbm("report", "-w", workspace)
    assert outcome.code == 0
    folder = workspace / "report"
    html = (folder / "index.html").read_text()
    assert outside(html) == []
    names = set(re.findall(r'href="([\w-]+)\.svg"', html))
    assert {"regret-kdd", "regret-synthetic", "regret-high-theta", "rank", "kappa", "ctr-1", "theta-8", "displays-kdd"} <= names
    assert outcome.out.splitlines()[-1] == f"{folder}/index.html: {len(names)} figures"
    assert {path.name for path in folder.iterdir()} == {
        "index.html",
        *(f"{name}.{kind}" for name in names for kind in ("svg", "png")),
    }
    for name in names:
        drawn = ElementTree.fromstring((folder / f"{name}.svg").read_bytes())
        assert drawn.find("{http://www.w3.org/2000/svg}title") is not None
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert html.count('role="img"') == html.count("<figure>") == len(names)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for text in ("68,179", "1,228,004", "4,000,000", "1,279,847", "[0.023]"):  # the paper's records, the log, query 9 marked
        assert text in html


STALE = {"theta-99.svg": False, "regret-old.png": False, "notes.txt": True, "own.svg": True}  # whether a report leaves it


@pytest.fixture(scope="module")
def again(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The report of the whole run in a folder with other things in it, and what the command says of it."""
    folder = tmp_path_factory.mktemp("again")
    for name in STALE:
        (folder / name).write_text("")
    command = [str(Path(sys.executable).with_name("pbm")), "report", "-w", str(workspace), "--out", str(folder), "--json"]
    return folder, json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def page_of(folder: Path, pbm: Pbm) -> Path:
    """The report of a workspace, made if no test has made it yet."""
    if not (folder / "report").exists():
        assert pbm("report", "-w", folder).code == 0
    return folder / "report"


@pytest.mark.long
def test_the_same_workspace_gives_the_same_page(workspace: Path, again: tuple[Path, Any], pbm: Pbm) -> None:
    for path in page_of(workspace, pbm).iterdir():
        assert path.read_bytes() == (again[0] / path.name).read_bytes(), path.name


@pytest.mark.long
def test_the_verdicts_on_the_page_are_those_of_the_command(again: tuple[Path, Any]) -> None:
    folder, result = again
    shown = re.findall(r'<span class="verdict \w+">([^<]+)</span>', (folder / "index.html").read_text())
    assert shown == [claim["verdict"] for claim in result["claims"]]
    assert len(shown) == 7
    assert all(claim["estimate"] is not None for claim in result["claims"])


@pytest.mark.long
def test_figures_of_an_earlier_report_go_and_other_files_stay(again: tuple[Path, Any]) -> None:
    assert {name: (again[0] / name).exists() for name in STALE} == STALE


def test_a_report_of_nothing_says_what_to_run(tmp_path: Path, pbm: Pbm) -> None:
    outcome = pbm("report", "-w", tmp_path)
    assert outcome.code == 0
    html = (tmp_path / "report" / "index.html").read_text()
    for command in (
        "pbm count LOG",
        "pbm matrices",
        "pbm fit",
        *(f"pbm simulate --experiment {name}" for name in ("kdd", "synthetic")),
    ):
        assert f"<code>{command}</code>" in html
    assert str(tmp_path) not in html


@pytest.mark.long
def test_a_report_without_simulations_shows_the_models(workspace: Path, tmp_path: Path, pbm: Pbm) -> None:
    for path in workspace.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    outcome = pbm("report", "-w", tmp_path)
    assert "not shown, as they are missing: simulations/kdd" in outcome.out
    html = (tmp_path / "report" / "index.html").read_text()
    assert "there is no simulations/kdd.parquet" in html
    assert (tmp_path / "report" / "theta-1.svg").exists()


def contrast(one: str, other: str) -> float:
    """Of two colours, by the rule of WCAG."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stand_out_from_the_page(theme: int) -> None:
    """Text by at least 4.5, lines and marks by 3."""
    paper = PALETTE["paper"][theme]
    for name in ("ink", "soft", "red", "green"):
        assert contrast(PALETTE[name][theme], paper) >= 4.5, name
    for name in ("blue", "orange", "green", "red", "pink", "violet", "brown", "grey"):
        assert contrast(PALETTE[name][theme], paper) >= 3, name


# --- names that would do harm


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of a log whose queries and ads have names of this kind."""
    from pipeline import cli

    folder = tmp_path_factory.mktemp("hostile")
    rows = [
        {"term": query, "sku": f"{ad} {HOSTILE[ad % 3]}", "rank": position, "clicked": int((i * (position + ad + 2)) % 7 == 0)}
        for query in HOSTILE
        for ad in range(5)
        for position in (1, 2, 3)
        for i in range(40)
    ]
    pl.DataFrame(rows).write_parquet(folder / "log.parquet")
    (folder / "shop.toml").write_text(
        'name = "shop"\nseparator = ","\nheader = true\n'
        '[roles]\nquery = "term"\nitem = "sku"\nposition = "rank"\nclicks = "clicked"\n'
        '[columns]\nterm = { type = "text" }\nsku = { type = "text" }\nrank = { min = 1, max = 9 }\n'
    )
    for command in (
        ("count", folder / "log.parquet", "--format", folder / "shop.toml", "--min-displays", 10),
        ("matrices", "--bootstrap", 50),
        ("fit",),
        ("simulate", "--runs", 6, "--horizon", 100, "--policies", "pbm-ucb"),
        ("report",),
    ):
        assert not cli.app([*map(str, command), "-w", str(folder)], standalone_mode=False)
    return folder


def test_hostile_names_are_shown_harmlessly(hostile: Path) -> None:
    html = (hostile / "report" / "index.html").read_text()
    assert outside(html) == []
    assert "&lt;script&gt;" in html
    for letter in "\u202e\u202c\x0b":
        assert letter not in html
    assert "\\u202e" in html
    for path in (hostile / "report").glob("*.svg"):
        root = ElementTree.fromstring(path.read_bytes())
        assert not [element for element in root.iter() if element.tag.endswith("script")]


# --- in a browser


@pytest.fixture
def served() -> Iterator[Any]:
    """Serve a folder on loopback, and keep what was asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            asked.append(self.path)

    servers = []

    def serve(folder: Path) -> tuple[str, list[str]]:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}", asked

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.long
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("which", ["workspace", "hostile"])
def test_the_page_in_a_browser(
    which: str, width: int, request: pytest.FixtureRequest, tmp_path: Path, served: Any, pbm: Pbm
) -> None:
    """It renders, asks for nothing but itself, and nothing is said on the console."""
    browser = shutil.which("chromium")
    if browser is None:
        skip_outside_ci("Chromium is not installed")
    address, asked = served(page_of(request.getfixturevalue(which), pbm))
    command = [str(browser), *CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run(
        [*command, "--dump-dom", f"{address}/index.html"], capture_output=True, text=True, timeout=120, check=True
    )
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    assert asked == ["/index.html"]
    assert done.stdout.count("<section") == 9
    assert "<h1>Position-based models and bandits</h1>" in done.stdout
    shot = tmp_path / "page.png"
    subprocess.run([*command, f"--screenshot={shot}", f"{address}/index.html"], capture_output=True, timeout=120, check=True)
    assert shot.stat().st_size > 20_000  # an empty page is smaller
