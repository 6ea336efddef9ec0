# SPDX-License-Identifier: MIT
# Shows what pipec ($1) says to command lines that are wrong, each under the line itself. A line that
# is taken, or that writes to standard output, shows its exit status too.
pipec=$1
try() {
  echo "$ pipec $*"
  "$pipec" "$@" > out.$$ || status=$?
  [ "${status:-0}" = 1 ] && [ ! -s out.$$ ] || echo "exit status ${status:-0}, $(wc -c < out.$$) bytes written"
  unset status
  rm -f out.$$
}
cd "$(mktemp -d)" || exit 1

try
try --check
try a.pipe b.pipe
try a.pipe b.pipe c.pipe
try --nonsense a.pipe
try -x a.pipe
try -vx a.pipe
try -check a.pipe
try --s a.pipe
try --check=yes a.pipe
try a.pipe -o
try a.pipe -D
try a.pipe -I
try a.pipe --emit
try a.pipe --schedule
try a.pipe --emit=
try a.pipe --emit=C
try a.pipe --emit=jso
try a.pipe -Wall
try a.pipe -W
for define in P P= =3 = P=x P=4x 'P= 4' 'P=4 ' P=+4 P=-- P=- P=0x10 P=1.5 P=1e3 P=1_000 P=4KiB \
              P=9223372036854775808 P=-9223372036854775809; do
  try a.pipe -D "$define"
done
for size in '' 0 -1 1.5.2GiB 1e9 1Gib GiB 40gib inf nan 0x10 '40 GiB' 99999999TiB; do
  try a.pipe --memory-limit="$size"
done
try a.pipe --host-memory=much
try a.pipe --channels=
try a.pipe --channels=ring
for sends in '' eager rendezvous:2 buffered buffered: buffered:0 buffered:-1 buffered:1.5 buffered:2GiBs; do
  try a.pipe --sends="$sends"
done
for symbol in '' 9lives a-b café int rank N rank12 pool0 PipeRank PIPE_F; do
  try a.pipe --symbol="$symbol"
done
try a.pipe --dump-after=everything
try a.pipe --arrows=on
try a.pipe --arrows=auto --emit=html
try a.pipe --for-all=M
try a.pipe --symbol=x --emit=json
try a.pipe --check -o x.c
try a.pipe --check --symbol=a
try a.pipe --check --arrows=on --emit=svg
try a.pipe -D M=1..8
try a.pipe --check --emit=c -D M=1..8
try a.pipe -D M=1..8 -o x.c
try a.pipe -D P=2 -D M=1,8 --show
try a.pipe --check -D M=1..8 --critical-path
try a.pipe --check -D M=1..8 --time-passes
try a.pipe -D M=1..8 --dump-after=lower
try a.pipe --show -o x
try a.pipe --show --arrows=on --emit=svg
try a.pipe --critical-path --emit=svg -o q.svg
try a.pipe --dump-after=lower -o x
try a.pipe --dump-after=lower --symbol=a
try a.pipe --check -o stamp --depfile=d
try a.pipe --color=always --emit=svg
try a.pipe --check --color=never
try --compare a.pipe --color=never
try a.pipe --torch-lax
try a.csv -D M=1..8 --check
try a.pipe -D M=1..8 -D P=2 -D M=4 --check
try a.pipe -D M=0..1000000000 -D P=0..1000000000 --check
try a.pipe --by=span
try --compare a.pipe --by=speed
try --compare nowhere.pipe
try --compare a.pipe --emit=svg --arrows=off
try --compare a.pipe --torch-waits
try --compare a.pipe --torch-unshard=3
try --compare a.pipe --counterexample=c.svg
try --compare a.pipe --symbol=x
try --compare a.pipe --time-passes
try a.pipe --depfile=d
try nowhere.pipe
try .
try ''
try - < /dev/null
rm -r "$PWD"
