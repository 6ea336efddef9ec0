# SPDX-License-Identifier: MIT
"""A cure for PyTorch's _defer_recv_ops: a receive is deferred past compute, and past transfers with
other ranks, but never past one with its own peer. So the transfers between two ranks keep the
order in which _add_send_recv has made them, which is the same on both."""
from torch.distributed.pipelining.schedules import (
    BACKWARD_INPUT, FORWARD, FULL_BACKWARD, RECV_B, RECV_F, SEND_B, SEND_F)

BROUGHT_BY = {FORWARD: RECV_F, FULL_BACKWARD: RECV_B, BACKWARD_INPUT: RECV_B}


def defer_recv_ops(actions, stage_to_rank):
    def peer(action):
        below = action.computation_type in (RECV_F, SEND_B)
        return stage_to_rank(action.stage_index + (-1 if below else 1))

    def defer(row):
        deferred = {}  # by what it brings, in the order of the list
        for action in row:
            key = action.stage_index, action.computation_type, action.microbatch_index
            if action.computation_type in (RECV_F, RECV_B):
                deferred[key] = action
                continue
            if action.computation_type in (SEND_F, SEND_B):
                yield from flush(deferred, peer(action))
            for op in action.sub_actions or (action,):
                key = op.stage_index, BROUGHT_BY.get(op.computation_type), op.microbatch_index
                if key in deferred:
                    yield from flush(deferred, peer(deferred[key]), key)
            yield action

    def flush(deferred, from_peer, last=None):
        for key in [k for k, v in deferred.items() if peer(v) == from_peer]:
            yield deferred.pop(key)
            if key == last:
                return

    return {rank: list(defer(row)) for rank, row in actions.items()}
