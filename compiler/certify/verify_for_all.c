/* SPDX-License-Identifier: MIT
 * Checks the certificate of a program for every M (for_all_proof.h).
 *
 * Definition: a row names by distance what it uses. So what the validator finds at a row depends on
 * three things: how earlier uses have left its slots, what it waits for, and its numbers. The notes
 * claim the first, as a state and numbers.
 *
 * Lemma: the notes are true in all turns of all loops, for all n. Proof: the rows' claims about the
 * uses before them, and what uses leave, are the same set (verify_sets.c, verify_uses.c).
 *
 * Lemma: a row is allowed in every turn and for every n. Proof: the states of its notes do not
 * move, so it does what it does in its first turn for n = 0, and there the validator has allowed
 * it.
 *
 * Lemma: the ranks complete. Proof: the times are one order of all rows, and a row waits only for
 * rows above it. So the ranks can run all rows in this order, one after the other. Streams that run
 * side by side wait for less. */
#include <stdlib.h>
#include <string.h>

#include "verify_for_all.h"
#include "pipe_rows.h"

bool for_all_no(ForAllCheck *x, const char *why) {
  x->why = x->why ? x->why : why;
  return false;
}

bool for_all_no_at(ForAllCheck *x, uint32_t rank, const ForAllRow *row, const char *why) {
  if (x->why)
    return false;
  const char *op = row->op < PIPE_NOPS ? pipe_op_info[row->op].text : "?";
  return for_all_no(x, arena_printf(x->arena, "%s, at %u%s%lld of rank %u", why, row->stage, op,
                                    row->has_mb ? (long long)row->mb.at : -1, rank));
}

Num for_all_grown(const ForAllProof *e, PipeGrows what, uint32_t row, uint32_t pool, uint64_t at) {
  Num n = {(int64_t)at, 0, 0};
  for (uint32_t i = 0; i < e->cls->ngrow; i++)
    if (e->cls->grow[i].what == (uint32_t)what && e->cls->grow[i].row == row &&
        e->cls->grow[i].pool == pool)
      n.by = e->cls->grow[i].by;
  return n;
}

/* ---- words ---- */

typedef struct Reader {
  ForAllCheck *x;
  uint32_t rank, at;
  VEC(ForAllWord) word;
} Reader;

static int64_t step_of(uint32_t word) {
  int64_t n = word & 0xffffff;
  return n >= 0x800000 ? n - 0x1000000 : n;
}

/* False: such a word cannot stand here. */
static bool read_word(Reader *r, bool in_loop, ForAllWord *w) {
  const uint32_t *all = r->x->e->word[r->rank], n = r->x->e->nword[r->rank], one = all[r->at++];
  *w = (ForAllWord){.tag = one >> 24};
  w->n.at = w->tag == PIPE_WORD_BEHIND ? step_of(one) : one & 0xffffff;
  if (r->at < n && all[r->at] >> 24 == PIPE_WORD_STEP)
    w->n.turn = step_of(all[r->at++]);
  if (r->at < n && all[r->at] >> 24 == PIPE_WORD_GROW)
    w->n.by = step_of(all[r->at++]);
  if (w->tag >= PIPE_WORD_SAME) {
    w->field = (uint32_t)w->n.at % PIPE_NFIELDS;
    w->op = (uint32_t)w->n.at % PIPE_DISTANCE / PIPE_NFIELDS;
    w->n.at /= PIPE_DISTANCE;
  } else if (w->tag >= PIPE_WORD_NEW && w->n.at == 0xffffff) {
    return false; /* NONE as an entry of a list */
  }
  return (w->n.turn == 0 || in_loop) && w->op < PIPE_NOPS && w->tag != PIPE_WORD_HIGH &&
         w->tag != PIPE_WORD_STEP && w->tag != PIPE_WORD_OUTER && w->tag != PIPE_WORD_GROW;
}

