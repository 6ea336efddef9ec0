/* SPDX-License-Identifier: MIT
 * Reports the wait cycle when no rank can proceed, with the place of each of its instructions in
 * the .pipe text.
 *
 * Lemma: in a validated program a stall always contains a cycle of transfers. Proof: take the head
 * of a rank's streams that is highest in the list. Its waits are met, because waits point up. If it
 * were a compute op or a copy, it would run. So every rank with instructions left is in a transfer
 * whose peer has not arrived. The peer has instructions left too, because both have equally many
 * transfers with each other. So following the peers from any such rank leads into a cycle.
 *
 * With lowering CHANNELS a rank is in several transfers at once. The one to follow is in a channel
 * that the head of COMPUTE needs: the other side of a transfer is posted in its channel unless it
 * waits for compute. */
#include "run.h"

#include <stdio.h>

/* The COMM stream that rank k is blocked in; NULL: none. */
static const CommRun *stands_at(const RankRun *k) {
  uint64_t step = atomic_load(&k->step);
  uint32_t i = (uint32_t)(atomic_load(&k->compute_done) - step * k->ncompute), n = 0;
  CommNeed one;
  const CommNeed *need = !k->need || i >= k->ncompute ? NULL : pr_needs(k, 0, i, 0, &one, &n);
  for (uint32_t j = 0; j < n; j++) {
    const CommRun *c = &k->stream[need[j].stream];
    if (atomic_load(&c->done) < step * c->n + need[j].count)
      return c;
  }
  for (uint32_t x = 0; x < k->nstream; x++)
    if (k->stream[x].active)
      return &k->stream[x];
  return NULL;
}

/* The head of that stream; of a group, the first transfer that still waits for its other side. */
static const PipeInstr *head(const RankRun *k) {
  const CommRun *c = stands_at(k);
  uint32_t i = c->next;
  for (uint64_t done = atomic_load(&c->group_done); done & 1; done >>= 1)
    i++;
  return pr_comm_instr(c, i);
}

/* The first row that has not arrived at the REDUCE or TIE c. */
static uint32_t late_replica(const PrRun *run, const PipeInstr *c) {
  uint32_t s = c->stage;
  for (;;) {
    const RankRun *k = &run->rank[run->p->stage[s].rank];
    if (!stands_at(k) || head(k)->op != c->op || head(k)->stage != s)
      return s;
    s = pipe_sum_next(run->p->stage, c->op, s);
  }
}

static RankRun *waits_for(PrRun *run, const RankRun *k) {
  const PipeInstr *c = head(k);
  if (pipe_is_sum(c->op))
    return &run->rank[run->p->stage[late_replica(run, c)].rank];
  return &run->rank[c->peer];
}

PrStatus pr_report_stall(PrRun *run) {
  enum { SHOWN = 6 };
  char why[PR_TEXT];
  if (run->fault.kind && !run->o.seed && pr_blame_threads(run, why, sizeof why))
    return pr_fail(run, PR_E_STALL, "stall: %.1000s", why); /* an injected fault, without a cycle */
  RankRun *k = NULL, *first;
  for (uint32_t r = 0; r < run->p->nrank && !k; r++)
    k = stands_at(&run->rank[r]) ? &run->rank[r] : NULL;
  for (uint32_t i = 0; k && i < run->p->nrank; i++) { /* after nrank hops k is in the cycle */
    k = waits_for(run, k);
    k = stands_at(k) && head(k)->op != PIPE_SIDE_COMM ? k : NULL;
  }
  if (!k)
    return pr_fail(run, PR_E_STALL, "stall: no rank can go on, and no rank is in a transfer%s",
                   run->p->ngroup ? ": turns of copies and transfers wait for each other" : "");
  first = k; /* the lowest rank of the cycle comes first */
  for (RankRun *q = waits_for(run, k); q != k; q = waits_for(run, q))
    first = q->id < first->id ? q : first;

  char text[PR_TEXT] = "";
  size_t len = 0;
  uint32_t n = 0;
  k = first;
  do {
    const PipeInstr *c = head(k);
    char where[PR_WHERE], partner[PIPE_OP_TEXT];
    PipeInstr other = *c;
    if (pipe_is_sum(c->op))
      other.stage = late_replica(run, c);
    else
      other.op = (uint8_t)pr_partner(run->p, c, &other.stage);
    pipe_instr_text(partner, pipe_graph(run->p), &other);
    if (n++ < SHOWN && len < sizeof text)
      len += (size_t)snprintf(text + len, sizeof text - len,
                              "%srank %u waits in %s for %s on rank %u", len ? "; " : "", k->id,
                              pr_where(run, c, where), partner, waits_for(run, k)->id);
    k = waits_for(run, k);
  } while (k != first);
  if (n > SHOWN && len < sizeof text)
    len += (size_t)snprintf(text + len, sizeof text - len, "; and %u more ranks", n - SHOWN);
  if (len < sizeof text)
    pr_tell_turn(run, text + len, sizeof text - len);
  return pr_fail(run, PR_E_STALL, "stall: %s", text);
}
