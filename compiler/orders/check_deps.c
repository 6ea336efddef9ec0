/* SPDX-License-Identifier: MIT
 * Proves that each rank has the ops that it must have, in an order that the data allows on the
 * rank, and finds the updates of each stage. Requires expand, which has refused a second op of a
 * kind and a U that repeats the last. For every stage and microbatch:
 *
 *   - there is one F, then one B, or one I and one W;
 *   - R, if there is one, is between F and the first backward;
 *   - slices go forward in order and backward in reverse; all R of a microbatch stand between;
 *   - U comes after the last backward of its stage; U(m) applies the gradient of m;
 *   - replicas update equally often, and so do stages that share weights;
 *   - the ops of an action do not need one another.
 *
 * Cost: linear. */
#include "base.h"
#include "deps.h"
#include "graph.h"
#include "hints.h"
#include "orders.h"
#include "plant.h"

/* Checks that the stage has all ops of a kind. Reports one error per stage and kind: the first unit
 * without this op, and the number of further ones. */
static bool complete(Sched *s, uint32_t stage, const char *kind, const uint32_t *at,
                     bool only_split) {
  uint32_t missing = 0, first = 0;
  const uint32_t *b = &s->orders->at_b[(size_t)stage * s->model->nmb];
  for (uint32_t mb = s->model->stage[stage].mb0;
       mb < s->model->stage[stage].mb0 + s->model->stage[stage].nmb; mb++) {
    bool wanted = runs_mb(s, stage, mb) &&
                  (!only_split || (b[mb] && s->orders->op[b[mb] - 1].kind == PIPE_I));
    if (wanted && !at[mb] && missing++ == 0)
      first = mb;
  }
  if (missing == 0 || PLANTED(DEPS_COMPLETE))
    return true;
  uint32_t r = s->model->stage[stage].rank;
  PipeOp op = *kind == 'F' ? PIPE_F : *kind == 'B' ? PIPE_B : *kind == 'I' ? PIPE_I : PIPE_W;
  char text[PIPE_OP_TEXT];
  pipe_unit_text(text, op, stage, first, s->model->slices);
  diag_error(s->diag, DIAG_MISSING_OP, s->orders->order_at[r], "rank %u never runs %s%s", r, text,
             missing > 1
                 ? arena_printf(s->arena, ", nor %u other %s of stage %u", missing - 1, kind, stage)
                 : "");
  hint_missing(s, stage, kind, at, missing, first);
  return false;
}

static bool in_order(Sched *s, uint32_t earlier, uint32_t later, const char *why) {
  if (earlier < later || PLANTED(DEPS_ORDER))
    return true;
  diag_error(s->diag, DIAG_OP_ORDER, s->orders->site[s->orders->op[later].site],
             "rank %u runs %s before %s%s", op_rank(s, later), op_text(s, later),
             op_text(s, earlier), why);
  diag_note(s->diag, s->orders->site[s->orders->op[earlier].site], "%s comes from here",
            op_text(s, earlier));
  hint_order(s, earlier, later);
  return false;
}

/* Checks the order of the slices of a microbatch. A forward comes after the earlier slices, whose
 * stashes it reads; a backward after the later slices, which add to its gradient. at: rows of F, or
 * of B and I. */
static bool check_slices(Sched *s, uint32_t stage, const uint32_t *at, bool forward) {
  const PipeStage *st = &s->model->stage[stage];
  for (uint32_t u = st->mb0; u + 1 < st->mb0 + st->nmb; u++) {
    if ((u + 1) % s->model->slices == 0 || !runs_mb(s, stage, u) ||
        (at[u] < at[u + 1]) == forward || PLANTED(DEPS_SLICES))
      continue;
    uint32_t early = (forward ? at[u + 1] : at[u]) - 1, late = (forward ? at[u] : at[u + 1]) - 1;
    diag_error(s->diag, DIAG_SLICE_ORDER, s->orders->site[s->orders->op[early].site],
               "rank %u runs %s before %s: %s", st->rank, op_text(s, early), op_text(s, late),
               forward ? "slices go forward in ascending order"
                       : "slices go backward in descending order");
    diag_note(s->diag, s->orders->site[s->orders->op[late].site], "%s comes from here",
              op_text(s, late));
    return false;
  }
  return true;
}

