# SPDX-License-Identifier: MIT
# The study of asynchronous training: makes the runs of async_study_run, several at a time, and writes tables and
# pictures of what came of them.
#
#   study.py --bin DIR --stdlib DIR --out DIR --digits FILE [--text FILE] [--full] [--quick] [--jobs N]
#
# Every run leaves a file in OUT/runs; what is there is not run again, so an interrupted study goes on where it was.
# For each method and number of stages one seed is trained with every learning rate of a grid; the rate with the least
# training loss at the end is then trained with the other seeds. Nothing is chosen by held-out samples.
#
# OUT gets results.md, and for each model a picture with four panels. Exit status 1: a run failed.
import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import time

from plot import page

STAGES = (4, 8, 16, 32)


class Model:
    """What is trained: samples of an update, updates, rates to try, and the loss that counts as trained. key: of its
    files; alike: all methods are also trained with the rate that suits the first one best."""

    def __init__(self, name, key, title, batch, updates, rates, target, methods, alike=False):
        self.name, self.key, self.title, self.batch, self.updates, self.rates = name, key, title, batch, updates, rates
        self.target, self.methods, self.alike = target, methods, alike


# A method is a function of a model and a number of stages: file, parameters, microbatches of an update, and its samples if
# they are not those of the model (the updates are then fewer or more); None: it cannot be had.
def synchronous(m, P):
    return "1f1b.pipe", {"M": 8}, 8


def stashing(m, P):
    return "pipedream.pipe", {"M": m.updates, "N": 1, "flow": 0}, 1


def double_buffered(m, P):
    # G >= P microbatches an update; the table of a step grows with them, so a step is 50 updates, with a flush behind.
    return ("pipedream_2bw.pipe", {"M": 50 * P, "G": P}, P, max(P, m.batch))


def mare(file, **more):
    def method(m, P):
        return file, {"M": m.updates, "N": 1, "flow": 0, **{k: f(m) for k, f in more.items()}}, 1
    return method


def predicted(file, most=32):
    def method(m, P):
        return (file, {"M": m.updates}, 1) if P <= most else None
    return method


def minibatches(file, **more):
    """PipeMare's setting: updates of 8 microbatches, F and B of a rank side by side."""
    def method(m, P):
        return file, {"M": 8 * m.updates, "N": 8, "flow": 1, **{k: f(m) for k, f in more.items()}}, 8
    return method


def half(m):
    return m.updates // 2


def quarter(m):
    return m.updates // 4


def whole(m):
    return m.updates


def tenth(m):
    return m.updates // 10


COMMON = {
    "synchronous 1F1B": synchronous,
    "PipeDream, stashing": stashing,
    "2BW": double_buffered,
    "PipeMare, naive": mare("pipemare.pipe"),
    "PipeMare, T1": mare("pipemare_t1.pipe", K=half),
    "PipeMare, T1+T2": mare("pipemare_t2.pipe", K=half),
    "PipeMare, T1+T2+T3": mare("pipemare_t3.pipe", K=half, S=tenth),
}
DIGITS = {**COMMON, "SpecTrain": predicted("spectrain.pipe"), "msnag": predicted("msnag.pipe")}
MINIBATCHES = {
    "synchronous 1F1B": synchronous,
    "PipeDream, stashing": minibatches("pipedream.pipe"),
    "PipeMare, naive": minibatches("pipemare.pipe"),
    "PipeMare, T1, short K": minibatches("pipemare_t1.pipe", K=quarter),
    "PipeMare, T1+T2, short K": minibatches("pipemare_t2.pipe", K=quarter),
    "PipeMare, T1": minibatches("pipemare_t1.pipe", K=whole),
    "PipeMare, T1+T2": minibatches("pipemare_t2.pipe", K=whole),
    "PipeMare, T1+T2+T3": minibatches("pipemare_t3.pipe", K=whole, S=lambda m: 8 * tenth(m)),
}
LONG_K = {name: method for name, method in MINIBATCHES.items() if "short" not in name}
GPT = {**COMMON, "XPipe": predicted("xpipe.pipe"), "msnag, Adam": predicted("msnag_adam.pipe", 16)}


def few(method):
    """The method on 4 and 8 stages only."""
    return lambda m, P: method(m, P) if P <= 8 else None


def batch_of(m, name, P):
    got = m.methods[name](m, P)
    return got[3] if len(got) > 3 else m.batch


