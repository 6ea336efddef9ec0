/* SPDX-License-Identifier: MIT
 * Proves, for the lists of a compute_comms file (Orders.lists): every tensor that crosses ranks has
 * one SEND, after the op that makes it, and one RECV, before the op that reads it. check_channels.c
 * then proves that the lists complete. A file has one chain of stages, so an op reads at most one
 * tensor of another rank and makes at most one. Cost: linear in instructions. */
#include "names.h"
#include "plant.h"
#include "transfers.h"

const char *list_op_text(Sched *s, const PipeInstr *in) {
  char text[PIPE_OP_TEXT];
  if (is_wait_send(s, in))
    return arena_printf(s->arena, "%uWAIT_%s%u", in->stage, pipe_op_info[in->op].text, in->mb);
  pipe_instr_text(text, sched_graph(s), in);
  return arena_printf(s->arena, "%s", text);
}

bool own_transfer(const Sched *s, const PipeInstr *in, bool send, PipeInstr *move) {
  bool f = in->op == PIPE_F;
  *move = pipe_instr(send ? f ? PIPE_SEND_F : PIPE_SEND_B
                     : f  ? PIPE_RECV_F
                          : PIPE_RECV_B,
                     in->stage, in->mb);
  if (!has_tensors(in->op))
    return false;
  const PipeStage *st = &s->model->stage[in->stage];
  uint32_t other = f == send ? st->next : st->prev;
  move->peer = other == NONE ? NONE : s->model->stage[other].rank;
  return other != NONE && move->peer != st->rank;
}

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

static bool note_transfers(Sched *s, Orders *orders, Places *at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++) {
      PipeInstr *in = &orders->lists[r].instr[i];
      if (!is_comm(in) || is_wait_send(s, in))
        continue;
      if (!find_peer(s, r, in)) {
        ok = false;
        continue;
      }
      ok &= note_once(s, r, i, &(pipe_is_send(in->op) ? at->send : at->recv)[tensor_of(s, in)]);
    }
  return ok;
}

/* Checks the tensor that crosses ranks for op i: its SEND stands below the op (end), or its RECV
 * above it. */
static bool check_end(Sched *s, uint32_t r, uint32_t i, bool end, const Places *at) {
  const PipeInstr *in = &s->orders->lists[r].instr[i];
  PipeInstr move;
  if (!own_transfer(s, in, end, &move))
    return true;
  uint32_t pos = (end ? at->send : at->recv)[tensor_of(s, &move)];
  if ((pos && (end ? pos - 1 > i : pos - 1 < i)) ||
      (end ? PLANTED(LISTS_SEND) : PLANTED(LISTS_RECV)))
    return true;
  if (pos) {
    diag_error(s->diag, DIAG_TRANSFER, s->orders->site[s->orders->lists[r].instr[pos - 1].site],
               end ? "rank %u has %s before %s, whose result the SEND carries"
                   : "rank %u has %s after %s, which reads the tensor",
               r, list_op_text(s, &move), list_op_text(s, in));
    diag_note(s->diag, s->orders->site[in->site], "%s comes from here", list_op_text(s, in));
    return false;
  }
  diag_error(s->diag, DIAG_TRANSFER, s->orders->site[in->site],
             end ? "rank %u never sends the result of %s to rank %u: %s is missing"
                 : "rank %u never receives what %s reads from rank %u: %s is missing",
             r, list_op_text(s, in), move.peer, list_op_text(s, &move));
  return false;
}

static bool check_transfers(Sched *s, const Places *at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->model->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->orders->lists[r].n; i++)
      for (int end = 0; end < 2; end++)
        ok &= check_end(s, r, i, end, at);
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

bool find_places(Sched *s, Orders *orders, Places *at) {
  const size_t n = 2 * (size_t)s->model->nstage * s->model->nmb;
  *at = (Places){NEW_ARRAY(s->arena, uint32_t, n), NEW_ARRAY(s->arena, uint32_t, n)};
  return note_transfers(s, orders, at) && check_transfers(s, at) && check_waits(s, at->send);
}
