# SPDX-License-Identifier: MIT
# How many lines a schedule of the library takes, beside what others write for the same one.
#
#   lines.py STDLIB
#
# Ours: a file without its comments, blank lines, checks, limits and lines of conditions. One of more than 15 lines says in the
# comment that it begins with why it is more than 15 lines; none has more than 40. Where a schedule
# extends another one of the library, that one's lines are added.
#
# Theirs: code without comments, blank lines and docstrings. `whole` is the class or file that one
# writes for the schedule, `order` what of it makes the order of the ops: the rest is set-up, and where
# there is no list of ops, the run itself. PyTorch is counted live where it is installed; otherwise the
# numbers are those of VERSION below, as all others counted once at the commit named. Exit 1 if a file
# breaks the rule, and if there is none.
import ast
import importlib.util
import io
import os
import re
import sys
import tokenize

LIMIT, NEVER = 15, 40

VERSION = "2.9.0"
INTERLEAVED = "_get_1f1b_rank_ops"  # shared by two classes: counted with both
PYTORCH = {  # class, functions that make the order, and (whole, order) in VERSION
    "gpipe": ("ScheduleGPipe", ("_get_pipeline_order",), (64, 15)),
    "1f1b": ("Schedule1F1B", ("_get_pipeline_order",), (112, 41)),
    "looped_bfs": ("ScheduleLoopedBFS", ("_calculate_single_rank_operations",), (39, 19)),
    "interleaved": ("ScheduleInterleaved1F1B",
                    ("_calculate_single_rank_operations", INTERLEAVED), (186, 151)),
    "interleaved_zb": ("ScheduleInterleavedZeroBubble",
                       ("_calculate_single_rank_operations", "_add_bubbles_to_actions", INTERLEAVED),
                       (253, 209)),
    "zb_v": ("ScheduleZBVZeroBubble", ("_calculate_single_rank_operations",), (143, 105)),
    "dualpipev": ("ScheduleDualPipeV", ("_calculate_single_rank_operations",), (164, 120)),
}

DUALPIPE = "deepseek-ai/DualPipe 3da1bbe, dualpipe/"
SAIL = "sail-sg/zero-bubble-pipeline-parallelism 39f2c18, megatron/core/pipeline_parallel/"
CHIMERA = "Shigangli/Chimera 6b78ac7, "
DEEPSPEED = "deepspeedai/DeepSpeed edaa722, deepspeed/runtime/pipe/"
OTHERS = [  # schedule, source, what, whole, order or None where the file is one algorithm
    ("1f1b", DEEPSPEED, "schedule.py: TrainSchedule", 70, None),
    ("1f1b", SAIL, "schedules.py: forward_backward_pipelining_without_interleaving", 293, None),
    ("interleaved", SAIL, "schedules.py: forward_backward_pipelining_with_interleaving", 459, None),
    ("interleaved", SAIL, "zerobubble/scheduler/vpp.py", 87, None),
    ("zb_h1", SAIL, "zerobubble/scheduler/zb.py", 349, 201),
    ("zb_1p", SAIL, "zerobubble/scheduler/zb.py", 349, 201),
    ("zb_2p", SAIL, "zerobubble/scheduler/zb.py", 349, 201),
    ("zb_v", SAIL, "zerobubble/scheduler/zbv.py", 257, 167),
    ("v_half", SAIL, "zerobubble/scheduler/zbv_greedy.py", 246, None),
    ("v_min", SAIL, "zerobubble/scheduler/zbv_greedy.py", 246, None),
    ("1f1b_v", SAIL, "zerobubble/scheduler/v1f1b.py", 247, None),
    ("gis", SAIL, "zerobubble/scheduler/group_interleaved_1f1b.py", 412, None),
    ("gis_h", SAIL, "zerobubble/scheduler/group_interleaved_1f1b.py", 412, None),
    ("chimera", CHIMERA, "chimera_pipeline_rank.py", 180, None),
    ("dualpipev", DUALPIPE, "dualpipev.py: DualPipeV", 300, 84),
    ("dualpipe", DUALPIPE, "dualpipe.py: DualPipe", 318, 96),
]


