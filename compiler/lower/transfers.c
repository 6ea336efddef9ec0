/* SPDX-License-Identifier: MIT
 * Puts each transfer at its op: the lowering `grouped` (lang/spec.md 8.4). The alternative is the
 * one global order of order.c. Requires offload. Ensures lists: the ops and transfers of each rank
 * in one order. A RECV stands right before the op that reads the tensor, a SEND right after the op
 * that makes it. Transfers with no computation between them form a group, and the next op waits for
 * the group. Sums stand before the updates that need them, in the order of the model.
 *
 * find_places proves, for these lists and the lists of a compute_comms file: every tensor that
 * crosses ranks has one SEND, after the op that makes it, and one RECV, before the op that reads
 * it. check_channels.c then proves that the lists complete. Cost: linear in instructions. */
#include "names.h"
#include "plant.h"
#include "transfers.h"

/* ---- tensors ---- */

uint64_t link_tensor(const Sched *s, const Op *o, uint32_t link) {
  Link l = link_at(s, link);
  uint64_t of = s->model->graph ? l.edge : o->kind == PIPE_F ? l.from : l.to;
  return 2 * (of * s->model->nmb + o->mb) + (o->kind != PIPE_F);
}

const char *list_op_text(Sched *s, const PipeInstr *in) {
  char text[PIPE_OP_TEXT];
  if (is_wait_send(s, in))
    return arena_printf(s->arena, "%uWAIT_%s%u", in->stage, pipe_op_info[in->op].text, in->mb);
  pipe_instr_text(text, sched_graph(s), in);
  return arena_printf(s->arena, "%s", text);
}

/* ---- makes the lists ---- */

typedef VEC(PipeInstr) Instrs;

static PipeInstr *add(Sched *s, Instrs *to, PipeOp op, uint32_t stage, uint32_t mb, uint32_t site) {
  PipeInstr *in = vec_push(s->arena, to);
  *in = pipe_instr(op, stage, mb);
  in->site = site;
  return in;
}

/* Appends the transfers of the tensors that op o reads (input) or makes. */
static void add_moves(Sched *s, Instrs *to, const Op *o, bool input) {
  bool forward = o->kind == PIPE_F;
  uint32_t n = input ? op_inputs(s, o) : op_outputs(s, o);
  for (uint32_t k = 0; k < n; k++) {
    Link l = link_at(s, input ? input_link(s, o, k) : output_link(s, o, k));
    if (!link_crosses(s, l))
      continue;
    PipeOp op = input ? forward ? PIPE_RECV_F : PIPE_RECV_B : forward ? PIPE_SEND_F : PIPE_SEND_B;
    PipeInstr *in = add(s, to, op, o->stage, o->mb, o->site);
    in->peer = s->model->stage[input == forward ? l.from : l.to].rank;
    in->edge = s->model->graph ? l.edge : NONE;
  }
}

static void add_op(Sched *s, Instrs *to, const Op *o) {
  PipeInstr *in = add(s, to, (PipeOp)o->kind, o->stage, o->mb, o->site);
  if (pipe_is_side(o->kind))
    in->side = (o->site - s->sides->site0) * s->model->nstage + o->stage;
  in->phase = o->phase, in->group = o->group;
}

typedef struct CommSide {
  const SideUse *use;
  uint32_t seq;
} CommSide;

