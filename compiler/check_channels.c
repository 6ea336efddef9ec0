/* SPDX-License-Identifier: MIT
 * Proof under a named channel model (--channels, --sends): every rank's list, with its transfers,
 * is carried out to its end, and no transfer meets another tensor. Requires prog, or the lists of a
 * compute_comms file. Method: the machine of machine.h.
 *
 * For a program of pipec's own each instruction needs the last one above it that touched a slot of
 * its: what the waits of pipe_instr.h say for one comm stream. An action starts when all its ops can, so
 * what comes after one of them comes after the last of them. For a file that PyTorch runs, a rank
 * issues its list from the top without waiting; a SEND or RECV begins when all computation above it
 * has ended and its channel has come to it; a computation begins when its RECV is done. It waits at a
 * WAIT_SEND until that SEND is done, as for a computation.
 *
 * When the answer is no, what is offered as help has been tried here: groups, other channels, the
 * transfers that pipec derives. */
#include "graph.h"
#include "stall_picture.h"

/* ---- the model ---- */

const char *model_text(Sched *s) {
  static const char *const channels[] = {
      "untagged, one comm stream per rank", "untagged, one FIFO per rank pair",
      "untagged, one FIFO per directed rank pair", "matched by tag"};
  const ChannelModel *m = &s->opt->model;
  if (m->buffer == 0)
    return arena_printf(s->arena, "rendezvous, %s", channels[m->channels]);
  return arena_printf(s->arena, "sends buffered up to %s per directed rank pair, %s",
                      buffer_text(s, m->buffer), channels[m->channels]);
}

const char *buffer_text(Sched *s, uint64_t buffer) {
  if (s->opt->model.in_bytes)
    return arena_printf(s->arena, "%llu B", (unsigned long long)buffer);
  return arena_printf(s->arena, "%llu message%s", (unsigned long long)buffer,
                      buffer == 1 ? "" : "s");
}

bool is_default_model(const ChannelModel *m) {
  return m->channels == CHANNELS_RANK && m->buffer == 0;
}

/* ---- lists for the machine ---- */

static bool sends(const PipeInstr *in) { return in->op == PIPE_SEND_F || in->op == PIPE_SEND_B; }
/* Of a list from a file: it waits for the SEND that it names. */
static bool is_wait(const Sched *s, const PipeInstr *in) { return s->lists && in->wait > 0; }
static bool is_comm(const Sched *s, const PipeInstr *in) {
  return pipe_op_info[in->op].comm && !is_wait(s, in);
}
static bool forward(const PipeInstr *in) { return in->op == PIPE_SEND_F || in->op == PIPE_RECV_F; }

/* The row that runs the op that makes what a transfer carries: the F, or the backward. */
static uint32_t producer(const Sched *s, const PipeInstr *in) {
  return sends(in) ? in->stage : pipe_other_end(sched_graph(s), in);
}

static uint64_t tensor(const Sched *s, const PipeInstr *in) {
  uint64_t of = s->graph ? in->keep : producer(s, in);
  return 2 * (of * s->nmb + in->mb) + !forward(in);
}

static uint64_t message_bytes(const Sched *s, const PipeInstr *in) {
  if (s->graph)
    return link_bytes(s, link_at(s, s->graph->link_at[(size_t)in->keep * s->nmb + in->mb]));
  uint32_t from = producer(s, in);
  return s->stage[forward(in) ? from : s->stage[from].prev].boundary_bytes;
}

static MachineInstr machine_instr(const Sched *s, const PipeInstr *in) {
  MachineInstr m = {.kind = MACHINE_COMPUTE, .need = {NONE, NONE}};
  if (is_wait(s, in))
    return m;
  if (pipe_is_sum(in->op)) {
    m.kind = MACHINE_ALL;
    m.peer = in->op == PIPE_REDUCE ? s->stage[in->stage].model : s->nmodel + s->tie_of[in->stage];
    m.tensor = UINT64_MAX - m.peer;
  } else if (in->op == PIPE_SIDE_COMM) { /* alone in its communicator */
    m.kind = MACHINE_ALL;
    m.peer = 2 * s->nmodel + s->ntie + s->stage[in->stage].rank;
    m.tensor = UINT64_MAX - m.peer;
  } else if (pipe_op_info[in->op].comm) {
    m.kind = sends(in) ? MACHINE_SEND : MACHINE_RECV;
    m.peer = in->peer;
    m.tensor = tensor(s, in);
    m.bytes = message_bytes(s, in);
  }
  return m;
}