/* Checks that R is after its F and before the first backward. */
static bool check_recompute(Sched *s, uint32_t f, uint32_t r, uint32_t b) {
  if ((f < r && r < b) || PLANTED(DEPS_RECOMPUTE))
    return true;
  uint32_t other = r < f ? f : b;
  diag_error(s->diag, DIAG_RECOMPUTE, s->orders->site[s->orders->op[r].site],
             r < f ? "rank %u runs %s before %s, whose stash it recomputes"
                   : "rank %u runs %s after %s, which reads the recomputed stash",
             op_rank(s, r), op_text(s, r), op_text(s, other));
  diag_note(s->diag, s->orders->site[s->orders->op[other].site], "%s comes from here",
            op_text(s, other));
  diag_help(s->diag, "run R between F of the microbatch and %s", op_text(s, b));
  return false;
}

/* Checks the R of slices: in order; after the last F of the microbatch, which reads the stashes
 * before R makes them again; before the first backward, which reads all of them. f, again, b: at_f,
 * at_r, at_b of the stage. */
static bool check_slices_again(Sched *s, uint32_t stage, const uint32_t *f, const uint32_t *again,
                               const uint32_t *b) {
  const PipeStage *st = &s->model->stage[stage];
  uint32_t before = NONE; /* the last recomputed unit of the microbatch */
  for (uint32_t u = st->mb0; s->model->slices > 1 && u < st->mb0 + st->nmb; u++) {
    uint32_t slice = u % s->model->slices, last = u - slice + s->model->slices - 1;
    before = slice == 0 ? NONE : before;
    if (!again[u])
      continue;
    uint32_t r = again[u] - 1, other = r;
    const char *why = "whose stash it reads";
    if (r < f[last] - 1)
      other = f[last] - 1, why = "which still reads the first stash";
    else if (before != NONE && r < again[before] - 1)
      other = again[before] - 1;
    else if (r > b[last] - 1)
      other = b[last] - 1, why = "which reads the stashes of all slices";
    if (other != r && !PLANTED(DEPS_RECOMPUTE)) {
      diag_error(s->diag, DIAG_SLICE_ORDER, s->orders->site[s->orders->op[r].site],
                 "rank %u runs %s %s %s, %s", st->rank, op_text(s, r),
                 other == b[last] - 1 ? "after" : "before", op_text(s, other), why);
      diag_note(s->diag, s->orders->site[s->orders->op[other].site], "%s comes from here",
                op_text(s, other));
      diag_help(
          s->diag,
          "run the R of all slices in ascending order, after %s, the last F, and before the first %s, %s",
          op_text(s, f[last] - 1), s->orders->op[b[last] - 1].kind == PIPE_B ? "B" : "I",
          op_text(s, b[last] - 1));
      return false;
    }
    before = u;
  }
  return true;
}

static bool check_stage(Sched *s, uint32_t stage) {
  size_t row = (size_t)stage * s->model->nmb;
  const uint32_t *f = &s->orders->at_f[row], *b = &s->orders->at_b[row], *w = &s->orders->at_w[row],
                 *again = &s->orders->at_r[row];
  bool ok = complete(s, stage, "F", f, false);
  if (s->model->forward)
    return ok && check_slices(s, stage, f, true);
  /* with some W but no I, report a missing I; else a missing B */
  bool split = false;
  uint32_t mb0 = s->model->stage[stage].mb0, mb1 = mb0 + s->model->stage[stage].nmb;
  for (uint32_t mb = mb0; mb < mb1 && !split; mb++)
    split = w[mb] && !b[mb];
  ok &= complete(s, stage, split ? "I" : "B", b, false);
  ok &= complete(s, stage, "W", w, true);
  if (s->orders->round0[stage] == s->orders->round0[stage + 1]) {
    uint32_t r = s->model->stage[stage].rank;
    diag_error(s->diag, DIAG_UPDATE, s->orders->order_at[r],
               "rank %u never updates stage %u: an order ends with U", r, stage);
    ok = false;
  }
  if (!ok)
    return false;
  uint32_t u = s->orders->round[s->orders->round0[stage + 1] - 1].u, none = NONE;
  for (uint32_t k = s->orders->round0[stage]; k < s->orders->round0[stage + 1] && none == NONE; k++)
    if (s->orders->op[s->orders->round[k].u].mb == NONE && /* for U(m), see check_label */
        (s->orders->round[k].grad == NONE ||
         (k > s->orders->round0[stage] &&
          s->orders->round[k].grad == s->orders->round[k - 1].grad)))
      none = k;
  for (uint32_t mb = mb0; mb < mb1 && ok; mb++) {
    if (!runs_mb(s, stage, mb))
      continue;
    uint32_t last = w[mb] ? w[mb] : b[mb];
    ok = in_order(s, f[mb] - 1, b[mb] - 1, ", whose stash it reads") &&
         (!w[mb] || in_order(s, b[mb] - 1, w[mb] - 1, ", whose gradient it reads")) &&
         (!again[mb] || check_recompute(s, f[mb] - 1, again[mb] - 1, b[mb] - 1));
    /* check_overlap proves it for the ops of the action of u */
    if (ok && last - 1 > u + s->orders->op[u].group && !PLANTED(DEPS_UPDATE)) {
      diag_error(s->diag, DIAG_UPDATE, s->orders->site[s->orders->op[u].site],
                 "rank %u updates stage %u before %s, whose gradient would be lost",
                 s->model->stage[stage].rank, stage, op_text(s, last - 1));
      diag_note(s->diag, s->orders->site[s->orders->op[last - 1].site], "%s comes from here",
                op_text(s, last - 1));
      ok = false;
    }
  }
  if (ok && none != NONE) {
    diag_error(s->diag, DIAG_UPDATE, s->orders->site[s->orders->op[s->orders->round[none].u].site],
               "rank %u updates stage %u without a gradient to apply", s->model->stage[stage].rank,
               stage);
    diag_help(s->diag, "U applies the gradients of the B and W before it");
  }
  return ok && none == NONE && check_slices(s, stage, f, true) &&
         check_slices(s, stage, b, false) && check_slices_again(s, stage, f, again, b);
}

