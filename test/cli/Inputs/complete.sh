# SPDX-License-Identifier: MIT
# complete.sh SCRIPT: for each line of standard input, words of a command line as readline divides them, shows
# what the script, that of pipec --completion=bash, completes the last one to: in the order of the letters, joined
# by ','. A line that ends with a blank has an empty last word.
set -u
# shellcheck disable=SC1090
source "$1"
call=$(complete -p pipec | sed 's/.*-F \([^ ]*\) .*/\1/')
while IFS= read -r line; do
  read -ra COMP_WORDS <<<"pipec $line"
  [[ $line != *' ' && -n $line ]] || COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  "$call" pipec "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
  echo "$line> $(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd,)"
done
