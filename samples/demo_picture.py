# SPDX-License-Identifier: Apache-2.0
"""Draws a demo's run as SVG: how long serve's requests took, and who had the device when."""
import math

COLOURS = {"alone": "#5b6770", "fifo": "#c8553d", "priority": "#2a7f62", "serve": "#2a5d9f", "train": "#e3b23c"}
TITLES = {"alone": "serve alone", "fifo": "beside train, fifo", "priority": "beside train, priority"}
WIDTH, LEFT, RIGHT = 800, 150, 20
CHART_TOP, CHART_HEIGHT = 40, 220
STRIP_HEIGHT, STRIP_GAP = 50, 26
# Shares of requests that are marked on the axis; from 0 to 1 in steps of "ten times rarer".
MARKS = (0, 0.5, 0.9, 0.99, 0.999)


def rarity(share):
    """Where a share of the requests lies on the axis: each nine takes the same room."""
    return -math.log10(max(1 - share, 1e-4))


def text(x, y, words, anchor="start", colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def line(x1, y1, x2, y2, colour="#ddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def latency_chart(latencies_ms):
    values = [latency for some in latencies_ms.values() for latency in some]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    bottom = CHART_TOP + CHART_HEIGHT

    def x_of(latency):
        return LEFT + (math.log10(latency) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y_of(share):
        return bottom - rarity(share) / rarity(MARKS[-1]) * CHART_HEIGHT

    parts = [text(LEFT, CHART_TOP - 18, "share of requests answered within ...")]
    for share in MARKS:
        parts += [line(LEFT, y_of(share), WIDTH - RIGHT, y_of(share)), text(LEFT - 8, y_of(share) + 4, f"{share:.1%}", "end")]
    for power in range(low, high + 1):
        for digit in (1, 2, 5) if power < high else (1,):
            latency = digit * 10.0 ** power
            parts += [line(x_of(latency), CHART_TOP, x_of(latency), bottom),
                      text(x_of(latency), bottom + 16, f"{latency:g} ms", "middle" if power < high else "end")]
    for place_of_title, (phase, some) in zip((230, 320, 450), latencies_ms.items()):
        some = sorted(some)
        points = " ".join(f"{x_of(latency):.1f},{y_of(place / len(some)):.1f}" for place, latency in enumerate(some)
                          if place / len(some) <= MARKS[-1])
        parts += [f'<polyline points="{points}" fill="none" stroke="{COLOURS[phase]}" stroke-width="2"/>',
                  text(LEFT + place_of_title, CHART_TOP - 18, TITLES[phase], colour=COLOURS[phase])]
    return parts


def device_strip(top, intervals):
    """One bar per interval; its height is the share of the interval that a client had the device. The two clocks
    are read one after the other, so their sum may pass the interval by a little: then it is taken for the whole."""
    total = sum(length for length, _ in intervals) or 1
    parts, x = [], LEFT
    for length, had in intervals:
        width, y = length / total * (WIDTH - LEFT - RIGHT), top + STRIP_HEIGHT
        whole = max(length, had["serve"] + had["train"])
        for who in ("serve", "train"):
            height = max(had[who] / whole, 0) * STRIP_HEIGHT
            y -= height
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{COLOURS[who]}"/>')
        x += width
    return parts + [f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{STRIP_HEIGHT}" fill="none" stroke="#999"/>',
                    text(WIDTH - RIGHT, top + STRIP_HEIGHT + 14, f"{total:.1f} s", "end")]


def draw(latencies_ms, strips):
    """latencies_ms: by phase. strips: by phase, pairs of seconds and device seconds by client."""
    top = CHART_TOP + CHART_HEIGHT + 60
    parts = latency_chart(latencies_ms)
    parts += [text(LEFT, top - 8, "device time in one round, per 0.1 s:"), text(LEFT + 240, top - 8, "serve", colour=COLOURS["serve"]),
              text(LEFT + 290, top - 8, "train", colour=COLOURS["train"])]
    for phase, intervals in strips.items():
        parts += [text(LEFT - 8, top + STRIP_HEIGHT / 2 + 4, phase, "end", COLOURS[phase])] + device_strip(top, intervals)
        top += STRIP_HEIGHT + STRIP_GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
