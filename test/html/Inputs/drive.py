# SPDX-License-Identifier: MIT
"""drive.py WHAT PAGE.html FORM.json [FILE...]: what a page shows and does in a browser, against the JSON form alone."""
import json
import os
import re
import sys

from browser import Page

what, path, form_path, *files = sys.argv[1:]
form = json.load(open(form_path))
ranks = form["rank"]
COPIES = "OFF", "LOAD"
KIND = re.compile(r"(\d+)([A-Z_]+)(.*)")
ops = {i["op"]: dict(i, rank=r["rank"], kind=KIND.match(i["op"])[2], compute="peer" not in i and KIND.match(i["op"])[2] not in COPIES) for r in ranks for i in r["instr"]}
bad = []


def same(got, want, of):
    if got != want:
        bad.append(f"{of}: {got}, not {want}")


def shown(page):
    """Left end of the plot, its time, pixels per time, rows {rank: [top, height]}: of the first track of each rank."""
    return page.js("({left: view.left, t: view.t, px: view.px, top: canvas.getBoundingClientRect().top, at: canvas.getBoundingClientRect().left, "
                   "rows: view.rows.filter(r => r.first).map(r => [r.y - view.y, r.h])})")


def place(v, op, part=0.5, high=0.5):
    """A point in an op, in the page."""
    y, h = v["rows"][op["rank"]]
    return v["at"] + v["left"] + (op["start"] + part * (op["end"] - op["start"]) - v["t"]) * v["px"], v["top"] + y + high * h


def loaded(op):
    """Forwards of slices before op's whose stashes have left: it is the first op that wants them back."""
    s, m, found = op["stage"], op.get("mb"), set()
    rows = ranks[op["rank"]]["instr"]
    for q in range(op.get("slice", 0)):
        at = next((k for k, i in enumerate(rows) if i["op"] == f"{s}LOAD{m}.{q}"), None)
        behind = [] if at is None else [i for i in rows[at:] if (i["stage"], i.get("mb")) == (s, m) and KIND.match(i["op"])[2] in "RBI"]
        if behind and behind[0]["op"] == op["op"]:
            found.add(f"{s}F{m}.{q}")
    return found


def needs(op):
    """Ops that op takes something from; by the rules of the language, stages of one pipe in a row."""
    s, kind, m = op["stage"], op["kind"], KIND.match(op["op"])[3]
    near = lambda row, name: f"{row}{name}{m}" if f"{row}{name}{m}" in ops else None
    model = form["stages"][s]["model"]
    before, behind = (s - 1 if model else None), s + 1
    if behind >= len(form["stages"]) or form["stages"][behind]["model"] != model + 1:
        behind = None
    other = lambda name, by: f"{s}{name}{op['mb']}.{op['slice'] + by}" if "slice" in op else None  # of the slices
    there = lambda *names: next((n for n in names if n in ops), None)
    if kind == "F":
        return {before is not None and near(before, "F"), there(other("F", -1))} - {False, None}
    last = form["slices"] - 1
    again = {there(other("R", -k)) for k in range(1, op.get("slice", 0) + 1)}  # stashes made again that it reads
    if kind == "R":
        return ({near(s, "F"), op["slice"] < last and other("F", last - op["slice"])} | again if last else {near(s, "F")}) - {False, None}
    stash = near(s, "R") or near(s, "F")
    again |= loaded(op)
    if kind in "BI":
        return (again if op.get("slice", 0) == last else loaded(op)) - {None} | {stash, behind is not None and (near(behind, "B") or near(behind, "I")), there(other("B", 1), other("I", 1))} - {False, None}
    if kind == "W":
        return {stash, near(s, "I")} - {None}
    return None  # U


def formula_words(op):
    """What the tooltip of an op says of formulas."""
    i = next(i for r in ranks for i in r["instr"] if i["op"] == op)
    f = lambda row: form["formulas"][row]
    if "version" in i and "weight" not in i:
        return ["as estimated before"]
    if "formula" not in i:
        return []
    if "U" not in op:
        return [f"\nas {f(i['formula'])}\n"]
    rule = form["rules"][i["formula"]]
    return ([f"\n{word} {f(rule[word])}\n" for word in ("applies", "rate") if word in rule]
            + [f"\nthen {t['state']} = {f(t['formula'])}\n" for t in rule["then"]])


