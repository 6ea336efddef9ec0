# SPDX-License-Identifier: MIT
# The oracle: pipec against things that are not pipec. `oracle.py WHAT --pipec EXE --stdlib DIR
# --scratch PREFIX`, where WHAT is
#
#   orders    op by op against orders.py, over a grid
#   replay    machine.py runs what pipec emits: random programs and the standard library
#   numbers   closed forms and published numbers
#   verdicts  mutated random schedules: pipec's verdict against brute force (mutate.py)
#   pytorch   literals of PyTorch's tests (--shared DIR)
#   waits     each wait of good programs changed: machine.py finds each change that breaks a dependence
#   itself    machine.py finds every fault of a list that is planted in good programs
#
# The seed is printed; --seed repeats a run. Exit 0 and a line of counts, or 1 and what disagrees.
import argparse
import itertools
import json
import random
import sys

sys.dont_write_bytecode = True  # nothing beside the sources

import clocks
import driver
import machine
import mutate
import orders
import pytorch


def same_orders(what, got, want):
    for r, (g, w) in enumerate(itertools.zip_longest(got, want)):
        if g != w:
            at = next((i for i, (a, b) in enumerate(itertools.zip_longest(g or [], w or [])) if a != b))
            sys.exit("%s: rank %d differs at %d\n  pipec:  %s\n  oracle: %s" % (what, r, at, g, w))


def cmd_orders(c, rng, args):
    n = 0
    shapes = [(P, M) for P in (1, 2, 3, 4, 5, 8) for M in (1, 2, 3, 4, 5, 7, 8, 16)]
    shapes += [(16, 5), (16, 64), (33, 40), (64, 3), (64, 512), (1, 512)]
    for P, M in shapes:
        for name, formula in (("gpipe", orders.gpipe), ("1f1b", orders.onef1b), ("1f1b", orders.deepspeed),
                              ("zb_h1", orders.zb_h1)):
            same_orders("%s P=%d M=%d" % (name, P, M), driver.csv(c.file(name, "csv", P=P, M=M)), formula(P, M))
            n += 1
    for P, V in itertools.product((2, 3, 4, 8), (2, 3, 4)):
        for M in (P, 2 * P, 5 * P):
            same_orders("interleaved P=%d M=%d V=%d" % (P, M, V),
                        driver.csv(c.file("interleaved", "csv", P=P, M=M, V=V)), orders.interleaved(P, M, V))
            n += 1
    print("orders: %d schedules equal" % n)


def checked(what, text, rng):
    try:
        p = machine.Program(text)
        machine.check(p, rng)
        return p
    except machine.Wrong as e:
        sys.exit("%s: %s" % (what, e))


def check_phases(what, p, lag):
    """Of a kernel in which a microbatch's backward (B or I) stands lag(r) iterations behind its forward:
    lag(r) + 1 forwards, if there are so many, come before the first backward."""
    for r, ops in enumerate(p.compute):
        last = max(i for i, c in enumerate(ops) if c.kind == "F")
        for i, c in enumerate(ops):
            early = c.kind == "F" and c.mb <= lag(r)
            want = "warmup" if early else "flush" if i > last else "steady"
            if c.phase != want:
                sys.exit("%s: %s is %s, not %s" % (what, c, c.phase, want))


def to(shape, rng):
    """To another rank, any: rank of s plus something."""
    n = max(shape.place) + 1
    if n < 2 or rng.random() < 0.5:
        return ""
    place = "0"
    for s, r in enumerate(shape.place):
        place = "s == %d ? %d : %s" % (s, r, place)
    return " -> ((%s) + %s) %% %d" % (place, rng.choice(("1", "1 + m %% %d" % (n - 1))), n)