/* Fills in the row from its words. */
static bool describe(Reader *r, ForAllRow *row) {
  const uint32_t slices = pipe_slices(r->x->p);
  uint32_t group = 0;
  for (uint32_t i = row->word0 + 1; i < row->word0 + row->nword; i++) {
    const ForAllWord *w = &r->word.at[i];
    switch (w->tag) {
    case PIPE_WORD_MB: row->has_mb = true, row->mb = w->n; continue;
    case PIPE_WORD_GROUP: group = (uint32_t)w->n.at; break;
    case PIPE_WORD_EDGE: row->edge = (uint32_t)w->n.at; break;
    case PIPE_WORD_PEER: row->peer = (uint32_t)w->n.at; break;
    case PIPE_WORD_FORMULA: row->formula = (uint32_t)w->n.at; break;
    case PIPE_WORD_CHANNEL:
    case PIPE_WORD_SIDE: return for_all_no(r->x, "channels and side ops are not supported");
    case PIPE_WORD_AT:
    case PIPE_WORD_BEHIND:
    case PIPE_WORD_AHEAD:
    case PIPE_WORD_AFTER:
    case PIPE_WORD_INS:
    case PIPE_WORD_OUTS: break;
    default: continue;
    }
    if (!is_fixed(w->n))
      return for_all_no(r->x, "an op has different microbatches in different turns");
  }
  row->above = group; /* ops of its action below it, until place() */
  if (slices > 1 && row->has_mb && (row->mb.turn % slices || row->mb.by % slices))
    return for_all_no(r->x, "an op has different slices in different turns");
  row->slice = row->has_mb ? (uint32_t)(row->mb.at % slices) : 0;
  return true;
}

static bool read_row(Reader *r, bool in_loop, ForAllRank *k) {
  const uint32_t *all = r->x->e->word[r->rank], n = r->x->e->nword[r->rank];
  ForAllWord w;
  ForAllRow *row = vec_push(r->x->arena, &k->row);
  *row = (ForAllRow){.edge = NONE, .peer = NONE, .formula = NONE, .word0 = r->word.n};
  do {
    if (!read_word(r, in_loop, &w))
      return for_all_no(r->x, "a word that does not belong into a loop");
    *vec_push(r->x->arena, &r->word) = w;
  } while (r->at < n && all[r->at] >> 24 > PIPE_WORD_FINISH);
  row->nword = r->word.n - row->word0;
  const ForAllWord *op = &r->word.at[row->word0];
  if (!is_fixed(op->n) || op->tag >= PIPE_NOPS || op->n.at >= r->x->p->nstage)
    return for_all_no(r->x, "an op has different stages in different turns");
  row->op = op->tag, row->stage = (uint32_t)op->n.at;
  row->stream = pipe_op_info[row->op].stream;
  return describe(r, row);
}

static void end_part(Reader *r, ForAllRank *k, uint32_t row0, int64_t turns, int64_t by) {
  if (k->row.n > row0)
    *vec_push(r->x->arena, &k->part) = (ForAllPart){row0, k->row.n - row0, turns, by};
}

static bool read_rank(Reader *r, ForAllRank *k) {
  const uint32_t *all = r->x->e->word[r->rank], n = r->x->e->nword[r->rank];
  uint32_t row0 = 0;
  int64_t turns = 1, by = 0;
  bool in_loop = false;
  while (r->at < n) {
    const uint32_t tag = all[r->at] >> 24;
    if (tag == PIPE_WORD_FINISH) {
      for (r->at++; r->at < n; r->at++) /* skips what the end waits for */
        if (all[r->at] >> 24 != PIPE_WORD_AFTER)
          return for_all_no(r->x, "the end waits for something else from value to value");
      break;
    }
    if (tag == PIPE_WORD_LOOP || tag == PIPE_WORD_END) {
      ForAllWord w;
      if (in_loop == (tag == PIPE_WORD_LOOP) || !read_word(r, false, &w))
        return for_all_no(r->x, "a loop in a loop");
      end_part(r, k, row0, turns, by);
      row0 = k->row.n, in_loop = tag == PIPE_WORD_LOOP;
      turns = in_loop ? w.n.at : 1, by = in_loop ? w.n.by : 0;
      if (turns < 1 || by < 0)
        return for_all_no(r->x, "a loop that does not grow");
    } else if (!read_row(r, in_loop, k)) {
      return false;
    }
  }
  end_part(r, k, row0, turns, by);
  return !in_loop || for_all_no(r->x, "a loop without end");
}

