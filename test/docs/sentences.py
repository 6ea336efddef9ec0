# SPDX-License-Identifier: MIT
"""sentences.py FILE.md...: sentences of more than 40 words, and how long the others are.

Fenced blocks and headings are no prose. A `code span` or the text of a link counts as one word.
A list item, a table cell and a line that ends in a colon end a sentence.
"""
import re
import sys

MOST = 40


def sentences(text):
    """Yields (line, sentence) for the prose of a page."""
    fenced, start, words = False, 0, []

    def done():
        prose = re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "x", " ".join(words))
        for s in re.split(r"(?<=[.!?])\s+|(?<=[.!?][\")])\s+", prose):
            if s.strip(" |"):
                yield start, s

    for n, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*```", line):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        if not line.strip() or re.match(r"\s*([-*]|\d+\.|\||#|<)\s?", line):
            yield from done()
            words = []
        if re.match(r"#|<", line):
            continue
        table = line.lstrip().startswith("|")
        for part in line.split("|") if table else [line]:
            start = start if words else n
            words += re.sub(r"^\s*([-*]|\d+\.)\s", "", part).split()
            if table or part.rstrip().endswith(":"):
                yield from done()
                words = []
    yield from done()


if __name__ == "__main__":
    lengths, bad = [], 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            for line, sentence in sentences(f.read()):
                length = len(sentence.split())
                lengths.append(length)
                if length > MOST:
                    bad += 1
                    print(f"{path}:{line}: {length} words: {sentence[:60]}")
    lengths.sort()
    if lengths:
        print(f"{len(lengths)} sentences, 90 % of at most {lengths[len(lengths) * 9 // 10]} words")
    sys.exit(bad > 0 or not lengths)
