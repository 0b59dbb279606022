#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/images, but for those that others draw: ranks.svg by hand, speed.svg by perf/chart.

    docs/site/pictures.py [--check]       --check: says which pictures are not as this draws them
"""
import html
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"
STYLE = """
  .page { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e }
  .group { fill: #f6f8fa; stroke: #d1d9e0 } .box { fill: #ffffff; stroke: #8c959f } .grid { stroke: #d1d9e0 }
  .main { fill: #ddf4ff; stroke: #0969da } .good { fill: #dafbe1; stroke: #1a7f37 } .bad { fill: #ffebe9; stroke: #cf222e }
  .arrow { stroke: #59636e; fill: none; stroke-width: 1.5 } .head { fill: #59636e }
  .red { fill: #cf222e } .wire { stroke: #cf222e; fill: none; stroke-width: 2 }
  .c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #bc4c00; fill: #bc4c00 } .c2 { stroke: #1a7f37; fill: #1a7f37 } .c3 { stroke: #8250df; fill: #8250df }
  .line { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .text { fill: #f0f6fc } .soft { fill: #9198a1 }
    .group { fill: #151b23; stroke: #3d444d } .box { fill: #0d1117; stroke: #656c76 } .grid { stroke: #3d444d }
    .main { fill: #0c2d4a; stroke: #4493f8 } .good { fill: #0f2d1a; stroke: #3fb950 } .bad { fill: #3c1618; stroke: #f85149 }
    .arrow { stroke: #9198a1 } .head { fill: #9198a1 }
    .red { fill: #f85149 } .wire { stroke: #f85149 }
    .c0 { stroke: #4493f8; fill: #4493f8 } .c1 { stroke: #f0883e; fill: #f0883e } .c2 { stroke: #3fb950; fill: #3fb950 } .c3 { stroke: #ab7df8; fill: #ab7df8 }
    .line { fill: none }
  }
"""


class Picture:
    def __init__(self, title, width, height, size=14):
        self.title, self.width, self.height, self.size, self.parts = title, width, height, size, []

    def text(self, x, y, words, style="text", anchor="start", **more):
        extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{extra}>{html.escape(words)}</text>')

    def box(self, x, y, width, height, style="box", *lines):
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 5 + (i - (len(lines) - 1) / 2) * (self.size + 3), line,
                      "text" if i == 0 else "soft", "middle")

    def arrow(self, x1, y1, x2, y2, style="arrow", both=False, dashed=False):
        head = "w" if style == "wire" else "a"
        more = (f' marker-start="url(#{head})"' if both else "") + (' stroke-dasharray="5 4"' if dashed else "")
        self.parts.append(f'<path class="{style}" marker-end="url(#{head})"{more} d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def svg(self):
        marker = lambda name, style: (f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                                      f'orient="auto-start-reverse"><path class="{style}" d="M0 0L8 4L0 8z"/></marker>')
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="{self.size}">\n<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n'
                f'<defs>{marker("a", "head")}{marker("w", "red")}</defs>\n'
                f'<rect class="page" width="{self.width}" height="{self.height}" rx="8"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def terminal(title, lines, width=None):
    """Text as a terminal shows it; what begins with `$ ` was typed."""
    width = width or 40 + 8 * max(map(len, lines))
    p = Picture(title, width, 50 + 20 * len(lines), 13)
    p.box(8, 8, width - 16, 34 + 20 * len(lines), "group")
    for i in range(3):
        p.parts.append(f'<circle class="grid" fill="none" cx="{24 + 14 * i}" cy="22" r="4"/>')
    for i, line in enumerate(lines):
        mono = {"font_family": "ui-monospace, monospace", "xml:space": "preserve"}
        p.text(22, 50 + 20 * i, line, "text" if line.startswith("$ ") else "soft", **mono, **({"font_weight": 600} if line.startswith("$ ") else {}))
    return p


def quick_start():
    return terminal("A terminal: tutti-run starts four ranks, and rank 0 prints \"4 ranks, sum 10\"",
                    ["$ tutti-run -n 4 ./hello", "4 ranks, sum 10", "$ ./hello", "1 ranks, sum 1"], 380)


def layers():
    p = Picture("Layers: each uses only those below it", 560, 372)
    rows = [("main", ["train", "track", "sim", "gpu"], "libraries beside the runtime"),
            ("box", ["coll"], "collectives and their algorithms"),
            ("box", ["ops"], "operations: arguments, start, stop"),
            ("box", ["comm"], "worlds, communicators, failure"),
            ("box", ["p2p"], "frames become messages"),
            ("box", ["match", "transport", "bootstrap"], "receives, links, how ranks meet"),
            ("box", ["core"], "engine, loop, tasks, timers"),
            ("box", ["base", "flight"], "errors, descriptors; the recorder")]
    for i, (style, names, what) in enumerate(rows):
        y, width = 16 + 43 * i, 258 / len(names)
        for j, name in enumerate(names):
            p.box(16 + j * (width + 0), y, width - (6 if j + 1 < len(names) else 0), 35, style, name)
        p.text(288, y + 22, what, "soft")
    return p


def message():
    p = Picture("One message: rank 0 sends, rank 1 receives; small and long", 560, 470)
    p.text(16, 30, "small: one frame", font_weight=600)
    p.text(16, 226, "long: the receiver asks for the data", font_weight=600)
    for top, steps in ((44, [("co_await send", "", "frame", "header and payload"), ("", "co_await recv", "", "")]),
                       (240, [("co_await send", "", "rts", "size, tag"), ("", "co_await recv", "-cts", "ready"),
                              ("", "", "data", "into the buffer"), ("done", "done", "", "")])):
        height = 52 * len(steps) + (20 if top < 100 else 0)
        for x, name in ((130, "rank 0"), (430, "rank 1")):
            p.text(x, top + 16, name, "soft", "middle")
            p.parts.append(f'<path class="grid" d="M{x} {top + 24}V{top + 24 + height}"/>')
        y = top + 50
        for left, right, arrow, words in steps:
            if left:
                p.text(120, y + 5, left, "text", "end")
            if right:
                p.text(440, y + 5, right)
            if arrow:
                back = arrow.startswith("-")
                p.arrow(*((426, y, 134, y + 14) if back else (134, y, 426, y + 14)), "wire")
                p.text(280, y - 2, arrow.strip("-"), "text", "middle", font_weight=600)
                p.text(280, y + 28, words, "soft", "middle")
            y += 52
    p.text(440, 168, "the frame waited", "soft", font_size=13)
    return p


def ring():
    p = Picture("A ring: in each step every rank sends one part to its right neighbour", 560, 330)
    centre, radius, size = (160, 165), 104, 27
    spots = [(centre[0] + radius * math.cos(a), centre[1] + radius * math.sin(a)) for a in (math.pi * (k / 2 - 0.75) for k in range(4))]
    for k, (x, y) in enumerate(spots):
        to = spots[(k + 1) % 4]
        dx, dy = to[0] - x, to[1] - y
        n = math.hypot(dx, dy)
        p.arrow(x + dx / n * (size + 4), y + dy / n * (size + 4), to[0] - dx / n * (size + 6), to[1] - dy / n * (size + 6), "wire")
    for k, (x, y) in enumerate(spots):
        p.parts.append(f'<circle class="main" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>')
        p.text(x, y + 5, f"rank {k}", "text", "middle", font_size=13)
    for y, style, head, lines in ((40, "c0", "first n − 1 steps: reduce", ["A part goes round once.", "Each rank adds its own.", "Then one rank has its sum."]),
                                  (160, "c2", "next n − 1 steps: gather", ["Each sum goes round once.", "Then every rank has all."])):
        p.text(318, y, head, font_weight=600)
        for i, line in enumerate(lines):
            p.text(318, y + 24 + 20 * i, line, "soft")
    p.text(318, 258, "Each rank sends less than", "soft")
    p.text(318, 278, "twice its data, however", "soft")
    p.text(318, 298, "many ranks there are.", "soft")
    return p


def segment():
    p = Picture("A collective segment: the ranks of one host publish in shared memory, and read in place", 560, 300)
    for k in range(4):
        x = 16 + 134 * k
        p.box(x, 16, 126, 40, "main", f"rank {k}")
        p.arrow(x + 46, 58, x + 46, 118)
        p.arrow(x + 84, 222, x + 84, 262)
    p.text(16 + 46 + 8, 84, "1. copy,", "soft", font_size=13)
    p.text(16 + 46 + 8, 101, "publish", "soft", font_size=13)
    p.box(16, 120, 528, 100, "group")
    p.text(28, 142, "shared memory of the host", "soft", font_size=13)
    for k in range(4):
        x = 28 + 130 * k
        p.box(x, 152, 114, 28, "box", f"block {k}")
        p.box(x, 186, 114, 24, "good", "step 7")
    p.text(16 + 84 - 8, 240, "2. wait for", "soft", "end", font_size=13)
    p.text(16 + 84 - 8, 257, "all, read", "soft", "end", font_size=13)
    p.text(280, 284, "each rank adds its part of all blocks: no message is sent", "text", "middle")
    return p


def pipeline():
    """Four stages and eight micro-batches, each pass as soon as its input and the stage are there: 1F1B."""
    stages, batches, forward, backward = 4, 8, 1, 2   # and the times of a pass
    p = Picture("A pipeline of four stages: forward and backward passes of eight micro-batches", 560, 216, 12)
    ended = {}   # (stage, micro-batch, whether backward): when
    free, next_pass, left = [0] * stages, [[0, 0] for _ in range(stages)], stages * batches * 2
    unit, x_of = 14.4, lambda t: 70 + 14.4 * t
    while left:
        ready = []
        for s in range(stages):
            f, b = next_pass[s]
            if b < f and (s + 1 == stages or (s + 1, b, True) in ended):
                ready.append((max(free[s], ended[(s, b, False)] if s + 1 == stages else ended[(s + 1, b, True)]), 0, s, b, True))
            if f < batches and f - b < stages - s and (s == 0 or (s - 1, f, False) in ended):
                ready.append((max(free[s], ended[(s - 1, f, False)] if s else 0), 1, s, f, False))
        begin, _, s, i, back = min(ready)
        free[s] = ended[(s, i, back)] = begin + (backward if back else forward)
        next_pass[s][back] += 1
        left -= 1
        y = 16 + 40 * s
        p.parts.append(f'<rect class="{"good" if back else "main"}" x="{x_of(begin):g}" y="{y}" width="{unit * (free[s] - begin):g}" height="30"/>')
        p.text(x_of((begin + free[s]) / 2), y + 19, str(i), "text", "middle", font_size=11)
    for s in range(stages):
        p.text(16, 35 + 40 * s, f"stage {s}")
    for x, style, words in ((70, "main", "forward"), (150, "good", "backward")):
        p.parts.append(f'<rect class="{style}" x="{x}" y="186" width="14" height="14"/>')
        p.text(x + 20, 198, words)
    p.text(245, 198, f"empty: {100 * (stages - 1) // (batches + stages - 1)} % of the time is bubbles", "soft")
    return p


def hang():
    p = Picture("A hang explained: ranks 0 and 2 wait for rank 1, which computes", 560, 214)
    for y, name in ((24, "rank 0"), (104, "rank 2")):
        p.box(16, y, 190, 54, "box", name, "all_reduce #2, 2.4 s")
        p.arrow(208, y + 27, 346, 91 + (y - 64) * 0.3, "wire")
    p.box(350, 46, 194, 90, "bad", "rank 1", "computes on its loop", "thread for 2.5 s")
    p.text(270, 52, "waits for", "soft", "start", font_size=13)
    p.text(280, 196, "the end of every chain is what to look at", "text", "middle")
    return p


def results():
    """Time of an all_reduce of two ranks by size, over shared memory: tutti beside the MPIs."""
    data = json.loads((ROOT / "perf/results/results.json").read_text())
    rows = next(b for b in data["benchmarks"] if b["name"] == "all_reduce.2.shm")["rows"]
    peers = [("tutti", "tutti"), ("openmpi", "Open MPI"), ("mpich", "MPICH"), ("impi", "Intel MPI")]
    curves = {}
    for row in rows:   # of a size in several places, the one with most launches
        found = {}
        if row["own"]["peer"] == "tutti":
            found["tutti"] = (row["own"]["launches"], row["own"]["us"]["median"])
            for rival in row["rivals"]:
                found[rival["peer"]] = (rival["launches"], rival["us"]["median"])
        for peer, (launches, us) in found.items():
            known = curves.setdefault(peer, {})
            if row["bytes"] not in known or known[row["bytes"]][0] < row["own"]["launches"]:
                known[row["bytes"]] = (row["own"]["launches"], us)
    curves = {peer: curves[peer] for peer, _ in peers if peer in curves}
    sizes = sorted({b for c in curves.values() for b in c})
    times = [us for c in curves.values() for _, us in c.values()]
    left, right, top, bottom = 70, 530, 56, 300
    p = Picture("Time of one all_reduce of two ranks over shared memory, by size", 560, 346, 13)
    x_of = lambda b: left + (right - left) * (math.log2(b) - math.log2(sizes[0])) / (math.log2(sizes[-1]) - math.log2(sizes[0]))
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    y_of = lambda us: bottom - (bottom - top) * (math.log10(us) - low) / (high - low)
    for power in range(low, high + 1):
        us = 10.0 ** power
        p.parts.append(f'<path class="grid" d="M{left} {y_of(us):.1f}H{right}"/>')
        p.text(left - 8, y_of(us) + 4, f"{us / 1000:g} ms" if us >= 1000 else f"{us:g} µs", "soft", "end")
    step = max(1, round(len(sizes) / 6))
    shown = [b for i, b in enumerate(sizes[::step]) if b == sizes[-1] or x_of(sizes[-1]) - x_of(b) > 50]
    for b in shown:
        words = next(f"{b >> shift} {unit}" for unit, shift in (("MiB", 20), ("KiB", 10), ("B", 0)) if b >= 1 << shift)
        p.parts.append(f'<path class="grid" d="M{x_of(b):.1f} {bottom}v5"/>')
        p.text(x_of(b), bottom + 20, words, "soft", "middle")
    x = left
    for i, (peer, name) in enumerate((k, n) for k, n in peers if k in curves):
        points = [(x_of(b), y_of(us)) for b, (_, us) in sorted(curves[peer].items())]
        p.parts.append(f'<path class="c{i} line" style="fill:none" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in points) + '"/>')
        p.parts.extend(f'<circle class="c{i}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points)
        p.parts.append(f'<circle class="c{i}" cx="{x + 4}" cy="32" r="4"/>')
        p.text(x + 14, 36, name)
        x += 40 + 8 * len(name)
    machine = data["benchmarks"][0]
    p.text(left, 338, f"medians; 2 ranks on {machine['cores']} cores, {machine['machine'].split(',')[0]}", "soft")
    return p


PICTURES = {"quick-start": quick_start, "layers": layers, "message": message, "ring": ring, "segment": segment, "pipeline": pipeline, "hang": hang,
            "results": results}


def main():
    differ = []
    for name, draw in PICTURES.items():
        path, text = IMAGES / f"{name}.svg", draw().svg()
        if not path.exists() or path.read_text() != text:
            differ.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if differ:
        print(("not as docs/site/pictures.py draws them: " if "--check" in sys.argv else "drawn: ") + ", ".join(differ))
    return 1 if differ and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
