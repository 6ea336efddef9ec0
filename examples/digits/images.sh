#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes the handwritten digits of scikit-learn to a file: examples/digits/images.sh FILE
#
# 1797 images of 8 x 8 pixels, one a line: 64 values from 0 to 16 and the digit, separated by commas (from
# the UCI Optical Recognition of Handwritten Digits data set, CC BY 4.0). They are taken from the first of
# these that there is, and are the same in all of them:
#   an installed scikit-learn, of python3 or of the package python3-sklearn
#   the package python3-sklearn, downloaded by apt-get and not installed
#   scikit-learn's wheel, downloaded by pip and not installed
set -eu
export LC_ALL=C

[ $# -eq 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
inside=sklearn/datasets/data/digits.csv.gz

installed() {
  for root in $(python3 -c 'import sys; print(*sys.path)' 2>/dev/null) /usr/lib/python3/dist-packages; do
    if [ -f "$root/$inside" ]; then cp "$root/$inside" "$dir/digits.csv.gz" && return; fi
  done
  return 1
}
by_apt() {
  (cd "$dir" && apt-get download python3-sklearn >log 2>&1 && dpkg-deb -x python3-sklearn*.deb deb) &&
    cp "$dir/deb/usr/lib/python3/dist-packages/$inside" "$dir/digits.csv.gz"
}
by_pip() {
  python3 -m pip download -q --no-deps --only-binary :all: -d "$dir" scikit-learn >>"$dir/log" 2>&1 &&
    python3 -m zipfile -e "$dir"/scikit_learn*.whl "$dir/wheel" &&
    cp "$dir/wheel/$inside" "$dir/digits.csv.gz"
}

if installed; then source='installed scikit-learn'
elif by_apt; then source='package python3-sklearn'
elif by_pip; then source="scikit-learn's wheel"
else
  cat "$dir/log" >&2
  echo "$0: no scikit-learn here, and neither apt-get nor pip could download it" >&2
  exit 1
fi
gzip -dc "$dir/digits.csv.gz" >"$dir/digits.csv"
lines=$(wc -l <"$dir/digits.csv")
if [ "$lines" -ne 1797 ]; then
  echo "$0: $lines images, expected 1797" >&2
  exit 1
fi
mv "$dir/digits.csv" "$out"
echo "images: $out, $lines: $source"