def cmd_replay(c, rng, args):
    n = instr = joined = 0
    for P, M in [(1, 1), (1, 6), (2, 1), (2, 2), (3, 2), (4, 8), (4, 1), (5, 11), (8, 3), (8, 12)]:
        for name in ("gpipe", "1f1b", "zb_h1"):
            p = checked("%s P=%d M=%d" % (name, P, M), c.file(name, "json", P=P, M=M), rng)
            if name != "gpipe":  # its phases are labels of the text
                check_phases("%s P=%d M=%d" % (name, P, M), p, lambda r: P - 1 - r)
            n, instr = n + 1, instr + sum(map(len, p.lists))
        p = checked("inference P=%d M=%d" % (P, M), c.file("inference", "json", P=P, M=M), rng)
        n, instr = n + 1, instr + sum(map(len, p.lists))
    for P, M, V in [(2, 2, 2), (2, 6, 3), (3, 6, 2), (4, 8, 2), (4, 4, 4), (5, 10, 2)]:
        p = checked("interleaved P=%d M=%d V=%d" % (P, M, V), c.file("interleaved", "json", P=P, M=M, V=V), rng)
        n, instr = n + 1, instr + sum(map(len, p.lists))
    infer = "schedule t(P, M, Q) { ranks P  pipe n forward stages P mbs M slices Q place s -> s order r { do M*Q { F } } }"
    for P, M, Q in [(1, 2, 2), (2, 1, 3), (3, 4, 2), (4, 3, 5)]:
        sliced = [("seq1f1b", c.file("seq1f1b", "json", P=P, M=M, Q=Q)), ("terapipe", c.file("terapipe", "json", P=P, M=M, Q=Q)),
                  ("infer", c.text(infer, "--emit=json", "-DP=%d" % P, "-DM=%d" % M, "-DQ=%d" % Q)[1])]
        for name, text in sliced:
            p = checked("%s P=%d M=%d Q=%d" % (name, P, M, Q), text, rng)
            n, instr = n + 1, instr + sum(map(len, p.lists))
    for name, P, M, V in itertools.product(("po_f", "po_h"), (1, 2, 4), (1, 5, 8), (1, 2, 3)):
        p = checked("%s P=%d M=%d V=%d" % (name, P, M, V), c.file(name, "json", P=P, M=M, V=V), rng)
        n, instr = n + 1, instr + sum(map(len, p.lists))
    for P, M in itertools.product((1, 2, 3, 4, 6, 8), (1, 5, 20)):
        p = checked("bpipe P=%d M=%d" % (P, M), c.file("bpipe", "json", P=P, M=M), rng)
        n, instr = n + 1, instr + sum(map(len, p.lists))
    for i in range(args.count or 300):
        shape = mutate.legal(rng, join=rng.choice((0, 0.2, 0.6)))
        text = mutate.text(shape, rng, costs=True)
        if rng.random() < 0.5:  # some stashes go to host memory
            text = text[:text.rindex("}")] + "  time { OFF = %d  LOAD = %d }\n  offload s, m%s when (%d*s + m) %% %d == 0%s\n}\n" % (
                rng.choice((0, 1, 3, 20)), rng.choice((0, 1, 2, 9)), to(shape, rng), rng.randint(0, 3), rng.randint(1, 3),
                rng.choice(("", "", " lead 0", " lead 2", " lead m")))
        status, out, err = c.text(text, "--emit=json", "--verify", "--lowering=global")
        if status:
            sys.exit("a legal schedule is refused:\n%s\n%s" % (text, err))
        p = checked("\n" + text, out, rng)
        if rng.random() < 0.2:  # what completes by rendezvous completes with buffers, by the other machine, too
            status, _, err = c.text(text, "--check", "--sends=buffered:%d" % rng.randint(1, 3))
            if status:
                sys.exit("refused with buffers:\n%s\n%s" % (text, err))
        want = [[o for a in order for o in (a if isinstance(a, tuple) else (a,)) if not o.endswith("U")]
                for order in shape.orders]
        actions = [[a for a in order if isinstance(a, tuple)] for order in shape.orders]
        got = [[tuple(c.text for c in p.action(r, i)) for i, c in enumerate(ops)
                if c.group and not (i and ops[i - 1].group)] for r, ops in enumerate(p.compute)]
        if actions != got:
            sys.exit("not the actions that were written:\n%s\n%s" % (text, got))
        joined += sum(map(len, got))
        if p.orders() != want:
            sys.exit("not the order that was written:\n%s\n%s" % (text, p.orders()))
        n, instr = n + 1, instr + sum(map(len, p.lists))
    for P, M in [(1, 2), (2, 4), (3, 8), (4, 8), (5, 11)]:
        p = checked("dualpipev P=%d M=%d" % (P, M), c.file("dualpipev", "json", P=P, M=M), rng)
        n, instr = n + 1, instr + sum(map(len, p.lists))
    if joined < (args.count or 300):  # library programs aside, more than one a program
        sys.exit("only %d actions of several ops" % joined)
    print("replay: %d programs, %d instructions, %d actions of several ops" % (n, instr, joined))