/* Tensors that an instruction reads, or writes, if any. */
static uint32_t tensors_of(const Sched *s, const PipeInstr *in, bool input) {
  const PipeStage *st = &s->stage[in->stage];
  return !has_tensors(in->op) ? 1 : input == (in->op == PIPE_F) ? st->nin : st->nout;
}

static uint32_t slot_of(const PipeRank *k, uint32_t first, uint32_t n, uint32_t j) {
  return n < 2 || first == NONE ? first : k->list[first + j];
}

/* `send next`: an action starts once what the one before it has made is gone. first..i are the
 * instructions from the start of that one on, i begins an action. Adds to `more`; returns how many. */
static uint32_t wait_for_sends(const Sched *s, const PipeRank *k, uint32_t *more, uint32_t first,
                               uint32_t i) {
  const PipeInstr *a = &k->instr[first];
  uint32_t n = 0;
  for (uint32_t j = first + a->group + 1; j < i; j++)
    for (uint32_t m = 0; m <= a->group && sends(&k->instr[j]); m++) {
      uint32_t nout = tensors_of(s, &a[m], false);
      for (uint32_t o = 0; o < nout && a[m].stage == k->instr[j].stage && a[m].mb == k->instr[j].mb;
           o++)
        if (k->instr[j].in == slot_of(k, a[m].out, nout, o))
          more[n++] = j;
    }
  return n;
}

static MachineList *lists_of_program(Sched *s) {
  MachineList *list = NEW_ARRAY(s->arena, MachineList, s->nrank);
  for (uint32_t r = 0; r < s->nrank; r++) {
    const PipeRank *k = &s->prog->rank[r];
    MachineInstr *out = arena_alloc(s->arena, (size_t)k->ninstr * sizeof *out + 1);
    uint32_t *touched = NEW_ARRAY(s->arena, uint32_t, k->nslot); /* position + 1 */
    uint32_t held = s->rank_stage0[r + 1] - s->rank_stage0[r];
    uint32_t *graded = NEW_ARRAY(s->arena, uint32_t,
                                 held); /* by chunk: last gradient, or its REDUCE; + 1 */
    uint32_t sends_of_all = 0;          /* each is waited for once */
    for (uint32_t i = 0; i < k->ninstr; i++)
      sends_of_all += sends(&k->instr[i]);
    size_t nmore = (size_t)k->nlist + (size_t)held * 2 + sends_of_all;
    uint32_t *more = arena_alloc(s->arena, nmore * sizeof *more + 1);
    uint32_t above = NONE; /* start of the action before */
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      const uint32_t done = i + in->group + 1; /* with its action */
      out[i] = machine_instr(s, in);
      out[i].more = more;
      bool starts = !pipe_op_info[in->op].comm && (i == 0 || in[-1].group == 0);
      if (starts && s->send == SEND_NEXT && above != NONE)
        out[i].nmore = wait_for_sends(s, k, more, above, i);
      above = starts ? i : above;
      uint32_t *last = &graded[s->stage[in->stage].chunk];
      if (in->op == PIPE_REDUCE || in->op == PIPE_U)
        out[i].need[0] = *last - 1;
      if (in->op == PIPE_REDUCE || in->op == PIPE_B || in->op == PIPE_W)
        *last = done;
      if (in->op == PIPE_TIE)
        for (uint32_t c = 0; c < held; c++) /* of all rows that it is for */
          if (s->stage[s->rank_stage[s->rank_stage0[r] + c]].tied == in->stage) {
            more[out[i].nmore++] = graded[c] - 1;
            graded[c] = i + 1;
          }
      for (int e = 0; e < 2; e++) {
        uint32_t n = tensors_of(s, in, e == 0), first = e ? in->out : in->in;
        for (uint32_t j = 0; j < n && first != NONE; j++) {
          uint32_t slot = slot_of(k, first, n, j), before = touched[slot] - 1;
          if (j == 0) /* NONE: nobody yet */
            out[i].need[e] = before;
          else if (before != NONE)
            more[out[i].nmore++] = before;
          touched[slot] = done;
        }
      }
      more += out[i].nmore;
    }
    list[r] = (MachineList){out, k->ninstr};
  }
  return list;
}

