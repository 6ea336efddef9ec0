# SPDX-License-Identifier: MIT
# Rules about the source tree that no compiler checks. `lint.py RULE ROOT` prints one line per
# breach, `path:line: what`, and exits 1 if there was one. Each rule has a test beside this file that
# runs it over the tree and over a small tree with a planted breach.
#
# Files are those that git tracks or would track; without git, all outside build folders. A rule that
# finds nothing to look at is a breach too: it would pass whatever the tree says.
import os
import re
import subprocess
import sys

CODE = (".c", ".h", ".re", ".y")
TESTS = (".pipe", ".test", ".txt", ".golden")  # and goldens, for what is only shown


def files(root):
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True).stdout.decode()
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"],
                             capture_output=True, check=True).stdout.decode().strip()
        if os.path.realpath(top) == os.path.realpath(root):
            return sorted(f for f in out.split("\0") if f and os.path.isfile(os.path.join(root, f)))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = [d for d in dirs if d not in (".git", "__pycache__", "out") and not d.startswith("build")]
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def lines(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read().split("\n")


def all_tests(root, suffixes):
    """The text of everything under test/ with one of the suffixes, this folder left out."""
    return "\n".join("\n".join(lines(root, p)) for p in files(root)
                     if p.startswith("test/") and not p.startswith("test/lint/")
                     and p.endswith(suffixes))


def rows(root, path, pattern):
    """(line, match) for every row of an X-macro list."""
    if not os.path.isfile(os.path.join(root, path)):
        return []
    found = ((n, re.match(pattern, t)) for n, t in enumerate(lines(root, path), 1))
    return [(n, m) for n, m in found if m]


def spdx(root):
    """Every source file opens with the licence."""
    seen = 0
    for path in files(root):
        name = os.path.basename(path)
        source = (path.endswith(CODE + (".def", ".py", ".cmake", ".sh", ".in"))
                  or name == "CMakeLists.txt" or path in ("dev", ".ci/run"))
        if not source:
            continue
        seen += 1
        if not any("SPDX-License-Identifier: MIT" in t for t in lines(root, path)[:3]):
            yield path, 1, "no SPDX line in the first three lines"
    if not seen:
        yield ".", 0, "no source files found"


def long(root):
    """A file of more than 800 lines says in its header comment why it is one file."""
    seen = 0
    for path in files(root):
        if not path.endswith(CODE + (".py", ".cmake")):
            continue
        seen += 1
        text = lines(root, path)
        count = len(text) - (text[-1] == "")
        if count > 800 and not any("800 lines" in t for t in text[:20]):
            yield path, 1, f"{count} lines, and its header does not say why it is more than 800 lines"
    if not seen:
        yield ".", 0, "no source files found"


def paths(root):
    """No path of one machine in the tree."""
    machine = re.compile(r"(?:^|[^A-Za-z0-9_.*])(/(?:work|farm|home|root)/[^\s\"'`)]*)")
    for path in files(root):
        for n, text in enumerate(lines(root, path), 1):
            m = machine.search(text)
            if m and not path.startswith("test/lint/"):
                yield path, n, f"path of a machine: {m.group(1)}"


def columns(root):
    """Lines of the sources and the tests have at most 100 columns; the text of a string does not
    count."""
    seen = 0
    for path in files(root):
        if (not path.startswith(("compiler/", "examples/", "lang/", "runtime/", "test/"))
                or not path.endswith(CODE + (".cu", ".def", "ROOMS"))):
            continue
        seen += 1
        for n, text in enumerate(lines(root, path), 1):
            if len(re.sub(r'"(?:\\.|[^"\\])*"', '""', text)) > 100:
                yield path, n, f"{len(text)} columns"
    if not seen:
        yield ".", 0, "no source files found"


def unfinished(root):
    """No words that promise later work."""
    words = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HAC[K]|not[ ]implemented|for[ ]now)\b")
    for path in files(root):
        if path.startswith("test/lint/"):
            continue
        for n, text in enumerate(lines(root, path), 1):
            m = words.search(text)
            if m:
                yield path, n, f"unfinished: {m.group(1)}"


def editorconfig(root):
    """What .editorconfig says: lines end with LF, the last one, too, without blanks; no tabs in C."""
    seen = 0
    for path in files(root):
        if not path.endswith(CODE + (".def", ".py", ".cmake", ".sh", ".md")):
            continue
        seen += 1
        with open(os.path.join(root, path), "rb") as f:
            text = f.read()
        for n, line in enumerate(text.split(b"\n"), 1):
            if line.endswith(b"\r") or (line.endswith((b" ", b"\t")) and not path.startswith("test/")):
                yield path, n, "a blank at the end of the line"
            if b"\t" in line and path.endswith(CODE):
                yield path, n, "a tab"
        if text and not text.endswith(b"\n"):
            yield path, text.count(b"\n") + 1, "the last line has no end"
    if not seen:
        yield ".", 0, "no files found"


