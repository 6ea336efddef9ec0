/* SPDX-License-Identifier: MIT
 * Writes the order of a schedule as a CSV file of PyTorch: one row per rank, cells such as 2F0, no
 * idle cells because only the order counts there, lines that end with LF. Requires order. There are
 * two formats:
 *
 *   compute_only   F I B W. The format lacks U, R, OFF, LOAD and side ops: they are left out.
 *   compute_comms  also SEND_x and RECV_x; REDUCE_GRAD of each stage after its last B or W; on
 *                  request UNSHARD, RESHARD and the waits of newer versions of PyTorch. Side ops of
 *                  a stage with these two names keep their place in the order.
 *
 * An action of one F and one B or I becomes OVERLAP_F_B. The formats have no other action, so the
 * ops of other actions follow each other.
 *
 * note [where transfers stand]: the transfers of a rank keep the global order of `order`. A SEND
 * stands right after the action that makes its tensor; a RECV right after the transfer before it,
 * or first of all. So a transfer stands only below its producer and earlier transfers, for which it
 * waits anyway. Hence the lists complete wherever the global order does, with one queue per rank
 * and unbuffered sends, and a RECV is posted as early as its queue allows. */
#include <string.h>

#include "base.h"
#include "emit.h"
#include "lower.h"
#include "names.h"
#include "orders.h"
#include "stages.h"
#include "text.h"

static void op(Text *t, const Op *o) {
  PUT(t, "#%#", o->stage, TEXT(pipe_op_info[o->kind].text), o->mb);
}

static bool backward(const Op *o) { return o->kind == PIPE_B || o->kind == PIPE_I; }
static bool is_left_out(const Op *o) { return o->kind >= PIPE_R; }

/* Does op i begin an action of one F and one B or I? */
static bool is_pair(const Sched *s, uint32_t r, uint32_t i) {
  const Op *a = &s->orders->op[i], *b = a + 1;
  return a->group == 1 && (i == s->orders->rank_op0[r] || a[-1].group == 0) &&
         ((a->kind == PIPE_F && backward(b)) || (backward(a) && b->kind == PIPE_F));
}

/* Writes the cell of op i; returns the number of its ops. */
static uint32_t cell(const Sched *s, Text *t, uint32_t r, uint32_t i) {
  const Op *o = &s->orders->op[i];
  if (!is_pair(s, r, i)) {
    op(t, o);
    return 1;
  }
  bool in_order = o->kind == PIPE_F;
  PUT(t, "(");
  op(t, in_order ? o : o + 1);
  PUT(t, ";");
  op(t, in_order ? o + 1 : o);
  PUT(t, ")OVERLAP_F_B");
  return 2;
}

static void comma(Text *t, bool *first) {
  if (!*first)
    PUT(t, ",");
  *first = false;
}

/* ---- what the formats cannot say ---- */

/* Does the format have the side op? It must belong to a whole stage and have one of these names. */
static bool has_side(const Sched *s, const SideUse *u) {
  const char *name = s->sides->decl[u->decl]->name;
  return u->mb == NONE && (strcmp(name, "UNSHARD") == 0 || strcmp(name, "RESHARD") == 0);
}

static bool other_side(const Sched *s, bool comms) {
  for (uint32_t i = 0; i < s->sides->nuse; i++)
    if (!comms || s->opt->torch_unshard || !has_side(s, &s->sides->use[i]))
      return true;
  return false;
}

