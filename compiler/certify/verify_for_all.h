/* SPDX-License-Identifier: MIT
 * What the files of verify_for_all share: rows whose numbers move, and sets of them.
 *
 * A rank is a sequence of parts. The rows of a part are there `turns + by * n` times, turn after
 * turn. In turn u a number is at + turn * u + by * n. So a comparison of two numbers of one part
 * holds in all turns if it holds in the first and the last turn. It holds for all n if it holds for
 * n = 0 and does not get worse with n. */
#ifndef PIPEC_VERIFY_FOR_ALL_H
#define PIPEC_VERIFY_FOR_ALL_H

#include "for_all_proof.h"

typedef struct Num { int64_t at, turn, by; } Num;

typedef struct ForAllWord {
  uint32_t tag;       /* PipeWord or NoteTag */
  uint32_t op, field; /* PIPE_WORD_SAME: the op and field of the other row */
  Num n;
} ForAllWord;

typedef struct ForAllRow {
  uint32_t op, stage, stream;
  uint32_t edge, peer, formula, slice; /* NONE: no such word. peer: of transfers and copies */
  bool has_mb;
  Num mb;
  Num pos, of_op[PIPE_NOPS], done[PIPE_NSTREAMS]; /* rows above it: in all; of each op; of each
                                                     stream */
  Num updates;                  /* updates of its stage above it */
  uint32_t above;               /* ops of its action above it */
  uint32_t word0, nword;
} ForAllRow;

typedef struct ForAllPart {
  uint32_t row0, nrow;
  int64_t turns, by; /* turns >= 1, by >= 0 */
} ForAllPart;

typedef struct ForAllRank {
  VEC(ForAllRow) row;
  VEC(ForAllPart) part;
  Num end;               /* rows in the list */
  const ForAllWord *word;
} ForAllRank;

/* A set of tuples as a signed sum: equal tuples of opposite sign cancel (verify_sets.c). */
enum { TUPLE = 6 };
typedef struct Corner {
  uint64_t key; /* only corners with equal keys cancel */
  int64_t at[TUPLE], by[TUPLE], step[TUPLE]; /* step: all 0 outside loops */
  int32_t sign;
} Corner;
typedef struct Sets {
  Arena *arena;
  VEC(Corner) corner;
} Sets;
/* Adds (sign 1) or subtracts (-1) the tuples that a row of the part gives in all its turns. */
void sets_put(Sets *s, const ForAllPart *part, uint64_t key, const Num *tuple, uint32_t n,
              int sign);
/* Do all tuples cancel, for every n >= 0? Empties s. */
bool sets_cancel(Sets *s);

typedef struct ForAllCheck {
  Arena *arena;
  const ForAllProof *e;
  const PipeProgram *p;
  ForAllRank *rank;
  const char *why;
} ForAllCheck;

bool for_all_no(ForAllCheck *x, const char *why);
/* As for_all_no, and names the row. */
bool for_all_no_at(ForAllCheck *x, uint32_t rank, const ForAllRow *row, const char *why);

static inline Num num(int64_t at) { return (Num){at, 0, 0}; }
static inline Num num_add(Num a, Num b) {
  return (Num){a.at + b.at, a.turn + b.turn, a.by + b.by};
}
static inline Num num_sub(Num a, Num b) {
  return (Num){a.at - b.at, a.turn - b.turn, a.by - b.by};
}
static inline bool num_same(Num a, Num b) {
  return a.at == b.at && a.turn == b.turn && a.by == b.by;
}
static inline bool is_fixed(Num a) { return a.turn == 0 && a.by == 0; }
/* The value of a in the last turn; then one turn earlier. */
static inline Num num_last(Num a, const ForAllPart *p) {
  return (Num){a.at + a.turn * (p->turns - 1), 0, a.by + a.turn * p->by};
}
static inline Num num_before(Num a) { return (Num){a.at - a.turn, a.turn, a.by}; }
/* Is a >= least, for every n, in all turns except the first `from` and the last `but`? */
static inline bool num_within(Num a, const ForAllPart *p, int64_t from, int64_t but,
                              int64_t least) {
  const Num last = num_last(a, p);
  if (p->by == 0 && p->turns <= from + but)
    return true;
  return a.at + a.turn * from >= least && a.by >= 0 && last.at - a.turn * but >= least &&
         last.by >= 0;
}
static inline bool num_least(Num a, const ForAllPart *p, int64_t least) {
  return num_within(a, p, 0, 0, least);
}
static inline bool is_loop(const ForAllPart *p) { return p->turns != 1 || p->by != 0; }

/* The stream that word w of row c waits for; -1: w is no wait. */
static inline int for_all_waits_for(const ForAllRow *c, const ForAllWord *w) {
  return w->tag == PIPE_WORD_WAIT        ? (c->stream == PIPE_COMPUTE ? PIPE_COMM : PIPE_COMPUTE)
         : w->tag == PIPE_WORD_WAIT_COPY ? (c->stream == PIPE_COPY ? PIPE_COMM : PIPE_COPY)
                                         : -1;
}

/* The number `at` of the program, with its growth by n. */
Num for_all_grown(const ForAllProof *e, PipeGrows what, uint32_t row, uint32_t pool, uint64_t at);
/* verify_uses.c: proves the uses of slots, gradients and microbatches. */
bool for_all_uses(ForAllCheck *x);

#endif
