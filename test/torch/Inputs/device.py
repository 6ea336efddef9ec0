# SPDX-License-Identifier: MIT
"""Trains modules by engine="cuda" on the device of test/shim, whose memory is the CPU's: a callback waits for its stream and
then runs, which is a stricter order than a device's. device.py NAME... prints under which schedules losses and weights have
the bits of engine="threads"."""
import collections
import contextlib
import ctypes
import sys
import tempfile
import threading
import traceback
from unittest import mock

import engine
import torch

import pipec
import pipec._devices
import pipec.engine
from pipec import _runtime as rt
from pipec.engine import Run, RunError

STEPS, SEEDS = 3, (1, 2)
NOT_READY = 600  # cudaErrorNotReady
shim = rt.cuda()
shim.shim_begin.argtypes = [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_bool]
shim.shim_error_text.restype = ctypes.c_char_p
shim.shim_leaks.restype = ctypes.c_uint64


class Played(pipec._devices.Device):
    """The device of the shim."""

    waits = True
    waited = 0  # callbacks that found work in their stream
    words = {}  # of the Group: a wait ends if a rank has failed, which the engine hears after the callback

    def open(self, devices):
        self.lib, self.index = rt.cuda(), 0

    def _stream(self, at):
        if self.waits and self.lib.cudaStreamQuery(ctypes.c_void_p(at)) == NOT_READY:
            Played.waited += 1
            while self.lib.cudaStreamQuery(ctypes.c_void_p(at)) == NOT_READY and not has_failed(Played.words):
                pass
        return contextlib.nullcontext()


def has_failed(words):
    return any(name[0] == "failed" for name in words.copy())


for name in "tensor current begin settle put_loss random_state keep_random_state".split():
    setattr(Played, name, getattr(pipec._devices.Host, name))
pipec.engine.Device = Played


class Deaf(Played):
    """Planted: callbacks ignore their stream."""

    waits = False


@contextlib.contextmanager
def device(seed, hosts=1, lazy=False):
    """The shim, on whose device nothing happens before somebody waits for it, if it is lazy."""
    shim.shim_begin(seed, hosts, False)
    shim.shim_unwatched()  # it does not see what callbacks read and write
    if lazy:
        shim.shim_lazy()
    try:
        yield
        assert not shim.shim_errors(), shim.shim_error_text().decode()
        assert not shim.shim_leaks() or has_failed(Played.words)  # of a failed run other processes may read the memory
    finally:
        shim.shim_end()


def compiled(name):
    if name == "tied":
        return pipec.compile(text='import "1f1b.pipe"\nschedule tied(P = 4, M = 8) extends onef1b(P, M) { tie 0, 3 }')
    return engine.compiled(name)


def layers(schedule):
    count = 1 + max(row["model"] for row in schedule.json["stages"])
    found = engine.layers(count, torch.float32)
    if any("tied_with" in row for row in schedule.json["stages"]):
        found[-1][0].weight = found[0][0].weight
    return found


def sgd(m):
    return torch.optim.SGD(m.parameters(), lr=engine.RATE, momentum=engine.MOMENTUM)


def adam(m):
    return torch.optim.AdamW(m.parameters(), lr=0.01)


def trained(schedule, kind, make, stages, group=None, autocast=False):
    """The losses of the steps, and the weights of the stages of this process."""
    example = torch.zeros(engine.ROWS, engine.WIDTH)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), Run(
            schedule, stages, engine.loss_fn, example, make, engine=kind, group=group) as run:
        batches = list(engine.batches(schedule.json["microbatches"]))[:STEPS]
        losses = [run.step(x.float(), target.float()) for x, target in batches]
        return losses, {i: run.state_dict(i) for i in {model for _, model in run._stage}}


def on_host(rank, *arguments, **more):
    """`trained` as host number `rank` of the shim; or the exception."""
    shim.shim_enter(rank)
    try:
        return trained(*arguments, **more)
    except Exception as e:
        return e
    finally:
        shim.shim_leave()


