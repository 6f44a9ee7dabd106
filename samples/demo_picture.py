# SPDX-License-Identifier: Apache-2.0
"""Draws a demo's run as SVG: the latencies of serve's requests, and the use of the device while one of them waited."""
import math

# Colours in light and in dark mode. serve and train have the colours of the page that shows the picture.
COLOURS = {"alone": ("#5b6770", "#a0abb5"), "fifo": ("#8a3ffc", "#be95ff"), "priority": ("#0f7b6c", "#3ddbd9"),
           "serve": ("#d55e00", "#ff9248"), "train": ("#00568c", "#4797d9"), "preempted": ("#b3261e", "#ff8f86"),
           "ink": ("#222222", "#e4e9f0"), "line": ("#dddddd", "#39424d"), "ground": ("#ffffff", "#0e1217")}
TITLES = {"alone": "serve alone", "fifo": "beside train, fifo", "priority": "beside train, priority"}
WIDTH, LEFT, RIGHT = 800, 150, 20
CHART_TOP, CHART_HEIGHT = 40, 200
LANE_HEIGHT, STRIP_GAP = 22, 40
AROUND = (0.25, 0.15)  # Fractions of the longer request that are shown before and after it.
# Shares of requests that are marked on the axis.
MARKS = (0, 0.5, 0.9, 0.99)
SHARES = [percent / 100 for percent in range(1, 100)]


def rarity(share):
    """Returns the position of a share of the requests on the axis, where each nine takes the same space."""
    return -math.log10(max(1 - share, 1e-4))


def text(x, y, words, anchor="start", colour="ink"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{colour}" fill="{COLOURS[colour][0]}">{words}</text>'


def text_over_lines(x, y, words, colour):
    """Adds an outline so that lines behind the text do not make it illegible."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" class="{colour} stroke-ground" fill="{COLOURS[colour][0]}" '
            f'stroke="{COLOURS["ground"][0]}" stroke-width="4" paint-order="stroke">{words}</text>')


def line(x1, y1, x2, y2, colour="line"):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="stroke-{colour}" stroke="{COLOURS[colour][0]}"/>'


def bar(x1, x2, y, height, colour, opacity=1):
    return (f'<rect x="{x1:.1f}" y="{y:.1f}" width="{max(x2 - x1, 0.5):.1f}" height="{height}" class="{colour}" '
            f'fill="{COLOURS[colour][0]}" fill-opacity="{opacity}"/>')


def latency_chart(quantiles_ms):
    """`quantiles_ms`: by phase, the latencies of SHARES; the last one is the table's p99."""
    values = [latency for some in quantiles_ms.values() for latency in some]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    bottom = CHART_TOP + CHART_HEIGHT

    def x_of(latency):
        return LEFT + (math.log10(latency) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y_of(share):
        return bottom - rarity(share) / rarity(MARKS[-1]) * CHART_HEIGHT

    parts = [text(LEFT, CHART_TOP - 18, "share of requests answered within ...")]
    for share in MARKS:
        parts += [line(LEFT, y_of(share), WIDTH - RIGHT, y_of(share)), text(LEFT - 8, y_of(share) + 4, f"{share:.0%}", "end")]
    for power in range(low, high + 1):
        for digit in (1, 2, 5) if power < high else (1,):
            latency = digit * 10.0 ** power
            parts += [line(x_of(latency), CHART_TOP, x_of(latency), bottom),
                      text(x_of(latency), bottom + 16, f"{latency:g} ms", "middle" if power < high else "end")]
    words = []
    for number, (phase, some) in enumerate(quantiles_ms.items()):
        points = " ".join(f"{x_of(latency):.1f},{y_of(share):.1f}" for share, latency in zip(SHARES, some))
        colour = COLOURS[phase][0]
        parts += [f'<polyline points="{points}" fill="none" class="stroke-{phase}" stroke="{colour}" stroke-width="2"/>',
                  f'<circle cx="{x_of(some[-1]):.1f}" cy="{y_of(SHARES[-1]):.1f}" r="4" class="{phase}" fill="{colour}"/>']
        words.append(text_over_lines(LEFT + 12, CHART_TOP + 24 + 18 * number, f"{TITLES[phase]}: p99 {some[-1]:.2f} ms", phase))
    return parts + words


def device_strip(top, moment, begin, end):
    """Draws the request and serve's device time in one lane, and train's device time in a second lane below."""
    def x_of(at):
        return LEFT + (min(max(at, begin), end) - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    parts, lane = [], {"serve": top, "train": top + LANE_HEIGHT + 4}
    for who, y in lane.items():
        parts += [text(LEFT - 8, y + 15, who, "end", who), line(LEFT, y + LANE_HEIGHT, WIDTH - RIGHT, y + LANE_HEIGHT)]
    parts.append(bar(x_of(0), x_of(moment["latency_ms"]), lane["serve"], LANE_HEIGHT, "serve", 0.25))
    for who, y in lane.items():
        parts += [bar(x_of(since), x_of(until), y, LANE_HEIGHT, who) for since, until in moment[who] if until > begin and since < end]
    parts += [bar(x_of(at) - 1.5, x_of(at) + 1.5, lane["train"] - 3, LANE_HEIGHT + 6, "preempted")
              for at in moment["preempted"] if begin < at < end]
    return parts + [text(x_of(0), top - 6, f"request: {moment['latency_ms']:.1f} ms", colour="serve")]


def strips(top, moments):
    """Draws the moments on one scale, so that their lengths can be compared."""
    longest = max(moment["latency_ms"] for moment in moments.values())
    begin, end = -AROUND[0] * longest, (1 + AROUND[1]) * longest
    parts = [text(LEFT, top, f"who has the device as a request arrives ({end - begin:.0f} ms of the first round):"),
             bar(WIDTH - RIGHT - 130, WIDTH - RIGHT - 127, top - 11, 14, "preempted"),
             text(WIDTH - RIGHT - 120, top, "train is preempted", colour="preempted")]
    for phase, moment in moments.items():
        top += STRIP_GAP
        parts += [text(LEFT - 80, top + LANE_HEIGHT + 6, phase, "end", phase)] + device_strip(top, moment, begin, end)
        top += 2 * LANE_HEIGHT
    return parts, top


def style():
    """Returns a style that follows the reader's dark mode. Programs that ignore styles draw the picture light."""
    dark = " ".join(f".{name}{{fill:{colours[1]}}} .stroke-{name}{{stroke:{colours[1]}}}" for name, colours in COLOURS.items())
    return f"<style>@media (prefers-color-scheme: dark) {{{dark}}}</style>"


def draw(quantiles_ms, moments):
    """quantiles_ms: by phase, the latencies of SHARES. moments: by phase, the results of demo_moment.choose that are
    not None."""
    top = CHART_TOP + CHART_HEIGHT + 50
    parts = latency_chart(quantiles_ms)
    if moments:
        more, top = strips(top, moments)
        parts += more
    height = top + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12">{style()}\n<rect width="100%" height="100%" class="ground" '
            f'fill="{COLOURS["ground"][0]}"/>\n' + "\n".join(parts) + "\n</svg>\n")
