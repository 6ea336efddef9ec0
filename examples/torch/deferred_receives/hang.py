# SPDX-License-Identifier: MIT
# Carries out the transfers of PyTorch's lists with defer_pp_recv=True as one communicator of two
# ranks does: one after the other, a send until its receive is there. They hang. Two CPU processes;
# PyTorch alone. README.md says why. `hang.py --cured` runs them with cure.py.
import datetime, sys, tempfile

import torch
import torch.distributed as dist
from torch.distributed.pipelining import _schedule_visualizer, schedules


CURED = "--cured" in sys.argv
LIMIT = datetime.timedelta(seconds=600 if CURED else 5)


def carry_out(rank, meet):
    if CURED:
        import cure
        schedules._defer_recv_ops = cure.defer_recv_ops
    lists = _schedule_visualizer.get_schedule_ops(
        "Interleaved1F1B", 2, num_microbatches=4, with_comms=True, defer_pp_recv=True)
    transfers = [a for a in map(str, lists[rank]) if a[1:6] in ("SEND_", "RECV_")]
    dist.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=2)
    pair = dist.new_group(timeout=LIMIT)
    for action in transfers:
        try:
            (dist.send if "SEND" in action else dist.recv)(torch.zeros(1), 1 - rank, group=pair)
        except RuntimeError:
            print(f"rank {rank} waits in {action}, for ever", flush=True)
            return
    print(f"rank {rank} has carried out {len(transfers)} transfers", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(carry_out, (folder + "/meet",), nprocs=2)
