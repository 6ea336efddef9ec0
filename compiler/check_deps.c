/* SPDX-License-Identifier: MIT
 * Proof: every stage and microbatch has exactly one F and one B, or one I and one W (expand has
 * already refused a second one), in this order on its rank; every stage has one U, after its last
 * backward. Requires expand. Linear. */
#include "graph.h"

/* One message per stage and kind: the first microbatch that lacks it, and how many do. */
static bool complete(Sched *s, uint32_t stage, const char *kind, const uint32_t *at,
                     bool only_split) {
  uint32_t missing = 0, first = 0;
  const uint32_t *b = &s->at_b[(size_t)stage * s->nmb];
  for (uint32_t mb = s->stage[stage].mb0; mb < s->stage[stage].mb0 + s->stage[stage].nmb; mb++) {
    bool wanted = runs_mb(s, stage, mb) && (!only_split || (b[mb] && s->op[b[mb] - 1].kind == PIPE_I));
    if (wanted && !at[mb] && missing++ == 0)
      first = mb;
  }
  if (missing == 0)
    return true;
  uint32_t r = s->stage[stage].rank;
  diag_error(s->diag, DIAG_MISSING_OP, s->order_at[r], "rank %u never runs %u%s%u%s", r, stage,
             kind, first,
             missing > 1
                 ? arena_printf(s->arena, ", nor %u other %s of stage %u", missing - 1, kind, stage)
                 : "");
  return false;
}

static bool in_order(Sched *s, uint32_t earlier, uint32_t later, const char *why) {
  if (earlier < later)
    return true;
  diag_error(s->diag, DIAG_OP_ORDER, s->site[s->op[later].site], "rank %u runs %s before %s%s",
             op_rank(s, later), op_text(s, later), op_text(s, earlier), why);
  diag_note(s->diag, s->site[s->op[earlier].site], "%s comes from here", op_text(s, earlier));
  return false;
}

static bool check_stage(Sched *s, uint32_t stage) {
  size_t row = (size_t)stage * s->nmb;
  const uint32_t *f = &s->at_f[row], *b = &s->at_b[row], *w = &s->at_w[row];
  bool ok = complete(s, stage, "F", f, false);
  /* Without any backward at all, say B; with some W but no I, say I. */
  bool split = false;
  uint32_t mb0 = s->stage[stage].mb0, mb1 = mb0 + s->stage[stage].nmb;
  for (uint32_t mb = mb0; mb < mb1 && !split; mb++)
    split = w[mb] && !b[mb];
  ok &= complete(s, stage, split ? "I" : "B", b, false);
  ok &= complete(s, stage, "W", w, true);
  if (!s->at_u[stage]) {
    uint32_t r = s->stage[stage].rank;
    diag_error(s->diag, DIAG_UPDATE, s->order_at[r],
               "rank %u never updates stage %u: an order ends with U", r, stage);
    ok = false;
  }
  if (!ok)
    return false;
  uint32_t u = s->at_u[stage];
  for (uint32_t mb = mb0; mb < mb1 && ok; mb++) {
    if (!runs_mb(s, stage, mb))
      continue;
    uint32_t last = w[mb] ? w[mb] : b[mb];
    if (last - 1 > s->last_grad[stage])
      s->last_grad[stage] = last - 1;
    ok = in_order(s, f[mb] - 1, b[mb] - 1, ", which it belongs to") &&
         (!w[mb] || in_order(s, b[mb] - 1, w[mb] - 1, ", which it completes"));
    if (ok && last > u) {
      diag_error(s->diag, DIAG_UPDATE, s->site[s->op[u - 1].site],
                 "rank %u updates stage %u before %s, whose gradient would be lost",
                 s->stage[stage].rank, stage, op_text(s, last - 1));
      diag_note(s->diag, s->site[s->op[last - 1].site], "%s comes from here", op_text(s, last - 1));
      ok = false;
    }
  }
  return ok;
}

bool check_deps(Sched *s) {
  bool ok = true;
  s->last_grad = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  for (uint32_t stage = 0; stage < s->nstage; stage++) {
    ok &= check_stage(s, stage);
    if (s->diag->errors > s->diag->limit)
      return false;
  }
  return ok;
}