def look(page):
    """Head, pixels, what the pointer and the keys do."""
    want = f"{form['schedule']} {form['params']}"
    same(page.js("document.title"), want, "title")
    same(page.js("$('title').textContent"), want, "heading")
    v = shown(page)
    fill = {k["op"]: k["fill"] for k in page.js("doc.ops")}
    drawn = [o for o in ops.values() if o["compute"] and (o["end"] - o["start"]) * v["px"] >= 5]
    points = [[place(v, o, 0, 0)[0] - v["at"] + 2.5, place(v, o, 0, 0.3)[1] - v["top"]] for o in drawn]
    pixels = page.js(f"{json.dumps(points)}.map(([x, y]) => [...ctx.getImageData(Math.floor(x), Math.floor(y), 1, 1).data.slice(0, 3)])")
    for o, pixel in zip(drawn, pixels):
        same("#%02x%02x%02x" % tuple(pixel), fill[o["kind"]], f"pixel of {o['op']}")
    # Every op under the pointer is named with its times; between ops it is idle.
    for o in drawn[::7]:
        page.mouse("mouseMoved", *place(v, o))
        tip = page.js("$('tip').hidden ? '' : $('tip').textContent")
        if not tip.startswith(f"{o['op']}\npredicted ") or f", {o['phase']}\n" not in tip:
            bad.append(f"over {o['op']} it says {tip}")
        if not form["timed"] and f"predicted {o['start']} \u2013 {o['end']}," not in tip:
            bad.append(f"over {o['op']} it says {tip}")
        file, line, _ = o["at"]
        text = page.js(f"panels[0].sources[{file}]").split("\n")[line - 1].strip()
        for words in formula_words(o["op"]):
            if words not in tip:
                bad.append(f"over {o['op']} it does not say '{words}': {tip}")
        if f"{form['files'][file]}:{line}:" not in tip or not tip.endswith(text[:160]):
            bad.append(f"over {o['op']} it lacks line {line}: {tip}")
    last = ranks[-1]["instr"]
    first = min(i["start"] for i in last if ops[i["op"]]["compute"])
    if first * v["px"] > 8:
        page.mouse("mouseMoved", *place(v, dict(rank=len(ranks) - 1, start=0, end=first)))
        tip = page.js("$('tip').textContent")
        if not tip.startswith("idle\nuntil "):
            bad.append(f"over idle time it says {tip}")
    # Dependences of every op.
    got = page.js("panels[0].compute.flat().map(i => [i.op, neighbours(i, 'from').ops.map(k => k.op), neighbours(i, 'to').ops.map(k => k.op)])")
    users = {}
    for name in ops:
        for k in (needs(ops[name]) or ()) if ops[name]["compute"] else ():
            users.setdefault(k, set()).add(name)
    for name, from_, to in got:
        want = needs(ops[name])
        if want is None:  # an update follows the last gradient of its stage above it
            order = [i["op"] for i in ranks[ops[name]["rank"]]["instr"]]
            above = [o for o in order[:order.index(name)] if ops[o]["stage"] == ops[name]["stage"] and ops[o]["kind"] in "BW"]
            want = set(above[-1:])
        same(set(from_), want, f"what {name} needs")
        same({k for k in to if not re.match(r"\d+U", k)}, users.get(name, set()), f"what needs {name}")
    # A click shows them, dims the rest, and Esc ends it.
    o = next(k for k in drawn if k["kind"] == "F" and needs(k))
    page.click(*place(v, o))
    page.rest()
    same(page.js("[$('side').hidden, $('op').textContent]"), [False, o["op"]], "clicked")
    names = page.js("[...$('what').querySelectorAll('button')].map(b => b.textContent)")
    if not needs(o) | users[o["op"]] <= set(names):
        bad.append(f"beside {o['op']} stand {names}")
    on = o["op"] in {c["op"] for c in form["critical_path"]}
    if ("not on it" in page.js("$('what').textContent")) == on:
        bad.append(f"{o['op']} is {'' if on else 'not '}on the critical path")
    same(page.js("$('source').querySelector('.here').textContent.trim().split(' ')[0]"), str(o["at"][1]), "the line shown")
    same(page.js("[...litOps().keys()].filter(i => !i.comm).map(i => i.op).sort()"), sorted(needs(o) | users[o["op"]] | {o["op"]}), "what is lit")
    v = shown(page)
    other = next(k for k in drawn if k["op"] not in needs(o) | users[o["op"]] | {o["op"]})
    x, y = place(v, other, 0, 0.3)
    pixel = page.js(f"[...ctx.getImageData({x - v['at'] + 2.5}, {y - v['top']}, 1, 1).data.slice(0, 3)]")
    if "#%02x%02x%02x" % tuple(pixel) == fill[other["kind"]]:
        bad.append(f"{other['op']} is not dimmed")
    page.key("Escape")
    same(page.js("$('side').hidden && litOps() === null"), True, "Esc")
    page.rest()
    # Zoom keeps the time under the pointer; a drag moves it; keys.
    v = shown(page)
    x, y = v["at"] + v["left"] + 300, v["top"] + 60
    at = page.js("timeAt(view.left + 300)")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
    page.rest()
    now = shown(page)
    if not now["px"] > 2 * v["px"] or abs(page.js("timeAt(view.left + 300)") - at) > 1e-6 * form["makespan"]:
        bad.append(f"wheel: {v} {now}")
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    for k in range(1, 6):
        page.mouse("mouseMoved", x - 20 * k, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 100, y, button="left", buttons=0, clickCount=1)
    page.rest()
    if abs(shown(page)["t"] - now["t"] - 100 / now["px"]) > 1e-6 * form["makespan"] or page.js("view.selected"):
        bad.append(f"drag: {now} {shown(page)}")
    page.js("canvas.focus()")
    before = page.js("view.px")
    for key, test in (("-", f"view.px < {before}"), ("+", f"Math.abs(view.px / {before} - 1) < 1e-9"), ("0", "view.t === 0 && view.fits"),
                      ("t", f"view.transfers === {json.dumps(not page.js('view.transfers'))}"), ("t", "true"), ("m", f"view.memory === {json.dumps(not page.js('view.memory'))}"),
                      ("m", "true"), ("c", "view.critical && $('critical').getAttribute('aria-pressed') === 'true'")):
        page.key(key)
        same(page.js(test), True, f"key {key}")
    path = {c["op"] for c in form["critical_path"]}
    same(set(page.js("[...litOps().keys()].map(i => i.op)")), path, "the critical path")
    page.key("c")
    page.key("+"), page.key("+"), page.key("ArrowRight")
    same(page.js("view.t > 0"), True, "key ArrowRight")
    was = page.js("document.documentElement.dataset.theme || ''"), page.js("getComputedStyle(document.body).backgroundColor")
    page.key("d")
    if page.js("getComputedStyle(document.body).backgroundColor") == was[1]:
        bad.append("key d changes nothing")
    # Find.
    page.key("/")
    same(page.js("document.activeElement.id"), "find", "key /")
    target = max((k for k in ops.values() if k["compute"] and k["end"] > k["start"]), key=lambda k: k["end"])
    page.type(target["op"].lower()), page.key("Enter")
    page.rest()
    same(page.js("[view.selected.op, $('op').textContent]"), [target["op"]] * 2, "found")
    v = shown(page)
    if not v["left"] <= place(v, target)[0] - v["at"] <= page.js("view.width"):
        bad.append(f"{target['op']} is not in sight")
    page.js("$('find').value = '9F99999'"), page.js("$('find').focus()"), page.key("Enter")
    same(page.js("$('status').textContent.startsWith('No op 9F99999. Stages are 0 to ')"), True, "not found")
    page.key("Escape"), page.key("["),
    same(page.js("view.selected.nth"), page.js(f"panels[0].byName.get('{target['op']}').nth") - 1, "key [")
    page.key("Escape")
    # Memory: never above what is proved, and in stashes exactly up to it.
    curves = page.js("findCurves(panels[0]).map(c => [c.peak, c.base, c.level[c.level.length - 1]])")
    for r, (peak, base, end) in zip(ranks, curves):
        if form["sized"]:
            if not base < peak <= r["bytes"]["total"] or end != base:
                bad.append(f"memory of rank {r['rank']}: {peak}, {base}, {end} of {r['bytes']}")
        else:
            same([peak, base, end], [r["inflight"], 0, 0], f"stashes of rank {r['rank']}")
    same(page.js("findPairs(panels[0]).map(t => t.send.op)") and sorted(page.js("findPairs(panels[0]).map(t => t.send.op)")),
         sorted(t["send"] for t in form["transfers"] if "send" in t), "transfers")


