# SPDX-License-Identifier: MIT
# stall.py PICTURE [FILE.csv rank|edge] < MESSAGE: the counter-example as SVG is well-formed and self-contained, has the
# circle of the message word for word, each op of it as a dashed box in the row of its rank, and an arrow for each wait.
# Of a file with transfers all that ran stands at its time: PyTorch's rules are played here, one unit an instruction, with
# a queue of transfers for each rank or for each directed pair.
import re
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
text = open(sys.argv[1], encoding="utf-8").read()
root = tree.fromstring(text)
assert not re.search(r"https?://(?!www\.w3\.org)|<script|<image", text)
notes = re.findall(r"note: (rank \d+ is at .*)", sys.stdin.read())
assert notes
shown = [e.text for e in root.iter(SVG + "text")]
for note in notes:
    assert note in shown, (note, shown)
rows = {e.text: float(e.get("y")) for e in root.iter(SVG + "text") if re.fullmatch(r"rank \d+", e.text)}
boxes = [e for e in root.iter(SVG + "rect") if e.get("x")]
dashed = {(float(b.get("y")), b.get("stroke")) for b in boxes if b.get("stroke-dasharray")}
width = float(root.get("width"))
for b in boxes:
    assert 0 <= float(b.get("x")) and float(b.get("x")) + float(b.get("width")) <= width
labels = {(e.text, float(e.get("y"))) for e in root.iter(SVG + "text")}
arrows = [e for e in root.iter(SVG + "path") if e.get("marker-end")]
waits = 0
for note in notes:
    rank, at, on = re.match(r"rank (\d+) is at (\S+), which (?:needs|comes after|has no room in the buffer before) (\S+?)(?:,|$)",
                            note).groups()
    assert (at, rows["rank " + rank]) in labels, (at, labels)
    other = re.search(r"(?:where|which) rank (\d+)", note[note.index(", which") + 7:])
    if other:
        waits += other[1] != rank
        assert (on, rows["rank " + other[1]]) in labels, (on, labels)
assert sum(e.get("stroke-width") == "2" for e in arrows) == waits, (len(arrows), waits)
assert any(stroke == "firebrick" for _, stroke in dashed)


def play(lists, queue):
    """When each instruction ends, for those that do: {(rank, text): time}."""
    kind = lambda op: re.match(r"\d+([A-Z_]+?)(?:_GRAD)?(\d*)$", op)[1]
    comm = lambda op: kind(op) in ("SEND_F", "SEND_B", "RECV_F", "RECV_B")
    stage_rank = {re.match(r"\d+", op)[0]: r for r, l in enumerate(lists) for op in l if kind(op) == "F"}

    def other(op):  # the end of a transfer on the other rank
        stage, what, way, mb = re.match(r"(\d+)(SEND|RECV)_(F|B)(\d+)", op).groups()
        far = int(stage) + (1 if (what == "SEND") == (way == "F") else -1)
        return stage_rank[str(far)], f"{far}{'RECV' if what == 'SEND' else 'SEND'}_{way}{mb}"

    line = lambda r, op: 0 if queue == "rank" else (other(op)[0], kind(op)[:4])
    end, t = {}, 0
    while True:
        ended = lambda r, op: end.get((r, op), t + 1) <= t

        def ready(r, i):
            op, above = lists[r][i], lists[r][:i]
            if any(not ended(r, o) for o in above if not comm(o)):
                return False
            if comm(op):
                return all(ended(r, o) for o in above if comm(o) and line(r, o) == line(r, op))
            wait = re.match(r"(\d+)WAIT_(SEND_.\d+)", op)
            stage, way, mb = wait.groups() + ("",) if wait else re.match(r"(\d+)([FB]?)\D*(\d*)", op).groups()
            needs = f"{stage}{way}" if wait else f"{stage}RECV_{way}{mb}"
            return needs not in lists[r] or ended(r, needs)

        able = {(r, l[i]) for r, l in enumerate(lists) for i in range(len(l)) if (r, l[i]) not in end and ready(r, i)}
        new = {(r, op) for r, op in able if not comm(op) or other(op) in able}
        if not new and max(end.values()) <= t:
            return end
        t += 1
        end.update({k: t for k in new})


if len(sys.argv) > 2:
    lists = [row.split(",") for row in open(sys.argv[2]).read().split()]
    want = play(lists, sys.argv[3])
    ticks = sorted((float(e.text), float(e.get("x"))) for e in root.iter(SVG + "text") if e.get("class") == "tick")
    unit, zero = (ticks[-1][1] - ticks[0][1]) / (ticks[-1][0] - ticks[0][0]), ticks[0][1] - ticks[0][0]
    solid = [(float(b.get("x")), float(b.get("width")), float(b.get("y"))) for b in boxes if not b.get("stroke-dasharray")]
    for (rank, op), end in want.items():
        at = [e for e in root.iter(SVG + "text") if e.text == op and e.get("text-anchor") == "middle"]
        x = zero + (end - 1) * unit
        assert len(at) == 1 and abs(float(at[0].get("x")) - x - unit / 2) < 0.05, (rank, op, end, [a.get("x") for a in at])
        assert any(abs(b[0] - x) < 0.05 and abs(b[1] - unit) < 0.05 and 0 <= b[2] - (rows[f"rank {rank}"] - 19) < 62 for b in solid), op
    assert len(solid) == len(want), (len(solid), len(want))
print("%d rows, %d boxes, %d waits" % (len(rows), len(boxes), waits))
