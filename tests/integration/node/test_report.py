"""A browser shows the report of a real run: each plot is filled, at 1280 and 400 pixels.

usage: test_report.py MILLRACED MILLRACE
in a network namespace of its own: needs root, chromium-headless-shell, python3-pil
"""
import html
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from own_node import NODE, own_network, skip, start_node, wait_for

BROWSER = "chromium-headless-shell"
WIDTHS = (1280, 400)
PIXELS_MIN = 8  # of a line or of a map, in its colour
PLOTS = (  # what every report has, and this run in particular
    "Calls and keys per second",
    "Bytes per second",
    "Memory",
    "Losses and retransmissions per second",
    "Checkpoints: bytes written of the running one",
    "Busy share of each core",
    "Where the cores' cycles go",
    "lookup: how many calls took how long (work)",
    "lookup: work of a call",
    "push_grad: how many calls took how long (work)",
    "push_grad: work of a call",
)
# What the browser has made of the page: for each plot its place, and its lines and maps with their colours.
PROBE = """<pre id="probe" hidden></pre><script>
const seen = [...document.querySelectorAll('figure svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    return {title: svg.getAttribute('aria-label'), box: [box.left, box.top, box.right, box.bottom],
        paths: [...svg.querySelectorAll('path')].filter(p => !p.matches('.grid, .annotation')).map(p => {
            const style = getComputedStyle(p), b = p.getBoundingClientRect();
            return {is_line: p.matches('.line'), colour: p.matches('.line') ? style.stroke : style.fill,
                box: [b.left, b.top, b.right, b.bottom], finite: !/nan|inf/i.test(p.getAttribute('d'))};
        })};
});
document.getElementById('probe').textContent = JSON.stringify({plots: seen, width: innerWidth,
    page: [document.documentElement.scrollWidth, document.documentElement.scrollHeight],
    requests: performance.getEntriesByType('resource').map(e => e.name)});
</script>"""


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def is_ready(millrace: str) -> bool:
    return (
        subprocess.run(
            [millrace, "ctl", "list", "--server", NODE], capture_output=True, check=False
        ).returncode
        == 0
    )


def record(millrace: str, directory: Path) -> Path:
    """A run with lookups, pushes, a checkpoint and an annotation; its report."""
    path = directory / "run.mrp"
    load = [
        "bench",
        "--server",
        NODE,
        "--seconds",
        "30",
        "--mix",
        "lookup=60,push=40",
        "--keys",
        "zipf:20000:1.05",
    ]
    with open(directory / "bench.log", "w", encoding="utf-8") as log:
        bench = subprocess.Popen([millrace, *load], stdout=log, stderr=log)
    try:
        wait_for("calls", lambda: re.search(rb"keys_pushed\W+[1-9]", counted(millrace)))
        recorder = subprocess.Popen(
            [millrace, "perf", "record", "--server", NODE, "--hz", "20", "--output", path]
        )
        try:
            wait_for("a recording", lambda: path.exists() and path.stat().st_size > 0)
            run(millrace, "ctl", "save", "--server", NODE, "--wait")
            recorder.wait(2)  # of samples
        except subprocess.TimeoutExpired:
            pass
        finally:
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait() == 0
    finally:
        bench.send_signal(signal.SIGINT)
        bench.wait()
    run(millrace, "perf", "report", path)
    return directory / "run.html"


def counted(millrace: str) -> bytes:
    return subprocess.run(
        [millrace, "ctl", "stats", "--server", NODE, "--json"], capture_output=True, check=False
    ).stdout


def browse(page: Path, width: int, height: int, *more: str) -> str:
    done = subprocess.run(
        [
            BROWSER,
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
            *more,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def probe(page: Path, width: int) -> dict:
    probed = page.with_name("probed.html")
    probed.write_text(
        page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8"
    )
    found = re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', browse(probed, width, 900, "--dump-dom"), re.S)
    assert found, "the page has no script's output"
    return json.loads(html.unescape(found.group(1)))


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", colour)[:3])


def is_of(pixel: tuple[int, ...], colour: tuple[int, ...], background: tuple[int, ...]) -> bool:
    """Whether it is the colour, or, as thin lines are, a mixture with the background."""
    towards = [c - b for c, b in zip(colour, background)]
    share = sum((p - b) * t for p, b, t in zip(pixel, background, towards)) / sum(t * t for t in towards)
    return share >= 0.3 and all(
        abs(p - b - min(share, 1) * t) <= 25 for p, b, t in zip(pixel, background, towards)
    )


def pixels_of(image, box: list[float], colour: tuple[int, ...]) -> int:
    part, background = image.crop([round(edge) for edge in box]), image.getpixel((1, 1))
    return sum(
        count for count, pixel in part.getcolors(part.width * part.height) if is_of(pixel, colour, background)
    )


def check_plot(plot: dict, image) -> None:
    title, (left, top, right, bottom) = plot["title"], plot["box"]
    assert right - left >= 200 and bottom - top >= 60, f"{title}: {plot['box']}"
    assert plot["paths"], f"{title}: there is nothing in it"
    for path in plot["paths"]:
        x0, y0, x1, y1 = path["box"]
        assert path["finite"], f"{title}: a path has no numbers"
        assert (
            left - 1 <= x0 <= x1 <= right + 1 and top - 1 <= y0 <= y1 <= bottom + 1
        ), f"{title}: {path['box']}"
    widest = max(path["box"][2] - path["box"][0] for path in plot["paths"])
    assert widest >= 0.1 * (right - left), f"{title}: a line of {widest} pixels"
    drawn = max(pixels_of(image, plot["box"], rgb(path["colour"])) for path in plot["paths"])
    assert drawn >= PIXELS_MIN, f"{title}: {drawn} pixels are drawn"


def check_page(page: Path, width: int) -> None:
    from PIL import Image

    seen = probe(page, width)
    assert seen["width"] == width and seen["page"][0] <= width, f"wider than {width} pixels: {seen['page']}"
    assert [url for url in seen["requests"] if not url.startswith("file:")] == []
    titles = [plot["title"] for plot in seen["plots"]]
    assert [title for title in PLOTS if title not in titles] == [], titles
    shot = page.with_name(f"{width}.png")
    browse(page, width, seen["page"][1], f"--screenshot={shot}")
    image = Image.open(shot).convert("RGB")
    for plot in seen["plots"]:
        check_plot(plot, image)


def main() -> None:
    millraced, millrace = sys.argv[1:3]
    if not shutil.which(BROWSER):
        skip(f"there is no {BROWSER} (Debian: {BROWSER})")
    if importlib.util.find_spec("PIL") is None:
        skip("there is no PIL (Debian: python3-pil)")
    own_network()
    with tempfile.TemporaryDirectory(prefix="millrace-report-") as name:
        directory = Path(name)
        node = start_node(millraced, directory)
        try:
            wait_for("the node", lambda: is_ready(millrace))
            page = record(millrace, directory)
            assert re.search(r"(href|src)=|@import|url\(", page.read_text(encoding="utf-8")) is None
            for width in WIDTHS:
                check_page(page, width)
        except BaseException:
            for log in sorted(directory.glob("*.log")):
                print(f"== {log.name}\n{log.read_text(encoding='utf-8')[-4000:]}")
            raise
        finally:
            node.send_signal(signal.SIGKILL)
            node.wait()


if __name__ == "__main__":
    main()