static MachineList *lists_of_file(Sched *s, const uint32_t *send_at, const uint32_t *recv_at) {
  MachineList *list = NEW_ARRAY(s->arena, MachineList, s->nrank);
  for (uint32_t r = 0; r < s->nrank; r++) {
    const List *l = &s->lists[r];
    MachineInstr *out = arena_alloc(s->arena, (size_t)l->n * sizeof *out + 1);
    uint32_t above = NONE; /* the last computation */
    for (uint32_t i = 0; i < l->n; i++) {
      const PipeInstr *in = &l->instr[i];
      out[i] = machine_instr(s, in);
      if (is_wait(s, in)) {
        out[i].need[0] = send_at[tensor(s, in)] - 1;
        above = i;
      } else if (is_comm(s, in)) {
        out[i].need[0] = above;
      } else {
        const PipeStage *st = &s->stage[in->stage];
        uint32_t from = in->op == PIPE_F ? st->prev : in->op == PIPE_W ? NONE : st->next;
        if (from != NONE)
          out[i].need[0] = recv_at[2 * ((size_t)from * s->nmb + in->mb) + (in->op != PIPE_F)] - 1;
        above = i;
      }
    }
    list[r] = (MachineList){out, l->n};
  }
  return list;
}

/* ---- what a file's own transfers must be ---- */

static const char *text_of(Sched *s, const PipeInstr *in) {
  char text[OP_TEXT];
  if (is_wait(s, in))
    return arena_printf(s->arena, "%uWAIT_%s%u", in->stage, pipe_op_info[in->op].text, in->mb);
  pipe_instr_text(text, sched_graph(s), in);
  return arena_printf(s->arena, "%s", text);
}

/* One end of every transfer: peers, places in the lists; at[tensor] = position + 1. */
static bool note_transfers(Sched *s, uint32_t *send_at, uint32_t *recv_at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->lists[r].n; i++) {
      PipeInstr *in = &s->lists[r].instr[i];
      Span at = s->site[in->site];
      if (!is_comm(s, in))
        continue;
      if (in->stage >= s->nstage || s->stage[in->stage].rank != r) {
        diag_error(s->diag, DIAG_FOREIGN, at, "rank %u computes nothing of stage %u", r, in->stage);
        ok = false;
        continue;
      }
      if (in->mb >= s->nmb) {
        diag_error(s->diag, DIAG_BAD_INDEX, at, "%s is microbatch %u; the microbatches are 0 to %u",
                   text_of(s, in), in->mb, s->nmb - 1);
        ok = false;
        continue;
      }
      const PipeStage *st = &s->stage[in->stage];
      uint32_t other = forward(in) == sends(in) ? st->next : st->prev;
      if (other == NONE || s->stage[other].rank == r) {
        if (other == NONE)
          diag_error(s->diag, DIAG_TRANSFER, at, "%s: there is no stage %s stage %u",
                     text_of(s, in), forward(in) == sends(in) ? "after" : "before", in->stage);
        else
          diag_error(s->diag, DIAG_TRANSFER, at,
                     "%s: stages %u and %u are both on rank %u, so nothing is sent between them",
                     text_of(s, in), in->stage, other, r);
        ok = false;
        continue;
      }
      in->peer = s->stage[other].rank;
      uint32_t *slot = &(sends(in) ? send_at : recv_at)[tensor(s, in)];
      if (*slot) {
        diag_error(s->diag, DIAG_DUPLICATE_OP, at, "rank %u runs %s twice", r, text_of(s, in));
        diag_note(s->diag, s->site[s->lists[r].instr[*slot - 1].site], "%s is here first",
                  text_of(s, in));
        ok = false;
        continue;
      }
      *slot = i + 1;
    }
  return ok;
}