static int by_place(const void *a, const void *b) {
  const CommSide *x = a, *y = b;
  if (x->use->at != y->use->at)
    return x->use->at < y->use->at ? -1 : 1;
  if (x->use->plan != y->use->plan)
    return x->use->plan < y->use->plan ? -1 : 1;
  return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The side ops of the COMM stream of rank r, sorted by place. */
static uint32_t find_comm_sides(Sched *s, uint32_t r, CommSide **side) {
  uint32_t n = 0, end = s->sides->nuse ? s->sides->use0[r + 1] : 0;
  *side = NULL;
  for (uint32_t i = s->sides->ncomm ? s->sides->use0[r] : end; i < end; i++) {
    if (s->sides->use[i].kind != PIPE_SIDE_COMM)
      continue;
    if (!*side)
      *side = arena_alloc(s->arena, (end - i) * sizeof **side);
    (*side)[n++] = (CommSide){&s->sides->use[i], i};
  }
  if (n > 1)
    qsort(*side, n, sizeof **side, by_place);
  return n;
}

/* Side ops and copies of a rank that are not in its list yet. */
typedef struct BesideOps {
  CommSide *side;
  uint32_t nside;
  uint32_t copy, last; /* rows of Orders.copy; equal if copies take no turns */
} BesideOps;

static BesideOps find_beside(Sched *s, uint32_t r) {
  BesideOps b = {.copy = s->model->ngroup ? s->orders->rank_copy0[r] : 0,
                 .last = s->model->ngroup ? s->orders->rank_copy0[r + 1] : 0};
  b.nside = find_comm_sides(s, r, &b.side);
  return b;
}

/* Appends the side ops and copies that stand before op i. */
static void add_beside(Sched *s, Instrs *to, BesideOps *b, uint32_t i) {
  for (; b->copy < b->last && s->orders->copy[b->copy].at <= i; b->copy++) {
    const Copy *c = &s->orders->copy[b->copy];
    PipeInstr *in = add(s, to, (PipeOp)c->kind, c->stage, c->mb, c->site);
    if (c->kind == PIPE_SIDE_COPY)
      in->side = s->sides->use[c->use].row;
    in->out = b->copy;
  }
  for (; b->nside > 0 && b->side->use->at <= i; b->side++, b->nside--) {
    *vec_push(s->arena, to) = side_instr(s, b->side->use);
    to->at[to->n - 1].out = b->side->seq; /* row of Sides.use */
  }
}

/* Appends the sums that the updates among ops i .. end - 1 need: REDUCEs, then TIEs, each in model
 * order. */
static void add_sums(Sched *s, Instrs *to, uint32_t i, uint32_t end) {
  for (int tie = 0; tie < 2; tie++)
    for (uint64_t from = 0, least;; from = least + 1) {
      least = UINT64_MAX;
      uint32_t u = NONE;
      for (uint32_t j = i; j < end; j++) {
        uint32_t st = s->orders->op[j].stage;
        if (s->orders->op[j].kind != PIPE_U)
          continue;
        uint64_t key = (uint64_t)s->model->stage[st].model << 32 | j;
        if ((tie ? s->model->stage[st].tied == st : s->model->stage[st].replica != st) &&
            key >= from && key < least)
          least = key, u = j;
      }
      if (u == NONE)
        break;
      add(s, to, tie ? PIPE_TIE : PIPE_REDUCE, s->orders->op[u].stage, NONE, s->orders->op[u].site);
    }
}

/* The end of the run of single updates that begins at op i; i: the run is empty. An update in a
 * larger action is not single. */
static uint32_t plain_updates(const Sched *s, uint32_t i, uint32_t end) {
  bool inside = i > 0 && s->orders->op[i - 1].group > 0; /* i is the last op of an action */
  while (i < end && s->orders->op[i].kind == PIPE_U && s->orders->op[i].group == 0 && !inside)
    i++;
  return i;
}

static void list_grouped(Sched *s, uint32_t r, Instrs *to) {
  BesideOps beside = find_beside(s, r);
  uint32_t end = s->orders->rank_op0[r + 1],
           summed = s->orders->rank_op0[r]; /* the sums of ops before this row are in the list */
  for (uint32_t i = s->orders->rank_op0[r], n; i < end; i += n) {
    n = s->orders->op[i].group + 1u;
    add_beside(s, to, &beside, i);
    if (i >= summed) {
      uint32_t last = n > 1 ? i + n : plain_updates(s, i, end);
      add_sums(s, to, i, last);
      summed = last;
    }
    for (uint32_t j = i; j < i + n; j++)
      add_moves(s, to, &s->orders->op[j], true);
    uint32_t first = to->n;
    for (uint32_t j = i; j < i + n; j++)
      add_op(s, to, &s->orders->op[j]);
    to->at[first].wait = WAIT_ALL;
    add_beside(s, to, &beside, i + n); /* not inside the group of a send and a receive */
    for (uint32_t j = i; j < i + n; j++)
      add_moves(s, to, &s->orders->op[j], false);
  }
  add_beside(s, to, &beside, end);
  for (uint32_t i = 0, n; i < to->n; i += n) {
    for (n = 0; i + n < to->n && n < PIPE_GROUP_MOST && is_transfer(&to->at[i + n]) &&
                !pipe_is_sum(to->at[i + n].op);)
      n++;
    for (uint32_t j = i; j < i + n; j++)
      to->at[j].group = (uint16_t)(i + n - 1 - j);
    n = n ? n : 1;
  }
}

static void make_lists(Sched *s, Orders *orders) {
  orders->lists = NEW_ARRAY(s->arena, List, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Instrs list = {0};
    list_grouped(s, r, &list);
    s->orders->lists[r] = (List){list.at, list.n};
  }
}

/* ---- checks the lists ---- */

/* Finds the peer of a transfer of a compute_comms file. False: reported. */
static bool find_peer(Sched *s, uint32_t r, PipeInstr *in) {
  Span at = s->orders->site[in->site];
  if (in->stage >= s->model->nstage || s->model->stage[in->stage].rank != r) {
    diag_error(s->diag, DIAG_FOREIGN, at, "rank %u computes nothing of stage %u", r, in->stage);
    return false;
  }
  if (in->mb >= s->model->nmb) {
    diag_error(s->diag, DIAG_BAD_INDEX, at, "%s is microbatch %u; the microbatches are 0 to %u",
               list_op_text(s, in), in->mb, s->model->nmb - 1);
    return false;
  }
  const PipeStage *st = &s->model->stage[in->stage];
  bool down = is_forward(in) == pipe_is_send(in->op);
  uint32_t other = down ? st->next : st->prev;
  if (other != NONE && s->model->stage[other].rank != r)
    return in->peer = s->model->stage[other].rank, true;
  if (other == NONE)
    diag_error(s->diag, DIAG_TRANSFER, at, "%s: there is no stage %s stage %u", list_op_text(s, in),
               down ? "after" : "before", in->stage);
  else
    diag_error(s->diag, DIAG_TRANSFER, at,
               "%s: stages %u and %u are both on rank %u, so nothing is sent between them",
               list_op_text(s, in), in->stage, other, r);
  return false;
}

static bool note_once(Sched *s, uint32_t r, uint32_t i, uint32_t *place) {
  const PipeInstr *in = &s->orders->lists[r].instr[i];
  if (!*place || PLANTED(LISTS_ONCE))
    return *place = i + 1, true;
  diag_error(s->diag, DIAG_DUPLICATE_OP, s->orders->site[in->site], "rank %u runs %s twice", r,
             list_op_text(s, in));
  diag_note(s->diag, s->orders->site[s->orders->lists[r].instr[*place - 1].site],
            "%s is here first", list_op_text(s, in));
  return false;
}

static bool note_transfers(Sched *s, Places *at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
      PipeInstr *in = &s->orders->lists[r].instr[i];
      if (!is_transfer(in) || is_wait_send(s, in) || pipe_is_sum(in->op))
        continue;
      if (s->lowered->lowering == PIPE_GLOBAL && !find_peer(s, r, in)) {
        ok = false;
        continue;
      }
      ok &= note_once(s, r, i, &(pipe_is_send(in->op) ? at->send : at->recv)[tensor_of(s, in)]);
    }
  return ok;
}