/* Sets the counts of rows and updates above each row. False: an action crosses the end of a loop.
 * Then the second turn could begin in another action than the first, and the validator, at n = 0,
 * may not have seen a second turn. */
static bool place(ForAllCheck *x, ForAllRank *k) {
  Num pos = {0}, of_op[PIPE_NOPS] = {{0}}, done[PIPE_NSTREAMS] = {{0}},
      *updates = NEW_ARRAY(x->arena, Num, x->p->nstage);
  uint32_t in_action = 0;
  for (uint32_t i = 0; i < k->part.n; i++) {
    const ForAllPart *p = &k->part.at[i];
    const uint32_t begun = in_action;
    ForAllRow *first = &k->row.at[p->row0], *end = first + p->nrow;
    int64_t rows[PIPE_NSTREAMS] = {0};
    for (ForAllRow *c = first; c < end; c++)
      rows[c->stream]++;
    if (is_loop(p)) { /* growth by turn */
      pos.turn = p->nrow;
      for (int s = 0; s < PIPE_NSTREAMS; s++)
        done[s].turn = rows[s];
      for (int op = 0; op < PIPE_NOPS; op++)
        of_op[op].turn = 0;
      for (ForAllRow *c = first; c < end; c++)
        of_op[c->op].turn++, updates[c->stage].turn += c->op == PIPE_U;
    }
    for (ForAllRow *c = first; c < end; c++) {
      const uint32_t follow = c->above;
      c->pos = pos, c->updates = updates[c->stage];
      memcpy(c->of_op, of_op, sizeof of_op);
      for (int s = 0; s < PIPE_NSTREAMS; s++)
        c->done[s] = done[s];
      c->above = in_action, in_action = follow ? in_action + 1 : 0;
      pos.at++, of_op[c->op].at++, done[c->stream].at++, updates[c->stage].at += c->op == PIPE_U;
    }
    if (is_loop(p) && (in_action != begun || (in_action && p->turns < 2)))
      return false;
    /* The numbers are those after the first turn; add the other turns. */
    pos = num_last(pos, p);
    for (int op = 0; op < PIPE_NOPS; op++)
      of_op[op] = num_last(of_op[op], p);
    for (int s = 0; s < PIPE_NSTREAMS; s++)
      done[s] = num_last(done[s], p);
    for (uint32_t s = 0; s < x->p->nstage; s++)
      updates[s] = num_last(updates[s], p);
  }
  k->end = pos;
  return true;
}

static bool read_all(ForAllCheck *x) {
  const PipeProgram *p = x->p;
  x->rank = NEW_ARRAY(x->arena, ForAllRank, p->nrank);
  for (uint32_t r = 0; r < p->nrank; r++) {
    Reader in = {.x = x, .rank = r};
    ForAllRank *k = &x->rank[r];
    if (!read_rank(&in, k))
      return false;
    k->word = in.word.at;
    if (!place(x, k))
      return for_all_no(x, "a loop ends in an action");
    if (!num_same(k->end, for_all_grown(x->e, PIPE_GROWS_rank_ninstr, r, 0, p->rank[r].ninstr)))
      return for_all_no(x, "the length of a list differs");
  }
  return true;
}

/* ---- the program for n = 0, which the validator has allowed ---- */

static const PipeInstr *first_of(const ForAllCheck *x, uint32_t r, const ForAllRow *row) {
  return &x->p->rank[r].instr[row->pos.at];
}

/* The least q such that microbatches q apart are on the same row of a stage of the model; 0:
 * none. */
