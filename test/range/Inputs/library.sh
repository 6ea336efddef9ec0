# SPDX-License-Identifier: MIT
# library.sh PIPEC LIBRARY P:TOP...: the verdict for M = 1..TOP of each file of the library on P ranks. A schedule with `tune` is
# tried up to M = 64. Of HEAD:
#   test/range/Inputs/library.sh build/bin/pipec build/share/pipe/stdlib 2:128 4:128 8:96 > test/range/Inputs/library.txt
pipec=$1 library=$2
shift 2
said=$(mktemp)
for one in "$@"; do
  P=${one%:*}
  for f in "$library"/*.pipe; do
    top=${one#*:}
    if grep -q '^ *tune ' "$f" && [ "$top" -gt 64 ]; then top=64; fi
    "$pipec" --check -D P="$P" -D M=1.."$top" "$f" > "$said" 2>&1
    echo "P=$P $(basename "$f" .pipe) M=1..$top: $(sed -n 's/^proved    \([0-9]*\), each.*/\1 proved/p; s/^skipped   \([0-9]*\):.*/, \1 skipped/p
      s/^\(.*: \)\{0,1\}error: .*\(\[[a-z-]*\]\)$/refused \2/p; s/^note: \(M = [0-9]*\) is the first refuted.*/ at \1/p; s/^\(in flight at most.*\)/; \1/p; s/^\(memory .*\)/; \1/p' "$said" | tr -d '\n')"
  done
done
rm -f "$said"
