"""Draws the results of `growth.py`: a panel a line, cost over units, in logarithms.

    python growth_plot.py OUT.png [RESULTS.json ...]

Needs matplotlib. Without results it draws the newest in `bench/results/`; of several,
a line is drawn from the last that holds it.
"""

import json
import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from PIL import Image

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
COLUMNS = 3
# By command, so that a command has one colour in all panels.
COLOURS = {
    "convert": "tab:blue",
    "own": "tab:blue",
    "plan": "tab:orange",
    "unchanged": "tab:green",
    "verify": "tab:red",
    "inspect": "tab:purple",
    "overwrite": "tab:brown",
    "rejects": "tab:pink",
}
# Below this, what is left less the empty run is noise.
LEAST_SECONDS = 0.02

Costs = Sequence[Mapping[str, Any]]


def _panel(axes: Any, line: str, costs: Costs) -> None:
    for cost in costs:
        found = zip(cost["points"], cost["processor"], strict=True)
        shown = [(x, y) for x, y in found if y >= LEAST_SECONDS]
        before = cost["program"] == "before"
        axes.plot(
            *([x for x, _ in shown], [y for _, y in shown]),
            marker="o",
            markersize=3,
            linewidth=1,
            linestyle="--" if before else "-",
            alpha=0.5 if before else 1,
            color=COLOURS[cost["command"]],
        )
    first = costs[0]
    top, seconds = first["points"][-1], first["processor"][-1]
    straight = [(top / 1000, seconds / 1000), (top, seconds)]
    axes.plot(*zip(*straight, strict=True), color="0.7", linewidth=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", title=line, xlabel=first["unit"])
    most = max(max(cost["processor"]) for cost in costs)
    axes.set_ylim(LEAST_SECONDS, max(2 * most, 1))
    axes.set_xlim(max(top / 2000, 0.8), 2 * top)
    axes.title.set_fontsize(10)
    axes.xaxis.label.set_fontsize(8)
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, linewidth=0.3)


def draw(lines: Mapping[str, Costs], path: pathlib.Path) -> None:
    """Draws a panel for each line into one file."""
    rows = math.ceil((len(lines) + 1) / COLUMNS)
    figure, grid = pyplot.subplots(
        rows, COLUMNS, figsize=(3.2 * COLUMNS, 2.6 * rows), layout="constrained"
    )
    panels = list(grid.flat)
    for axes, (line, costs) in zip(panels, lines.items(), strict=False):
        _panel(axes, line.replace("_", " "), costs)
    for axes in panels[len(lines) :]:
        axes.axis("off")
    used = {cost["command"] for costs in lines.values() for cost in costs}
    for command, colour in COLOURS.items():
        if command in used and command != "own":
            panels[len(lines)].plot([], [], color=colour, label=command)
    panels[len(lines)].plot([], [], color="0.7", label="a straight line")
    if any(cost["program"] == "before" for costs in lines.values() for cost in costs):
        panels[len(lines)].plot([], [], color="0.4", linestyle="--", label="before")
    panels[len(lines)].legend(loc="center", fontsize=8, frameon=False)
    figure.supylabel("seconds of processor time, less the empty run", fontsize=9)
    figure.savefig(path, dpi=100)
    # As a palette it takes a third of the bytes; this method keeps the lines' colours.
    picture = Image.open(path).convert("RGB")
    picture.quantize(48, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def main() -> None:
    """Draws results into the named file."""
    out, *given = map(pathlib.Path, sys.argv[1:])
    paths = given or [max(RESULTS.glob("growth-*.json"))]
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for path in paths:
        costs = json.loads(path.read_text())["costs"]
        for line in dict.fromkeys(cost["line"] for cost in costs):
            lines[line] = [cost for cost in costs if cost["line"] == line]
    draw(lines, out)


if __name__ == "__main__":
    main()