/* Each tensor that crosses ranks is sent once it is there, and received before it is read. */
static bool check_transfers(Sched *s, const uint32_t *send_at, const uint32_t *recv_at) {
  bool ok = true;
  for (uint32_t r = 0; r < s->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->lists[r].n; i++) {
      const PipeInstr *in = &s->lists[r].instr[i];
      bool f = in->op == PIPE_F;
      if (pipe_op_info[in->op].comm || in->op == PIPE_W)
        continue; /* waits, too */
      const PipeStage *st = &s->stage[in->stage];
      uint32_t from = f ? st->prev : st->next, to = f ? st->next : st->prev;
      for (int end = 0; end < 2; end++) { /* the RECV above it, the SEND below it */
        uint32_t other = end ? to : from;
        if (other == NONE || s->stage[other].rank == r)
          continue;
        size_t t = 2 * ((size_t)(end ? in->stage : from) * s->nmb + in->mb) + !f;
        uint32_t pos = (end ? send_at : recv_at)[t];
        const char *name = end ? f ? "SEND_F" : "SEND_B" : f ? "RECV_F" : "RECV_B";
        if (pos && (end ? pos - 1 > i : pos - 1 < i))
          continue;
        ok = false;
        if (!pos)
          diag_error(s->diag, DIAG_TRANSFER, s->site[in->site],
                     end ? "rank %u never sends the result of %s to rank %u: %u%s%u is missing"
                         : "rank %u never receives what %s reads from rank %u: %u%s%u is missing",
                     r, text_of(s, in), s->stage[other].rank, in->stage, name, in->mb);
        else
          diag_error(s->diag, DIAG_TRANSFER, s->site[s->lists[r].instr[pos - 1].site],
                     end ? "rank %u has %s before %s, whose result it sends"
                         : "rank %u has %s after %s, which reads it",
                     r, text_of(s, &s->lists[r].instr[pos - 1]), text_of(s, in));
        if (pos)
          diag_note(s->diag, s->site[in->site], "%s comes from here", text_of(s, in));
      }
    }
  return ok;
}

/* If the file has a WAIT_SEND: each SEND has one, below it. */
static bool check_waits(Sched *s, const uint32_t *send_at) {
  bool any = false, ok = true;
  for (uint32_t r = 0; r < s->nrank && !any; r++)
    for (uint32_t i = 0; i < s->lists[r].n && !any; i++)
      any = is_wait(s, &s->lists[r].instr[i]);
  uint32_t *wait_at = any ? NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->nstage * s->nmb) : NULL;
  for (uint32_t r = 0; any && r < s->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->lists[r].n; i++) {
      const PipeInstr *in = &s->lists[r].instr[i];
      if (!is_wait(s, in))
        continue;
      bool there = in->stage < s->nstage && in->mb < s->nmb && s->stage[in->stage].rank == r;
      size_t t = there ? tensor(s, in) : 0;
      if (!there || !send_at[t] || send_at[t] > i + 1) {
        diag_error(s->diag, DIAG_TRANSFER, s->site[in->site],
                   "rank %u waits for %u%s%u, which does not stand above it", r, in->stage,
                   pipe_op_info[in->op].text, in->mb);
        ok = false;
      } else if (wait_at[t]) {
        diag_error(s->diag, DIAG_DUPLICATE_OP, s->site[in->site], "rank %u runs %s twice", r,
                   text_of(s, in));
        diag_note(s->diag, s->site[s->lists[r].instr[wait_at[t] - 1].site], "%s is here first",
                  text_of(s, in));
        ok = false;
      } else {
        wait_at[t] = i + 1;
      }
    }
  for (uint32_t r = 0; any && ok && r < s->nrank && s->diag->errors <= s->diag->limit; r++)
    for (uint32_t i = 0; i < s->lists[r].n; i++) {
      const PipeInstr *in = &s->lists[r].instr[i];
      if (!sends(in) || is_wait(s, in) || wait_at[tensor(s, in)])
        continue;
      diag_error(
          s->diag, DIAG_TRANSFER, s->site[in->site],
          "rank %u does not wait for %s, as the file does for others: %uWAIT_%s%u is missing", r,
          text_of(s, in), in->stage, pipe_op_info[in->op].text, in->mb);
      ok = false;
    }
  return ok;
}