/* Finds the updates of each stage. Their gradients are complete once check_stage has found all
 * ops. */
static void find_rounds(Sched *s, Orders *orders) {
  uint32_t *next = NEW_ARRAY(s->arena, uint32_t, s->model->nstage),
           *grad = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  orders->round0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nstage + 1);
  for (uint32_t i = 0; i < s->orders->nop; i++)
    s->orders->round0[s->orders->op[i].stage + 1] += s->orders->op[i].kind == PIPE_U;
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    s->orders->round0[st + 1] += s->orders->round0[st];
    next[st] = s->orders->round0[st];
    grad[st] = NONE;
  }
  orders->round = NEW_ARRAY(s->arena, Round, s->orders->round0[s->model->nstage]);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    uint32_t st = s->orders->op[i].stage;
    if (adds_gradient(s->orders->op[i].kind))
      grad[st] = i;
    else if (s->orders->op[i].kind == PIPE_U)
      s->orders->round[next[st]++] = (Round){grad[st], i};
  }
}

static bool check_replicas(Sched *s) {
  for (uint32_t m = 0; m < s->model->nmodel; m++)
    for (uint32_t q = s->model->stage[m].replica; q != m; q = s->model->stage[q].replica) {
      uint32_t n = updates_of(s, m), k = updates_of(s, q);
      if (n == k)
        continue;
      uint32_t u =
          s->orders->round[(k > n ? s->orders->round0[q + 1] : s->orders->round0[m + 1]) - 1].u;
      diag_error(
          s->diag, DIAG_UPDATE, s->orders->site[s->orders->op[u].site],
          "replicas update together, but stage %u has %u update%s on rank %u and stage %u has %u "
          "on rank %u",
          m, n, n == 1 ? "" : "s", s->model->stage[m].rank, q, k, s->model->stage[q].rank);
      return false;
    }
  return true;
}

static bool check_tied(Sched *s) {
  for (uint32_t k = 0; k < s->model->ntie; k++)
    for (uint32_t j = s->model->tie_row0[k] + 1; j < s->model->tie_row0[k + 1]; j++) {
      uint32_t a = s->model->tie_row[s->model->tie_row0[k]], b = s->model->tie_row[j],
               na = updates_of(s, a), nb = updates_of(s, b);
      if (na == nb)
        continue;
      diag_error(
          s->diag, DIAG_UPDATE,
          s->orders
              ->site[s->orders->op[s->orders->round[s->orders->round0[(nb > na ? b : a) + 1] - 1].u]
                         .site],
          "stages that share weights update together, but stage %u has %u update%s and stage %u has %u",
          a, na, na == 1 ? "" : "s", b, nb);
      return false;
    }
  return true;
}

/* Checks that U(m) applies the gradient of m, or of a slice of m. version: [cell] number of updates
 * before the gradient; k: before u. */
