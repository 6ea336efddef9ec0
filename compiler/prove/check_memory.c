/* SPDX-License-Identifier: MIT
 * Proof: each rank's bytes, and that they stay within --memory-limit. Requires slots. What is summed
 * is what an engine allocates: weights, in all versions, states of their policy, gradients and optimizer state of its stages, the largest
 * workspace, and every slot of every pool (receive slots in full: a receive may land any time its
 * slot is free). Every buffer is rounded up to 64 bytes. Linear in pools. */
#include <string.h>

#include "pipec.h"
#include "plant.h"

static void sum_rank(Sched *s, uint32_t r) {
  Peak *p = &s->peak[r];
  for (uint32_t i = s->rank_stage0[r]; i < s->rank_stage0[r + 1]; i++) {
    const PipeStage *st = &s->stage[s->rank_stage[i]];
    if (!s->weights) /* else they are in slots */
      p->weight += round64(st->weight_bytes);
    p->state += (uint64_t)__builtin_popcount(st->states) * round64(st->weight_bytes);
    p->grad += round64(st->grad_bytes);
    p->opt += round64(st->opt_bytes);
    if (round64(st->work_bytes) > p->work)
      p->work = round64(st->work_bytes);
  }
  for (uint32_t i = 0; i < s->npool[r]; i++) {
    const PipePool *q = &s->pool[r][i];
    uint64_t *sum[PIPE_NCLASSES] = {&p->act,    &p->gout,   &p->out,        &p->in,
                                    &p->local,  &p->keep,   &p->host_bytes, &p->guest,
                                    &p->buffer, &p->weight, &p->guess};
    *sum[q->cls] += q->count * round64(q->bytes);
  }
  p->in = PLANTED(MEMORY_IN) ? 0 : p->in;
  p->total = p->weight + p->grad + p->opt + p->work + p->act + p->gout + p->out + p->in + p->local +
             p->keep + p->guest + p->buffer + p->guess + p->state;
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
  text[0] = arena_printf(s->arena, "%llu bytes", (unsigned long long)a); /* one decimal hides it */
  text[1] = arena_printf(s->arena, "%llu", (unsigned long long)b);
}

const char *memory_sum(Sched *s, uint32_t r) {
  const Peak *p = &s->peak[r];
  const char *sum = "";
  uint32_t versions = 0, stages = s->rank_stage0[r + 1] - s->rank_stage0[r];
  for (uint32_t i = s->rank_stage0[r]; s->nversion && i < s->rank_stage0[r + 1]; i++)
    versions += s->nversion[s->rank_stage[i]];
  part(s, &sum,
       versions > stages ? arena_printf(s->arena, "%u versions of weights", versions) : "weights",
       p->weight);
  part(s, &sum, "states", p->state);
  part(s, &sum, "estimates", p->guess);
  part(s, &sum, "gradients", p->grad);
  part(s, &sum, "optimizer", p->opt);
  part(s, &sum, "workspace", p->work);
  if (p->act)
    sum = arena_printf(s->arena, "%s%s%u in flight: %s", sum, *sum ? " + " : "", p->inflight,
                       bytes_text(s, p->act));
  part(s, &sum, "held for W", p->gout);
  part(s, &sum, "kept for R", p->keep);
  part(s, &sum, "send slots", p->out);
  part(s, &sum, "receive slots", p->in);
  part(s, &sum, "local", p->local);
  part(s, &sum, "guests", p->guest);
  part(s, &sum, "side ops", p->buffer);
  return arena_printf(s->arena, "%s: %s", p->op == NONE ? "its start" : op_text(s, p->op), sum);
}

static void report(Sched *s, uint32_t r, uint32_t more) {
  uint64_t limit = s->opt->memory_limit_bytes;
  const Peak *p = &s->peak[r];
  const char *text[2];
  bytes_texts(s, p->total, limit, text);
  Span at = p->op == NONE ? s->order_at[r] : s->site[s->op[p->op].site];
  diag_error(s->diag, DIAG_MEMORY, at, "rank %u needs %s of %s at %s", r, text[0], text[1],
             memory_sum(s, r));
  s->over = 1 + r;
  if (more > 0)
    diag_note(s->diag, NO_SPAN, "%u more rank%s over the limit; this one needs the most", more,
              more == 1 ? " is" : "s are");
  uint64_t fixed = p->state + p->grad + p->opt + p->work; /* and one version of each stage */
  for (uint32_t i = s->rank_stage0[r]; i < s->rank_stage0[r + 1]; i++)
    fixed += round64(s->stage[s->rank_stage[i]].weight_bytes);
  if (fixed > limit && limit >= 1024)
    diag_note(s->diag, NO_SPAN, "no order changes %s of it", bytes_text(s, fixed));
  else if (limit < 1024)
    diag_help(s->diag, "the limit is in bytes: a larger one has a unit, such as 40GiB");
}

bool check_memory(Sched *s, uint32_t last) {
  uint64_t limit = s->opt->memory_limit_bytes;
  if (last == 0 && limit && !s->sized) {
    diag_error(s->diag, DIAG_NO_SIZES, s->def ? s->def->name_at : NO_SPAN,
               "a memory limit needs sizes: schedule '%s' has no 'bytes' and no profile", s->name);
    return false;
  }
  sum_rank(s, last);
  if (last + 1 < s->nrank)
    return true;
  uint32_t over = 0, worst = 0;
  for (uint32_t r = 0; r < s->nrank; r++) {
    over += limit && s->peak[r].total > limit && !PLANTED(MEMORY_LIMIT);
    if (s->peak[r].total > s->peak[worst].total)
      worst = r;
  }
  if (over > 0)
    report(s, worst, over - 1);
  return over == 0 || draws(s->opt);
}