static int64_t period_of_rows(const ForAllCheck *x, uint32_t model) {
  const PipeProgram *p = x->p;
  const int64_t by = for_all_grown(x->e, PIPE_GROWS_program_nmb, 0, 0, p->nmb).by;
  const uint32_t *row = p->row ? &p->row[(size_t)model * p->nmb] : NULL;
  for (int64_t q = 1; row && q <= by; q++) {
    bool repeats = by % q == 0;
    for (int64_t i = q; i < p->nmb && repeats; i++)
      repeats = row[i] == row[i - q];
    if (repeats)
      return q;
  }
  return row ? 0 : 1;
}

/* Does the row reach microbatches that other rows of the stage table run? */
static bool is_run_elsewhere(const ForAllRow *c, int64_t period) {
  return period == 0 || c->mb.turn % period || c->mb.by % period;
}

/* The rows are those of the program for n = 0. A peer follows from the stage and, if tables place
 * microbatches, from the microbatch: so both must repeat. */
static bool check_rows(ForAllCheck *x) {
  const PipeProgram *p = x->p;
  int64_t *period = NEW_ARRAY(x->arena, int64_t, p->nmodel);
  for (uint32_t m = 0; m < p->nmodel; m++)
    period[m] = period_of_rows(x, m);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < x->rank[r].row.n; i++) {
      ForAllRow *c = &x->rank[r].row.at[i];
      if (c->pos.at >= p->rank[r].ninstr)
        return for_all_no(x, "the length of a list differs");
      const PipeInstr *at = first_of(x, r, c);
      const bool transfer = pipe_is_move(c->op);
      if (at->op != c->op || at->stage != c->stage || p->stage[c->stage].rank != r ||
          (c->has_mb ? at->mb != (uint64_t)c->mb.at : at->mb != NONE))
        return for_all_no_at(x, r, c, "a row differs");
      const uint32_t other = transfer ? pipe_other_end(pipe_graph(p), at) : c->stage;
      if (transfer)
        c->peer = at->peer;
      if (is_run_elsewhere(c, period[p->stage[c->stage].model]) ||
          is_run_elsewhere(c, period[p->stage[other].model]))
        return for_all_no_at(x, r, c, "the rank of a microbatch depends on its number");
    }
  return true;
}

/* ---- order ---- */

static const ForAllWord *note_of(const ForAllRank *k, const ForAllRow *c, uint32_t tag) {
  for (uint32_t i = c->word0; i < c->word0 + c->nword; i++)
    if (k->word[i].tag == tag)
      return &k->word[i];
  return NULL;
}

static Num time_of(const ForAllRank *k, const ForAllRow *c) {
  const ForAllWord *w = note_of(k, c, NOTE_TIME);
  return w ? w->n : num(-1);
}

/* A wait counts rows above. An update makes the next version. */
static bool check_numbers(ForAllCheck *x, uint32_t r) {
  ForAllRank *k = &x->rank[r];
  for (uint32_t i = 0; i < k->part.n; i++) {
    const ForAllPart *p = &k->part.at[i];
    for (uint32_t j = p->row0; j < p->row0 + p->nrow; j++) {
      const ForAllRow *c = &k->row.at[j];
      for (uint32_t w = c->word0; w < c->word0 + c->nword; w++) {
        const ForAllWord *v = &k->word[w];
        const int on = for_all_waits_for(c, v);
        if (on >= 0 && !(num_least(v->n, p, 0) && num_least(num_sub(c->done[on], v->n), p, 0)))
          return for_all_no_at(x, r, c, "the row waits for rows that do not exist");
        if (v->tag == PIPE_WORD_VERSION && c->op == PIPE_U &&
            !num_same(v->n, num_add(c->updates, num(1))))
          return for_all_no_at(x, r, c, "another version than the next");
      }
    }
  }
  return true;
}