/* Checks one tensor of op i: its SEND stands below the op (end), or its RECV above it. pos: 1 +
 * position of the transfer; 0: it is missing. */
static bool check_end(Sched *s, uint32_t r, uint32_t i, bool end, Link l, uint32_t pos) {
  const PipeInstr *in = &s->orders->lists[r].instr[i];
  bool f = in->op == PIPE_F;
  if ((pos && (end ? pos - 1 > i : pos - 1 < i)) ||
      (end ? PLANTED(LISTS_SEND) : PLANTED(LISTS_RECV)))
    return true;
  if (pos) {
    diag_error(s->diag, DIAG_TRANSFER, s->orders->site[s->orders->lists[r].instr[pos - 1].site],
               end ? "rank %u has %s before %s, whose result the SEND carries"
                   : "rank %u has %s after %s, which reads the tensor",
               r, list_op_text(s, &s->orders->lists[r].instr[pos - 1]), list_op_text(s, in));
    diag_note(s->diag, s->orders->site[in->site], "%s comes from here", list_op_text(s, in));
    return false;
  }
  PipeInstr lacks = pipe_instr(end ? f ? PIPE_SEND_F : PIPE_SEND_B
                               : f ? PIPE_RECV_F
                                   : PIPE_RECV_B,
                               in->stage, in->mb);
  lacks.edge = s->model->graph ? l.edge : NONE;
  diag_error(s->diag, DIAG_TRANSFER, s->orders->site[in->site],
             end ? "rank %u never sends the result of %s to rank %u: %s is missing"
                 : "rank %u never receives what %s reads from rank %u: %s is missing",
             r, list_op_text(s, in), s->model->stage[l.from == in->stage ? l.to : l.from].rank,
             list_op_text(s, &lacks));
  return false;
}

static bool check_transfers(Sched *s, const Places *at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
      const PipeInstr *in = &s->orders->lists[r].instr[i];
      Op o = {.kind = in->op, .stage = in->stage, .mb = in->mb};
      for (int end = 0; end < 2 && has_tensors(in->op); end++)
        for (uint32_t k = 0, n = end ? op_outputs(s, &o) : op_inputs(s, &o); k < n; k++) {
          uint32_t link = end ? output_link(s, &o, k) : input_link(s, &o, k);
          Link l = link_at(s, link);
          if (link_crosses(s, l))
            ok &= check_end(s, r, i, end, l, (end ? at->send : at->recv)[link_tensor(s, &o, link)]);
        }
    }
  return ok;
}

