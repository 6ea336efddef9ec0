# SPDX-License-Identifier: MIT
# What pipec says of PyTorch's lists: without defer_pp_recv, with it, and with it and cure.py; for a
# communicator per pair of ranks and for one per direction. Then the price: how many compute ops of
# its rank a receive is posted ahead of its use. Needs the package pipec, and no second process.
import collections, warnings

import pipec
from torch.distributed.pipelining import _schedule_visualizer, schedules

import cure

HOW = {"early": None, "deferred": schedules._defer_recv_ops, "cured": cure.defer_recv_ops}
CLASSES = "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"


def lists(name, P, M, how):
    schedules._defer_recv_ops = HOW[how]
    rows = _schedule_visualizer.get_schedule_ops(
        name, P, M, num_stages_per_rank=2, with_comms=True, defer_pp_recv=how != "early")
    return [[action for action in row if action] for row in rows]


def verdict(rows, name, channels):
    """None: proved; else the ScheduleError."""
    text = "\n".join(",".join(map(str, row)) for row in rows)
    try:
        pipec.check_csv(name + ".csv", text=text, channels=channels)
    except pipec.ScheduleError as e:
        return e


def ahead(row):
    """For each receive of a rank: the compute ops between it and its use."""
    posted, done = {}, 0
    for action in row:
        if action.computation_type in (schedules.RECV_F, schedules.RECV_B):
            posted[action.stage_index, action.computation_type, action.microbatch_index] = done
        for op in action.sub_actions or (action,):
            used = op.stage_index, cure.BROUGHT_BY.get(op.computation_type), op.microbatch_index
            if used in posted:
                yield done - posted.pop(used)
        done += action.is_compute_op


if __name__ == "__main__":
    warnings.simplefilter("ignore", pipec.ScheduleWarning)
    for name, M, channels in [("Interleaved1F1B", 4, "pair"), ("InterleavedZeroBubble", 4, "edge")]:
        for how in HOW:
            refused = verdict(lists(name, 2, M, how), name, channels)
            print(f"{name} P=2 M={M}, {channels}, {how}:", refused.message if refused else "proved")
            for note in refused.notes if refused else ():
                print("  " + note.message)
    for name in CLASSES:
        sizes = [(P, M) for P in (2, 3, 4, 8) for M in (2 * P, 2 * P + 1, 3 * P)
                 if M % P == 0 or "Interleaved" not in name]  # which takes no other
        for how in HOW:
            made = [lists(name, *size, how) for size in sizes]
            for channels in "pair", "edge":
                count = collections.Counter(
                    refused.code if refused else "proved"
                    for refused in (verdict(rows, name, channels) for rows in made))
                found = ", ".join(f"{n} {what}" for what, n in sorted(count.items()))
                print(f"{name}, {channels}, {how}: {found}")
            ops = [n for rows in made for row in rows for n in ahead(row)]
            print(f"{name}, {how}: receives are {sum(ops) / len(ops):.2f} ops ahead")