/* Times rise from row to row. */
static bool check_times(ForAllCheck *x, uint32_t r) {
  ForAllRank *k = &x->rank[r];
  const ForAllPart one = {0, 0, 1, 0};
  Num before = num(0);
  for (uint32_t i = 0; i < k->part.n; i++) {
    const ForAllPart *p = &k->part.at[i];
    const ForAllRow *c = &k->row.at[p->row0];
    const Num first = time_of(k, c), last = time_of(k, c + p->nrow - 1);
    if (!num_least(num_sub((Num){first.at, 0, first.by}, before), &one, 1))
      return for_all_no_at(x, r, c, "no order");
    for (uint32_t j = 0; j + 1 < p->nrow; j++)
      if (!num_least(num_sub(time_of(k, c + j + 1), time_of(k, c + j)), p, 1))
        return for_all_no_at(x, r, c + j, "no order");
    const Num next = {first.at + first.turn, first.turn, first.by};
    if (is_loop(p) && !num_within(num_sub(next, last), p, 0, 1, 1))
      return for_all_no_at(x, r, c, "no order");
    before = num_last(last, p);
  }
  return true;
}

/* ---- transfers, sums, copies ---- */

/* A key for each ordered pair of ranks. */
static uint64_t pair_key(const ForAllCheck *x, uint32_t from, uint32_t to) {
  return ((uint64_t)from * x->p->nrank + to) * 8;
}

/* The n-th SEND from one rank to another and the n-th RECV there have equal tensors and times. */
static bool check_transfers(ForAllCheck *x) {
  Sets s = {.arena = x->arena};
  const PipeProgram *p = x->p;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const ForAllRank *k = &x->rank[r];
    /* transfers so far, to and from each other rank */
    Num *count = NEW_ARRAY(x->arena, Num, 2 * (size_t)p->nrank);
    for (uint32_t i = 0; i < k->part.n; i++) {
      const ForAllPart *part = &k->part.at[i];
      const ForAllRow *c = &k->row.at[part->row0];
      for (uint32_t j = 0; j < part->nrow; j++)
        if (pipe_is_move(c[j].op))
          count[2 * c[j].peer + (c[j].op == PIPE_RECV_F || c[j].op == PIPE_RECV_B)].turn++;
      for (uint32_t j = 0; j < part->nrow; j++) {
        if (!pipe_is_move(c[j].op))
          continue;
        const bool recv = c[j].op == PIPE_RECV_F || c[j].op == PIPE_RECV_B;
        const PipeInstr *at = first_of(x, r, &c[j]);
        Num *n = &count[2 * c[j].peer + recv];
        const uint32_t sender = recv ? pipe_other_end(pipe_graph(p), at) : c[j].stage;
        const Num tuple[] = {*n,
                             c[j].mb,
                             time_of(k, &c[j]),
                             num(c[j].op == PIPE_SEND_F || c[j].op == PIPE_RECV_F),
                             num(sender),
                             num(c[j].edge)};
        sets_put(&s, part, recv ? pair_key(x, c[j].peer, r) : pair_key(x, r, c[j].peer), tuple, 6,
                 recv ? -1 : 1);
        n->at++;
      }
      for (uint32_t j = 0; j < 2 * p->nrank; j++)
        count[j] = num_last(count[j], part);
    }
  }
  return sets_cancel(&s) || for_all_no(x, "a SEND and its RECV do not meet");
}

/* All members of a sum take part in the same sums, at the same times, and have equally many
 * updates. */
