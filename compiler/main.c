/* SPDX-License-Identifier: MIT
 * The program pipec: the command line around the compiler. Exit status: 0 if everything was done
 * and proved, else 1. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "driver.h"
#include "names.h"
#include "options.h"
#include "plan.h"

typedef struct Line {
  int n;
  const char *const *word;
  bool ok;
} Line;

/* Prints a text about pipec itself: shell completion, --list or the manual. */
static bool print_about(Sched *s, const Command *todo) {
  OutFile out;
  if (!file_open(s, &out, s->opt->output))
    return false;
  bool ok = true;
  if (todo->kind == COMMAND_COMPLETION)
    print_completion(s, out.f);
  else if (todo->kind == COMMAND_LIST)
    ok = library_list(s, out.f, todo->word, todo->nword);
  else
    print_manual(out.f);
  return file_close(s, &out, ok);
}

static bool carry_out(Sched *s, const Command *todo) {
  switch (todo->kind) {
  case COMMAND_COMPILE: return compile(s);
  case COMMAND_COMPARE: return compare(s);
  case COMMAND_PLAN: s->again = compile_only; return plan(s);
  case COMMAND_BEST: s->again = compile_only; return best(s);
  case COMMAND_POINTS: return check_points(s);
  case COMMAND_FORMAT: return format_files(s);
  case COMMAND_EXPLAIN:
    if (todo->name)
      return explain_name(s, todo->name, stdout);
    explain_list(s, stdout);
    return true;
  case COMMAND_HELP: print_help(stdout); return true;
  case COMMAND_VERSION: printf("pipec %s (ABI %u)\n", PIPEC_VERSION, PIPE_ABI); return true;
  default: return print_about(s, todo);
  }
}

static void run(void *of) {
  Line *line = of;
  Arena arena = {0};
  Diag diag;
  Options opt = {.out = stdout, .progress = isatty(2) ? stderr : NULL};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  Command todo;
  diag_init(&diag, &arena, stderr);
  line->ok = read_options(&s, line->n, line->word, &todo) && carry_out(&s, &todo) &&
             diag.errors == 0;
  errno = ferror(stdout) ? errno : 0; /* errno of the failed write */
  if ((fflush(stdout) != 0 || ferror(stdout)) && line->ok) {
    diag_error(&diag, DIAG_WRITE, NO_SPAN, "cannot write standard output: %s",
               strerror(errno ? errno : EIO));
    line->ok = false;
  }
}

int main(int argc, char **argv) {
  Guard guard;
  Line line = {argc - 1, (const char *const *)argv + 1, false};
  signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of file size then returns an error */
  signal(SIGPIPE, SIG_IGN);
  files_catch_signals();
  GuardEnd end = guard_run(&guard, run, &line);
  if (end != GUARD_DONE) {
    files_remove();
    fprintf(stderr, "pipec: %s%s\n", end == GUARD_BUG ? "internal error: " : "", guard.why);
  }
  if (end == GUARD_BUG)
    abort();
  guard_release(&guard);
  return end == GUARD_DONE && line.ok ? 0 : 1;
}
