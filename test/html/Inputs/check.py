# SPDX-License-Identifier: MIT
"""check.py PAGE.html SVG|- FORM.json... [--source FILE]...: a page of --emit=html is one complete HTML document that
asks for nothing else; its data, unpacked, is what --emit=json says of each input; the texts are those of
the files; the colours are those of the picture."""
import html.parser
import json
import re
import sys

arguments = sys.argv[1:]
sources = []
while "--source" in arguments:
    k = arguments.index("--source")
    sources.append(arguments[k + 1])
    del arguments[k:k + 2]
path, svg, forms = arguments[0], arguments[1], arguments[2:]
VOID = {"meta", "input", "br", "link"}


class Document(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.scripts, self.bad = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        for name in "src", "href", "action":
            if name in attrs:
                self.bad.append(f"{tag} has {name}={attrs[name]}")
        if tag == "script":
            self.scripts.append([attrs.get("id"), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"</{tag}> closes something else")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data


def unpack(v, shapes):
    if not isinstance(v, list):
        return v
    *values, shape = v
    values = [unpack(x, shapes) for x in values]
    if shape < 0:
        return values
    assert len(values) == len(shapes[shape])
    return dict(zip(shapes[shape], values))


text = open(path, "rb").read().decode()  # is UTF-8
page = Document()
page.feed(text)
page.close()
bad = page.bad
if page.open or not text.startswith("<!DOCTYPE html>") or not text.endswith("</html>\n"):
    bad.append(f"not complete: {page.open}")
if [name for name, _ in page.scripts] != ["data", None] or len(set(page.ids)) != len(page.ids):
    bad.append(f"scripts {[s[0] for s in page.scripts]}, ids {page.ids}")
if "default-src 'none'" not in text or re.search(r"https?:|@import|url\(|\bfetch\(|XMLHttp", text.replace(page.scripts[0][1], "")):
    bad.append("asks for something else")
for name in re.findall(r"\$\('(\w+)'\)", page.scripts[1][1]):
    if name not in page.ids:
        bad.append(f"the script looks for #{name}")
data = json.loads(page.scripts[0][1])
if len(data["panels"]) != len(forms):
    bad.append(f"{len(data['panels'])} panels of {len(forms)}")
for panel, form in zip(data["panels"], forms):
    want = json.loads(open(form, "rb").read().decode(errors="replace"))
    if unpack(panel["form"], panel["shapes"]) != want:
        bad.append(f"the data is not {form}")
    if len(panel["sources"]) != len(want["files"]):
        bad.append(f"{len(panel['sources'])} texts of {len(want['files'])} files")
texts = [t for panel in data["panels"] for t in panel["sources"]]
if sources and texts != [open(s, "rb").read().decode(errors="replace") for s in sources]:
    bad.append("the texts are not those of the files")
if svg != "-":
    picture = dict(re.findall(r"\.([A-Z]+)\{fill:(#\w+)\}", open(svg).read()))
    mine = {k["op"]: k["fill"] for k in data["ops"] if k["op"] in picture}
    if mine != picture or not picture:
        bad.append(f"colours {mine}, of the picture {picture}")
print("\n".join(bad) or f"complete, {len(forms)} of {len(forms)} forms")
sys.exit(1 if bad else 0)
