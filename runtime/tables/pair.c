/* SPDX-License-Identifier: MIT
 * Pairs the two sides of each transfer. */
#include <stdbool.h>
#include <stdlib.h>

#include "pipe_instr.h"
#include "pipe_rows.h"

/* True for instructions with another side: transfers, REDUCE, TIE. */
static bool has_pair(const PipeInstr *c) {
  return pipe_op_info[c->op].comm && c->op != PIPE_SIDE_COMM;
}

/* The first such instruction in the list of rank r at or after instruction i. */
static uint32_t next_comm(const PipeProgram *p, uint32_t r, uint32_t i) {
  while (i < p->rank[r].ninstr && !has_pair(&p->rank[r].instr[i]))
    i++;
  return i;
}

/* The first unpaired member of the group at `head` of rank r that sends to (or receives from) peer;
 * PIPE_NONE: none. */
static uint32_t unpaired(const PipeProgram *p, uint32_t *const *pair, uint32_t r, uint32_t head,
                         uint32_t peer, bool send) {
  const PipeInstr *c = p->rank[r].instr;
  for (uint32_t i = head; i <= head + c[head].group && i < p->rank[r].ninstr; i++)
    if (pair[r][i] == PIPE_NONE && c[i].peer == peer && pipe_is_send(c[i].op) == send)
      return i;
  return PIPE_NONE;
}

/* The next transfer of rank r after the group at `head`, if all of its members are paired; else
 * `head`. */
static uint32_t past_group(const PipeProgram *p, uint32_t *const *pair, uint32_t r, uint32_t head) {
  uint32_t end = head + p->rank[r].instr[head].group;
  for (uint32_t i = head; i <= end && i < p->rank[r].ninstr; i++)
    if (pair[r][i] == PIPE_NONE)
      return head;
  return next_comm(p, r, end + 1);
}

/* Pairs a member of the head group of rank r with one of the head group of its peer, *peer. */
static bool pair_one(const PipeProgram *p, uint32_t **pair, const uint32_t *head, uint32_t r,
                     uint32_t *peer) {
  const PipeInstr *c = p->rank[r].instr;
  for (uint32_t i = head[r]; i <= head[r] + c[head[r]].group && i < p->rank[r].ninstr; i++) {
    uint32_t q = c[i].peer;
    if (pair[r][i] != PIPE_NONE || q >= p->nrank || q == r || head[q] >= p->rank[q].ninstr ||
        pipe_is_sum(p->rank[q].instr[head[q]].op) ||
        unpaired(p, pair, r, head[r], q, pipe_is_send(c[i].op)) != i)
      continue;
    uint32_t j = unpaired(p, pair, q, head[q], r, !pipe_is_send(c[i].op));
    if (j == PIPE_NONE)
      continue;
    pair[r][i] = j;
    pair[q][j] = i;
    *peer = q;
    return true;
  }
  return false;
}

/* Plays only the COMM streams: a transfer takes place once both of its sides are heads. A rank is
 * on the stack at first, and again whenever its peer has completed a transfer with it. */
static uint32_t **pair_lists(const PipeProgram *p) {
  uint32_t n = p->nrank, top = 0;
  size_t total = 0, left = 0;
  for (uint32_t r = 0; r < n; r++)
    total += p->rank[r].ninstr;
  uint32_t **pair = malloc((n + 1) * sizeof *pair + (total + 1) * sizeof **pair);
  uint32_t *head = malloc((n + 1) * sizeof *head), *stack = malloc((n + 1) * sizeof *stack);
  bool *waits = calloc(n + 1, sizeof *waits); /* it is on the stack */
  if (!pair || !head || !stack || !waits)
    goto fail;
  uint32_t *at = (uint32_t *)(void *)(pair + n);
  for (uint32_t r = 0; r < n; r++) {
    pair[r] = at;
    at += p->rank[r].ninstr;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      pair[r][i] = PIPE_NONE;
      left += has_pair(&p->rank[r].instr[i]);
    }
    head[r] = next_comm(p, r, 0);
    stack[top++] = r;
    waits[r] = true;
  }
  while (top > 0) {
    uint32_t r = stack[--top];
    waits[r] = false;
    while (head[r] < p->rank[r].ninstr) {
      const PipeInstr *c = &p->rank[r].instr[head[r]];
      if (pipe_is_sum(c->op)) {
        uint32_t row = c->stage, s = row, members = 0;
        do {
          uint32_t m = p->stage[s].rank;
          const PipeInstr *e = head[m] < p->rank[m].ninstr ? &p->rank[m].instr[head[m]] : NULL;
          if (!e || e->op != c->op || e->stage != s)
            break;
          members++;
        } while ((s = pipe_sum_next(p->stage, c->op, s)) != row);
        if (s != row || members == 0)
          break;
        uint8_t op = c->op;
        do {
          uint32_t m = p->stage[s].rank;
          pair[m][head[m]] = head[p->stage[pipe_sum_next(p->stage, c->op, s)].rank];
        } while ((s = pipe_sum_next(p->stage, c->op, s)) != row);
        do {
          uint32_t m = p->stage[s].rank;
          head[m] = next_comm(p, m, head[m] + 1);
          if (m != r && !waits[m]) {
            stack[top++] = m;
            waits[m] = true;
          }
        } while ((s = pipe_sum_next(p->stage, op, s)) != row);
        left -= members;
        continue;
      }
      uint32_t q;
      if (!pair_one(p, pair, head, r, &q))
        break;
      head[r] = past_group(p, pair, r, head[r]);
      head[q] = past_group(p, pair, q, head[q]);
      left -= 2;
      if (!waits[q])
        stack[top++] = q;
      waits[q] = true;
    }
  }
  if (left == 0)
    goto done;
fail:
  free(pair);
  pair = NULL;
done:
  free(head);
  free(stack);
  free(waits);
  return pair;
}

uint32_t **pipe_pair(const PipeProgram *p) {
  char why[PIPE_EXPAND_TEXT];
  if (!pipe_is_rows(p))
    return pair_lists(p);
  PipeProgram *lists = pipe_expand(p, why);
  uint32_t **pair = lists ? pair_lists(lists) : NULL;
  pipe_expand_free(lists);
  return pair;
}
