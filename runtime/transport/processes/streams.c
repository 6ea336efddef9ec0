/* SPDX-License-Identifier: MIT
 * COMM streams of the engine of processes. The job of a stream carries its head: all transfers of a
 * group at once, a sum round by round, or a side op. A transfer moves the slot itself; with
 * checksums a message of 8 bytes goes beside it.
 *
 * The tag says which tensor of which microbatch a message is (proc_number). */
#include "checksum.h"
#include "processes.h"

#include <stdlib.h>

uint32_t proc_units(const PipeProgram *p, uint32_t most_tag) {
  const uint64_t numbers = ((uint64_t)most_tag + 1) / PROC_KINDS;
  const uint64_t tensors = 2 * (uint64_t)(p->edge ? p->nedge : p->nstage);
  const uint64_t fit = tensors ? numbers / tensors : p->nmb;
  const uint32_t least = p->nmb < PIPE_GROUP_MOST ? p->nmb : PIPE_GROUP_MOST;
  return numbers < p->nstage || fit < least ? 0 : fit < p->nmb ? (uint32_t)fit : p->nmb;
}

uint64_t proc_number(const PipeProgram *p, uint32_t units, const PipeInstr *c) {
  return pipe_transfer_number(p, c) / p->nmb * units + c->mb % units;
}

void proc_begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  Proc *e = run->of_engine;
  (void)todo;
  if (i == c->next + pr_comm_instr(c, c->next)->group) /* the last of its group */
    proc_start(&e->job[c->number]);
}

/* Writes the span of number i of the stream. */
static void leave_span(const ProcJob *j, uint32_t i) {
  const RankRun *k = j->e->k;
  PrRun *run = j->e->run;
  if (k->span)
    *pr_span(run, k, j->c->step, pr_comm_at(j->c, i)->index) = (PrSpan){j->start,
                                                                        pr_now() - run->epoch_ns};
}

static void put_transfers(ProcJob *j) {
  PrRun *run = j->e->run;
  CommRun *c = j->c;
  const uint32_t first = c->next, n = pr_comm_instr(c, first)->group + 1u;
  j->bit = NULL;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t index = pr_comm_at(c, first + i)->index;
    const PipeInstr *in = &j->e->k->t->instr[index];
    const bool sends = pipe_is_send(in->op);
    const uint64_t bytes = pr_moved_bytes(run, in), number = proc_number(run->p, j->e->units, in);
    char *slot = j->e->k->slot[sends ? in->in : in->out];
    if (pr_fault_is(run, PR_DROP, run->here, index, c->step)) {
      pr_note_over(c, first + i);
      continue;
    }
    if (run->o.checksums && sends)
      j->sum[i] = pr_checksum(slot, bytes);
    if (pr_fault_is(run, PR_CORRUPT, run->here, index, c->step))
      *(j->bit = slot) ^= 1;
    j->part[j->n] = i;
    proc_put(j, PROC_OF_STREAM, number, in->peer, sends, slot, bytes);
    if (!run->o.checksums)
      continue;
    j->part[j->n] = PIPE_NONE;
    proc_put(j, PROC_OF_CHECKSUM, number, in->peer, sends, &j->sum[i], sizeof j->sum[i]);
  }
}

void proc_of_stream_come(ProcJob *j, uint32_t i) {
  const CommRun *c = j->c;
  if (pipe_is_sum(pr_comm_instr(c, c->next)->op) || j->part[i] == PIPE_NONE)
    return;
  leave_span(j, c->next + j->part[i]);
  pr_note_over(j->c, c->next + j->part[i]);
}

/* Checks the messages, which have all come. False, here and below: the run has failed. */
static bool end_transfers(ProcJob *j) {
  PrRun *run = j->e->run;
  if (j->bit) /* the sender keeps the right byte */
    *j->bit ^= 1;
  for (uint32_t i = 0; run->o.checksums && i < j->n; i++) {
    const PrMessage *m = &j->message[i];
    if (!m->sends && j->part[i] != PIPE_NONE &&
        pr_checksum(m->data, m->bytes) != j->sum[j->part[i]]) {
      pr_damaged(run, run->here, pr_comm_instr(j->c, j->c->next + j->part[i]), j->c->step);
      return false;
    }
  }
  j->n = 0;
  return true;
}

static bool next_sum(ProcJob *j, bool *more) {
  PrRun *run = j->e->run;
  const CommAt *at = pr_comm_at(j->c, j->c->next);
  Coll *l = &run->coll[at->chan];
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = at->index; /* only the entry of this rank is read */
  if (!proc_next_of_sum(j, l, more))
    return false;
  if (!*more)
    leave_span(j, j->c->next);
  return true;
}

static bool next_of_stream(ProcJob *j) {
  PrRun *run = j->e->run;
  CommRun *c = j->c, *todo = NULL;
  const uint32_t first = c->next;
  const PipeInstr *head = pr_comm_instr(c, first);
  bool more = false;
  if (j->round == 0) {
    j->start = j->e->k->span ? pr_now() - run->epoch_ns : 0;
    j->each = head->group > 0; /* for blame.c: which transfers of a group are done */
  }
  if (head->op == PIPE_SIDE_COMM) {
    if (pr_side(run, j->e->k, pr_comm_at(c, first)->index, c->step))
      return false;
  } else if (pipe_is_sum(head->op)) {
    if (!next_sum(j, &more))
      return false;
  } else if (j->round == 0) {
    put_transfers(j);
    more = true;
  } else if (!end_transfers(j)) {
    return false;
  }
  if (more)
    return true;
  for (uint32_t i = first, end = first + head->group; i <= end; i++)
    pr_over(run, c, i, &todo);
  pr_advance(run, todo);
  return false;
}

PrStatus proc_open_stream(Proc *e, CommRun *c) {
  PrRun *run = e->run;
  size_t most = 1, pieces = 0;
  uint64_t room = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    const CommAt *at = pr_comm_at(c, i);
    const PipeInstr *in = pr_comm_instr(c, i);
    const ProcSum *s = pipe_is_sum(in->op) ? &e->sum[at->chan] : NULL;
    const size_t n = s ? s->messages : (in->group + (size_t)1) * (run->o.checksums ? 2 : 1);
    most = n > most ? n : most;
    room = s && s->room > room ? s->room : room;
    pieces = s && run->coll[at->chan].ngrad > pieces ? run->coll[at->chan].ngrad : pieces;
  }
  ProcJob *j = proc_add_job(e, next_of_stream, most, room);
  if (!j)
    return PR_E_MEMORY;
  j->c = c;
  j->part = malloc(most * sizeof *j->part);
  j->sum = malloc(most * sizeof *j->sum);
  j->piece = malloc((pieces + 1) * sizeof *j->piece);
  return j->part && j->sum && j->piece
             ? PR_OK
             : pr_fail(run, PR_E_MEMORY, "no memory for %zu messages at once", most);
}