def generated(root):
    """Nothing that a tool writes is kept in the tree."""
    marks = ("Generated by re2c", "A Bison parser, made by GNU Bison")
    for path in files(root):
        name = os.path.basename(path)
        if (path.startswith("build") and "/" in path or name.endswith((".o", ".a", ".so", ".pyc"))
                or name in ("lexer.c", "parser.c", "parser.h")):
            yield path, 1, "a generated file in the source tree"
        elif path.endswith((".c", ".h")) and any(m in t for t in lines(root, path)[:5] for m in marks):
            yield path, 1, "a generated file in the source tree"


# What the root of the tree has, and files of more than 100 kB with the reason for each.
ROOT = """.ci .clang-format .clang-tidy .editorconfig .git .github .gitignore CHANGELOG.md CMakeLists.txt CONTRIBUTING.md
    LICENSE README.md cmake compiler dev docs examples lang pyproject.toml python runtime stdlib test""".split()
LARGE = {}


def strays(root):
    """The tree has only text, files of at most 100 kB, and in its root only names that ROOT has."""
    for name in sorted({path.split("/")[0] for path in files(root)} - set(ROOT)):
        yield name, 1, "ROOT in test/lint/lint.py does not have this name"
    for path in files(root):
        full = os.path.join(root, path)
        size = os.path.getsize(full)
        if size > 100_000 and path not in LARGE:
            yield path, 1, f"{size} bytes; a file may have 100000, or a reason in LARGE in test/lint/lint.py"
        with open(full, "rb") as f:
            content = f.read()
        try:
            content.decode()
        except UnicodeDecodeError:
            content = b"\0"
        if b"\0" in content:
            yield path, 1, "a binary file"
    if not files(root):
        yield ".", 0, "no files found"


def diagnostics(root):
    """Every diagnostic of diag.def is matched by a test and has a section in errors.md."""
    listed = rows(root, "lang/diag.def", r'X\(\w+, "([^"]+)"\)')
    pages = set()
    if os.path.isfile(os.path.join(root, "lang/errors.md")):
        for text in lines(root, "lang/errors.md"):
            m = re.match(r"#+ .*?([a-z][a-z-]*)\W*$", text)
            if m:
                pages.add(m.group(1))
    tests = all_tests(root, (".pipe", ".test"))
    for n, m in listed:
        name = m.group(1)
        if f"[{name}]" not in tests:
            yield "lang/diag.def", n, f"no test matches a message with [{name}]"
        if name not in pages:
            yield "lang/diag.def", n, f"no section '{name}' in lang/errors.md"
    for page in sorted(pages - {m.group(1) for _, m in listed}):
        if f"[{page}]" in "\n".join(lines(root, "lang/errors.md")):
            yield "lang/errors.md", 0, f"section '{page}' is not a diagnostic of diag.def"
    if not listed:
        yield "lang/diag.def", 0, "no rows found"


def ops(root):
    """Every instruction of pipe_ops.def appears, as an op of a stage, in some test."""
    listed = rows(root, "runtime/include/pipe_ops.def", r'X\(\w+,\s*"(\w+)"')
    tests = all_tests(root, TESTS)
    for n, m in listed:
        if not re.search(r"(?:\d|\]\]|\}\})" + m.group(1) + r"(?![A-Za-z_])", tests):
            yield "runtime/include/pipe_ops.def", n, f"no test shows an op '{m.group(1)}'"
    if not listed:
        yield "runtime/include/pipe_ops.def", 0, "no rows found"


def filecheck(root):
    """FileCheck ignores what it does not know: no unknown prefixes, no checks that nothing reads,
    and after CHECK-COUNT, which accepts more, a CHECK-NOT or CHECK-NEXT."""
    lit = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "DEFINE", "REDEFINE", "END", "ALLOW_RETRIES"}
    suffix = r"(-NEXT|-NOT|-SAME|-DAG|-LABEL|-EMPTY|-COUNT-\d+)?(?:\{LITERAL\})?"
    word = re.compile(r"^\W*([A-Z][A-Z0-9_-]*?)" + suffix + r":")
    seen = 0
    for path in files(root):
        if not (path.startswith("test/") and path.endswith((".pipe", ".test"))) or "/Inputs/" in path:
            continue
        seen += 1
        text = lines(root, path)
        run = "\n".join(t.split("RUN:", 1)[1] for t in text if "RUN:" in t).replace("\\\n", " ")
        if not run.strip():
            yield path, 1, "no RUN line"
            continue
        run = re.sub(r"%much\{([^}]*)\}", lambda m: m[1].replace("|", ","), run)
        prefixes = set()
        for call in re.findall(r"FileCheck\b([^|&;\n]*)", run):
            own = re.findall(r"--?check-prefix(?:es)?[= ](\S+)", call)
            prefixes |= set(",".join(own).split(",")) if own else {"CHECK"}
        used, count = set(), None
        for n, t in enumerate(text, 1):
            m = word.match(t)
            if not m or m.group(1) in lit:
                continue
            prefix, kind = m.group(1), m.group(2) or ""
            if prefix not in prefixes:
                yield path, n, f"'{prefix}{kind}:' is read by no FileCheck of this file"
                continue
            used.add(prefix)
            if count and count[1] == prefix and kind in ("-NOT", "-NEXT", "-EMPTY"):
                count = None
            elif kind.startswith("-COUNT"):
                count = (n, prefix)
        if count:
            yield path, count[0], "a CHECK-COUNT with no CHECK-NOT after it accepts more lines"
        for prefix in sorted(prefixes - used):
            if re.search(r"FileCheck\s+(--\S+\s+)*%s", run):
                yield path, 1, f"FileCheck looks for '{prefix}:', which the file does not have"
    if not seen:
        yield "test", 0, "no tests found"


