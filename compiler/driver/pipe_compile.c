/* SPDX-License-Identifier: MIT
 * The compiler as a library: pipe_compile.h over the passes. A PipeCompiled is a guard that
 * outlives its compile: it holds all its memory, even if the compile ended early. */
#define _POSIX_C_SOURCE 200809L /* uselocale */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "driver.h"
#include "pipe_compile.h"

struct PipeCompiled {
  Guard guard;
  const PipeProgram *program;
  GuardText *messages, *output;
  PipeDiagnostic *row; /* [nrow] */
  uint32_t nrow;
  char early[600];    /* the message of a compile that ended early */
  PipeDiagnostic why; /* and its row */
};

typedef struct Call {
  PipeCompiled *c;
  const char *name, *text;
  int n;
  const char *const *option;
  const volatile int *stop;
  bool ok;
} Call;

static void fill_rows(PipeCompiled *c, Sched *s) {
  const Diag *d = s->diag;
  c->row = NEW_ARRAY(s->arena, PipeDiagnostic, d->nrow);
  for (uint32_t i = 0; i < d->nrow; i++) {
    const DiagRow *from = &d->row[i];
    const bool placed = from->at.file < d->nsource;
    const LineCol at = diag_linecol(d, from->at.file, from->at.beg);
    c->row[i] = (PipeDiagnostic){
        .severity = (PipeSeverity)from->severity,
        .name = from->name,
        .file = placed ? d->source[from->at.file].path : NULL,
        .line = at.line,
        .column = at.col,
        .message = shown(s, from->text),
        .help = from->help ? shown(s, from->help) : NULL,
    };
  }
  c->nrow = d->nrow;
}

static void end_locale(void *locale) { freelocale(locale); }

static void run(void *of) {
  Call *call = of;
  PipeCompiled *c = call->c;
  /* Numbers are written and read as in C, whatever the locale of the process. */
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain)
    guard_no_memory(0);
  uselocale(guard_own(plain, end_locale));
  guard_stop(call->stop);
  c->messages = guard_text();
  c->output = guard_text();
  Arena arena = {0};
  Diag diag;
  Options opt = {.emit = EMIT_NONE, .out = c->output->f, .regular = true};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  Command todo;
  diag_init(&diag, &arena, c->messages->f);
  /* The program may point into these strings. */
  opt.input = arena_printf(&arena, "%s", call->name ? call->name : call->text ? "text" : "");
  if (call->text) {
    opt.text_len = strlen(call->text);
    opt.text = arena_strndup(&arena, call->text, opt.text_len);
  }
  call->ok = read_options(&s, call->n, call->option, &todo) &&
             (todo.kind == COMMAND_POINTS ? check_points(&s) : compile(&s)) && diag.errors == 0;
  fill_rows(c, &s);
  guard_text_done(c->messages);
  guard_text_done(c->output);
  c->program = call->ok ? s.prog : NULL;
}

uint32_t pipe_compile_version(void) { return PIPE_VERSION; }

PipeCompileStatus pipe_compile(PipeCompiled **out, const char *name, const char *text, int noption,
                               const char *const *option) {
  return pipe_compile_until(out, name, text, noption, option, NULL);
}

PipeCompileStatus pipe_compile_until(PipeCompiled **out, const char *name, const char *text,
                                     int noption, const char *const *option,
                                     const volatile int *stop) {
  static const PipeCompileStatus status[] = {[GUARD_MEMORY] = PIPE_COMPILE_NO_MEMORY,
                                             [GUARD_BUG] = PIPE_COMPILE_INTERNAL,
                                             [GUARD_STOPPED] = PIPE_COMPILE_STOPPED};
  PipeCompiled *c = *out = calloc(1, sizeof *c);
  if (!c)
    return PIPE_COMPILE_NO_MEMORY;
  Call call = {.c = c, .name = name, .text = text, .n = noption, .option = option, .stop = stop};
  locale_t before = uselocale((locale_t)0);
  GuardEnd end = guard_run(&c->guard, run, &call);
  uselocale(before);
  if (end == GUARD_DONE)
    return call.ok ? PIPE_COMPILE_OK : PIPE_COMPILE_REFUSED;
  const char *kind = end == GUARD_BUG ? "internal error: " : "";
  snprintf(c->early, sizeof c->early, "error: %s%s\n", kind, c->guard.why);
  c->why = (PipeDiagnostic){.severity = PIPE_ERROR, .message = c->guard.why};
  return status[end];
}

void pipe_compiled_free(PipeCompiled *c) {
  if (c)
    guard_release(&c->guard);
  free(c);
}

const PipeProgram *pipe_compiled_program(const PipeCompiled *c) { return c ? c->program : NULL; }

const char *pipe_compiled_output(const PipeCompiled *c, size_t *n) {
  const bool made = c && !*c->early;
  if (n)
    *n = made ? c->output->n : 0;
  return made ? c->output->text : "";
}

const char *pipe_compiled_messages(const PipeCompiled *c) {
  return !c ? "error: out of memory\n" : *c->early ? c->early : c->messages->text;
}

const PipeDiagnostic *pipe_compiled_diagnostic(const PipeCompiled *c, uint32_t i) {
  static const PipeDiagnostic no_memory = {.message = "out of memory"};
  if (!c || *c->early)
    return i > 0 ? NULL : c ? &c->why : &no_memory;
  return i < c->nrow ? &c->row[i] : NULL;
}
