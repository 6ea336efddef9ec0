/* SPDX-License-Identifier: MIT
 * Proves, under a named channel model (--channels, --sends), that the list of every rank, with its
 * transfers, completes and that no transfer meets another tensor. Requires prog, or the lists of a
 * compute_comms file. Method: the machine of machine.h.
 *
 * In a program that pipec made, an instruction needs the last instruction above it that touched one
 * of its slots: the waits of pipe_instr.h, for one comm stream. An action starts when all its ops
 * can start, so an instruction that needs one op of an action needs the last of them.
 *
 * In a file that PyTorch runs, a rank issues its list from the top without waiting. A SEND or RECV
 * begins when all computation above it has ended and its channel has come to it. A computation
 * begins when its RECV is done. At a WAIT_SEND the rank waits until the SEND is done, as for a
 * computation, and at a WAIT until all transfers above it are done.
 *
 * Sums over the same ranks share one communicator. So, under every model, all its members must
 * issue them in one order.
 *
 * The help of a refusal is tried first: groups, other channels. The transfers that pipec derives
 * need no try: lists in one global order complete on every network. */
#include <string.h>

#include "again.h"
#include "base.h"
#include "plant.h"
#include "prove.h"
#include "transfers.h"

/* ---- the model ---- */

const char *model_text(Sched *s) {
  static const char *const channels[] = {
      "untagged, one comm stream per rank", "untagged, one FIFO per rank pair",
      "untagged, one FIFO per directed rank pair", "matched by tag"};
  const ChannelModel *m = &s->opt->model;
  if (is_default_model(m) && s->lowered->lowering == PIPE_CHANNELS)
    return "rendezvous, untagged, one comm stream per channel, or per rank";
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

/* ---- lists for the machine ---- */

static uint64_t message_bytes(const Sched *s, const PipeInstr *in) {
  if (s->model->graph)
    return link_bytes(
        s, link_at(s, s->model->graph->link_at[(size_t)in->edge * s->model->nmb + in->mb]));
  uint32_t from = pipe_is_send(in->op) ? in->stage : pipe_other_end(sched_graph(s), in);
  return s->model->stage[is_forward(in) ? from : s->model->stage[from].prev].boundary_bytes;
}

static void keep_stall(Sched *s, Verdict *verdict, const MachineList *list, const StallHop *hop,
                       uint32_t nhop, const char *what) {
  Stall *stall = NEW(s->arena, Stall);
  *stall = (Stall){what, hop, nhop, list, NULL, NULL};
  verdict->stall = stall;
}

/* An instruction without its needs. comm_of: find_communicators. */
static MachineInstr machine_instr(const Sched *s, const uint32_t *comm_of, const PipeInstr *in) {
  MachineInstr m = {.kind = MACHINE_COMPUTE, .need = {NONE, NONE}};
  if (is_wait_send(s, in))
    return m;
  if (pipe_is_sum(in->op)) {
    uint32_t sum = in->op == PIPE_REDUCE ? s->model->stage[in->stage].model
                                         : s->model->nmodel + s->model->tie_of[in->stage];
    m.kind = MACHINE_ALL;
    m.peer = comm_of[sum];
    m.tensor = UINT64_MAX - sum;
  } else if (in->op == PIPE_SIDE_COMM) { /* alone in its communicator */
    m.kind = MACHINE_ALL;
    m.peer = 2 * s->model->nmodel + s->model->ntie + s->model->stage[in->stage].rank;
    m.tensor = UINT64_MAX - m.peer;
  } else if (pipe_op_info[in->op].comm) {
    m.kind = pipe_is_send(in->op) ? MACHINE_SEND : MACHINE_RECV;
    m.peer = in->peer;
    m.tensor = tensor_of(s, in);
    m.bytes = message_bytes(s, in);
  }
  return m;
}

static uint32_t slot_of(const PipeRank *k, uint32_t first, uint32_t n, uint32_t j) {
  return n < 2 || first == NONE ? first : k->list[first + j];
}

static MachineList *lists_of_program(Sched *s) {
  const uint32_t *comm_of = find_communicators(s);
  MachineList *list = NEW_ARRAY(s->arena, MachineList, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const PipeRank *k = &s->prog->rank[r];
    MachineInstr *out = arena_alloc(s->arena, (size_t)k->ninstr * sizeof *out + 1);
    uint32_t *touched = NEW_ARRAY(s->arena, uint32_t, k->nslot); /* 1 + position; 0: none */
    uint32_t held = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
    uint32_t *graded = NEW_ARRAY(s->arena, uint32_t,
                                 held); /* by chunk: 1 + the last gradient, or its REDUCE */
    size_t nmore = (size_t)k->nlist + (size_t)held * 2;
    uint32_t *more = arena_alloc(s->arena, nmore * sizeof *more + 1);
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      const uint32_t done = i + in->group + 1; /* after the whole action */
      out[i] = machine_instr(s, comm_of, in);
      out[i].more = more;
      uint32_t *last = &graded[s->model->stage[in->stage].chunk];
      if (in->op == PIPE_REDUCE || in->op == PIPE_U)
        out[i].need[0] = *last - 1;
      if (in->op == PIPE_REDUCE || in->op == PIPE_B || in->op == PIPE_W)
        *last = done;
      if (in->op == PIPE_TIE)
        for (uint32_t c = 0; c < held; c++) /* for all rows of the tie on this rank */
          if (s->model->stage[s->model->rank_stage[s->model->rank_stage0[r] + c]].tied ==
              in->stage) {
            more[out[i].nmore++] = graded[c] - 1;
            graded[c] = i + 1;
          }
      for (int e = 0; e < 2; e++) {
        uint32_t n = pipe_fields(&s->model->stage[in->stage], in->op, e == 0),
                 first = e ? in->out : in->in;
        for (uint32_t j = 0; j < n && first != NONE; j++) {
          uint32_t slot = slot_of(k, first, n, j), before = touched[slot] - 1;
          if (j == 0) /* NONE: no touch yet */
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

/* The most needs of a whole list: the RECV of each op, and each transfer twice, since a WAIT above
 * a transfer also holds up the op below. */
static size_t most_needs(const List *l) {
  size_t n = 0;
  for (uint32_t i = 0; i < l->n; i++)
    n += is_comm(&l->instr[i]) ? 3 : 1;
  return n;
}

static MachineList *lists_of_file(Sched *s, const Places *where) {
  const uint32_t *comm_of = find_communicators(s);
  MachineList *list = NEW_ARRAY(s->arena, MachineList, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const List *l = &s->orders->lists[r];
    MachineInstr *out = arena_alloc(s->arena, (size_t)l->n * sizeof *out + 1);
    uint32_t *more = arena_alloc(s->arena, most_needs(l) * sizeof *more + 1);
    uint32_t above = NONE, waited = 0; /* last computation; transfers above `waited` are done */
    const uint32_t *held = more;       /* needs of a WAIT between it and a transfer: */
    uint32_t nheld = 0;                /* later transfers and the next computation have them too */
    for (uint32_t i = 0; i < l->n; i++) {
      const PipeInstr *in = &l->instr[i];
      out[i] = machine_instr(s, comm_of, in);
      out[i].more = more;
      if (is_wait_send(s, in)) {
        out[i].need[0] = where->send[tensor_of(s, in)] - 1;
        above = i;
      } else if (is_comm(in)) {
        out[i].need[0] = PLANTED(LISTS_ABOVE) ? NONE : above;
        out[i].group = in->group;
      } else {
        PipeInstr recv;
        if (own_transfer(s, in, false, &recv) && !PLANTED(LISTS_READS))
          more[out[i].nmore++] = where->recv[tensor_of(s, &recv)] - 1;
        for (uint32_t k = 0; k < nheld; k++)
          more[out[i].nmore++] = held[k];
        above = i, nheld = 0;
      }
      for (; in->waits == WAIT_ALL && !PLANTED(LISTS_WAIT) && waited < i; waited++)
        if (is_comm(&l->instr[waited]))
          more[out[i].nmore++] = waited;
      more += out[i].nmore;
      if (in->waits == WAIT_ALL && is_comm(in))
        held = out[i].more, nheld = out[i].nmore;
      else if (is_comm(in) && !is_wait_send(s, in) && nheld > 0)
        out[i].more = held, out[i].nmore = nheld;
    }
    list[r] = (MachineList){out, l->n};
  }
  return list;
}

/* ---- the verdict ---- */

static const PipeInstr *instr_at(const Sched *s, MachineAt at) {
  return s->orders->lists ? &s->orders->lists[at.rank].instr[at.index]
                          : &s->prog->rank[at.rank].instr[at.index];
}

const char *list_text(Sched *s, MachineAt at) { return list_op_text(s, instr_at(s, at)); }

static bool is_joint(const MachineList *l, uint32_t a, uint32_t b) {
  return a < b ? l->instr[a].group >= b - a : l->instr[b].group >= a - b;
}

static void report_cycle(Sched *s, Verdict *verdict, const MachineList *list,
                         const MachineResult *got) {
  uint32_t nrank = 0, first = got->hop[0].at.rank, second = first;
  enum { SHOWN = 8 };
  for (uint32_t k = 0; k < got->nhop; k++) {
    bool new_rank = true;
    for (uint32_t j = 0; j < k; j++)
      new_rank &= got->hop[j].at.rank != got->hop[k].at.rank;
    nrank += new_rank;
    second = new_rank ? got->hop[k].at.rank : second;
  }
  Span place = s->orders->site[instr_at(s, got->hop[0].at)->site];
  if (nrank == 1)
    diag_error(s->diag, DIAG_DEADLOCK, place, "deadlock: rank %u waits for itself; model: %s",
               first, model_text(s));
  else if (nrank == 2)
    diag_error(s->diag, DIAG_DEADLOCK, place,
               "deadlock: ranks %u and %u wait for each other; model: %s", first, second,
               model_text(s));
  else
    diag_error(s->diag, DIAG_DEADLOCK, place, "deadlock: wait cycle of %u ranks; model: %s", nrank,
               model_text(s));
  StallHop *hop = NEW_ARRAY(s->arena, StallHop, got->nhop);
  for (uint32_t k = 0; k < got->nhop; k++) {
    const MachineHop *h = &got->hop[k];
    MachineAt next = got->hop[(k + 1) % got->nhop].at;
    const PipeInstr *at = instr_at(s, h->at), *on = instr_at(s, h->on);
    const char *why = h->why == WAIT_ROOM    ? "has no room in the buffer before"
                      : h->why == WAIT_ORDER ? "is posted after"
                      : pipe_is_send(at->op) && h->why == WAIT_PARTNER && s->opt->model.buffer > 0
                          ? "has no room in the buffer, and needs"
                      : is_comm(at) && !is_wait_send(s, at) && h->why == WAIT_NEED ? "comes after"
                                                                                   : "needs";
    bool direct = next.rank == h->on.rank && next.index == h->on.index;
    bool joint = next.rank == h->on.rank && is_joint(&list[next.rank], next.index, h->on.index);
    const char *where = joint && !direct ? arena_printf(s->arena, ", in a group with %s",
                                                        list_op_text(s, instr_at(s, next)))
                        : !direct ? arena_printf(s->arena, ", which rank %u runs only after %s",
                                                 next.rank, list_op_text(s, instr_at(s, next)))
                        : next.rank != h->at.rank
                            ? arena_printf(s->arena, ", where rank %u is", next.rank)
                            : "";
    const char *text = arena_printf(s->arena, "rank %u is at %s, which %s %s%s", h->at.rank,
                                    list_op_text(s, at), why, list_op_text(s, on), where);
    hop[k] = (StallHop){h->at.rank, h->at.index, h->on.index, text};
    if (k < SHOWN || k + 1 == got->nhop)
      diag_note(s->diag, s->orders->site[at->site], "%s", text);
    else if (k == SHOWN)
      diag_note(s->diag, NO_SPAN, "and so on, %u more", got->nhop - SHOWN - 1);
  }
  if (!got->shortest)
    diag_note(s->diag, NO_SPAN, "a shorter wait cycle may exist: the search stopped at its limit");
  keep_stall(s, verdict, list, hop, got->nhop, "deadlock");
}

/* The index of a transfer, from 1, among the transfers of its directed pair. */
static uint32_t number_of(const MachineList *list, MachineAt at) {
  const MachineInstr *l = list[at.rank].instr;
  uint32_t n = 1;
  for (uint32_t i = 0; i < at.index; i++)
    n += l[i].kind == l[at.index].kind && l[i].peer == l[at.index].peer;
  return n;
}

static void report_mispaired(Sched *s, Verdict *verdict, const MachineList *list,
                             const MachineHop *h) {
  const PipeInstr *at = instr_at(s, h->at), *on = instr_at(s, h->on);
  uint32_t from = pipe_is_send(at->op) ? h->at.rank : h->on.rank,
           to = pipe_is_send(at->op) ? h->on.rank : h->at.rank;
  diag_error(s->diag, DIAG_MATCHING, s->orders->site[at->site],
             "%s on rank %u meets %s on rank %u; model: %s", list_op_text(s, at), h->at.rank,
             list_op_text(s, on), h->on.rank, model_text(s));
  if (pipe_is_sum(at->op))
    diag_note(s->diag, s->orders->site[on->site],
              "both are number %u of the sums over the same ranks, which rank %u "
              "and rank %u issue in different orders",
              number_of(list, h->at), h->at.rank, h->on.rank);
  else
    diag_note(s->diag, s->orders->site[on->site], "both are number %u from rank %u to rank %u",
              number_of(list, h->at), from, to);
  StallHop *hop = NEW_ARRAY(s->arena, StallHop, 2);
  hop[0] = (StallHop){h->at.rank, h->at.index, h->on.index, NULL};
  hop[1] = (StallHop){h->on.rank, h->on.index, h->at.index, NULL};
  for (int k = 0; k < 2; k++)
    hop[k].text = arena_printf(s->arena, "%s on rank %u meets %s on rank %u",
                               list_op_text(s, k ? on : at), hop[k].rank,
                               list_op_text(s, k ? at : on), hop[!k].rank);
  keep_stall(s, verdict, list, hop, 2, "a SEND meets a RECV of another tensor");
}

/* Runs the machine; with opt->verify, also verifies its verdict. */
static MachineResult run_machine(Sched *s, Arena *a, const MachineList *list, ChannelModel model) {
  MachineResult got = machine_run(a, list, s->model->nrank, model, s->opt->verify);
  const char *wrong = s->opt->verify ? machine_verify(a, list, s->model->nrank, model, &got) : NULL;
  if (wrong)
    guard_fail(GUARD_BUG, "the certificate of check_channels: %s", wrong);
  return got;
}

/* Do the lists complete? Reports nothing. With opt->verify, verifies the certificate: a clock or a
 * wait cycle. */
static bool lists_complete(Sched *s, const MachineList *list, ChannelModel model) {
  Arena scratch = {0};
  bool done = run_machine(s, &scratch, list, model).status == MACHINE_DONE;
  arena_free(&scratch);
  return done;
}

/* Finds the least buffer with which the lists complete; false: no buffer suffices. With
 * opt->verify, checks this buffer, and that one unit less does not suffice. */
static bool find_least(Sched *s, Verdict *verdict, const MachineList *list) {
  ChannelModel m = s->opt->model;
  const bool found = machine_least_buffer(list, s->model->nrank, m, &verdict->least_buffer);
  if (!s->opt->verify)
    return found;
  m.buffer = found ? verdict->least_buffer : UINT64_MAX;
  BUG_IF(lists_complete(s, list, m) != found);
  m.buffer--;
  BUG_IF(found && verdict->least_buffer > 0 && lists_complete(s, list, m));
  return found;
}

/* The lists, with each run of consecutive transfers as one group. */
static MachineList *join_transfers(Sched *s, const MachineList *list) {
  MachineList *joined = arena_alloc(s->arena, s->model->nrank * sizeof *joined + 1);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const size_t bytes = (size_t)list[r].n * sizeof *list[r].instr;
    MachineInstr *in = memcpy(arena_alloc(s->arena, bytes + 1), list[r].instr, bytes);
    for (uint32_t i = list[r].n; i-- > 0;) {
      const bool moves = in[i].kind == MACHINE_SEND || in[i].kind == MACHINE_RECV,
                 next = i + 1 < list[r].n &&
                        (in[i + 1].kind == MACHINE_SEND || in[i + 1].kind == MACHINE_RECV);
      in[i].group = moves && next ? in[i + 1].group + 1 : 0;
    }
    joined[r] = (MachineList){in, list[r].n};
  }
  return joined;
}

/* Tries remedies and offers the first that works. */
static void offer_help(Sched *s, const MachineList *list) {
  const ChannelModel *model = &s->opt->model;
  ChannelModel m = *model;
  if (!s->diag->out)
    return; /* no reader */
  if (m.buffer == 0 && m.channels <= CHANNELS_PAIR &&
      lists_complete(s, join_transfers(s, list), m)) {
    diag_help(s->diag,
              "the lists complete if transfers with nothing computed between them are one group%s",
              s->orders->lists ? ": join their cells with '+'" : "");
    return;
  }
  static const char *const name[] = {"", "one FIFO per rank pair (--channels=pair)",
                                     "one FIFO per directed rank pair (--channels=edge)",
                                     "transfers matched by tag (--channels=tagged)"};
  for (int c = (int)model->channels + 1; c <= CHANNELS_TAGGED; c++) {
    m.channels = (MachineChannels)c;
    if (!lists_complete(s, list, m))
      continue;
    diag_help(s->diag, "the lists complete with %s", name[c]);
    return;
  }
  if (s->orders->lists) /* a global order completes on every network */
    diag_help(s->diag,
              "the lists complete with the transfers that pipec derives: --lowering=global");
}

/* Do the lists complete under opt->model? False: reported, without a help. */
static bool prove(Sched *s, Verdict *verdict, const MachineList *list) {
  ChannelModel model = s->opt->model;
  verdict->machine_list = list;
  Arena scratch = {0};
  MachineResult got = run_machine(s, &scratch, list, model);
  if (got.status == MACHINE_DONE) {
    arena_free(&scratch);
    if (model.buffer > 0)
      find_least(s, verdict, list);
    return true;
  }
  if (got.status == MACHINE_MISPAIRED) {
    report_mispaired(s, verdict, list, &got.hop[0]);
  } else {
    BUG_IF(got.nhop == 0 || got.hop[0].why == WAIT_NOBODY); /* every transfer has both ends */
    report_cycle(s, verdict, list, &got);
    const bool has_least = find_least(s, verdict, list);
    if (has_least && !model.in_bytes && verdict->least_buffer == model.buffer + 1)
      diag_help(
          s->diag,
          "the lists complete with one more message of buffer per directed rank pair: --sends=buffered:%llu",
          (unsigned long long)verdict->least_buffer);
    else if (has_least)
      diag_note(s->diag, NO_SPAN, "the lists complete if each directed rank pair buffers %s",
                buffer_text(s, verdict->least_buffer));
    else
      diag_note(s->diag, NO_SPAN, "no buffer size lets the lists complete");
  }
  arena_free(&scratch);
  return false;
}

static bool judge(Sched *s, Verdict *verdict, const MachineList *list) {
  const bool proved = prove(s, verdict, list);
  if (!proved)
    offer_help(s, list);
  return proved;
}

static bool has_sizes(Sched *s) {
  if (!s->opt->model.in_bytes || s->model->sized)
    return true;
  diag_error(
      s->diag, DIAG_NO_SIZES, NO_SPAN,
      "--sends=buffered: a buffer in bytes needs the size of messages: a `bytes` clause or a profile");
  return false;
}

/* Why the lists do not complete on the channels of the engines, opt->model; NULL: they complete. */
static const char *engines_fail(Sched *s, const MachineList *list) {
  Arena scratch = {0};
  const char *why = NULL;
  const MachineResult got = run_machine(s, &scratch, list, s->opt->model);
  if (got.status == MACHINE_STUCK)
    why = "the ranks would deadlock";
  if (got.status == MACHINE_MISPAIRED) {
    const PipeInstr *at = instr_at(s, got.hop[0].at), *on = instr_at(s, got.hop[0].on);
    why = arena_printf(s->arena, "%s and %s would be mispaired", list_op_text(s, at),
                       list_op_text(s, on));
  }
  arena_free(&scratch);
  return why;
}

bool prove_lists(Sched *s, Orders *orders, Verdict *verdict) {
  ChannelModel model = s->opt->model;
  Places where;
  if (!has_sizes(s) || !find_places(s, orders, &where))
    return false;
  const MachineList *list = lists_of_file(s, &where);
  if (!judge(s, verdict, list))
    return false;
  if (is_default_model(&model))
    return true;
  /* Engines follow the weakest model: the lists complete under it, or there is no program. */
  s->opt->model = (ChannelModel){.channels = CHANNELS_RANK};
  const char *why = engines_fail(s, list);
  if (why && !s->opt->check_only) {
    prove(s, verdict, list);
    diag_help(s->diag, "the engines can run the transfers that pipec derives: "
                       "--lowering=global; --check proves the lists of the file");
    return false;
  }
  s->opt->model = model;
  verdict->only_lists = why;
  return true;
}

bool check_channels(Sched *s, Verdict *verdict) {
  return has_sizes(s) && judge(s, verdict, lists_of_program(s));
}