def load(page, name):
    """Gives the page a file; what it says."""
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.js("say('')")
    page.call("DOM.setFileInputFiles", files=[os.path.realpath(name)], nodeId=node)
    page.rest()
    return page.js("$('status').textContent")


def deps(page):
    """OP=A,B: what op needs, with what stands between; each an argument."""
    for word in files:
        op, want = word.split("=")
        got = page.js(f"(n => n.ops.concat(n.transfers).map(k => k.op))(neighbours(panels[0].byName.get('{op}'), 'from'))")
        same(sorted(got), sorted(filter(None, want.split(","))), f"what {op} needs")
    same(page.js("panels[0].tracks[0].makespan"), form["makespan"], "makespan")
    # What runs beside the ops is named under the pointer, with its times.
    lanes = page.js("panels[0].lane.flatMap(l => l.ops).map(i => [i.op, i.start, i.end, xAt((i.start + i.end) / 2), view.rows.find(r => r.rank === i.rank).foot - view.y + 5])")
    v = shown(page)
    same(len(lanes), sum(o["kind"] in COPIES or ("side" in o and form["sides"][o["side"]]["stream"] != "compute") for o in ops.values()), "beside the ops")
    for op, start, end, x, y in lanes:
        page.mouse("mouseMoved", v["at"] + x, v["top"] + y)
        tip = page.js("$('tip').hidden ? '' : $('tip').textContent")
        if end > start and not tip.startswith(f"{op}\npredicted {start} \u2013 {end}, "):
            bad.append(f"over {op} it says {tip}")


