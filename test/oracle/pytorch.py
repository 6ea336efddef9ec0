# SPDX-License-Identifier: MIT
# pipec against literals of PyTorch's pipelining tests and issue threads: schedules as CSV and JSON
# data, not code. UNSHARD, REDUCE_GRAD and transfers are left out: pipec has no such ops, or makes its
# own. Some lists write B where a W follows; that is I in today's notation.
import json
import os
import re
import sys

import driver
import machine
import orders

COMPUTE = re.compile(r"\d+[FBIW]\d+$")


def only_compute(cells):
    return [c for c in cells if COMPUTE.match(c)]


def equal(what, got, want):
    if got != want:
        sys.exit("%s:\n  pipec:   %s\n  PyTorch: %s" % (what, got, want))
    equal.n += 1


equal.n = 0


def place_of(rows):
    """Rank of each stage, from the ops of each rank; None if a stage is on two."""
    where = {}
    for r, row in enumerate(rows):
        for c in row:
            s = int(re.match(r"\d+", c).group())
            if where.setdefault(s, r) != r:
                return None
    return [where[s] for s in range(len(where))]


def round_trip(c, what, rows, rng):
    """The lists as a .pipe text: accepted, and the same when written out again."""
    nmb = 1 + max(int(re.search(r"\d+$", o).group()) for row in rows for o in row)
    source = driver.pipe_text(len(rows), place_of(rows), nmb, rows)
    status, out, err = c.text(source, "--emit=csv")
    equal(what + " is accepted " + err, status, 0)
    equal(what, driver.csv(out), rows)
    p = machine.Program(c.text(source, "--emit=json")[1])
    machine.check(p, rng)
    return p


def liveness(v):
    """The list of one rank with its stages renumbered as a chain, and how many they are."""
    chain = {s: i for i, s in enumerate(sorted(v["stages"]))}
    row = [re.sub(r"^\d+", lambda m: str(chain[int(m.group())]), o) for o in v["actions"]]
    return row, len(chain)


def compare(c, rng, args):
    folder = os.path.join(args.shared, "pytorch")
    read = lambda name: open(os.path.join(folder, name)).read()
    v = json.loads(read("conformance_vectors.json"))

    # Printed and generated schedules of named classes, against the standard library.
    for i in v["issue_printed_schedules"]:
        lists = i.get("compute") or i.get("comms")
        if not lists:
            continue
        rows = [only_compute(lists[str(r)]) for r in range(i["pp"])]
        if i["class"] == "GPipe":
            equal(i["class"], driver.csv(c.file("gpipe", "csv", P=i["pp"], M=i["num_microbatches"])), rows)
        else:
            shape = {"P": i["pp"], "M": i["num_microbatches"], "V": i["stages_per_rank"]}
            equal(i["class"], driver.csv(c.file("interleaved", "csv", **shape)), rows)
    zb1p = [only_compute(r) for r in driver.csv(read("zb1p_2rank_2stagep_compute.csv"))]
    equal("the formula of InterleavedZeroBubble", orders.interleaved_zb(2, 8, 2), zb1p)
    status, out, err = c.call(os.path.join(os.path.dirname(__file__), "Inputs", "interleaved_zb.pipe"),
                              "--emit=csv", "-DP=2", "-DM=8", "-DV=2")
    equal("zb1p as a kernel " + err, driver.csv(out), zb1p)

    # The shapes of PyTorch's grid of interleaved schedules: in rounds that have the same size, or refused.
    for V, M, P in v["order_grid"]["rows"]:
        rounds = max(1, M // P)
        if M % rounds:
            continue  # PyTorch refuses it
        status, out, err = c.call("%s/interleaved_g.pipe" % c.stdlib, "--emit=csv",
                                  "-DP=%d" % P, "-DM=%d" % M, "-DV=%d" % V, "-DG=%d" % (M // rounds))
        equal("interleaved %d %d %d %s" % (V, M, P, err), driver.csv(out), orders.interleaved_rounds(P, M, V))
        status, out, err = c.call("%s/interleaved.pipe" % c.stdlib, "--emit=csv",
                                  "-DP=%d" % P, "-DM=%d" % M, "-DV=%d" % V)
        if M % P:
            equal("M=%d on %d ranks" % (M, P), driver.errors(err)[0][0], "requires")
        else:
            equal("groups %d %d %d" % (V, M, P), driver.csv(out), orders.interleaved(P, M, V))

    # Lists that somebody wrote by hand: accepted as they are, whatever they do.
    for name in ("torchtitan_custom_schedule.csv", "zb1p_2rank_2stagep_compute.csv",
                 "zb1p_2rank_2stagep_comms.csv"):
        round_trip(c, name, [only_compute(r) for r in driver.csv(read(name))], rng)
    for i in v["schedule_registry"]:
        lists = i.get("compute") or i.get("comms")
        round_trip(c, i["name"], [only_compute(lists[r]) for r in sorted(lists)], rng)
    for key, field in (("send_recv", "compute"), ("device_tests_schedules", "comms")):
        for i in v[key]:
            rows = [only_compute(i[field][r]) for r in sorted(i[field])]
            split = {o.replace("W", "B") for row in rows for o in row if "W" in o}
            rows = [[o.replace("B", "I") if o in split else o for o in row] for row in rows]
            round_trip(c, i["name"], rows, rng)

    # Accept or refuse.
    for i in v["validate_schedule"]:
        rows = [i["actions"].get(str(r), []) for r in range(i["pp_group_size"])]
        place = list(range(i["num_stages"]))
        source = driver.pipe_text(len(rows), place, i["num_microbatches"], rows)
        status, _, err = c.text(source, "--check")
        equal(i.get("why", "accepted") + " " + err, status == 0, i["accept"])

    # Stashes alive at once on a rank.
    for i in v["activation_liveness"]:
        if i["granularity"] != "stage_microbatch" or "num_slots" not in i:
            continue
        row, nstage = liveness(i)
        p = round_trip(c, i["name"], [row], rng)
        equal(i["name"], p.json["rank"][0]["inflight"], i["num_slots"])
    for i in v["activation_liveness_rejects"]:
        row, nstage = liveness(i)
        if i["error"] == "no microbatch":
            continue  # not an op at all
        status, _, err = c.text(driver.pipe_text(1, [0] * nstage, i["num_microbatches"], [row]), "--check")
        want = {"outside": "bad-index", "multiple forwards": "duplicate-op",
                "multiple input backwards": "duplicate-op", "multiple release actions": "mixed-backward",
                "Forward actions (missing forward)": "missing-op", "without input backward": "missing-op",
                "Backward release actions (missing)": "missing-op",
                "ends before its forward": "op-order"}[i["error"]]
        equal(i["error"], driver.errors(err)[0][0], want)

    # Placements: round the ranks, and back and forth.
    for i in v["stage_to_rank"]:
        P, S = i["ranks"], i["stages"]
        place = "s % P" if i["style"] == "loop" else "s/P % 2 == 0 ? s % P : P-1 - s % P"
        source = ("schedule t(P = %d, S = %d) {\n"
                  "  ranks P\n  pipe net stages S mbs 1 place s -> %s\n"
                  "  order r { do c in 0..S/P { F[c](0) } do c in S/P-1..-1 step -1 { B[c](0) } U }\n"
                  "}\n" % (P, S, place))
        status, out, err = c.text(source, "--dump-after=expand")
        got = [int(m) for m in re.findall(r"^stage \d+: rank (\d+)", out, re.M)]
        equal("%s placement %s" % (i["style"], err), got, i["map"])
    print("pytorch: %d equal" % equal.n)
