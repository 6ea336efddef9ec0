# SPDX-License-Identifier: MIT
"""Pygments lexer of the .pipe language (lang/spec.md, section 1)."""
import re

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (Comment, Error, Keyword, Name, Number, Operator, Punctuation, String,
                            Whitespace)

CLAUSES = (
    "schedule", "requires", "extends", "import", "let", "fn", "op", "ranks", "pipe",
    "stages", "mbs", "place", "replica", "of", "dag", "edge", "tie", "order", "time", "bytes", "profile", "check",
    "limit", "recompute", "slices", "tune", "tries", "by", "offload", "lead", "side", "exclusive", "send",
    "transfers", "weights")
FLOW = (
    "steady", "clip", "clock", "period", "rules", "overlap", "when",
    "do", "if", "else", "in", "step", "for", "stage")


class PipeLexer(RegexLexer):
    name = "pipe"
    aliases = ["pipe"]
    filenames = ["*.pipe"]
    flags = re.MULTILINE | re.ASCII
    tokens = {
        "root": [
            (r"\s+", Whitespace),
            (r"#.*", Comment.Single),
            (r'"', String, "string"),
            (r"\b(schedule|fn|op)(\s+)([A-Za-z_]\w*)", bygroups(Keyword.Declaration, Whitespace, Name.Function)),
            (r"\d+(?:_\d+)*(?:\.\d+(?:_\d+)*)?(?:[A-Za-z_]\w*)?", Number),
            (words(CLAUSES, prefix=r"\b", suffix=r"\b"), Keyword.Declaration),
            (words(FLOW, prefix=r"\b", suffix=r"\b"), Keyword),
            (r"\b(?:[FBIWRU]|OFF|LOAD|REDUCE|TIE)\b", Name.Builtin),
            (r"\b[A-Za-z_]\w*(?=\s*\()", Name.Function),
            (r"\b[A-Za-z_]\w*", Name),
            (r"->|\.\.|==|!=|<=|>=|&&|\|\||[+*/%<>!?=@-]", Operator),
            (r"[.,;:()\[\]{}]", Punctuation),
        ],
        "string": [
            (r'\\["\\]', String.Escape),
            (r"\\.", Error),
            (r'"', String, "#pop"),
            (r'[^"\\\n]+', String),
            (r"\n", Whitespace, "#pop"),
            (r"\\\n", Error, "#pop"),
        ],
    }