# ---- numbers ----

def with_costs(c, base, params, costs):
    """The program of base with uniform costs."""
    text = 'import "%s.pipe"\nschedule t() extends %s(%s) {\n  time { %s }\n}\n' % (
        base, "onef1b" if base == "1f1b" else base, ", ".join("%s = %d" % kv for kv in params.items()),
        "  ".join("%s = %d" % kv for kv in costs.items()))
    status, out, err = c.text(text, "--emit=json")
    if status:
        sys.exit(text + err)
    return machine.Program(out)


def equal(what, got, want):
    if got != want:
        sys.exit("%s: %s, not %s" % (what, got, want))
    equal.n += 1


equal.n = 0


def cmd_numbers(c, rng, args):
    def stats(base, params, costs):
        p = with_costs(c, base, params, costs)
        make, span = machine.play(p)
        equal("%s %s ideal" % (base, params), p.json["ideal"], make)
        equal("%s %s makespan" % (base, params), p.json["makespan"] >= make, True)
        return p, make, span

    peak = lambda p: [r["inflight"] for r in p.json["rank"]]
    # P=8, M=32, F = B = W = 1000 per full stage: makespan, span, peak in full-stage microbatches.
    split, full = {"F": 1000, "I": 1000, "W": 1000}, {"F": 1000, "B": 2000}
    for base, costs, want in [("1f1b", full, (117000, 117000, 8)), ("gpipe", full, (117000, None, 32)),
                              ("zb_h1", split, (103000, 103000, 8))]:
        p, make, span = stats(base, {"P": 8, "M": 32}, costs)
        equal(base, (make, want[1] and span, max(peak(p))), want)
    for V, make_want, peak_want in [(2, 106500, 11.5), (4, 101250, 9.75)]:
        p, make, span = stats("interleaved", {"P": 8, "M": 32, "V": V}, {"F": 1000 // V, "B": 2000 // V})
        equal("interleaved V=%d" % V, (make, max(peak(p)) / V), (make_want, peak_want))
    # P=4, F=1, B=2: spans and peaks; GPipe's utilisation M/(M+P-1).
    for M, span in [(1, 12), (2, 15), (4, 21), (6, 27), (8, 33)]:
        for base in ("gpipe", "1f1b"):
            p, make, _ = stats(base, {"P": 4, "M": M}, {"F": 1, "B": 2})
            equal("%s M=%d" % (base, M), make, span)
            equal("%s M=%d utilisation" % (base, M), p.json["busy"] * (M + 3), 4 * make * M)
            most = [M if base == "gpipe" else min(4 - s, M) for s in range(4)]
            equal("%s M=%d peaks" % (base, M), peak(p), most)
    for V, make_want, peaks, warm in [(2, 57, [11, 9, 7, 5], [10, 8, 6, 4]),
                                      (4, 105, [19, 17, 15, 13], [18, 16, 14, 12])]:
        p, make, _ = stats("interleaved", {"P": 4, "M": 8, "V": V}, {"F": 1, "B": 2})
        equal("interleaved V=%d, in chunks" % V, (make, peak(p)), (make_want, peaks))  # 28.5 and 26.25 stages
        equal("interleaved V=%d bubble" % V, (make * 4 - p.json["busy"]) * (8 * V + 3), 3 * make * 4)
        equal("interleaved V=%d depth" % V, [r["warmup_depth"] for r in p.json["rank"]], [w + 1 for w in warm])
    # Transfers: (P-1)M each way, 2(PV-1)M when interleaved.
    for base, params, want in [("gpipe", {"P": 4, "M": 8}, 48), ("1f1b", {"P": 4, "M": 8}, 48),
                               ("interleaved", {"P": 4, "M": 8, "V": 2}, 112)]:
        equal(base + " transfers", len(json.loads(c.file(base, "json", **params))["transfers"]), want)
    # ZB-H1's bubble (P-1) max(F, B + max(0, F - W)) for M >= P, any costs.
    for _ in range(args.count or 40):
        P, F, I, W = rng.randint(1, 8), rng.randint(1, 30), rng.randint(1, 30), rng.randint(1, 30)
        M = rng.randint(P, 3 * P)
        p, make, _ = stats("zb_h1", {"P": P, "M": M}, {"F": F, "I": I, "W": W})
        equal("zb_h1 P=%d M=%d F=%d I=%d W=%d" % (P, M, F, I, W), make,
              M * (F + I + W) + (P - 1) * max(F, I + max(0, F - W)))
    # Room for 7 stashes: GPipe with 8 microbatches does not fit, 1F1B fits in 4.
    for base, room, want in [("gpipe", 7, "memory"), ("gpipe", 8, None),
                             ("onef1b", 4, None), ("onef1b", 3, "memory")]:
        text = 'import "%s.pipe"\nschedule t() extends %s(P = 4, M = 8) { bytes { act = 1MiB } }\n' % (
            "gpipe" if base == "gpipe" else "1f1b", base)
        status, _, err = c.text(text, "--check", "--memory-limit=%dMiB" % room)
        equal("%s in %d MiB" % (base, room), driver.errors(err)[0][0] if status else None, want)
    print("numbers: %d equal" % equal.n)


# ---- does the oracle see anything? ----

def tamper(j, rng):
    """(what, program with one fault) for each kind of fault."""
    def edit(what, change):
        t = json.loads(json.dumps(j))
        if change(t):
            return what, json.dumps(t)
        return None

    def pick(t, ok):
        found = [(r, i) for r, rank in enumerate(t["rank"]) for i, c in enumerate(rank["instr"]) if ok(c)]
        return found and rng.choice(found)

    def on_instr(ok, change):
        def edit_one(t):
            at = pick(t, ok)
            if at:
                change(t["rank"][at[0]]["instr"], at[1])
            return bool(at)
        return edit_one

    def drop(l, i):
        del l[i]

    def set_key(key, value):
        return lambda l, i: l[i].__setitem__(key, value(l[i]))

    def pool(t):
        q = rng.choice(rng.choice(t["rank"])["pools"])
        q["count"] += 1
        return True

    def swap_transfers(t):
        r = rng.choice(t["rank"])["instr"]
        xs = [i for i, c in enumerate(r) if "SEND_F" in c["op"]]
        if len(xs) < 2:
            return False
        a, b = xs[0], xs[1]
        for k in ("op", "mb", "in"):
            r[a][k], r[b][k] = r[b][k], r[a][k]
        return True

    kind = lambda *ks: lambda c: machine.OP.match(c["op"]).group(2) in ks
    has_wait = lambda c, stream: any(w["stream"] == stream and w["count"] > 0 for w in c.get("waits", ()))
    waits = lambda stream, *ks: lambda c: kind(*ks)(c) and has_wait(c, stream)
    no_waits = lambda l, i: l[i].pop("waits")
    yield edit("an op is missing", on_instr(kind("F", "B", "I", "W"), drop))
    yield edit("an op is there twice", on_instr(kind("F"), lambda l, i: l.append(dict(l[i]))))
    yield edit("a transfer is missing", on_instr(kind("SEND_F", "SEND_B"), drop))
    yield edit("a send does not wait for its tensor", on_instr(waits("compute", "SEND_F", "SEND_B"), no_waits))
    yield edit("an op does not wait for its tensor", on_instr(waits("comm", "B", "I"), no_waits))
    yield edit("a wait is too high", on_instr(kind("F"), set_key("waits", lambda c: [{"stream": "compute", "count": 1000}])))
    yield edit("a receive does not wait for the start", on_instr(
        lambda c: c.get("waits") == [{"stream": "compute", "count": 0}], no_waits))

    def no_end(t):
        found = [rank for rank in t["rank"] if rank["waits"]]
        if found:
            rng.choice(found)["waits"].pop()
        return bool(found)
    yield edit("the end of the step does not wait", no_end)
    for what in mutate.WAITS:
        if what != "one more":  # it may be right: waits.test
            yield edit("a wait is " + what, lambda t, w=what: mutate.mutate_wait(t, w, rng))
    yield edit("another stash is read", on_instr(kind("B", "I"), set_key("act", lambda c: c["act"] + 1)))
    yield edit("another tensor is sent", on_instr(kind("SEND_F"), set_key("in", lambda c: c["in"] ^ 1)))
    yield edit("two transfers are swapped", swap_transfers)
    yield edit("a time is wrong", on_instr(kind("F"), set_key("start", lambda c: c["start"] + 1)))
    yield edit("a peer is wrong", on_instr(kind("SEND_F"), set_key("peer", lambda c: c["peer"] + 1)))
    groups = lambda c: c.get("group", 0) > 0
    yield edit("an action is longer", on_instr(groups, set_key("group", lambda c: c["group"] + 1)))
    yield edit("an action is one op more", on_instr(
        lambda c: c["op"] == "0U", set_key("group", lambda c: 1)))
    yield edit("a pool is larger than its peak", pool)
    yield edit("an op is on another microbatch", on_instr(
        lambda c: kind("F")(c) and c["mb"] == 0, lambda l, i: l[i].update(op=l[i]["op"][:-1] + "1", mb=1)))
    for key in ("makespan", "busy", "span", "ideal"):
        yield edit(key + " is wrong", lambda t, k=key: t.__setitem__(k, t[k] + 1) or True)
    yield edit("an op does not wait for its stash", on_instr(waits("copy", "B", "I"), no_waits))
    yield edit("a copy is missing", on_instr(kind("OFF", "LOAD"), drop))
    yield edit("another slot of host memory is read", on_instr(kind("LOAD"), set_key("keep", lambda c: c["keep"] + 1)))
    yield edit("a copy does not wait for its stash", on_instr(waits("compute", "OFF"), no_waits))
    for key in ("inflight", "held", "host", "warmup_depth"):
        yield edit(key + " is wrong", lambda t, k=key: t["rank"][0].__setitem__(k, t["rank"][0][k] + 1) or True)


def cmd_waits(c, rng, args):
    """Every wait of a program is changed in each way of mutate.WAITS. A change that breaks a dependence
    must be found; one that breaks none must not be reported. Only waits of copies or for copies may be spare."""
    tally = {}
    shapes = [(n, {"P": 3, "M": 4}) for n in ("1f1b", "gpipe", "zb_h1")]
    shapes += [("dualpipev", {"P": 2, "M": 4}), ("interleaved", {"P": 2, "M": 4, "V": 2}), ("seq1f1b", {"P": 2, "M": 2, "Q": 2}),
               ("po_f", {"P": 2, "M": 4, "V": 2}), ("bpipe", {"P": 4, "M": 6})]
    texts = []
    for name, params in shapes:
        for lowering in ("global", "channels"):
            texts.append(c.ok("%s/%s.pipe" % (c.stdlib, name), "--emit=json", "--lowering=" + lowering,
                              *("-D%s=%d" % kv for kv in params.items())))
    for _ in range(args.count or 40):
        source = mutate.text(mutate.legal(rng, join=0.2), rng, costs=True)
        status, out, err = c.text(source, "--emit=json", "--lowering=" + rng.choice(("global", "channels")))
        if status:
            sys.exit("a legal schedule is refused:\n%s\n%s" % (source, err))
        texts.append(out)
    for text in texts:
        p = checked("untouched", text, rng)
        pairs = [mutate.must_precede(p, r) for r in range(p.nrank)]
        for what, r, i, k in mutate.each_wait(p.json):
            form = mutate.with_own(p.json, r)
            row = mutate.rows_of(form, r)[i]
            # A copy starts where the text says, and a stash is in flight until its copy is over.
            spare = "op" in row and clocks.stream_of(row) == "copy" or row["waits"][k]["stream"] == "copy"
            if not mutate.change_wait(form, what, r, i, k):
                continue
            broken = mutate.breaks(form, r, pairs[r])
            try:
                machine.check_rank_waits(machine.Program(form, [r]), r)
                found = None
            except machine.Wrong as e:
                found = str(e)
            where = "%s %s rank %d %s, wait %d %s" % (
                p.json["schedule"], p.json["lowering"], r, row.get("op", "the end"), k, what)
            if bool(found) != broken:
                sys.exit("%s: %s" % (where, found or "is not found"))
            n = tally.setdefault(what, [0, 0])
            n[0] += 1
            n[1] += broken
            if what == "lost" and not broken and not spare:
                sys.exit("%s: nothing needs the wait" % where)
    print("waits: " + ", ".join("%s %d of %d" % (what, tally[what][1], tally[what][0]) for what in mutate.WAITS))


def cmd_itself(c, rng, args):
    seen = {}
    texts = [c.file(n, "json", P=3, M=4) for n in ("gpipe", "1f1b", "zb_h1")]
    texts += [c.file("interleaved", "json", P=2, M=4, V=2), c.file("po_f", "json", P=2, M=4, V=2),
              c.file("dualpipev", "json", P=2, M=4)]
    for text in texts * (args.count or 2):
        checked("untouched", text, rng)
        for fault in tamper(json.loads(text), rng):
            if fault is None:
                continue
            what, bad = fault
            caught = False
            try:
                machine.check(machine.Program(bad), rng, rounds=2)
            except (machine.Wrong, KeyError, IndexError):
                caught = True
            if not caught:
                sys.exit("machine.py does not see that %s" % what)
            seen[what] = seen.get(what, 0) + 1
    print("itself: %d kinds of fault, %d planted, all seen" % (len(seen), sum(seen.values())))
    if len(seen) < 32:
        sys.exit("some kind of fault was never planted")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("what", choices=["orders", "replay", "numbers", "verdicts", "pytorch", "waits", "itself"])
    for key in ("pipec", "stdlib", "scratch"):
        a.add_argument("--" + key, required=True)
    a.add_argument("--shared")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--count", type=int, help="programs to make")
    args = a.parse_args()
    print("seed %d" % args.seed, flush=True)
    c = driver.Pipec(args.pipec, args.stdlib, args.scratch)
    rng = random.Random(args.seed)
    commands = {"orders": cmd_orders, "replay": cmd_replay, "numbers": cmd_numbers, "waits": cmd_waits, "itself": cmd_itself,
                "verdicts": mutate.verdicts, "pytorch": pytorch.compare}
    commands[args.what](c, rng, args)


if __name__ == "__main__":
    main()
