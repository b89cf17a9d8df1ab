"""A drawing of the ratios as SVG: a row for each kind of work, a dot for each peer's median, a line from its
least to its most."""
from xml.sax.saxutils import escape

import math

import report

WIDTH, LEFT, RIGHT, TOP, ROW_HEIGHT, PEER_HEIGHT, BOTTOM = 860, 250, 130, 92, 14, 19, 52
ROW_HEIGHT_MIN = 46  # of two lines of text
COLORS = {
    "python": "#4b8b3b",
    "torch": "#d1495b",
    "torch2": "#8f2d56",
    "torchrec": "#6d597a",
    "grpc": "#2a6f97",
    "redis": "#b7791f",
}
INK, FAINT, GRID = "#1f2933", "#66727f", "#e3e7eb"
FONT = "font-family='DejaVu Sans, Verdana, Helvetica, Arial, sans-serif'"


class Drawing:
    def __init__(self, low, high, height):
        self.low, self.high, self.height = math.log10(low), math.log10(high), height
        self.parts = []

    def x(self, ratio):
        share = (math.log10(ratio) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def text(self, x, y, words, size=12, color=INK, anchor="start", weight="normal"):
        self.parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{color}' text-anchor='{anchor}' "
            f"font-weight='{weight}'>{escape(words)}</text>"
        )

    def line(self, x1, y1, x2, y2, color, width=1.0, dash=""):
        dashes = f" stroke-dasharray='{dash}'" if dash else ""
        self.parts.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{color}' "
            f"stroke-width='{width}'"
            f" stroke-linecap='round'{dashes}/>"
        )

    def dot(self, x, y, color):
        self.parts.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5' fill='{color}' stroke='#ffffff' stroke-width='1'/>"
        )

    def whole(self, title):
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{self.height}' viewBox='0 0 "
            f"{WIDTH} {self.height}' "
            f"role='img' {FONT}>\n<title>{escape(title)}</title>\n<rect width='100%' height='100%' "
            "fill='#ffffff'/>\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


def rows_with_ratios(results):
    rows = []
    for row in report.rows_of(results):
        ratios = [
            (peer, report.of_row(results, row, peer)[1])
            for peer in report.peers_of(results)
            if peer != "millrace"
        ]
        ratios = [(peer, ratio) for peer, ratio in ratios if ratio is not None]
        if ratios:
            rows.append((row, ratios))
    return rows


def bounds(rows):
    """Of the axis: a little beyond all ratios, and 1 with them."""
    values = [v for _, ratios in rows for _, ratio in ratios for v in ratio]
    return min(0.8, min(values) / 1.3), max(2.0, max(values) * 1.3)


def height_of(ratios):
    return max(ROW_HEIGHT + PEER_HEIGHT * len(ratios), ROW_HEIGHT_MIN)


def grid(drawing, low, high, bottom):
    for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in (1, 2, 5):
            value = factor * 10.0**decade
            if not low <= value <= high or value == 1:
                continue
            drawing.line(drawing.x(value), TOP - 8, drawing.x(value), bottom, GRID)
            drawing.text(drawing.x(value), bottom + 17, f"{value:g} x", 11, FAINT, "middle")
    drawing.line(drawing.x(1), TOP - 8, drawing.x(1), bottom, INK, 1.4)
    drawing.text(drawing.x(1), bottom + 17, "1 x", 11, INK, "middle", "bold")


def legend(drawing, peers):
    x = 22
    for peer in peers:
        drawing.dot(x, 62, COLORS[peer])
        drawing.text(x + 11, 66, report.PEERS[peer], 12)
        x += 34 + 7.4 * len(report.PEERS[peer])
    drawing.text(WIDTH - 8, 46, "dot: median of rounds; line: least to most", 11, FAINT, "end")


def svg(results):
    """The whole file as text."""
    rows = rows_with_ratios(results)
    if not rows:
        return Drawing(1, 10, 40).whole("nothing measured")
    height = TOP + sum(height_of(ratios) for _, ratios in rows) + BOTTOM
    low, high = bounds(rows)
    drawing, bottom, y = Drawing(low, high, height), height - BOTTOM + 4, TOP
    drawing.text(16, 28, "How many times as fast as its peers Millrace is", 17, INK, weight="bold")
    drawing.text(16, 46, results["machine"], 11, FAINT)
    grid(drawing, low, high, bottom)
    legend(drawing, [peer for peer in report.peers_of(results) if peer != "millrace"])
    for index, (row, ratios) in enumerate(rows):
        tall = height_of(ratios)
        if index > 0:
            drawing.line(16, y, WIDTH - 16, y, GRID, 1, "2 3")
        ours = report.of_row(results, row, "millrace")[0]
        drawing.text(16, y + tall / 2 - 2, report.ROWS[row][0], 12.5, INK)
        drawing.text(
            16, y + tall / 2 + 14, f"Millrace {report.number(ours[0], report.ROWS[row][1])}", 11, FAINT
        )
        for place, (peer, (median, least, most)) in enumerate(ratios):
            at = y + tall / 2 + PEER_HEIGHT * (place + 0.5 - len(ratios) / 2)
            drawing.line(drawing.x(least), at, drawing.x(most), at, COLORS[peer], 2.5)
            drawing.dot(drawing.x(median), at, COLORS[peer])
            drawing.text(WIDTH - RIGHT + 14, at + 4, report.times(median), 12, COLORS[peer], weight="bold")
            theirs = report.of_row(results, row, peer)[0][0]
            drawing.text(
                WIDTH - 8,
                at + 4,
                report.number(theirs, report.ROWS[row][1]).split(" samples")[0].split(" images")[0],
                10.5,
                FAINT,
                "end",
            )
        y += tall
    drawing.text(
        LEFT + (WIDTH - LEFT - RIGHT) / 2,
        height - 12,
        "ratio in the same round, logarithmic; right of 1 x Millrace is faster",
        11,
        FAINT,
        "middle",
    )
    return drawing.whole("Millrace beside its peers: ratios of medians")
