/* SPDX-License-Identifier: MIT
 * Errors of a run, its clock and deadline, and simple queries. */
#include "escape.h"
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t pr_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void pr_nap(uint64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  nanosleep(&t, NULL);
}

/* Errors: the first one is kept. */

PrStatus pr_fail(PrRun *run, PrStatus st, const char *fmt, ...) {
  const char *why = st == PR_E_MODEL && run->m.why ? run->m.why(run->m.self) : NULL;
  pthread_mutex_lock(&run->lock);
  bool first = atomic_load(&run->status) == PR_OK;
  if (first) {
    va_list ap;
    va_start(ap, fmt);
    char text[PR_TEXT];
    int len = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (why && len < PR_TEXT)
      snprintf(text + len, sizeof text - (size_t)len, ": %s", why);
    escape_text(run->text, sizeof run->text, ESCAPE_TERMINAL,
                text); /* names, paths, texts of peers */
    atomic_store(&run->has_text, 1);
    if (st != PR_E_IO)
      atomic_store(&run->status, (int)st);
  }
  pthread_mutex_unlock(&run->lock);
  if (first && st != PR_E_IO && run->opened && run->engine->wake)
    run->engine->wake(run);
  return st;
}

const char *pr_error(const PrRun *run) {
  if (!run)
    return "out of memory";
  return atomic_load(&run->has_text) ? run->text : "";
}

const char *pr_note(const PrRun *run) { return run ? run->note : ""; }

const char *pr_where(const PrRun *run, const PipeInstr *c, char buf[PR_WHERE]) {
  char op[PIPE_OP_TEXT];
  const PipeSite *at = &run->p->site[c->site];
  const char *file = run->p->file[at->file];
  size_t len = strlen(file), max = PR_WHERE - PIPE_OP_TEXT - 40;
  pipe_instr_text(op, pipe_graph(run->p), c);
  snprintf(buf, PR_WHERE, "%s (%s:%u:%u)", op, len > max ? file + (len - max) : file, at->line,
           at->col);
  return buf;
}

uint64_t pr_limit(const PrRun *run, uint64_t predicted_ns) {
  const uint64_t second = 1000000000, least = 30 * second, most = 1000000000 * second;
  if (run->o.deadline_s > 0) {
    double ns = run->o.deadline_s * 1e9;
    return ns < 1 ? 1 : (uint64_t)ns;
  }
  if (!run->p->timed)
    return 600 * second;
  return predicted_ns < least / 10 ? least : predicted_ns > most / 10 ? most : 10 * predicted_ns;
}

uint64_t pr_steps_done(const PrRun *run) { return run->rank ? atomic_load(&run->rank[0].step) : 0; }

int pr_exit_status(PrStatus st) {
  enum { GO_ON_LATER = 75 }; /* EX_TEMPFAIL of sysexits.h */
  bool again = st == PR_E_LOST || st == PR_E_DEADLINE || st == PR_E_STALL || st == PR_E_MISMATCH;
  return again ? GO_ON_LATER : st != PR_OK;
}

uint32_t pr_rank(const PrRun *run) { return run->here; }

int pr_leads(const PrRun *run) { return pr_is_here(run, 0); }

uint64_t pr_bytes(const PrRun *run, uint32_t rank) {
  return run->rank && rank < run->p->nrank ? run->rank[rank].bytes : 0;
}

uint64_t pr_host_bytes(const PrRun *run, uint32_t rank) {
  return run->rank && rank < run->p->nrank ? run->rank[rank].host_bytes : 0;
}

const PipeProgram *pr_program(const PrRun *run) { return run->p; }
