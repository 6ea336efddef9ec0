/* SPDX-License-Identifier: MIT
 * Proves the bytes of each rank, and that they stay within --memory-limit. Requires slots. Adds up
 * what an engine allocates:
 *
 * - for each stage: weights in all versions, the states of their policy, gradients, optimizer
 *   state;
 * - the largest workspace;
 * - every slot of every pool; receive slots in full, since a receive may land whenever its slot is
 *   free.
 *
 * Each buffer is rounded up to 64 bytes. The sum becomes PipeRank.bytes, which pr_check_pools and
 * pr_take_memory (runtime/) compare with sums of their own. Cost: linear in pools. */
#include <string.h>

#include "prove.h"
#include "base.h"
#include "lower.h"
#include "plant.h"
#include "weights.h"

static void sum_rank(Sched *s, uint32_t r) {
#define X(cls, name) [PIPE_##cls] = PEAK_##name,
  static const uint8_t kind[PIPE_NCLASSES] = {PIPE_CLASSES(X)};
#undef X
  uint64_t *b = s->lowered->peak[r].bytes;
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++) {
    const PipeStage *st = &s->model->stage[s->model->rank_stage[i]];
    if (!s->versions->weights) /* versions are in slots */
      b[PEAK_weight] += round64(st->weight_bytes);
    b[PEAK_state] += (uint64_t)__builtin_popcount(st->states) * round64(st->weight_bytes);
    b[PEAK_grad] += round64(st->grad_bytes);
    b[PEAK_opt] += round64(st->opt_bytes);
    if (round64(st->work_bytes) > b[PEAK_work])
      b[PEAK_work] = round64(st->work_bytes);
  }
  for (uint32_t i = 0; i < s->lowered->npool[r]; i++) {
    const PipePool *q = &s->lowered->pool[r][i];
    if (!(PLANTED(MEMORY_IN) && q->cls == PIPE_IN))
      b[kind[q->cls]] += q->count * round64(q->bytes);
  }
  for (int k = 0; k < PEAK_total; k++)
    b[PEAK_total] += b[k];
}

static void part(Sched *s, const char **text, const char *name, uint64_t bytes) {
  if (bytes)
    *text = arena_printf(s->arena, "%s%s%s %s", *text, **text ? " + " : "", name,
                         bytes_text(s, bytes));
}

void bytes_texts(Sched *s, uint64_t a, uint64_t b, const char *text[2]) {
  text[0] = bytes_text(s, a), text[1] = bytes_text(s, b);
  if (a == b || strcmp(text[0], text[1]) != 0)
    return;
  /* One decimal hides the difference. */
  text[0] = arena_printf(s->arena, "%llu bytes", (unsigned long long)a);
  text[1] = arena_printf(s->arena, "%llu", (unsigned long long)b);
}

const char *memory_sum(Sched *s, uint32_t r) {
  const Peak *p = &s->lowered->peak[r];
  const uint64_t *b = p->bytes;
  const char *sum = "";
  uint32_t versions = 0, stages = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  for (uint32_t i = s->model->rank_stage0[r];
       s->versions->nversion && i < s->model->rank_stage0[r + 1]; i++)
    versions += s->versions->nversion[s->model->rank_stage[i]];
  part(s, &sum,
       versions > stages ? arena_printf(s->arena, "%u versions of weights", versions) : "weights",
       b[PEAK_weight]);
  part(s, &sum, "states", b[PEAK_state]);
  part(s, &sum, "estimates", b[PEAK_guess]);
  part(s, &sum, "gradients", b[PEAK_grad]);
  part(s, &sum, "optimizer", b[PEAK_opt]);
  part(s, &sum, "workspace", b[PEAK_work]);
  part(s, &sum, arena_printf(s->arena, "%u in flight:", p->inflight), b[PEAK_act]);
  part(s, &sum, "held for W", b[PEAK_gout]);
  part(s, &sum, "kept for R", b[PEAK_keep]);
  part(s, &sum, "send slots", b[PEAK_out]);
  part(s, &sum, "receive slots", b[PEAK_in]);
  part(s, &sum, "local", b[PEAK_local]);
  part(s, &sum, "guests", b[PEAK_guest]);
  part(s, &sum, "side ops", b[PEAK_buffer]);
  return arena_printf(s->arena, "%s: %s", p->op == NONE ? "its start" : op_text(s, p->op), sum);
}

static void report(Sched *s, Verdict *verdict, uint32_t r, uint32_t more) {
  uint64_t limit = s->opt->memory_limit_bytes;
  const Peak *p = &s->lowered->peak[r];
  const char *text[2];
  bytes_texts(s, p->bytes[PEAK_total], limit, text);
  Span at = p->op == NONE ? s->orders->order_at[r] : s->orders->site[s->orders->op[p->op].site];
  diag_error(s->diag, DIAG_MEMORY, at, "rank %u needs %s of %s at %s", r, text[0], text[1],
             memory_sum(s, r));
  verdict->over = 1 + r;
  if (more > 0)
    diag_note(s->diag, NO_SPAN, "%u more rank%s over the limit; this rank needs the most", more,
              more == 1 ? " is" : "s are");
  uint64_t fixed = p->bytes[PEAK_state] + p->bytes[PEAK_grad] + p->bytes[PEAK_opt] +
                   p->bytes[PEAK_work]; /* and one version of each stage */
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
    fixed += round64(s->model->stage[s->model->rank_stage[i]].weight_bytes);
  if (fixed > limit && limit >= 1024)
    diag_note(s->diag, NO_SPAN, "every order needs %s of this", bytes_text(s, fixed));
  else if (limit < 1024)
    diag_help(s->diag, "the limit is in bytes: a larger one has a unit, such as 40GiB");
}

bool check_memory(Sched *s, Verdict *verdict) {
  uint64_t limit = s->opt->memory_limit_bytes;
  if (limit && !s->model->sized) {
    diag_error(s->diag, DIAG_NO_SIZES, s->parsed->def ? s->parsed->def->name_at : NO_SPAN,
               "a memory limit needs sizes: schedule '%s' has no 'bytes' and no profile",
               s->model->name);
    return false;
  }
  uint32_t over = 0, worst = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    sum_rank(s, r);
    over += limit && s->lowered->peak[r].bytes[PEAK_total] > limit && !PLANTED(MEMORY_LIMIT);
    if (s->lowered->peak[r].bytes[PEAK_total] > s->lowered->peak[worst].bytes[PEAK_total])
      worst = r;
  }
  if (over > 0)
    report(s, verdict, worst, over - 1);
  return over == 0 || draws(s->opt);
}