def code_lines(source):
    """The numbers of the lines that hold code."""
    docs = set()
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(n) is not None:
            docs |= set(range(n.body[0].lineno, n.body[0].end_lineno + 1))
    skip = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER)
    rows = set()
    for t in tokenize.generate_tokens(io.StringIO(source).readline):
        if t.type not in skip:
            rows |= set(range(t.start[0], t.end[0] + 1))
    return rows - docs


def pytorch():
    """(version, {schedule: (class, whole, order)}): live, else as recorded."""
    torch = importlib.util.find_spec("torch")
    path = torch and os.path.join(os.path.dirname(torch.origin), "distributed", "pipelining", "schedules.py")
    if not path or not os.path.isfile(path):
        return VERSION, {s: (name,) + counted for s, (name, _, counted) in PYTORCH.items()}
    with open(path, encoding="utf-8") as f:
        source = f.read()
    rows = code_lines(source)
    count = lambda node: sum(node.lineno <= r <= node.end_lineno for r in rows)
    top = {n.name: n for n in ast.parse(source).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    found = {}
    for schedule, (name, functions, _) in PYTORCH.items():
        if name not in top:
            continue
        inside = {n.name: n for n in top[name].body if isinstance(n, ast.FunctionDef)}
        shared = [top[f] for f in functions if f in top]
        found[schedule] = (name, sum(map(count, [top[name]] + shared)),
                           sum(count(inside[f]) for f in functions if f in inside)
                           + sum(map(count, shared)))
    return "as installed", found


def ours(stdlib):
    """{name: (lines of the file, lines with what it extends, comment at its head)}"""
    found, extends = {}, {}
    for file in sorted(f for f in os.listdir(stdlib) if f.endswith(".pipe")):
        with open(os.path.join(stdlib, file), encoding="utf-8") as f:
            text = f.read().splitlines()
        name = file[:-len(".pipe")]
        head = []
        for t in text:
            if not t.startswith("#"):
                break
            head.append(t)
        program = [t for t in text if t.strip() and not re.match(r'\s*(#|check\b|limit\b)|\s.* : "[^"]*"(,| \{)$', t)]
        extends[name] = re.findall(r'^import "([^"]+)\.pipe"', "\n".join(program), re.M)
        found[name] = (len(program), " ".join(head))

    def whole(name):
        return found[name][0] + sum(whole(b) for b in extends[name] if b in found)

    return {name: (n, whole(name), head) for name, (n, head) in found.items()}


def main():
    library = ours(sys.argv[1])
    version, torch = pytorch()
    bad = 0
    print(f"{'schedule':16}{'ours':>5}{'whole':>7}{'order':>7}  theirs")
    for name, (own, lines, head) in library.items():
        peers = []
        if name in torch:
            peers.append((torch[name][1], torch[name][2], f"PyTorch {version}: {torch[name][0]}"))
        peers += [(whole, order or "", source + what)
                  for schedule, source, what, whole, order in OTHERS if schedule == name]
        for i, (whole, order, what) in enumerate(peers or [("", "", "")]):
            print(f"{'' if i else name:16}{'' if i else lines:>5}{whole:>7}{order:>7}  {what}".rstrip())
        if own > NEVER:
            bad += 1
            print(f"{name}: {own} lines of program, more than {NEVER}")
        elif own > LIMIT and f"{LIMIT} lines" not in head:
            bad += 1
            print(f"{name}: {own} lines of program, and its header does not say why it is more than "
                  f"{LIMIT} lines")
    most = max((own for own, _, _ in library.values()), default=0)
    print(f"{len(library)} schedules of at most {most} lines, {bad} too long")
    return 1 if bad or not library else 0


if __name__ == "__main__":
    sys.exit(main())
