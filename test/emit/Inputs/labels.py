# SPDX-License-Identifier: MIT
"""labels.py PICTURE.svg N: N microbatch labels, as many in each kind."""
import sys
import xml.etree.ElementTree as xml

NS = "{http://www.w3.org/2000/svg}"
groups = [len(g) for g in xml.parse(sys.argv[1]).getroot().iter(NS + "g") if g.get("class") == "mb"]
assert sum(groups) == int(sys.argv[2]) and len(set(groups)) == 1, groups