/* ---- the answer ---- */

static const PipeInstr *instr_at(const Sched *s, MachineAt at) {
  return s->lists ? &s->lists[at.rank].instr[at.index] : &s->prog->rank[at.rank].instr[at.index];
}

const char *list_text(Sched *s, MachineAt at) { return text_of(s, instr_at(s, at)); }

static void report_cycle(Sched *s, const MachineList *list, const MachineResult *got) {
  uint32_t nrank = 0, first = got->hop[0].at.rank, second = first;
  enum { SHOWN = 8 };
  for (uint32_t k = 0; k < got->nhop; k++) {
    bool new_rank = true;
    for (uint32_t j = 0; j < k; j++)
      new_rank &= got->hop[j].at.rank != got->hop[k].at.rank;
    nrank += new_rank;
    second = new_rank ? got->hop[k].at.rank : second;
  }
  Span place = s->site[instr_at(s, got->hop[0].at)->site];
  if (nrank == 1)
    diag_error(s->diag, DIAG_DEADLOCK, place, "deadlock: rank %u waits for itself; model: %s",
               first, model_text(s));
  else if (nrank == 2)
    diag_error(s->diag, DIAG_DEADLOCK, place,
               "deadlock: ranks %u and %u wait for each other; model: %s", first, second,
               model_text(s));
  else
    diag_error(s->diag, DIAG_DEADLOCK, place,
               "deadlock: %u ranks wait for each other in a circle; model: %s", nrank,
               model_text(s));
  StallHop *hop = NEW_ARRAY(s->arena, StallHop, got->nhop);
  for (uint32_t k = 0; k < got->nhop; k++) {
    const MachineHop *h = &got->hop[k];
    MachineAt next = got->hop[(k + 1) % got->nhop].at;
    const PipeInstr *at = instr_at(s, h->at), *on = instr_at(s, h->on);
    const char *why = h->why == WAIT_ROOM                     ? "has no room in the buffer before"
                      : is_comm(s, at) && h->why == WAIT_NEED ? "comes after"
                                                              : "needs";
    bool direct = next.rank == h->on.rank && next.index == h->on.index;
    const char *where = !direct ? arena_printf(s->arena, ", which rank %u runs only after %s",
                                               next.rank, text_of(s, instr_at(s, next)))
                        : next.rank != h->at.rank
                            ? arena_printf(s->arena, ", where rank %u is", next.rank)
                            : "";
    const char *text = arena_printf(s->arena, "rank %u is at %s, which %s %s%s", h->at.rank,
                                    text_of(s, at), why, text_of(s, on), where);
    hop[k] = (StallHop){h->at.rank, h->at.index, h->on.index, text};
    if (k < SHOWN || k + 1 == got->nhop)
      diag_note(s->diag, s->site[at->site], "%s", text);
    else if (k == SHOWN)
      diag_note(s->diag, NO_SPAN, "and so on, %u more", got->nhop - SHOWN - 1);
  }
  if (!got->shortest)
    diag_note(s->diag, NO_SPAN, "there may be a shorter circle: the search for it was cut short");
  draw_lists(s, list, got->at_done, hop, got->nhop);
}

/* Position among the transfers of its directed pair, from 1. */
static uint32_t number_of(const MachineList *list, MachineAt at) {
  const MachineInstr *l = list[at.rank].instr;
  uint32_t n = 1;
  for (uint32_t i = 0; i < at.index; i++)
    n += l[i].kind == l[at.index].kind && l[i].peer == l[at.index].peer;
  return n;
}