/* If the file has any WAIT_SEND, each SEND must have one, below it. */
static bool check_waits(Sched *s, const uint32_t *send_at) {
  bool any = false, ok = true;
  for (uint32_t r = 0; r < s->model->nrank && !any; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n && !any; i++)
      any = is_wait_send(s, &s->orders->lists[r].instr[i]);
  uint32_t *wait_at = any ? NEW_ARRAY(s->arena, uint32_t,
                                      2 * (size_t)s->model->nstage * s->model->nmb)
                          : NULL;
  for (uint32_t r = 0; any && r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
      const PipeInstr *in = &s->orders->lists[r].instr[i];
      if (!is_wait_send(s, in))
        continue;
      bool there = in->stage < s->model->nstage && in->mb < s->model->nmb &&
                   s->model->stage[in->stage].rank == r;
      size_t t = there ? tensor_of(s, in) : 0;
      if (!there || !send_at[t] || send_at[t] > i + 1) {
        diag_error(s->diag, DIAG_TRANSFER, s->orders->site[in->site],
                   "rank %u waits for %u%s%u, which does not come before", r, in->stage,
                   pipe_op_info[in->op].text, in->mb);
        ok = false;
      } else if (wait_at[t]) {
        diag_error(s->diag, DIAG_DUPLICATE_OP, s->orders->site[in->site], "rank %u runs %s twice",
                   r, list_op_text(s, in));
        diag_note(s->diag, s->orders->site[s->orders->lists[r].instr[wait_at[t] - 1].site],
                  "%s is here first", list_op_text(s, in));
        ok = false;
      } else {
        wait_at[t] = i + 1;
      }
    }
  for (uint32_t r = 0; any && ok && r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
      const PipeInstr *in = &s->orders->lists[r].instr[i];
      if (!pipe_is_send(in->op) || is_wait_send(s, in) || wait_at[tensor_of(s, in)])
        continue;
      diag_error(
          s->diag, DIAG_TRANSFER, s->orders->site[in->site],
          "rank %u does not wait for %s, but the file waits for other SENDs: %uWAIT_%s%u is missing",
          r, list_op_text(s, in), in->stage, pipe_op_info[in->op].text, in->mb);
      ok = false;
    }
  return ok;
}

/* ---- sums ---- */

/* Finds the sums of rank r. Only list_grouped makes sums, right before the update that needs them:
 * so all gradients that they add up stand above. next: sums of each stage so far. */
static void place_sums(Sched *s, uint32_t r, uint32_t *next, const Places *at) {
  for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
    const PipeInstr *in = &s->orders->lists[r].instr[i];
    if (!pipe_is_sum(in->op))
      continue;
    uint32_t *n = &next[2 * in->stage + (in->op == PIPE_TIE)];
    BUG_IF(*n >= s->orders->round0[in->stage + 1] -
                     s->orders->round0[in->stage]); /* each sum precedes an update */
    (in->op == PIPE_TIE ? at->tie : at->reduce)[s->orders->round0[in->stage] + (*n)++] = i + 1;
  }
}

bool find_places(Sched *s, Places *at) {
  size_t of = s->model->graph ? s->model->nedge : s->model->nstage, n = 2 * of * s->model->nmb,
         rounds = s->orders->round0[s->model->nstage];
  *at = (Places){NEW_ARRAY(s->arena, uint32_t, n), NEW_ARRAY(s->arena, uint32_t, n),
                 NEW_ARRAY(s->arena, uint32_t, rounds), NEW_ARRAY(s->arena, uint32_t, rounds)};
  uint32_t *next = NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->model->nstage);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    place_sums(s, r, next, at);
  return note_transfers(s, at) && check_transfers(s, at) && check_waits(s, at->send);
}

/* ---- the pass ---- */

bool list_transfers(Sched *s, Orders *orders, Lowered *lowered) {
  const uint32_t asked = orders->lowering;
  lowered->choice.open = asked == LOWERING_AUTO &&
                         s->opt->emit != EMIT_COMMS_CSV; /* the format has no channels */
  lowered->lowering = asked == LOWERING_AUTO ? PIPE_GLOBAL : (PipeLowering)asked;
  if (lowered->lowering == PIPE_GROUPED)
    make_lists(s, orders);
  return true;
}
