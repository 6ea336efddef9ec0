# SPDX-License-Identifier: MIT
# The compute orders of published schedules, each as its paper or framework states it: counts of
# warm-up forwards and loops, or slots by parity, never the kernel with lags that the .pipe files
# use. A rank's order is a list of op texts such as "2F0"; updates are left out.


def op(stage, kind, mb):
    return "%d%s%d" % (stage, kind, mb)


def gpipe(P, M):
    """Huang et al. 2019, backwards FIFO."""
    return [[op(s, "F", m) for m in range(M)] + [op(s, "B", m) for m in range(M)] for s in range(P)]


def onef1b(P, M):
    """PipeDream-Flush: min(P-1-s, M) forwards, then pairs, then the other backwards."""
    orders = []
    for s in range(P):
        warm = min(P - 1 - s, M)
        order = [op(s, "F", m) for m in range(warm)]
        for i in range(M - warm):
            order += [op(s, "F", warm + i), op(s, "B", i)]
        orders.append(order + [op(s, "B", m) for m in range(M - warm, M)])
    return orders


def deepspeed(P, M):
    """DeepSpeed's TrainSchedule: 2(M+P-1) steps; a step is a forward iff its number and the stage
    have the same parity, and its microbatch follows from both."""
    orders = []
    for s in range(P):
        order = []
        for t in range(2 * (M + P - 1)):
            half = t // 2 if t % 2 == 0 else (t - 1) // 2
            if t % 2 == s % 2:
                kind, mb = "F", half - s // 2
            elif t % 2 == 0:
                kind, mb = "B", half - P + (s + 1) // 2
            else:
                kind, mb = "B", half - P + 1 + s // 2
            if 0 <= mb < M:
                order.append(op(s, kind, mb))
        orders.append(order)
    return orders


def interleaved_rounds(P, M, V):
    """PyTorch's ScheduleInterleaved1F1B: each chunk takes its microbatches one after the other, a round of
    them at a time."""
    size = M // max(1, M // P)
    rows = []
    for r in range(P):
        warmup = min(M * V, 2 * (P - 1 - r) + (V - 1) * size)
        next_f, next_b, row = [0] * V, [0] * V, []

        def forward(i):
            c = i // size % V
            row.append("%dF%d" % (c * P + r, next_f[c]))
            next_f[c] += 1

        def backward(i):
            c = V - 1 - i // size % V
            row.append("%dB%d" % (c * P + r, next_b[c]))
            next_b[c] += 1

        for i in range(warmup):
            forward(i)
        for i in range(warmup, M * V):
            forward(i)
            backward(i - warmup)
        for i in range(M * V - warmup, M * V):
            backward(i)
        rows.append(row)
    return rows


def interleaved(P, M, V):
    """Megatron-LM with groups of P: a table of virtual microbatches, min(2(P-r-1)+(V-1)P, MV)
    warm-up forwards, then forward and backward in turn."""
    table = [(c, m) for g in range(0, M, P) for c in range(V) for m in range(g, g + P)]
    orders = []
    for r in range(P):
        f = [op(c * P + r, "F", m) for c, m in table]
        b = [op((V - 1 - c) * P + r, "B", m) for c, m in table]
        warm = min(2 * (P - r - 1) + (V - 1) * P, M * V)
        order = f[:warm]
        for i in range(warm, M * V):
            order += [f[i], b[i - warm]]
        orders.append(order + b[M * V - warm:])
    return orders


def zb_h1(P, M):
    """Qi et al. 2024: P-s forwards; then per backward: I, a W once more than s are held, an F."""
    orders = []
    for s in range(P):
        f = min(P - s, M)
        order = [op(s, "F", m) for m in range(f)]
        w = 0
        for b in range(M):
            order.append(op(s, "I", b))
            if b + 1 - w > s:
                order.append(op(s, "W", w))
                w += 1
            if f < M:
                order.append(op(s, "F", f))
                f += 1
        orders.append(order + [op(s, "W", m) for m in range(w, M)])
    return orders


def interleaved_zb(P, M, V):
    """PyTorch's ScheduleInterleavedZeroBubble: (V-1)P + (P-1-r) warm-up forwards, each forward and
    backward followed by the oldest W once r backwards have passed."""
    table = [(c, m) for g in range(0, M, P) for c in range(V) for m in range(g, g + P)]
    n = M * V
    orders = []
    for r in range(P):
        warm = min((V - 1) * P + (P - 1 - r), n)
        order, i, w = [], 0, 0
        for k in range(n + warm):
            if k < n:
                order.append(op(table[k][0] * P + r, "F", table[k][1]))
            if k >= warm:
                c, m = table[i]
                order.append(op((V - 1 - c) * P + r, "I", m))
                i += 1
                if i > r:
                    c, m = table[w]
                    order.append(op((V - 1 - c) * P + r, "W", m))
                    w += 1
        for c, m in table[w:]:
            order.append(op((V - 1 - c) * P + r, "W", m))
        orders.append(order)
    return orders
