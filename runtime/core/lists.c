/* SPDX-License-Identifier: MIT
 * The lists of the ranks, which pipec emits as rows (pipe_rows.h).
 *
 * A process that executes all ranks writes out all lists and validates the program. A process of
 * one rank writes out only its own list. The program contains the hash of each list, and the hash
 * of the program covers these hashes and all other tables: tables that match are the ones that
 * pipec has validated and proved. With PIPE_VALIDATE=1 such a process writes out and validates
 * everything too. Programs whose lists are not rows are always validated. */
#include "pipe_rows.h"
#include "run.h"
#include "validate.h"

#include <stdlib.h>
#include <string.h>

/* Reads PIPE_VALIDATE, for a process of one rank. */
static PrStatus read_wish(PrRun *run, bool *all) {
  const char *on = getenv("PIPE_VALIDATE");
  *all = on && strcmp(on, "1") == 0;
  return !on || !*on || *all || strcmp(on, "0") == 0
             ? PR_OK
             : pr_fail(run, PR_E_ARG, "PIPE_VALIDATE is '%.100s', not 0 or 1", on);
}

static PrStatus refuse(PrRun *run, const char *why) {
  return pr_fail(run, strncmp(why, "no memory", 9) == 0 ? PR_E_MEMORY : PR_E_ARG, "%s", why);
}

PrStatus pr_take_lists(PrRun *run) {
  char why[PIPE_EXPAND_TEXT], text[PR_TEXT];
  bool all;
  PrStatus st = read_wish(run, &all);
  if (st)
    return st;
  if (pipe_is_rows(run->p) && run->here != PIPE_NONE && !all) {
    PipeRank own;
    if (!pipe_check_hash(run->p, why) || !pipe_expand_rank(run->p, run->here, &own, why))
      return refuse(run, why);
    run->own = own;
    return PR_OK;
  }
  if (pipe_is_rows(run->p)) {
    if (!(run->written_out = pipe_expand(run->p, why)))
      return refuse(run, why);
    run->p = run->written_out;
  }
  st = pipe_validate(run->p, text, sizeof text);
  return st ? pr_fail(run, st, "%s", text) : PR_OK;
}

void pr_give_lists(PrRun *run) {
  pipe_expand_free(run->written_out);
  free((void *)(uintptr_t)run->own.instr);
}

PrStatus pr_borrow_list(PrRun *run, uint32_t r, PipeRank *out) {
  char why[PIPE_EXPAND_TEXT];
  *out = *run->rank[r].t;
  return !out->rows || pipe_expand_rank(run->p, r, out, why) ? PR_OK : refuse(run, why);
}

void pr_return_list(const PrRun *run, uint32_t r, PipeRank *list) {
  if (run->rank[r].t->rows)
    free((void *)(uintptr_t)list->instr);
}

/* Makes the streams of the ranks of other processes. False: no memory. */
static bool see_others(PrRun *run, const PipeProgram *p) {
  bool ok = true;
  for (uint32_t r = 0; ok && r < p->nrank; r++)
    if (!pr_is_here(run, r)) {
      run->rank[r].t = &p->rank[r];
      ok = pr_take_streams_of(run, &run->rank[r]);
    }
  for (uint32_t r = 0; !ok && r < p->nrank; r++)
    if (!pr_is_here(run, r)) {
      run->rank[r].t = &run->p->rank[r];
      pr_give_streams(&run->rank[r]);
    }
  return ok;
}

const PipeProgram *pr_see_all(PrRun *run) {
  char why[PIPE_EXPAND_TEXT];
  pthread_mutex_lock(&run->lock);
  if (!run->sees_all) {
    PipeProgram *out = pipe_is_rows(run->p) ? pipe_expand(run->p, why) : NULL;
    const PipeProgram *p = out ? out : run->p;
    run->sees_all = !pipe_is_rows(p) && see_others(run, p);
    if (run->sees_all && out)
      run->written_out = out;
    else
      pipe_expand_free(out);
  }
  const PipeProgram *p = run->written_out ? run->written_out : run->p;
  pthread_mutex_unlock(&run->lock);
  return run->sees_all ? p : NULL;
}
