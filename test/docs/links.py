# SPDX-License-Identifier: MIT
"""links.py ROOT: every relative link of every .md file leads to a file, and to a heading if it names one; in
CONTRIBUTING.md and docs/, every `path` that begins with a folder of the tree is there."""
import os
import re
import sys

root = sys.argv[1]
pages = [os.path.join(folder, name) for folder, folders, names in os.walk(root) for name in names
         if name.endswith(".md") and not re.search(r"/(build[^/]*|\.git)(/|$)", folder[len(root):])]


def text(path):
    with open(path, encoding="utf-8") as f:
        return re.sub(r"^```.*?^```$", "", f.read(), flags=re.S | re.M)


def prose(path):
    return re.sub(r"`[^`\n]*`", "", text(path))


def anchors(path):
    heads = re.findall(r"^#+ (.*)$", text(path), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


links = bad = 0
for page in sorted(pages):
    for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", prose(page)):
        target, _, anchor = "".join(link).partition("#")
        if re.match(r"\w+:", target):
            continue
        links += 1
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if not os.path.exists(path) or (anchor and anchor not in anchors(path)):
            bad += 1
            print(f"{os.path.relpath(page, root)}: {''.join(link)} leads nowhere")
    if os.path.relpath(page, root).startswith(("docs/", "CONTRIBUTING")):
        for name in re.findall(r"`((?:lang|compiler|runtime|stdlib|examples|test|docs|cmake)/[\w./-]*)`", text(page)):
            if not os.path.exists(os.path.join(root, name)) and not re.search("[A-Z][.A-Z]|NAME", name):
                bad += 1
                print(f"{os.path.relpath(page, root)}: {name} is not there")
print(f"{links} links, {bad} wrong")
sys.exit(bad > 0 or not links)