def trace(page):
    """files: a trace of this program, then text that is none, each with what the page says."""
    measured = json.load(open(files[0]))
    said = load(page, files[0])
    events = [e for e in measured["traceEvents"] if e.get("ph") == "X"]
    steps = sorted({e["args"].get("step", 0) for e in events if e["pid"] == events[-1]["pid"]})
    if not said.startswith(files[0].split("/")[-1] + f": {len(steps)} step"):
        bad.append(f"a trace: {said}")
    same(page.js("panels[0].tracks.length"), 2, "tracks")
    same(page.js("$('step').options.length"), len(steps), "steps")
    for k in (0, len(steps) - 1):
        page.js(f"$('step').value = {k}; $('step').onchange()")
        mine = [e for e in events if e["pid"] == events[-1]["pid"] and e["args"].get("step", 0) == steps[k]]
        compute = {e["name"]: e for e in mine if e["cat"] == "compute"}
        zero = min(e["ts"] for e in compute.values())
        got = page.js("(p => p.compute.flat().map(i => [i.op, ...['start', 'end'].map(w => p.tracks[1][w][i.rank][i.nth] / p.tracks[1].factor)]))(panels[0])")
        same(len(got), len(compute), "measured ops")
        for op, a, b in got:
            e = compute[op]
            if abs(a - 1e3 * (e["ts"] - zero)) > 1 or abs(b - a - 1e3 * e["dur"]) > 1:
                bad.append(f"measured {op}: {a} {b}, in the file {e}")
    busy = [sum(b - a for a, b in page.js(f"panels[0].compute.flat().map(i => [panels[0].tracks[{k}].start[i.rank][i.nth], panels[0].tracks[{k}].end[i.rank][i.nth]])")) for k in (0, 1)]
    if abs(busy[0] / busy[1] - 1) > 1e-6 and not form["timed"]:
        bad.append(f"predicted and measured are busy {busy}")
    v = page.js("view.rows.map(r => [r.track.name, r.rank])")
    same(v, [[n, r["rank"]] for r in ranks for n in ("predicted", "measured")], "rows")
    for name in files[1:]:
        said = load(page, name)
        print(said)
        same(page.js("$('status').classList.contains('bad') && panels[0].tracks.length"), 2, f"{name}")


