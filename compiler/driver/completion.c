/* SPDX-License-Identifier: MIT
 * Writes scripts that complete a command line of pipec in bash, zsh and fish (--completion), from
 * the list of options. Completes the names of files that pipec reads: .pipe, .csv and .json. */
#include <string.h>

#include "driver.h"
#include "options.h"

/* The words that option o accepts, separated by blanks. In bash and fish a word that continues
 * after ':' ends there. */
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

/* Prints the first line of the help of option o, quoted for zsh or fish. */
static void summary(const OptionRow *o, bool zsh, FILE *f) {
  size_t n = strcspn(o->help, "\n;");
  n -= o->help[n - 1] == ',';
  for (size_t i = 0; i < n; i++) {
    if (o->help[i] == '\'')
      fputs(zsh ? "'\\'" : "\\", f);
    else if (zsh && strchr("[]", o->help[i]))
      fputc('\\', f);
    fputc(o->help[i], f);
  }
}

static void bash(Sched *s, FILE *f) {
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
      "compgen -f -X '!*.csv' -- \"$cur\"; compgen -f -X '!*.json' -- \"$cur\")\n"
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

static void zsh_action(Sched *s, const OptionRow *o, FILE *f) {
  fprintf(f, ":%s:", o->takes == TAKES_WORDS ? o->name : o->argument + 1);
  switch (o->takes) {
  case TAKES_FILES: fputs("_files", f); break;
  case TAKES_DIRS: fputs("_files -/", f); break;
  case TAKES_TEXT: break;
  default:
    fputc('(', f);
    for (const char *p = values(s, o); *p; p++)
      fprintf(f, "%s%c", *p == ':' ? "\\" : "", *p);
    fputc(')', f);
  }
}

static void zsh(Sched *s, FILE *f) {
  fputs("#compdef pipec\n"
        "# SPDX-License-Identifier: MIT\n"
        "# zsh completion of pipec: install it as _pipec in a directory of $fpath\n"
        "_arguments -s -S \\\n",
        f);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    const char *again = o->letter && o->takes ? "*" : ""; /* may be repeated */
    for (int by_name = 0; by_name < 2; by_name++) {
      if (!(by_name ? o->name != NULL : o->letter != 0))
        continue;
      if (by_name)
        fprintf(f, "  '--%s%s[", o->name, o->takes && *o->argument == '=' ? "=" : "");
      else
        fprintf(f, "  '%s-%c%s[", again, o->letter,
                is_joined(o) ? o->argument
                : o->takes   ? "+"
                             : "");
      summary(o, true, f);
      fputc(']', f);
      if (o->takes && !is_joined(o))
        zsh_action(s, o, f);
      fputs("' \\\n", f);
    }
  }
  fputs("  '*:file:_files -g \"*.(pipe|csv|json)(-.)\"'\n", f);
}

static void fish(Sched *s, FILE *f) {
  fputs(
      "# SPDX-License-Identifier: MIT\n"
      "# fish completion of pipec: install it as pipec.fish in a directory of $fish_complete_path\n"
      "complete -c pipec -k -x -a '(__fish_complete_suffix .json; __fish_complete_suffix .csv; __fish_complete_suffix .pipe)'\n",
      f);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    fputs("complete -c pipec", f);
    if (is_joined(o))
      fprintf(f, " -o %c%s", o->letter, o->argument);
    else if (o->letter)
      fprintf(f, " -s %c", o->letter);
    if (o->name)
      fprintf(f, " -l %s", o->name);
    if (o->takes == TAKES_FILES)
      fputs(" -r -F", f);
    else if (o->takes == TAKES_DIRS)
      fputs(" -x -a '(__fish_complete_directories)'", f);
    else if (o->takes && !is_joined(o))
      fprintf(f, " -x -a '%s'", values(s, o));
    fputs(" -d '", f);
    summary(o, false, f);
    fputs("'\n", f);
  }
}

void print_completion(Sched *s, int shell, FILE *f) {
  static void (*const script[])(Sched *, FILE *) = {bash, zsh, fish}; /* as in options.def */
  script[shell](s, f);
}