def same(one, other):
    """Whether `other`, perhaps one rank of several, has the bits of `one`."""
    assert not isinstance(other, Exception), other
    return one[0] == other[0] and all(
        torch.equal(t, one[1][i][name]) for i, of in other[1].items() for name, t in of.items())


class Group(ctypes.Structure):
    """PrGroup, of ranks that are threads of one process and each a host of the shim. A host waits only by shim_wait, which
    lets others go on."""

    SHARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
    TELL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    HEARD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    GATHER = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    WAIT = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
    _fields_ = [("rank", ctypes.c_uint32), ("size", ctypes.c_uint32), ("share", SHARE), ("tell", TELL), ("heard", HEARD),
                *((name, ctypes.c_void_p) for name in ("arg", "watch", "late", "place")), ("gather", GATHER),
                ("extend", ctypes.c_void_p)]

    def __init__(self, rank, size, words):
        super().__init__(rank=rank, size=size, share=self.SHARE(self.send), tell=self.TELL(self.told), heard=self.HEARD(self.hear),
                         gather=self.GATHER(self.collect))
        self.words, self.next = words, 0

    def all(self, mine):
        """What each rank calls this with; None once a rank has failed."""
        at, self.next = self.next, self.next + 1
        self.words[at, self.rank] = mine
        names = [(at, rank) for rank in range(self.size)]
        there = self.WAIT(lambda _: has_failed(self.words) or all(name in self.words for name in names))
        return [self.words[name] for name in names] if shim.shim_wait(there, None) and not has_failed(self.words) else None

    def send(self, _, root, data, count):
        found = self.all(ctypes.string_at(data, count))
        if found:
            ctypes.memmove(data, found[root], count)
        return 0 if found else 1

    def collect(self, _, mine, count, to):
        found = self.all(ctypes.string_at(mine, count))
        if found and self.rank == 0:
            ctypes.memmove(to, b"".join(found), count * self.size)
        return 0 if found else 1 + self.rank

    def told(self, _, status, text):
        self.words["failed", self.rank] = status, text

    def hear(self, _, status, text, count):
        for rank in range(self.size):
            if rank != self.rank and ("failed", rank) in self.words:
                number, said = self.words["failed", rank]
                ctypes.memmove(status, ctypes.byref(ctypes.c_int(number)), 4)
                ctypes.memmove(text, (said + b"\0")[:count], min(count, len(said) + 1))
                return 1
        return 0


class Seat:
    """In place of Processes."""

    def __init__(self, group, schedule):
        self.group, self.rank, self.size = group, group.rank, group.size

    def together(self, what):
        return self.group.all(what())

    def meet(self):
        return ctypes.cast(ctypes.pointer(self.group), ctypes.POINTER(rt.Group))

    def abort(self):
        pass

    def close(self):
        pass


def apart(seed, schedule, make, stages):
    """A process per rank: what each of them returns."""
    ranks = schedule.json["ranks"]
    Played.words = words = {}
    found = [None] * ranks

    def go(rank):
        found[rank] = on_host(rank, schedule, "cuda", make, stages, Group(rank, ranks, words))

    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(ranks)]
    with device(seed, ranks):
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return found


class Moody(torch.nn.Linear):
    """Raises in the forward of its third microbatch; one forward measures."""

    calls = 0

    def forward(self, x):
        Moody.calls += 1
        if Moody.calls == 4:
            raise KeyError("no such head")
        return super().forward(x)


def alone(seed, lazy, *arguments, **more):
    """All ranks in this process."""
    Played.words = {}
    with device(seed, lazy=lazy):
        return on_host(0, *arguments, **more)


