# SPDX-License-Identifier: MIT
# looped.sh PIPEC CC STDLIB INCLUDE LIB HERE some|all: compares programs for every M, unrolled, with those that pipec makes of each M.
pipec=$1 cc=$2 stdlib=$3 inc=$4 lib=$5 here=$6
good=0 bad=0
build() { # SOURCE OUT [MORE...]: a program that prints tables
  $cc -std=c11 -Wall -Wextra -Werror -pedantic -I"$inc" "$1" "${@:3}" "$here/../emit/Inputs/tables.c" "$lib/libpiperun.a" -lm -pthread -o "$2"
}
same() { # have want
  if [ "$1" = "$2" ]; then good=$((good + 1)) values=$((values + 1)); else bad=$((bad + 1)); fi
}
hash_of() { # M: of what pipec makes of it, by its schedule, parameters and hash
  $pipec $options -DM=$1 --emit=json "$stdlib/$name.pipe" | sed -n '1s/.*"schedule":"\([^"]*\)","params":"\([^"]*\)","hash":"\([^"]*\)".*/program \1, \2, \3/p'
}
one() { # NAME OPTIONS STEPS...: n = 0, n = 1 and so on of every class; then each value that is one by itself
  name=$1 options=$2
  shift 2
  $pipec --for-all=M --emit=c $options --symbol=looped "$stdlib/$name.pipe" -o l.c || exit 1
  build l.c l "$here/Inputs/unrolled.c" '-Dpipe_program=(*the)' -Dmain=print_tables || exit 1
  from=$(sed -n '1s/.*for every M of \([0-9]*\).*/\1/p' l.c) values=0 whole=
  for class in $(sed -n '1s/.*for every M of \(.*\) (n.*/\1/p' l.c | tr -d ' ' | tr ',' ' '); do
    for n in "$@"; do
      step=${class#*+} step=${step%n}
      M=$((${class%+*} + step * n))
      if [ -z "$whole" ]; then # all tables, places in the text too
        $pipec $options -DM=$M "$stdlib/$name.pipe" -o d.c && build d.c d || exit 1
        same "$(./l $M)" "$(./d)"
        whole=$M
      else
        same "$(./l $M | head -1)" "$(hash_of $M)"
      fi
    done
  done
  few=$(sed -n '1s/.*(n = 0, 1, 2, ...)\( that the schedule admits\)* and for \([0-9, ]*\).*/\2/p' l.c | tr -d ,)
  for M in $few; do same "$(./l $M | head -1)" "$(hash_of $M)"; done
  echo "$name $options: equal at $values values from $from, with$([ -z "$few" ] || echo " $few" | tr -s ' ' | sed 's/ $//')"
}
one 1f1b -DP=4 0 1 2 3 4 7 20 41
one dapple_pb -DP=3 0 1 2 3 20
one interleaved "-DP=4 -DV=2" 0 1 2 20
one zb_h1 -DP=4 0 1 2 5 17 60
one gems -DP=4 0 1 2 60
one v_min -DP=4 0 1 2 60
one interleaved_zb "-DP=3 -DV=2" 0 1 9
# Orders of several loops, with actions, versions, slices, R, copies.
for f in gpipe_lifo gpipe_recompute varuna chimera terapipe dualpipe; do one $f "" 0 23; done
one bpipe -DP=3 0 23
one pipedream -DP=8 0 1 2 3 4 5 6 7 8 61 200
if [ "$7" = all ]; then
one zb_h2 -DP=5 0 1 2 5 17 60
one v_half_block -DP=4 0 1 2 5 17 60
one 1f1b_v -DP=4 0 1 2 5 17 60
one gis "-DP=4 -DV=2" 0 1 9
for f in gpipe naive pipedream dualpipev; do one $f "" 0 23; done
one pipedream_rr -DP=8 0 1 2 3 4 5 6 7 8 61
fi
echo "$good programs are equal, $bad are not"
test $bad = 0