static void report_mispaired(Sched *s, const MachineList *list, const MachineHop *h) {
  const PipeInstr *at = instr_at(s, h->at), *on = instr_at(s, h->on);
  uint32_t from = sends(at) ? h->at.rank : h->on.rank, to = sends(at) ? h->on.rank : h->at.rank;
  diag_error(s->diag, DIAG_MATCHING, s->site[at->site],
             "%s on rank %u meets %s on rank %u; model: %s", text_of(s, at), h->at.rank,
             text_of(s, on), h->on.rank, model_text(s));
  diag_note(s->diag, s->site[on->site], "both are number %u from rank %u to rank %u",
            number_of(list, h->at), from, to);
}

/* The first cure that works, tried. */
static void offer_help(Sched *s, const MachineList *list) {
  const ChannelModel *model = &s->opt->model;
  ChannelModel m = *model;
  m.grouped = true;
  if (m.buffer == 0 && m.channels <= CHANNELS_PAIR &&
      machine_completes(s->arena->oom, list, s->nrank, m)) {
    diag_help(s->diag,
              "it completes if transfers with nothing computed between them are one group");
    return;
  }
  m.grouped = false;
  static const char *const name[] = {"", "one FIFO per rank pair (--channels=pair)",
                                     "one FIFO per directed rank pair (--channels=edge)",
                                     "transfers matched by tag (--channels=tagged)"};
  for (int c = (int)model->channels + 1; c <= CHANNELS_TAGGED; c++) {
    m.channels = (MachineChannels)c;
    if (!machine_completes(s->arena->oom, list, s->nrank, m))
      continue;
    diag_help(s->diag, "it completes with %s", name[c]);
    return;
  }
  if (s->lists && comm(s) && check_deadlock(s))
    diag_help(s->diag,
              "it completes with the transfers that pipec derives: leave out SEND and RECV");
}

static bool judge(Sched *s, const MachineList *list) {
  ChannelModel model = s->opt->model;
  s->machine_list = list;
  bool tagged = model.channels == CHANNELS_TAGGED, has_least = false;
  if (machine_completes(s->arena->oom, list, s->nrank, model)) {
    if (model.buffer > 0 && !tagged)
      machine_least_buffer(s->arena->oom, list, s->nrank, model, &s->least_buffer);
    return true;
  }
  MachineResult got = machine_run(s->arena, list, s->nrank, model);
  if (got.status == MACHINE_MISPAIRED) {
    report_mispaired(s, list, &got.hop[0]);
  } else {
    BUG_IF(got.nhop == 0 || got.hop[0].why == WAIT_NOBODY); /* every transfer has both ends */
    report_cycle(s, list, &got);
    if (!tagged)
      has_least = machine_least_buffer(s->arena->oom, list, s->nrank, model, &s->least_buffer);
    if (has_least)
      diag_note(s->diag, NO_SPAN, "it completes if each directed rank pair buffers %s",
                buffer_text(s, s->least_buffer));
    else if (!tagged)
      diag_note(s->diag, NO_SPAN, "no buffer cures it");
  }
  offer_help(s, list);
  return false;
}

bool check_channels(Sched *s) {
  if (s->opt->model.in_bytes && !s->sized) {
    diag_error(
        s->diag, DIAG_NO_SIZES, NO_SPAN,
        "--sends=buffered: a buffer in bytes needs the size of messages: a `bytes` clause or a profile");
    return false;
  }
  if (!s->lists)
    return judge(s, lists_of_program(s));
  size_t ntensor = 2 * (size_t)s->nstage * s->nmb;
  uint32_t *send_at = NEW_ARRAY(s->arena, uint32_t, ntensor),
           *recv_at = NEW_ARRAY(s->arena, uint32_t, ntensor);
  return note_transfers(s, send_at, recv_at) && check_transfers(s, send_at, recv_at) &&
         check_waits(s, send_at) && judge(s, lists_of_file(s, send_at, recv_at));
}
