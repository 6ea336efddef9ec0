/* SPDX-License-Identifier: MIT
 * Plays a finished program once more, by rendezvous: it completes, and every SEND meets its own RECV. Part of
 * verify.c; takes nothing from the simulation of pipe_sim.c. Linear, but for groups of transfers, each member of
 * which looks at the others. */
#include "verify.h"

typedef struct Stream {
  uint32_t next; /* list position of the head; ninstr: finished */
  uint32_t done;
} Stream;
typedef struct Player {
  Stream on[3];
  uint32_t *turn; /* the next one of its group of copies, NULL: it is in none */
  uint8_t *met;   /* [ninstr] transfers at the head whose other end was there */
} Player;

static void step(const PipeRank *k, Stream *t, int stream) {
  t->done += t->next < k->ninstr;
  do
    t->next = t->next == NONE ? 0 : t->next + 1;
  while (t->next < k->ninstr && stream_of(k->instr[t->next].op) != stream);
}

/* The head of the COMM stream of r, if it has what it waits for. */
static const PipeInstr *ready(const PipeProgram *p, const Player *player, uint32_t r) {
  const Stream *t = &player[r].on[1];
  const PipeInstr *in = t->next < p->rank[r].ninstr ? &p->rank[r].instr[t->next] : NULL;
  return in && in->wait <= player[r].on[0].done && in->wait_copy <= player[r].on[2].done ? in
                                                                                         : NULL;
}

static uint32_t next_in_sum(const PipeProgram *p, bool tie, uint32_t row) {
  return tie ? p->stage[row].tie : p->stage[row].replica;
}

/* Carries out the REDUCE or TIE at the head of `row` if all rows that take part have come to it. */
static bool play_sum(const PipeProgram *p, Player *player, bool tie, uint32_t row) {
  uint32_t q = row;
  do {
    const PipeInstr *in = ready(p, player, p->stage[q].rank);
    if (!in || in->op != (tie ? PIPE_TIE : PIPE_REDUCE) || in->stage != q)
      return false;
  } while ((q = next_in_sum(p, tie, q)) != row);
  do
    step(&p->rank[p->stage[q].rank], &player[p->stage[q].rank].on[1], 1);
  while ((q = next_in_sum(p, tie, q)) != row);
  return true;
}

/* Runs the COMPUTE and the COPY stream as far as they go. */
static void play_rank(const PipeRank *k, Player *me) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int x = 0; x < 3; x += 2) {
      const Stream *other = &me->on[x ? 0 : 1], *third = &me->on[x ? 1 : 2];
      while (me->on[x].next < k->ninstr && k->instr[me->on[x].next].wait <= other->done &&
             k->instr[me->on[x].next].wait_copy <= third->done) {
        if (x && me->turn && k->instr[me->on[x].next].gout != *me->turn)
          break;
        BUG_IF(x && (k->instr[me->on[x].next].gout != NONE) != (me->turn != NULL));
        if (x && me->turn)
          ++*me->turn;
        step(k, &me->on[x], x);
        moved = true;
      }
    }
  }
}

/* The first of the group at the head of r that sends to (or receives from) peer and has not met its other end. */
static uint32_t next_unmet(const PipeProgram *p, const Player *player, uint32_t r, uint32_t peer,
                           bool send) {
  const PipeInstr *in = p->rank[r].instr;
  uint32_t head = player[r].on[1].next;
  for (uint32_t i = head; i <= head + in[head].group; i++)
    if (!player[r].met[i] && in[i].peer == peer && is_send(&in[i]) == send)
      return i;
  return NONE;
}

/* Goes past the group at the head if all of it has met its other end. */
static void pass_group(const PipeRank *k, Player *me) {
  uint32_t head = me->on[1].next, n = k->instr[head].group + 1u;
  for (uint32_t i = head; i < head + n; i++)
    if (!me->met[i])
      return;
  while (n-- > 0)
    step(k, &me->on[1], 1);
}

