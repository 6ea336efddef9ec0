# SPDX-License-Identifier: MIT
# library.sh PIPEC STDLIB OPTION P[:NAME]...: the verdict for every M of each file of the library, or of one, on P ranks.
# OPTION is --for-all=M, or --check, which does the same and compares less. Of HEAD:
#   test/for_all/Inputs/library.sh build/bin/pipec build/share/pipe/stdlib --for-all=M 2 4 8 > test/for_all/Inputs/library.txt
pipec=$1 stdlib=$2 option=$3
shift 3
for one in "$@"; do
  P=${one%:*} files=$stdlib/*.pipe
  [ "$P" = "$one" ] || files=$stdlib/${one#*:}.pipe
  for f in $files; do
    said=$("$pipec" $option --undecided=ok -DP="$P" "$f" 2>&1)
    from=$(sed -n 's/^all M     proved complete, in order and deadlock-free for every \(.* from [0-9]*\) on .*/every \1/p' <<< "$said")
    to=$(sed -n "s/^compared  that program is the text's up to M = /, compared up to /p" <<< "$said")
    none=$(sed -n 's/^all M     .* not decided: /not decided: /p; s/^all M     \(refuted.*\)/\1/p; s/^[^ ]*: error: .*\[\([a-z-]*\)\]$/refused: \1/p' <<< "$said")
    echo "P=$P $(basename "$f" .pipe): $from$to$none"
  done
done