def sections(root):
    """A mention of a section of the reference, 'spec.md 5.7' or '(5.7)' in it, is of one that it has."""
    spec = "lang/spec.md"
    have = {m[1] for _, m in rows(root, spec, r"#+ (\d+(?:\.\d+)*)\.? ")}
    if not have:
        yield spec, 0, "no sections found"
    number = r"[1-9]\d?(?:\.\d{1,2})*"
    by_name = re.compile(rf"spec\.md\)?,? (?:section )?({number}(?:(?:,| to| and) {number})*)")
    inside = re.compile(rf"(?<![\w\]])\(({number}(?:, {number})*)\)")
    for path in files(root):
        if not path.endswith(CODE + TESTS + (".def", ".py", ".md", ".vim", ".json")):
            continue
        for n, text in enumerate(lines(root, path), 1):
            for m in (inside if path == spec else by_name).finditer(re.sub("`[^`]*`", "", text)):
                for section in re.findall(number, m[1]):
                    if section not in have:
                        yield path, n, f"the reference has no section {section}"


def doors(root):
    """The door of a room of the compiler says where a function is: in the file that the comment on its line names, else
    in the one that the last comment above it begins with."""
    seen = 0
    for path in files(root):
        if not re.fullmatch(r"compiler/(\w+)/\1\.h", path):
            continue
        room, here = os.path.dirname(path), None
        code = {os.path.basename(p): "\n".join(lines(root, p)) for p in files(root)
                if os.path.dirname(p) == room and p.endswith(".c")}
        for n, text in enumerate(lines(root, path), 1):
            section = re.match(r"/\* (?:---- )?(\w+\.c)\b", text)
            here = section[1] if section else here
            declared = re.match(r"[A-Za-z][\w *]*?\b(\w+)\(", text)
            own = re.search(r";\s*/\* (\w+\.c)\b", text)
            file = own[1] if own else here
            if not declared or not file or text.startswith(("static", "typedef")):
                continue
            seen += 1
            if not re.search(rf"^[A-Za-z][\w *]*\b{declared[1]}\(", code.get(file, ""), re.M):
                yield path, n, f"{declared[1]} is not in {file}"
    if not seen:
        yield "compiler", 0, "no doors found"


def environment(root):
    """The table of docs/how-to/faults.md has every variable of the environment that the runtime names or the compiler reads,
    and no other."""
    page = "docs/how-to/faults.md"
    have = {m[1]: n for n, m in rows(root, page, r"\| `(PIPE_\w+)` \|")}
    read = {}
    for path in files(root):
        if path.startswith(("runtime/", "compiler/")) and path.endswith((".c", ".h")):
            pattern = r'"(PIPE_[A-Z_]+)"' if path.startswith("runtime/") else r'getenv\("(PIPE_\w+)"\)'
            for n, text in enumerate(lines(root, path), 1):
                for name in re.findall(pattern, text):
                    read.setdefault(name, (path, n))
    for name in sorted(set(read) - set(have)):
        yield *read[name], f"{page} does not list {name}"
    for name in sorted(set(have) - set(read)):
        yield page, have[name], f"nobody reads {name}"
    if not read:
        yield page, 0, "no variables found"


RULES = {f.__name__: f for f in
         (spdx, long, columns, paths, unfinished, editorconfig, generated, strays, diagnostics, ops, filecheck,
          sections, doors, environment)}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in RULES:
        sys.exit(f"usage: lint.py {'|'.join(RULES)} ROOT")
    breaches = list(RULES[sys.argv[1]](sys.argv[2]))
    for path, n, what in breaches:
        print(f"{path}:{n}: {what}")
    sys.exit(1 if breaches else 0)