/* Warns where PyTorch or TorchTitan would run the file against the meaning of the schedule. */
static void warn_lost(Sched *s, bool comms) {
  Diag *d = s->diag;
  const char *what = NULL;
  for (uint32_t st = 0; st < s->model->nstage && !what; st++)
    what = updates_of(s, st) > 1 ? "updates within a step" : NULL;
  if (!what && has_op(s, PIPE_R))
    what = "recomputation";
  what = what                   ? what
         : other_side(s, comms) ? "side ops like these"
         : s->orders->ncopy     ? "copies to and from host memory"
         : s->model->ntie       ? "tied weights"
                                : NULL;
  if (what)
    diag_warn(d, DIAG_TORCH, NO_SPAN, "%s: PyTorch's format has no %s: the file leaves them out",
              s->model->name, what);
  uint32_t last = s->model->nstage - 1, before = 0;
  bool any = false;
  for (uint32_t i = s->orders->rank_op0[s->model->stage[last].rank];
       i < s->orders->rank_op0[s->model->stage[last].rank + 1]; i++) {
    const Op *o = &s->orders->op[i];
    if (o->kind != PIPE_F || o->stage != last)
      continue;
    if (any && o->mb < before) {
      diag_warn(
          d, DIAG_TORCH, s->orders->site[o->site],
          "the last stage runs %uF%u after %uF%u: PyTorch takes the losses in the order of the forwards, as those of microbatches 0, 1, ...",
          last, o->mb, last, before);
      break;
    }
    any = true, before = o->mb;
  }
  if (comms)
    return;
  uint32_t P = s->model->nrank, S = s->model->nstage;
  bool loop = S % P == 0, vee = S == 2 * P;
  for (uint32_t st = 0; st < S; st++) {
    loop &= s->model->stage[st].rank == st % P;
    vee &= s->model->stage[st].rank == (st < P ? st : S - 1 - st);
  }
  if (loop || vee)
    return;
  diag_warn(
      d, DIAG_TORCH, NO_SPAN,
      "%s: TorchTitan places stage s on rank s %% P, or two stages a rank in a V: it would build other stages than this file runs",
      s->model->name);
}

/* Why no format of PyTorch can say this schedule; NULL: it can. An error for compute_comms, which
 * PyTorch runs as it is. */
static const char *cannot(const Sched *s) {
  if (s->model->slices > 1)
    return "the format has no slices";
  if (s->model->graph || s->model->row_of)
    return "the format has no edges and no places by microbatch";
  if (s->model->nstage > s->model->nmodel)
    return "the format has no replicas";
  if (s->model->forward)
    return "the format has no forward-only schedules";
  return NULL;
}

bool csv_can(Sched *s) {
  bool comms = s->opt->emit == EMIT_COMMS_CSV;
  const char *why = cannot(s);
  if (comms && !why && (s->lowered->lowering == PIPE_CHANNELS || s->orders->lists))
    why = s->orders->lists
              ? "the file has transfers of its own; --lowering=global derives others"
              : "the format needs transfers in one global order, but the lowering is channels";
  if (!why) {
    warn_lost(s, comms);
    return true;
  }
  if (!comms && s->model->slices == 1) { /* the order is still good for reading and comparing */
    diag_warn(s->diag, DIAG_TORCH, NO_SPAN, "%s: PyTorch rejects this file: %s", s->model->name,
              why);
    return true;
  }
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--emit=%s: %s", comms ? "comms-csv" : "csv", why);
  return false;
}

void emit_csv(Sched *s, FILE *f) {
  Text *t = text_open(s->arena, f, ESCAPE_CSV);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    bool first = true;
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1];) {
      if (is_left_out(&s->orders->op[i])) {
        i++;
        continue;
      }
      comma(t, &first);
      i += cell(s, t, r, i);
    }
    PUT(t, "\n");
  }
  text_close(t);
}

/* ---- compute_comms ---- */

typedef struct Row { /* the row of a rank while it is written */
  Sched *s;
  Text *t;
  uint32_t rank;
  bool first;
  const uint32_t *xfer; /* [nxfer] rows of Lowered.xfer for transfers of the rank, ascending */
  uint32_t nxfer, at;   /* at: the next of them */
  /* UNSHARD, by chunk: its ops, their number, and the index of its next op */
  uint32_t **use, *nuse, *used;
  bool *active;
  uint32_t side, nside; /* rows of Sides.turn: next, end */
} Row;