static bool check_sums(ForAllCheck *x) {
  Sets s = {.arena = x->arena};
  const PipeProgram *p = x->p;
  Num *updates = NEW_ARRAY(x->arena, Num, p->nstage);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const ForAllRank *k = &x->rank[r];
    for (uint32_t i = 0; i < k->part.n; i++) {
      const ForAllPart *part = &k->part.at[i];
      for (uint32_t j = part->row0; j < part->row0 + part->nrow; j++) {
        const ForAllRow *c = &k->row.at[j];
        if (c->op == PIPE_U)
          updates[c->stage] = num_add(updates[c->stage], (Num){part->turns, 0, part->by});
        if (!pipe_is_sum(c->op))
          continue;
        const uint32_t tie = c->op == PIPE_TIE,
                       next = tie ? p->stage[c->stage].tie : p->stage[c->stage].replica;
        const Num time[] = {time_of(k, c)};
        sets_put(&s, part, 2 * (uint64_t)c->stage + tie, time, 1, 1);
        sets_put(&s, part, 2 * (uint64_t)next + tie, time, 1, -1);
      }
    }
  }
  for (uint32_t i = 0; i < p->nstage; i++)
    if (!num_same(updates[i], updates[p->stage[i].replica]))
      return for_all_no(x, "replicas have different numbers of updates");
  return sets_cancel(&s) || for_all_no(x, "a sum lacks a member");
}

/* Copies of a group of ranks take turns: each turn is later than the turn before. */
static bool check_turns(ForAllCheck *x) {
  Sets s = {.arena = x->arena};
  const PipeProgram *p = x->p;
  const ForAllPart one = {0, 0, 1, 0};
  Num *all = NEW_ARRAY(x->arena, Num, p->ngroup + (size_t)1);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t r = 0; r < p->nrank; r++) {
      const ForAllRank *k = &x->rank[r];
      const uint32_t g = p->rank[r].group;
      for (uint32_t i = 0; i < k->part.n && g; i++) {
        const ForAllPart *part = &k->part.at[i];
        for (uint32_t j = part->row0; j < part->row0 + part->nrow; j++) {
          const ForAllRow *c = &k->row.at[j];
          const ForAllWord *turn = note_of(k, c, PIPE_WORD_TURN), *was = note_of(k, c, NOTE_TURN);
          if (c->stream != PIPE_COPY)
            continue;
          if (pass == 0) {
            all[g - 1] = num_add(all[g - 1], (Num){part->turns, 0, part->by});
            continue;
          }
          const Num time = time_of(k, c), t[] = {turn ? turn->n : num(-1), time};
          sets_put(&s, part, g, t, 2, 1);
          if (num_same(num_last(t[0], part), num_sub(all[g - 1], num(1)))) {
            const Num last[] = {num_last(t[0], part), num_last(time, part)};
            sets_put(&s, &one, g, last, 2, -1); /* the last turn: no copy follows it */
          }
          if (!was && (!turn || !num_same(turn->n, num(0))))
            return for_all_no_at(x, r, c, "a copy comes after none");
          if (!was)
            continue;
          const Num before[] = {num_sub(t[0], num(1)), was->n};
          if (!num_least(num_sub(time, was->n), part, 1) || !num_least(t[0], part, 1))
            return for_all_no_at(x, r, c, "a copy is out of turn");
          sets_put(&s, part, g, before, 2, -1);
        }
      }
    }
  return sets_cancel(&s) || for_all_no(x, "copies do not take turns");
}

/* ---- completeness ---- */

/* The ops that each microbatch has exactly once: per stage of the model or, if no table places
 * microbatches, per row of the stage table. */
enum { ALL_F, ALL_I, ALL_W };

static bool in_set(uint32_t op, int set) {
  return set == ALL_F   ? op == PIPE_F
         : set == ALL_I ? op == PIPE_B || op == PIPE_I
                        : op == PIPE_B || op == PIPE_W;
}