/* A transfer between the group at the head of r and that of one of its peers. The peer, or NONE. */
static uint32_t play_transfer(const PipeProgram *p, const VerifyEdges *edges, Player *player,
                              uint32_t r) {
  const PipeInstr *in = p->rank[r].instr;
  uint32_t head = player[r].on[1].next;
  for (uint32_t i = head; i <= head + in[head].group; i++) {
    uint32_t q = in[i].peer, j;
    const PipeInstr *theirs = player[r].met[i] ? NULL : ready(p, player, q);
    if (!theirs || theirs->op >= PIPE_REDUCE || next_unmet(p, player, r, q, is_send(&in[i])) != i ||
        (j = next_unmet(p, player, q, r, !is_send(&in[i]))) == NONE)
      continue;
    const PipeInstr *other = &p->rank[q].instr[j], *send = is_send(&in[i]) ? &in[i] : other,
                    *recv = is_send(&in[i]) ? other : &in[i];
    BUG_IF(is_forward(send) != is_forward(recv) || send->mb != recv->mb ||
           send->keep != recv->keep);
    uint32_t at = !p->edge           ? 0
                  : is_forward(send) ? p->edge[send->keep].out
                                     : p->edge[send->keep].in;
    BUG_IF(recv->stage != verify_passage(edges, send->stage, send->mb, is_forward(send), at).other);
    player[r].met[i] = player[q].met[j] = 1;
    pass_group(&p->rank[r], &player[r]);
    pass_group(&p->rank[q], &player[q]);
    return q;
  }
  return NONE;
}

void verify_play(const PipeProgram *p, const VerifyEdges *edges, Arena *a) {
  Player *player = NEW_ARRAY(a, Player, p->nrank);
  uint32_t *todo = NEW_ARRAY(a, uint32_t, p->nrank), ntodo = 0;
  uint8_t *queued = NEW_ARRAY(a, uint8_t, p->nrank);
  uint32_t *turn = NEW_ARRAY(a, uint32_t, p->ngroup);
  for (uint32_t r = 0; r < p->nrank; r++) {
    BUG_IF(p->rank[r].group > p->ngroup);
    player[r].turn = p->rank[r].group ? &turn[p->rank[r].group - 1] : NULL;
    player[r].met = NEW_ARRAY(a, uint8_t, p->rank[r].ninstr);
    for (int x = 0; x < 3; x++) {
      player[r].on[x].next = NONE;
      step(&p->rank[r], &player[r].on[x], x);
    }
    todo[ntodo++] = r;
    queued[r] = 1;
  }
  while (ntodo > 0) {
    uint32_t r = todo[--ntodo];
    queued[r] = 0;
    for (;;) {
      const uint32_t *mine_next = player[r].turn, before = mine_next ? *mine_next : 0;
      play_rank(&p->rank[r], &player[r]);
      for (uint32_t q = 0; mine_next && *mine_next != before && q < p->nrank; q++)
        if (player[q].turn == mine_next && q != r && !queued[q]) {
          queued[q] = 1;
          todo[ntodo++] = q;
        }
      const PipeInstr *mine = ready(p, player, r);
      if (mine && mine->op == PIPE_SIDE_COMM) {
        step(&p->rank[r], &player[r].on[1], 1);
        continue;
      }
      if (mine && mine->op >= PIPE_REDUCE) {
        uint32_t row = mine->stage;
        bool tie = mine->op == PIPE_TIE;
        if (!play_sum(p, player, tie, row))
          break;
        for (uint32_t q = next_in_sum(p, tie, row); q != row; q = next_in_sum(p, tie, q))
          if (!queued[p->stage[q].rank]) {
            queued[p->stage[q].rank] = 1;
            todo[ntodo++] = p->stage[q].rank;
          }
        continue;
      }
      uint32_t peer = mine ? play_transfer(p, edges, player, r) : NONE;
      if (peer == NONE)
        break;
      if (!queued[peer]) {
        queued[peer] = 1;
        todo[ntodo++] = peer;
      }
    }
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (int x = 0; x < 3; x++)
      BUG_IF(player[r].on[x].next < p->rank[r].ninstr);
}