static bool check_label(Sched *s, uint32_t u, uint32_t slice, uint32_t k, const uint32_t *version) {
  const Op *o = &s->orders->op[u];
  size_t cell = (size_t)o->stage * s->model->nmb + o->mb + slice;
  uint32_t grad = (s->orders->at_w[cell] ? s->orders->at_w[cell] : s->orders->at_b[cell]) - 1;
  if (grad < u && version[cell] == k)
    return true;
  diag_error(s->diag, DIAG_UPDATE, s->orders->site[o->site], "rank %u runs %s %s %s", op_rank(s, u),
             op_text(s, u),
             grad > u ? "before" : "after another update has applied the gradient of",
             op_text(s, grad));
  uint32_t at = grad > u ? grad : s->orders->round[s->orders->round0[o->stage] + version[cell]].u;
  diag_note(s->diag, s->orders->site[s->orders->op[at].site],
            grad > u ? "%s comes from here" : "%s applies the gradient here", op_text(s, at));
  return false;
}

static bool check_labels(Sched *s) {
  bool ok = true, labelled = false;
  for (uint32_t k = 0; k < s->orders->round0[s->model->nstage] && !labelled; k++)
    labelled = s->orders->op[s->orders->round[k].u].mb != NONE;
  if (!labelled)
    return true;
  uint32_t *version = arena_alloc(s->arena,
                                  (size_t)s->model->nstage * s->model->nmb * sizeof *version + 1);
  uint32_t *updates = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    uint32_t *k = &updates[o->stage];
    if (o->kind == PIPE_U) {
      bool right = true;
      for (uint32_t q = 0; o->mb != NONE && q < s->model->slices && right; q++)
        right = check_label(s, i, q, *k, version);
      ok &= right;
      ++*k;
    } else if (adds_gradient(o->kind)) {
      version[(size_t)o->stage * s->model->nmb + o->mb] = *k;
    }
  }
  return ok;
}

bool beside_update(Sched *s, uint32_t a, uint32_t b) {
  uint32_t u = s->orders->op[b].kind == PIPE_U ? b : a, other = u == b ? a : b;
  uint8_t kind = s->orders->op[other].kind;
  if (s->orders->op[u].kind != PIPE_U || s->orders->op[a].stage != s->orders->op[b].stage)
    return true;
  diag_error(s->diag, DIAG_OVERLAP, s->orders->site[s->orders->op[u].site],
             "rank %u: %s stands in one action with %s, %s", op_rank(s, u), op_text(s, u),
             op_text(s, other),
             kind == PIPE_B || kind == PIPE_W ? "whose gradient the update applies"
             : kind == PIPE_U                 ? "an update of the same stage"
                                              : "whose weights the update changes");
  if (s->orders->op[a].site != s->orders->op[b].site)
    diag_note(s->diag, s->orders->site[s->orders->op[other].site], "%s comes from here",
              op_text(s, other));
  diag_help(
      s->diag,
      "write the two ops one after the other: an update may only overlap ops of other stages");
  return false;
}

static bool report_needs(Sched *s, uint32_t a, uint32_t b) {
  diag_error(s->diag, DIAG_OVERLAP, s->orders->site[s->orders->op[b].site],
             "rank %u: %s stands in one action with %s, which must end first", op_rank(s, b),
             op_text(s, b), op_text(s, a));
  if (s->orders->op[a].site != s->orders->op[b].site)
    diag_note(s->diag, s->orders->site[s->orders->op[a].site], "%s comes from here", op_text(s, a));
  diag_help(s->diag, "write the two ops one after the other: ops of an overlap start together");
  return false;
}

/* Proves that no op of an action needs another op of this action. */
static bool check_overlap(Sched *s) {
  bool ok = true;
  for (uint32_t first = 0, n; first < s->orders->nop && s->diag->errors <= s->diag->limit;
       first += n) {
    n = 1u + s->orders->op[first].group;
    bool good = true;
    for (uint32_t b = first; n > 1 && b < first + n && good; b++)
      for (uint32_t a = first; a < first + n && good; a++)
        good = (a >= b || beside_update(s, a, b)) &&
               (!order_needs(s, a, b) || report_needs(s, a, b));
    ok &= good;
  }
  return ok;
}

bool check_deps(Sched *s, Orders *orders) {
  bool ok = true;
  find_rounds(s, orders);
  for (uint32_t stage = 0; stage < s->model->nstage; stage++) {
    ok &= check_stage(s, stage);
    if (s->diag->errors > s->diag->limit)
      return false;
  }
  return check_overlap(s) && ok && check_replicas(s) && check_tied(s) && check_labels(s);
}