static bool check_all(ForAllCheck *x) {
  Sets s = {.arena = x->arena};
  const PipeProgram *p = x->p;
  const ForAllProof *e = x->e;
  for (int set = ALL_F; set <= ALL_W; set++) {
    if (p->forward && set != ALL_F)
      continue;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < x->rank[r].part.n; i++) {
        const ForAllPart *part = &x->rank[r].part.at[i];
        for (uint32_t j = part->row0; j < part->row0 + part->nrow; j++) {
          const ForAllRow *c = &x->rank[r].row.at[j];
          if (in_set(c->op, set))
            sets_put(&s, part, (uint64_t)set << 32 | (p->row ? p->stage[c->stage].model : c->stage),
                     &c->mb, 1, 1);
        }
      }
    for (uint32_t i = 0; i < (p->row ? p->nmodel : p->nstage); i++) {
      const Num first = p->row ? num(0)
                               : for_all_grown(e, PIPE_GROWS_stage_mb0, i, 0, p->stage[i].mb0),
                n = p->row ? for_all_grown(e, PIPE_GROWS_program_nmb, 0, 0, p->nmb)
                           : for_all_grown(e, PIPE_GROWS_stage_nmb, i, 0, p->stage[i].nmb),
                mb = {first.at, 1, first.by};
      const ForAllPart as_loop = {0, 0, n.at, n.by};
      if (n.at > 1)
        sets_put(&s, &as_loop, (uint64_t)set << 32 | i, &mb, 1, -1);
      else if (n.at < 1 || n.by != 0)
        return for_all_no(x, "a stage with too few microbatches");
      else
        sets_put(&s, &(ForAllPart){0, 0, 1, 0}, (uint64_t)set << 32 | i, &first, 1, -1);
    }
  }
  return sets_cancel(&s) || for_all_no(x, "not every microbatch has its ops, once");
}

/* A stage has transfers of a kind along an edge for every microbatch that has F, or for none. Each
 * OFF has one LOAD. */
static bool check_moves(ForAllCheck *x) {
  Sets s = {.arena = x->arena};
  const PipeProgram *p = x->p;
  const uint32_t edges = p->nedge + 1;
  uint8_t *moves = NEW_ARRAY(x->arena, uint8_t, (size_t)p->nstage * PIPE_NOPS * edges);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < x->rank[r].part.n; i++) {
      const ForAllPart *part = &x->rank[r].part.at[i];
      for (uint32_t j = part->row0; j < part->row0 + part->nrow; j++) {
        const ForAllRow *c = &x->rank[r].row.at[j];
        if (c->op == PIPE_OFF || c->op == PIPE_LOAD)
          sets_put(&s, part, (uint64_t)c->stage << 32, &c->mb, 1, c->op == PIPE_OFF ? 1 : -1);
        if (!pipe_is_move(c->op))
          continue;
        const uint64_t at = ((uint64_t)c->stage * PIPE_NOPS + c->op) * edges +
                            (c->edge == NONE ? 0 : c->edge + 1);
        sets_put(&s, part, (uint64_t)1 << 60 | at, &c->mb, 1, 1);
        moves[at] = 1;
      }
    }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < x->rank[r].part.n; i++) {
      const ForAllPart *part = &x->rank[r].part.at[i];
      for (uint32_t j = part->row0; j < part->row0 + part->nrow; j++) {
        const ForAllRow *c = &x->rank[r].row.at[j];
        for (uint64_t op = PIPE_SEND_F; op <= PIPE_RECV_B && c->op == PIPE_F; op++)
          for (uint64_t g = 0; g < edges; g++) {
            const uint64_t at = ((uint64_t)c->stage * PIPE_NOPS + op) * edges + g;
            if (moves[at])
              sets_put(&s, part, (uint64_t)1 << 60 | at, &c->mb, 1, -1);
          }
      }
    }
  return sets_cancel(&s) || for_all_no(x, "not every microbatch has its transfers, once");
}

bool verify_for_all(Arena *a, const ForAllProof *e, const char **why) {
  Arena own = {0};
  ForAllCheck x = {.arena = &own, .e = e, .p = e->p};
  bool ok = e->p->lowering == PIPE_GLOBAL || for_all_no(&x, "only the lowering global is proved");
  ok = ok && read_all(&x) && check_rows(&x);
  for (uint32_t r = 0; r < e->p->nrank && ok; r++)
    ok = check_numbers(&x, r) && check_times(&x, r);
  ok = ok && check_transfers(&x) && check_sums(&x) && check_turns(&x) && check_all(&x) &&
       check_moves(&x) && for_all_uses(&x);
  *why = ok ? NULL : arena_printf(a, "%s", x.why);
  arena_free(&own);
  return ok;
}