static void action(Row *w, uint32_t stage, const char *kind, uint32_t mb) {
  comma(w->t, &w->first);
  PUT(w->t, "#%", stage, TEXT(kind));
  if (mb != NONE)
    PUT(w->t, "#", mb);
}

/* Writes the transfers that can stand here: RECVs, and SENDs of ops below `done`. */
static void transfers(Row *w, uint32_t done) {
  const Sched *s = w->s;
  for (; w->at < w->nxfer; w->at++) {
    const Xfer *x = &s->lowered->xfer[w->xfer[w->at]];
    const Op *from = &s->orders->op[x->from], *to = &s->orders->op[x->to];
    bool forward = from->kind == PIPE_F;
    if (s->model->stage[to->stage].rank == w->rank)
      action(w, to->stage, forward ? "RECV_F" : "RECV_B", to->mb);
    else if (x->from < done)
      action(w, from->stage, forward ? "SEND_F" : "SEND_B", from->mb);
    else
      return;
  }
}

/* Writes the side ops before op i, and op i if it is one. */
static void sides_at(Row *w, uint32_t i) {
  const Sched *s = w->s;
  for (; w->side < w->nside && s->sides->turn[w->side].at <= i; w->side++) {
    const SideUse *u = &s->sides->use[s->sides->turn[w->side].use];
    if (has_side(s, u) && !s->opt->torch_unshard)
      action(w, u->stage, s->sides->decl[u->decl]->name, NONE);
  }
}

static uint32_t next_use(const Row *w, uint32_t c) {
  return w->used[c] < w->nuse[c] ? w->use[c][w->used[c]] : NONE;
}

/* Writes UNSHARD and RESHARD before op i. Unsharded are the next `most` distinct stages that run
 * from here on, and the other stages of the last one's cell, as PyTorch does it. */
static void unshard(Row *w, uint32_t i, uint32_t most) {
  const Sched *s = w->s;
  uint32_t first = s->model->rank_stage0[w->rank], n = s->model->rank_stage0[w->rank + 1] - first,
           nnext = 0;
  uint32_t *next = NEW_ARRAY(s->arena, uint32_t, n);
  bool *keep = NEW_ARRAY(s->arena, bool, n);
  for (uint32_t c = 0; c < n; c++)
    while (next_use(w, c) < i)
      w->used[c]++;
  while (nnext < n) { /* the chunk with the earliest next op */
    uint32_t best = NONE;
    for (uint32_t c = 0; c < n; c++)
      if (!keep[c] && next_use(w, c) != NONE &&
          (best == NONE || next_use(w, c) < next_use(w, best)))
        best = c;
    if (best == NONE)
      break;
    uint32_t op = next_use(w, best);
    bool joined = nnext > 0 && op > s->orders->rank_op0[w->rank] && is_pair(s, w->rank, op - 1) &&
                  next_use(w, next[nnext - 1]) == op - 1;
    if (nnext >= most && !joined)
      break;
    keep[best] = true;
    next[nnext++] = best;
  }
  for (uint32_t c = 0; c < n; c++)
    if (w->active[c] && !keep[c]) {
      w->active[c] = false;
      action(w, s->model->rank_stage[first + c], "RESHARD", NONE);
    }
  for (uint32_t k = 0; k < nnext; k++)
    if (!w->active[next[k]]) {
      w->active[next[k]] = true;
      action(w, s->model->rank_stage[first + next[k]], "UNSHARD", NONE);
    }
}

static void after_op(Row *w, const Op *o, uint32_t *left) {
  const Sched *s = w->s;
  bool waits = s->opt->torch_waits;
  const PipeStage *st = &s->model->stage[o->stage];
  if (waits && backward(o) && st->next != NONE && s->model->stage[st->next].rank != w->rank)
    action(w, o->stage, "WAIT_SEND_F", o->mb);
  if ((o->kind != PIPE_B && o->kind != PIPE_W) || --left[st->chunk] > 0)
    return;
  action(w, o->stage, "REDUCE_GRAD", NONE);
  if (waits)
    action(w, o->stage, "WAIT_REDUCE_GRAD", NONE);
}

