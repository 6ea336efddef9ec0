# SPDX-License-Identifier: MIT
# Line charts as SVG, with nothing but the standard library. A line is (name, points), a point (x, y, low, high):
# a mean and its spread, drawn as a band. Colours go by the place of the name in the legend.
import html
import math

COLOURS = ("#000000", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#117733", "#cc79a7", "#882255")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 420, 260, 56, 38, 26, 12


def ticks(low, high, log):
    if log:
        return [v for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
                for v in (10 ** e, 2 * 10 ** e, 5 * 10 ** e) if low <= v <= high]
    step = 10 ** math.floor(math.log10((high - low) or 1))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if (high - low) / s <= 6 or s == 2 * step)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def text(x, y, what, anchor="middle", size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{html.escape(what)}</text>'


def panel(x0, y0, title, xlabel, lines, order, logx=False, logy=False, top=None, bottom=0):
    points = [p for _, ps in lines for p in ps]
    if not points:
        return ""
    xs = [p[0] for p in points]
    ys = [v for p in points for v in p[1:] if top is None or v <= top]
    lo_x, hi_x = min(xs), max(xs)
    lo_y, hi_y = (min(ys) * 0.8 if logy else bottom), (max(ys) * 1.1 if ys else 1)
    if hi_x == lo_x:
        hi_x = lo_x + 1

    def at(v, lo, hi, log):
        return math.log(v / lo) / math.log(hi / lo) if log else (v - lo) / (hi - lo)

    def px(v):
        return x0 + LEFT + (WIDTH - LEFT - RIGHT) * at(v, lo_x, hi_x, logx)

    def py(v):
        v = min(v, hi_y)
        return y0 + HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * at(max(v, lo_y), lo_y, hi_y, logy)

    out = [text(x0 + WIDTH / 2, y0 + 15, title, size=12, more=' font-weight="bold"'),
           text(x0 + WIDTH / 2, y0 + HEIGHT - 6, xlabel)]
    for v in sorted(set(xs)) if logx else ticks(lo_x, hi_x, False):
        out.append(f'<path d="M{px(v):.1f} {y0 + TOP}V{y0 + HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(text(px(v), y0 + HEIGHT - BOTTOM + 14, f"{v:g}"))
    for v in ticks(lo_y, hi_y, logy):
        out.append(f'<path d="M{x0 + LEFT} {py(v):.1f}H{x0 + WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(text(x0 + LEFT - 5, py(v) + 4, f"{v:g}", "end"))
    for name, ps in lines:
        if not ps:
            continue
        colour = COLOURS[order.index(name) % len(COLOURS)]
        if any(p[2] != p[3] for p in ps):
            band = [f"{px(p[0]):.1f} {py(p[3]):.1f}" for p in ps] + [f"{px(p[0]):.1f} {py(p[2]):.1f}" for p in reversed(ps)]
            out.append(f'<path d="M{"L".join(band)}Z" fill="{colour}" opacity=".15"/>')
        line = "L".join(f"{px(p[0]):.1f} {py(p[1]):.1f}" for p in ps)
        out.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.6"><title>{html.escape(name)}</title></path>')
        if len(ps) <= 8:
            out += [f'<circle cx="{px(p[0]):.1f}" cy="{py(p[1]):.1f}" r="2.5" fill="{colour}"/>' for p in ps]
    return "\n".join(out)


def page(path, title, order, panels):
    """panels: (title, label of x, lines, options of panel); three in a row, the legend below."""
    rows = (len(panels) + 2) // 3
    width, height = 3 * WIDTH, 30 + rows * HEIGHT + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(width / 2, 20, title, size=14, more=' font-weight="bold"')]
    for i, (name, label, lines, options) in enumerate(panels):
        out.append(panel(i % 3 * WIDTH, 30 + i // 3 * HEIGHT, name, label, lines, order, **options))
    x = 20
    for i, name in enumerate(order):
        out.append(f'<path d="M{x} {height - 20}h18" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="3"/>')
        out.append(text(x + 23, height - 16, name, "start"))
        x += 40 + 6.3 * len(name)
    out.append("</svg>\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out))