def speed(page):
    """What a frame draws when all of a large program is visible and at every zoom; nothing is left out but by rule.

    Its time is printed, and decides nothing: calls of the canvas are the same on every machine."""
    page.js("window.calls = 0; for (const k of Object.getOwnPropertyNames(CanvasRenderingContext2D.prototype)) {"
            "const of = Object.getOwnPropertyDescriptor(CanvasRenderingContext2D.prototype, k).value;"
            "if (typeof of === 'function') CanvasRenderingContext2D.prototype[k] = function () { calls++; return of.apply(this, arguments); }; }")
    print(f"{sum(o['compute'] for o in ops.values())} ops, {form['ranks']} ranks")
    for by in 1, 2, 4, 16, 64:
        ms = page.js(f"(() => {{ place(0, 0, 0); place(extent() / 3, view.px * {by}, 0); view.moving = 1; const ms = []; for (let k = 0; k < 21; k++) {{"
                     "place(view.t + 3 / view.px, view.px, 0); const a = performance.now(); draw(); ctx.getImageData(0, 0, 1, 1); ms.push(performance.now() - a); }"
                     "view.moving = 0; return ms.sort((a, b) => a - b); })()")
        calls = page.js("(() => { view.moving = 1; calls = 0; draw(); view.moving = 0; return calls; })()")
        print(f"zoom {by}: frame {ms[10]:.1f} ms, best {ms[0]:.1f} ms, {calls} calls")
        if calls > 4000:
            bad.append(f"a frame at zoom {by} takes {calls} calls of the canvas")
    page.js("place(0, 0, 0), redraw()")
    page.rest()
    same(page.js("view.dense"), True, "shares")
    # A column of rank 0 in the middle of its warmup is full of forwards; before its first op rank 63 is idle.
    v = shown(page)
    fill = {k["op"]: k["fill"] for k in page.js("doc.ops")}
    warm = min(i["start"] for i in ranks[0]["instr"] if not re.match(r"\d+(F|SEND_F)", i["op"]))
    y, h = v["rows"][0]
    pixels = page.js(f"[0.2, 0.5, 0.9].map(k => [...ctx.getImageData(view.left + {warm / 2 * v['px']}, {y} + k * {h}, 1, 1).data.slice(0, 3)])")
    same(["#%02x%02x%02x" % tuple(p) for p in pixels], [fill["F"]] * 3, "warmup")


with Page(path, *((1600, 900) if what == "speed" else (1280, 800)), dark=what == "dark") as page:
    {"look": look, "dark": look, "trace": trace, "speed": speed, "deps": deps}.get(what, lambda p: None)(page)
    if what == "scaled":  # the second panel, of `form`, to the work of the first: twice as long
        same(page.js("$('facts').textContent"), "on one time axis, scaled to equal work of the model: zb_v \u00d7 1, onef1b \u00d7 2", "facts")
        times = page.js("(p => [p.form.makespan, p.form.span, p.tracks[0].makespan, p.form.rank[0].idle.warmup + p.form.rank[0].idle.flush, p.compute[0][3].start])(panels[1])")
        same(times, [2 * t for t in (form["makespan"], form["span"], form["makespan"], ranks[0]["idle"]["flush"] + ranks[0]["idle"]["warmup"],
                                     [o for o in ops.values() if o["rank"] == 0 and o["compute"]][3]["start"])], "times")
        same(page.js("$('caption').textContent.includes('onef1b makespan 186, bound 172 (+8.1 %)')"), True, "caption")
        found = page.js("[0, 1, 2].map(() => { find('1f3'); return [view.selected.panel.index, view.selected.op]; })")
        same(found, [[0, "1F3"], [1, "1F3"], [0, "1F3"]], "find goes on to the next schedule")
        page.js("dispatchEvent(new Event('beforeprint'))")
        same(page.js("[...$('print').children].map(c => c.width > 1000 && c.height > 8 * 12)"), [True, True], "printed")
        same(page.js("getComputedStyle($('print')).display"), "none", "only in print")
        page.js("layout(900, 160), place(0, 0, 0), draw()")
        same(page.js("view.content > view.height && [...ctx.getImageData((view.width - 4) * view.ratio, 2, 1, 1).data].slice(0, 3).join() !== '255,255,255'"), True, "rows below are told")
    if what == "injected":
        page.js("panels[0].compute.flat().forEach(i => { select(i); hover(xAt((i.start + i.end) / 2), view.rows[i.rank].y - view.y + 3); })")
        same(page.js("[typeof injected, document.images.length, document.scripts.length]"), ["undefined", 0, 2], "what a name can do")
        same(page.js("$('what').textContent.includes(doc.panels[0] && panels[0].form.files[0])"), True, "the name is shown")
    bad += page.complaints()
print("\n".join(bad[:20]) or "right")
sys.exit(1 if bad else 0)