static void write_row(Row *w, uint32_t r) {
  Sched *s = w->s;
  uint32_t first = s->model->rank_stage0[r], n = s->model->rank_stage0[r + 1] - first;
  uint32_t *left = NEW_ARRAY(s->arena, uint32_t, n);
  const Op *o0 = s->orders->op, *stop = &s->orders->op[s->orders->rank_op0[r + 1]];
  for (uint32_t c = 0; c < n; c++)
    left[c] = s->model->nmb;
  w->rank = r, w->first = true, w->at = 0;
  w->side = s->sides->nuse ? s->sides->use0[r] : 0,
  w->nside = s->sides->nuse ? s->sides->use0[r + 1] : 0;
  w->use = NEW_ARRAY(s->arena, uint32_t *, n);
  w->nuse = NEW_ARRAY(s->arena, uint32_t, n);
  w->used = NEW_ARRAY(s->arena, uint32_t, n);
  w->active = NEW_ARRAY(s->arena, bool, n);
  for (uint32_t c = 0; c < n && s->opt->torch_unshard; c++)
    w->use[c] = NEW_ARRAY(s->arena, uint32_t, 3 * (size_t)s->model->nmb); /* F, and B or I and W */
  for (const Op *o = &s->orders->op[s->orders->rank_op0[r]]; o < stop && s->opt->torch_unshard; o++)
    if (!is_left_out(o)) {
      uint32_t c = s->model->stage[o->stage].chunk;
      w->use[c][w->nuse[c]++] = (uint32_t)(o - o0);
    }
  transfers(w, s->orders->rank_op0[r]);
  for (uint32_t i = s->orders->rank_op0[r], k; i < s->orders->rank_op0[r + 1]; i += k) {
    k = 1;
    sides_at(w, i);
    if (is_left_out(&s->orders->op[i]))
      continue;
    if (s->opt->torch_unshard)
      unshard(w, i, s->opt->torch_unshard);
    comma(w->t, &w->first);
    k = cell(s, w->t, r, i);
    transfers(w, i + k);
    for (uint32_t j = i; j < i + k; j++)
      after_op(w, &s->orders->op[j], left);
  }
  sides_at(w, s->orders->rank_op0[r + 1]);
  BUG_IF(w->at < w->nxfer);
  /* waits for sent gradients, in their order */
  for (uint32_t k = 0; k < w->nxfer && s->opt->torch_waits; k++) {
    const Op *from = &s->orders->op[s->lowered->xfer[w->xfer[k]].from];
    if (from->kind != PIPE_F && s->model->stage[from->stage].rank == r)
      action(w, from->stage, "WAIT_SEND_B", from->mb);
  }
  for (uint32_t c = 0; c < n; c++)
    if (w->active[c])
      action(w, s->model->rank_stage[first + c], "RESHARD", NONE);
  PUT(w->t, "\n");
}

void emit_comms_csv(Sched *s, FILE *f) {
  Text *t = text_open(s->arena, f, ESCAPE_CSV);
  const uint32_t n = 2 * s->ideal->nxfer; /* most ends of transfers */
  uint32_t *rank = arena_alloc(s->arena, n * sizeof *rank), *first;
  for (uint32_t i = 0; i < n; i++) {
    const Xfer *x = &s->lowered->xfer[i / 2];
    rank[i] = xfer_moves(x) ? op_rank(s, i % 2 ? x->to : x->from) : NONE;
  }
  uint32_t *of = group_by(s->arena, rank, n, s->model->nrank, &first);
  for (uint32_t i = 0; i < first[s->model->nrank]; i++)
    of[i] /= 2;
  Row w = {.s = s, .t = t};
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    w.xfer = of + first[r], w.nxfer = first[r + 1] - first[r];
    write_row(&w, r);
  }
  text_close(t);
}
