/* SPDX-License-Identifier: MIT
 * Writes a script that completes a command line of pipec in bash (--completion), from the list of
 * options. Completes the names of files that pipec reads: .pipe and .csv. */
#include <string.h>

#include "driver.h"
#include "options.h"

/* The words that option o accepts, separated by blanks. A word that continues after ':' ends there:
 * bash takes what follows for another word. */
static const char *values(Sched *s, const OptionRow *o) {
  const char *list = "";
  size_t n = 0;
  if (o->takes == TAKES_PASSES)
    return arena_printf(s->arena, "%sall", pass_names(s));
  if (o->takes == TAKES_DIAGNOSTICS)
    for (int i = 0; i < DIAG_NNAMES; i++)
      list = arena_printf(s->arena, "%s%s%s", list, *list ? " " : "", diag_name((DiagName)i));
  if (o->takes == TAKES_WORDS)
    for (const char *w = NULL; (w = option_each_word(o, w, &n)); w += n) {
      const char *colon = memchr(w, ':', n);
      list = arena_printf(s->arena, "%s%s%.*s", list, *list ? " " : "",
                          (int)(colon ? colon + 1 - w : (long)n), w);
    }
  return list;
}

/* -Werror is one word; so is every option whose argument follows directly. */
static bool is_joined(const OptionRow *o) { return *o->argument && !strchr("= ", *o->argument); }

void print_completion(Sched *s, FILE *f) {
  fputs(
      "# SPDX-License-Identifier: MIT\n"
      "# bash completion of pipec: source this, or install it as share/bash-completion/completions/pipec\n"
      "_pipec() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev= front= words=\n"
      "  [[ $COMP_CWORD -lt 1 ]] || prev=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  COMPREPLY=()\n"
      "  if [[ $cur == --*=* ]]; then # '=' does not divide words here\n"
      "    front=${cur%%=*}= prev=${cur%%=*} cur=${cur#*=}\n"
      "  elif [[ $cur == = ]]; then\n"
      "    cur=\n"
      "  elif [[ $prev == = && $COMP_CWORD -gt 1 ]]; then\n"
      "    prev=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  fi\n"
      "  case $prev in\n",
      f);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    if (!o->takes || is_joined(o))
      continue;
    fputs("    ", f);
    if (o->letter)
      fprintf(f, "-%c%s", o->letter, o->name ? "|" : "");
    if (o->name)
      fprintf(f, "--%s", o->name);
    fputs(") ", f);
    switch (o->takes) {
    case TAKES_FILES:
      fputs("mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); compopt -o filenames 2>/dev/null",
            f);
      break;
    case TAKES_DIRS:
      fputs("mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); compopt -o filenames 2>/dev/null",
            f);
      break;
    case TAKES_TEXT: fputs("return", f); break;
    default: fprintf(f, "words='%s'", values(s, o)); break;
    }
    fputs(" ;;\n", f);
  }
  fputs("    *)\n"
        "      if [[ $cur == -* ]]; then\n"
        "        words='",
        f);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    const char *blank = i ? " " : "";
    if (!option_is_listed(o))
      continue;
    if (is_joined(o))
      fprintf(f, "%s-%c%s", blank, o->letter, o->argument);
    else if (o->letter)
      fprintf(f, "%s-%c", blank, o->letter);
    if (o->name)
      fprintf(f, "%s--%s%s", o->letter ? " " : blank, o->name,
              o->takes && *o->argument == '=' ? "=" : "");
  }
  fputs(
      "'\n"
      "      else\n"
      "        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"; compgen -f -X '!*.pipe' -- \"$cur\"; "
      "compgen -f -X '!*.csv' -- \"$cur\")\n"
      "        compopt -o filenames 2>/dev/null\n"
      "      fi\n"
      "      ;;\n"
      "  esac\n"
      "  [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -P \"$front\" -W \"$words\" -- \"$cur\")\n"
      "  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[=:] ]] || compopt -o nospace 2>/dev/null\n"
      "}\n"
      "complete -F _pipec pipec\n",
      f);
}
