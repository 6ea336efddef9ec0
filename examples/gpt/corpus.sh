#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes one file of English text to train on: examples/gpt/corpus.sh FILE
#
# Takes the first of these that the machine has. The same packages give the same bytes.
#   bible      package bible-kjv: the King James Version, 4.1 MB, verse numbers removed
#   fortunes   package fortunes: 2.6 MB of quotations
#   otherwise  the licences and the copyright notices that every Debian system has
set -eu
export LC_ALL=C

[ $# -eq 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
out=$1
part=$out.part
trap 'rm -f "$part"' EXIT

if command -v bible >/dev/null 2>&1; then
  source="the King James Bible (package bible-kjv)"
  bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >"$part"
elif [ -d /usr/share/games/fortunes ]; then
  source="fortune cookies (package fortunes)"
  find /usr/share/games/fortunes -type f ! -name '*.*' | sort | xargs cat | sed '/^%$/d' >"$part"
else
  source="licence texts; for better text install the package bible-kjv"
  { find /usr/share/common-licenses -type f | sort
    find /usr/share/doc -name copyright -type f | sort
  } | while IFS= read -r file; do cat "$file"; done >"$part"
fi

bytes=$(wc -c <"$part")
if [ "$bytes" -lt 200000 ]; then
  echo "$0: found only $bytes bytes of text; install the package bible-kjv" >&2
  exit 1
fi
mv "$part" "$out"
echo "corpus: $out, $bytes bytes: $source"
