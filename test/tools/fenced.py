# SPDX-License-Identifier: MIT
# fenced.py FILE.md LANGUAGE N: prints the Nth fenced block of that language, from 1; fails if there
# is none. With it tests run what the documentation shows.
import re
import sys

path, language, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, encoding="utf-8") as f:
    blocks = re.findall(r"^```%s\n(.*?)^```$" % re.escape(language), f.read(), re.M | re.S)
if not 1 <= n <= len(blocks):
    sys.exit(f"fenced.py: {path} has {len(blocks)} blocks of {language}")
sys.stdout.write(blocks[n - 1])