def verdicts(name):
    """What each kind of run gives, compared with threads."""
    schedule = compiled(name)
    stages, make = layers(schedule), adam if name == "1f1b" or "v2" in str(schedule.json.get("formulas")) else sgd
    try:
        want, Played.waited = trained(schedule, "threads", make, stages), 0
    except (RunError, ValueError) as e:
        refusal = alone(1, False, schedule, "cuda", make, stages)
        return ["refused: " + ("same text" if str(refusal) == str(e) else str(refusal))]
    one = [alone(seed, lazy, schedule, "cuda", make, stages) for seed, lazy in ((1, False), (2, True))]
    assert Played.waited > STEPS * 8, "callbacks found their inputs without waiting"
    pipec.engine.Device = Deaf
    deaf = alone(1, True, schedule, "cuda", make, stages)
    pipec.engine.Device = Played
    kinds = {"one process": one, "a process per rank": apart(1, schedule, make, stages), "without waiting": [deaf]}
    return [f"{kind}: {'same' if all(same(want, got) for got in found) else 'other'} bits" for kind, found in kinds.items()]


def autocast():
    """The caller's autocast is around whole steps, and its casts of weights are not those of the next step."""
    schedule = compiled("1f1b")
    want, got = trained(schedule, "threads", sgd, layers(schedule), autocast=True), alone(
        1, False, schedule, "cuda", sgd, layers(schedule), autocast=True)
    print(f"autocast: {'same' if same(want, got) else 'other'} bits")


def resumed():
    """A checkpoint of the device goes on on threads, and one of threads on the device."""
    schedule, batches = compiled("zb_v"), list(engine.batches(8))

    def part(kind, steps, folder, last):
        example = torch.zeros(engine.ROWS, engine.WIDTH)
        with Run(schedule, layers(schedule), engine.loss_fn, example, adam, engine=kind) as run:
            run.resume(folder)
            losses = [run.step(x.float(), target.float()) for x, target in batches[steps]]
            if not last:
                run.save(folder)
            return losses

    def both(first, second):
        with tempfile.TemporaryDirectory() as folder:
            return part(first, slice(2), folder, False) + part(second, slice(2, 4), folder, True)

    with device(1):
        shim.shim_enter(0)
        found = [both(*kinds) for kinds in (("threads", "threads"), ("cuda", "threads"), ("threads", "cuda"), ("cuda", "cuda"))]
        shim.shim_leave()
    print(f"checkpoints: {'same' if all(losses == found[0] for losses in found) else 'other'} bits")


def raised():
    """What a module raises: in one process, and in one of two."""
    schedule = pipec.compile("1f1b", P=2, M=4)
    for start in (lambda *of: [alone(1, False, schedule, "cuda", *of)]), (lambda *of: apart(1, schedule, *of)):
        Moody.calls = 0
        for e in start(sgd, [torch.nn.Linear(engine.WIDTH, engine.WIDTH), Moody(engine.WIDTH, engine.WIDTH)]):
            cause = e.__cause__
            assert not cause or "in forward" in "".join(traceback.format_exception(cause))
            print(f"{type(e).__name__}: {e}{f' from {cause!r}' if cause else ''}")


def refused():
    """What Run says of devices and types that do not fit."""
    two, plain = pipec.compile("1f1b", P=2, M=4), [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
    pipec.engine.Device = pipec._devices.Device

    def begin(stages):
        Run(two, stages, engine.loss_fn, torch.zeros(2, 4), sgd, engine="cuda")

    for what in (
            lambda: mock.patch.dict(sys.modules, numpy=None)(begin)(plain),
            lambda: begin(plain),
            lambda: begin([plain[0], torch.nn.Linear(4, 4, device="meta")]),
            lambda: pipec._devices.Device().engine(object(), None, None, {torch.float32, torch.bfloat16})):
        try:
            print("not refused:", what())
        except ValueError as e:
            print(e)


if __name__ == "__main__":
    torch.set_num_threads(1)
    pipec.engine.Processes = Seat
    by = collections.defaultdict(list)
    for name in sys.argv[1:]:
        for what in verdicts(name):
            by[what].append(name)
    for what in sorted(by):
        print(f"{what} {len(by[what])}: {' '.join(by[what])}")
    autocast()
    resumed()
    raised()
    refused()