class Study:
    def __init__(self, args):
        self.args, self.done, self.started = args, 0, time.time()
        self.waiting = self.fresh = 0
        os.makedirs(os.path.join(args.out, "runs"), exist_ok=True)

    def command(self, m, name, P, rate, seed, scratch):
        file, define, micro = m.methods[name](m, P)[:3]
        a, batch = self.args, batch_of(m, name, P)
        words = [os.path.join(a.bin, "async_study_run"), "--model", m.name, "--data",
                 a.digits if m.name == "digits" else a.text, "--schedule", os.path.join(a.stdlib, file), "--stdlib",
                 a.stdlib, "--scratch", scratch, "--rows", str(batch // micro), "--round", str(micro), "--updates",
                 str(m.updates * m.batch // batch), "--seed", str(seed), "-D", f"P={P}"]
        words += ["--times", "1"] if rate is None else ["--lr", repr(rate)]
        for name, value in define.items():
            words += ["-D", f"{name}={value}"]
        return words

    def run(self, m, name, P, rate, seed):
        """The result of one run, from its file if it has one; None: the method cannot be had so. rate None: no run, but
        when each point of its curve is there."""
        if m.methods[name](m, P) is None:
            return None
        slug = "".join(c if c.isalnum() else "_" for c in name)
        what = "times" if rate is None else f"{rate:g}-{seed}"
        path = os.path.join(self.args.out, "runs", f"{m.key}-{m.updates}-{slug}-{P}-{what}.json")
        try:
            with open(path, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            pass
        env = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        scratch = f"{path}.{os.getpid()}"
        got = subprocess.run(self.command(m, name, P, rate, seed, scratch), capture_output=True, text=True, env=env)
        if got.returncode:
            raise RuntimeError(f"{name}, {P} stages: {got.stderr.strip()}")
        os.remove(scratch)
        with open(path + ".part", "w", encoding="utf-8") as f:
            f.write(got.stdout)
        os.replace(path + ".part", path)
        self.fresh += 1
        return json.loads(got.stdout)

    def progress(self, what):
        self.done += 1
        spent = time.time() - self.started
        left = spent / max(self.fresh, 1) * (self.waiting - self.done) if self.fresh else 0
        text = f"study: {self.done}/{self.waiting} runs, {spent:.0f} s, about {left:.0f} s left: {what}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text[:100]:100}" + ("\n" if self.done == self.waiting else ""))
        elif self.done % 20 == 0 or self.done == self.waiting:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def all(self, jobs):
        """{job: result}; a job is (model, name, P, rate, seed)."""
        jobs = list(dict.fromkeys(jobs))
        self.waiting += len(jobs)
        results = {}
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            futures = {pool.submit(self.run, *job): job for job in jobs}
            for future in concurrent.futures.as_completed(futures):
                job = futures[future]
                results[job] = future.result()
                self.progress(f"{job[0].key}, {job[1]}, {job[2]} stages")
        return results


def end_loss(run):
    """Mean training loss of the last tenth of the run; infinite if it diverged."""
    last = [v for _, v in run["curve"][-len(run["curve"]) // 10:]]
    return sum(last) / len(last) if all(v is not None for v in last) else math.inf


def reached(run, target):
    """Samples until the mean loss of five points of the curve has come to the target; None: never."""
    curve = run["curve"]
    for i in range(4, len(curve)):
        part = [v for _, v in curve[i - 4:i + 1]]
        if all(v is not None for v in part) and sum(part) / 5 <= target:
            return curve[i][0]
    return None


def time_at(times, samples):
    """When so many samples have got their losses, between the points of a curve by a straight line."""
    before = (0, 0)
    for at in times:
        if at[0] >= samples:
            return before[1] + (at[1] - before[1]) * (samples - before[0]) / (at[0] - before[0])
        before = at
    return before[1]


class Row:
    """All seeds of a method with its best learning rate on so many stages. times: of the points of the curve."""

    def __init__(self, m, name, P, rate, runs, trained, times=None):
        self.m, self.name, self.P, self.rate, self.runs, self.times = m, name, P, rate, runs, times
        self.trained = trained  # the largest rate with which the first seed trained
        self.alive = [r for r in runs if math.isfinite(end_loss(r))]
        self.first = runs[0]

    def stat(self, value):
        v = [value(r) for r in self.alive]
        v = [x for x in v if x is not None]
        return (sum(v) / len(v), min(v), max(v)) if v else None

    def per_update(self):
        return self.first["time"] / self.first["updates"]

    def samples(self):
        return self.stat(lambda r: reached(r, self.m.target)) if all(
            reached(r, self.m.target) is not None for r in self.runs) else None

    def time(self, times):
        """Mean time to the target, with the pipeline that has these times."""
        if self.samples() is None:
            return None
        return self.stat(lambda r: time_at(times, reached(r, self.m.target)))[0]


def spread(stat, digits):
    if stat is None:
        return "diverged"
    mean, low, high = stat
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def spread_of(row):
    dead = len(row.runs) - len(row.alive)
    return spread(row.stat(end_loss), 3) + (f" ({dead} of {len(row.runs)} diverged)" if dead and row.alive else "")


def make_rows(study, m, seeds):
    """First every learning rate with one seed, then the best one with the others."""
    combos = [(name, P) for name in m.methods for P in STAGES if m.methods[name](m, P)]
    first = study.all((m, name, P, rate, 1) for name, P in combos for rate in m.rates)
    best = {c: min(m.rates, key=lambda rate: end_loss(first[(m, *c, rate, 1)])) for c in combos}
    times = study.all((m, *c, None, 0) for c in combos)
    more = study.all((m, *c, best[c], seed) for c in combos for seed in range(2, seeds + 1))
    rows = []
    for c in combos:
        # Trained: the end is better than a tenth of the run was at its best rate's start.
        start = first[(m, *c, best[c], 1)]["curve"][0][1]
        fine = [r for r in m.rates if end_loss(first[(m, *c, r, 1)]) < 0.8 * start]
        runs = [first[(m, *c, best[c], 1)]] + [more[(m, *c, best[c], s)] for s in range(2, seeds + 1)]
        rows.append(Row(m, *c, best[c], runs, max(fine, default=None), times[(m, *c, None, 0)]["times"]))
    return rows


def table(m, rows):
    out = [f"| method | P | rate | largest rate that trains | training loss | held-out loss |"
           + (" right, % |" if m.name == "digits" else "") + f" samples to {m.target:g} | time to {m.target:g}, P devices | time to {m.target:g}, 8 devices |"
           " time of an update | utilisation | weights, KiB, largest rank | weights, KiB, all | memory, KiB, largest rank |",
           "|---" * (15 if m.name == "digits" else 14) + "|"]
    row_of = {(r.name, r.P): r for r in rows}
    for r in rows:
        cells = [r.name, str(r.P), f"{r.rate:g}", f"{r.trained:g}" if r.trained else "none",
                 spread_of(r), spread(r.stat(lambda x: x["held_loss"]), 3)]
        if m.name == "digits":
            cells.append(spread(r.stat(lambda x: x["held_right"] and 100 * x["held_right"]), 1))
        s = r.samples()
        t = r.time(r.times) if s else None
        eight = row_of.get((r.name, min(r.P, 8)))  # each device has P/8 stages that follow each other
        cells += [f"{s[0]:.0f}" if s else "never", f"{t:.0f}" if s else "never",
                  f"{r.time(eight.times):.0f}" if s and eight else "never", f"{r.per_update():.2f}",
                  f"{r.first['utilisation']:.2f}", f"{max(r.first['weight_bytes']) / 1024:.0f}",
                  f"{sum(r.first['weight_bytes']) / 1024:.0f}", f"{max(r.first['bytes']) / 1024:.0f}"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def one_rate(study, m, rows, seeds):
    """The rate of the first method, and what training with it comes to."""
    rate = rows[0].rate
    runs = study.all((m, name, P, rate, seed) for name in m.methods for P in STAGES if m.methods[name](m, P)
                     for seed in range(1, seeds + 1))
    return [Row(m, name, P, rate, [runs[(m, name, P, rate, s)] for s in range(1, seeds + 1)], None)
            for name in m.methods for P in STAGES if m.methods[name](m, P)]


def one_rate_table(m, rows):
    out = ["| method | " + " | ".join(f"{P} stages" for P in STAGES) + " |", "|---" * (1 + len(STAGES)) + "|"]
    for name in m.methods:
        cells = {r.P: spread_of(r) for r in rows if r.name == name}
        out.append(f"| {name} | " + " | ".join(cells.get(P, "-") for P in STAGES) + " |")
    return f"Training loss at the end, all with the rate {rows[0].rate:g}:\n\n" + "\n".join(out)


def picture(m, rows, alike, path):
    def of(P):
        return [r for r in rows if r.P == P]

    def curves(P, by_time):
        lines = []
        for r in of(P):
            runs = [run["curve"] for run in r.runs]
            points = []
            for i in range(4, len(runs[0]), 2):
                parts = [[v for _, v in c[i - 4:i + 1]] for c in runs]
                if any(v is None for p in parts for v in p):
                    break
                v = [sum(p) / len(p) for p in parts]
                points.append((time_at(r.times, runs[0][i][0]) if by_time else runs[0][i][0], sum(v) / len(v), min(v), max(v)))
            lines.append((r.name, points))
        return lines

    top, bottom = (3.0, 0) if m.name == "digits" else (5.0, 2)
    def by_depth(rows):
        return [(name, [(r.P, *r.stat(end_loss)) for r in rows if r.name == name and r.stat(end_loss)])
                for name in m.methods]

    memory = [(name, [(r.P, *(3 * [sum(r.first["weight_bytes"]) / 1024])) for r in rows if r.name == name])
              for name in m.methods]
    page(path, f"{m.title}: {m.updates} of {m.batch} samples", list(m.methods), [
        ("training loss at the end against stages", "stages", by_depth(rows), dict(logx=True, top=top, bottom=bottom)),
        ("loss against samples, 8 stages", "samples", curves(8, False), dict(top=top, bottom=bottom)),
        ("loss against predicted time on 8 devices", "forwards of one sample on one device", curves(8, True), dict(top=top, bottom=bottom)),
        ("loss against samples, 32 stages", "samples", curves(32, False), dict(top=top, bottom=bottom)),
        ("loss against predicted time on 32 devices", "forwards of one sample on one device", curves(32, True), dict(top=top, bottom=bottom)),
        ("weights, versions and states, all ranks, KiB", "stages", memory, dict(logx=True, logy=True)),
    ] + ([(f"training loss at the end, all with the rate {alike[0].rate:g}", "stages", by_depth(alike),
           dict(logx=True, top=top, bottom=bottom))] if alike else []))


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "stdlib", "out", "digits", "text"):
        parser.add_argument("--" + name, required=name != "text")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    args = parser.parse_args()
    rates = [0.0001, 0.0002, 0.0004, 0.001, 0.002, 0.004, 0.008]
    digits = Model("digits", "digits", "digits, updates of one microbatch", 32, 2000 if args.full else 800, rates, 0.5, DIGITS)
    minibatch = Model("digits", "minibatches", "digits, updates of eight microbatches", 32, 4000 if args.full else 1600, [0.0005, 0.001, 0.002], 0.1,
                      MINIBATCHES, alike=True)
    gpt = Model("gpt", "gpt", "gpt, updates of one microbatch", 8, 1000 if args.full else 300, [0.001, 0.002, 0.005], 2.7, GPT)
    seeds = 5 if args.full else 3
    gpt8 = Model("gpt", "gpt_minibatches", "gpt, updates of eight microbatches", 8, 1200 if args.full else 400,
                 [0.002, 0.005], 2.7, LONG_K, alike=True)
    if args.quick:  # for the test
        digits.updates, digits.rates, seeds = 50, [0.001], 2
        digits.methods = {name: few(method) for name, method in DIGITS.items()}
        minibatch.updates, minibatch.rates = 50, [0.001]
        minibatch.methods = {name: few(method) for name, method in MINIBATCHES.items()}
        gpt.updates = gpt8.updates = 20
        gpt.rates = gpt8.rates = [0.002]
        gpt.methods = {name: few(method) for name, method in GPT.items()}
        gpt8.methods = {name: few(method) for name, method in LONG_K.items()}
    study = Study(args)
    text = ["Made by `./dev study`: %d seeds. Loss is the mean over the last tenth of a run, mean ± half the range over seeds,"
            " with the learning rate of the grid that gave the least training loss for one seed. Times are predicted, in units of"
            " the forward of one sample on one device, on as many devices as stages, or on 8: those of 8 stages of the same method,"
            " for the samples that it needs with its stages." % seeds]
    for m in [digits, minibatch] + ([gpt, gpt8] if args.text else []):
        rows = make_rows(study, m, seeds)
        alike = one_rate(study, m, rows, seeds) if m.alike else []
        text += [f"## {m.title}", f"{m.updates} updates of {m.batch} samples.", table(m, rows)]
        text += [one_rate_table(m, alike)] if alike else []
        picture(m, rows, alike, os.path.join(args.out, m.key + ".svg"))
    with open(os.path.join(args.out, "results.md"), "w", encoding="utf-8") as f:
        f.write("\n\n".join(text) + "\n")
    print(f"study: {os.path.join(args.out, 'results.md')} and pictures beside it")


try:
    main()
except RuntimeError as e:
    sys.exit(f"study: {e}")
except KeyboardInterrupt:
    sys.exit("study: stopped; what is done is kept")
