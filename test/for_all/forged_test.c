/* SPDX-License-Identifier: MIT
 * Forged programs for every M: words of a program, and of its certificate, are changed, and
 * verify_for_all is asked. What it takes for proved is made for some n, validated, and carried out
 * by a machine of this file; so it is right, or a mistake of the verifier. Others, of the last
 * update of a stage, are right for n = 0 and wrong for n = 1.
 *
 *   forged_test STDLIB_DIR FORGERIES SEED   prints a line for each program; exit status 0 iff no
 *                                          forgery is wrong
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../run/samples.h"
#include "driver.h"
#include "for_all_proof.h"
#include "for_all.h"
#include "pipe_loop.h"
#include "pipe_rows.h"
#include "validate.h"

static uint64_t seed;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

/* ---- does it complete? ---- */

typedef struct Play {
  const PipeProgram *p;
  uint32_t (*at)[PIPE_NSTREAMS];   /* [nrank] row of each stream */
  uint32_t (*done)[PIPE_NSTREAMS]; /* instructions that are completed */
  uint32_t *turn;                  /* [ngroup] */
} Play;

static const PipeInstr *next_of(Play *y, uint32_t r, uint32_t s) {
  const PipeRank *k = &y->p->rank[r];
  while (y->at[r][s] < k->ninstr && pipe_op_info[k->instr[y->at[r][s]].op].stream != s)
    y->at[r][s]++;
  return y->at[r][s] < k->ninstr ? &k->instr[y->at[r][s]] : NULL;
}

/* It can start. The ops of an action start with the first of them; here one after the other. */
static bool ready(Play *y, uint32_t r, uint32_t s) {
  const PipeInstr *c = next_of(y, r, s);
  for (uint32_t on = 0; c && on < PIPE_NSTREAMS; on++)
    if (on != s && y->done[r][on] < pipe_wait_for(c, (PipeOn)on))
      return false;
  return c != NULL;
}

static void end(Play *y, uint32_t r, uint32_t s) { y->at[r][s]++, y->done[r][s]++; }

/* False: what meets is not two ends of one tensor. */
static bool move(Play *y, uint32_t r, bool *moved) {
  const PipeProgram *p = y->p;
  const PipeInstr *c = next_of(y, r, PIPE_COMM);
  if (!ready(y, r, PIPE_COMM))
    return true;
  if (pipe_is_sum(c->op)) {
    uint32_t s = c->stage;
    do {
      const uint32_t q = p->stage[s].rank;
      const PipeInstr *d = next_of(y, q, PIPE_COMM);
      if (!ready(y, q, PIPE_COMM) || d->op != c->op || d->stage != s)
        return true;
      s = c->op == PIPE_TIE ? p->stage[s].tie : p->stage[s].replica;
    } while (s != c->stage);
    const uint32_t op = c->op, first = c->stage;
    do {
      end(y, p->stage[s].rank, PIPE_COMM);
      s = op == PIPE_TIE ? p->stage[s].tie : p->stage[s].replica;
    } while (s != first);
    *moved = true;
    return true;
  }
  const PipeInstr *d = next_of(y, c->peer, PIPE_COMM);
  if (!ready(y, c->peer, PIPE_COMM) || d->peer != r || pipe_is_sum(d->op))
    return true;
  if ((c->op ^ 1) != d->op || c->mb != d->mb || c->edge != d->edge ||
      pipe_other_end(pipe_graph(p), c) != d->stage)
    return false;
  end(y, c->peer, PIPE_COMM), end(y, r, PIPE_COMM);
  *moved = true;
  return true;
}

static bool completes(const PipeProgram *p) {
  Arena a = {0};
  Play y = {.p = p};
  bool ok = true, moved = true;
  y.at = arena_zalloc(&a, p->nrank, sizeof *y.at);
  y.done = arena_zalloc(&a, p->nrank, sizeof *y.done);
  y.turn = NEW_ARRAY(&a, uint32_t, p->ngroup + (size_t)1);
  while (moved && ok) {
    moved = false;
    for (uint32_t r = 0; r < p->nrank && ok; r++) {
      while (ready(&y, r, PIPE_COMPUTE))
        end(&y, r, PIPE_COMPUTE), moved = true;
      while (ready(&y, r, PIPE_COPY)) {
        const uint32_t g = p->rank[r].group;
        if (g && next_of(&y, r, PIPE_COPY)->turn != y.turn[g - 1])
          break;
        y.turn[g ? g - 1 : p->ngroup]++;
        end(&y, r, PIPE_COPY), moved = true;
      }
      for (bool more = true; more && ok;) {
        more = false;
        ok = move(&y, r, &more);
        moved |= more;
      }
    }
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t s = 0; s < PIPE_NSTREAMS; s++)
      ok = ok && !next_of(&y, r, s);
  arena_free(&a);
  return ok;
}

/* ---- forgeries ---- */

static bool is_step(uint32_t w) { return w >> 24 >= PIPE_WORD_STEP && w >> 24 <= PIPE_WORD_GROW; }
static bool is_note(uint32_t w) { return w >> 24 >= NOTE_TIME && w >> 24 <= NOTE_TURN; }

/* A place of a word that the kind is about; NONE: none was drawn. */
static uint32_t pick(const uint32_t *word, uint32_t n, uint32_t kind) {
  for (int i = 0; i < 400; i++) {
    const uint32_t at = draw(n), tag = word[at] >> 24;
    const bool fits = kind == 0   ? tag == PIPE_WORD_GROW
                      : kind == 1 ? tag == PIPE_WORD_STEP
                      : kind == 2
                          ? tag > PIPE_WORD_FINISH && !is_note(word[at]) && tag != PIPE_WORD_AT
                      : kind == 3 ? is_note(word[at])
                      : kind == 4 ? tag == PIPE_WORD_WAIT || tag == PIPE_WORD_WAIT_COPY
                                  : tag == PIPE_WORD_LOOP || tag > PIPE_WORD_FINISH;
    if (fits)
      return at;
  }
  return NONE;
}

/* The number of a word, that many more. */
static void add(uint32_t *w, int32_t by) {
  const uint32_t tag = *w >> 24, unit = tag >= PIPE_WORD_SAME ? PIPE_DISTANCE : 1;
  *w = tag << 24 | ((*w + (uint32_t)(by * (int32_t)(tag == NOTE_USE ? 2 : unit))) & 0xffffff);
}

/* One change of the words, which have room for one more. Returns how many there are. */
static uint32_t forge(uint32_t *word, uint32_t n) {
  static const int32_t by[] = {1, -1, 1, -1, 2, -2, 3};
  const uint32_t kind = draw(7), at = pick(word, n, kind == 6 ? 2 : kind);
  uint32_t end;
  if (at == NONE)
    return n;
  switch (kind) {
  case 4: /* a wait is left out */
    for (end = at + 1; end < n && is_step(word[end]); end++)
      ;
    memmove(word + at, word + end, (n - end) * sizeof *word);
    return n - (end - at);
  case 5: /* grows, though it did not */
    for (end = at + 1; end < n && word[end] >> 24 == PIPE_WORD_STEP; end++)
      ;
    if (end < n && word[end] >> 24 == PIPE_WORD_GROW) {
      memmove(word + end, word + end + 1, (n - end - 1) * sizeof *word);
      return n - 1;
    }
    memmove(word + end + 1, word + end, (n - end) * sizeof *word);
    word[end] = (uint32_t)PIPE_WORD_GROW << 24 | ((uint32_t)by[draw(7)] & 0xffffff);
    return n + 1;
  case 6: { /* the number of another word of its kind */
    for (int i = 0; i < 50; i++) {
      const uint32_t other = draw(n);
      if (word[other] >> 24 == word[at] >> 24) {
        word[at] = word[other];
        break;
      }
    }
    return n;
  }
  default: add(&word[at], by[draw(7)]); return n;
  }
}

/* ---- what is claimed ---- */

typedef struct Tally {
  uint32_t none, refused, same, right, wrong; /* none: no program, or no valid one, for n = 0 */
} Tally;

static char why[PIPE_LOOP_TEXT]; /* there is no program */

static PipeProgram *unroll(const PipeLooped *l, const PipeLoopClass *c, int64_t n) {
  PipeLooped one = *l;
  one.cls = c, one.nclass = 1, one.nadmit = 0, one.value = NULL;
  return pipe_unroll(&one, c->from + n * c->step, why);
}

static bool is_right(const PipeProgram *p, char *text, size_t room) {
  if (!p)
    snprintf(text, room, "%s", why);
  else if (!pipe_validate(p, text, room))
    snprintf(text, room, "it does not complete");
  return p && !pipe_validate(p, text, room) && completes(p);
}

/* The class with these words: its program as rows. */
static void set_words(Arena *a, ForAllProof *e, PipeLoopClass *c, const PipeProgram *p) {
  PipeProgram *q = arena_alloc(a, sizeof *q);
  PipeRank *rank = arena_alloc(a, p->nrank * sizeof *rank);
  *q = *p;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const RankRows rows = family_rows(a, e, r);
    rank[r] = p->rank[r];
    rank[r].rows = rows.word, rank[r].nrows = rows.n;
  }
  q->rank = rank;
  c->p = q;
  e->cls = c;
}

static void try_forgery(const Looped *l, const ForAllProof *of, const char *name, Tally *t) {
  static const int64_t far[] = {1, 2, 3, 5, 9};
  Arena a = {0};
  ForAllProof e = *of;
  PipeLoopClass c = *of->cls;
  const uint32_t nrank = of->p->nrank, r = draw(nrank);
  uint32_t **word = NEW_ARRAY(&a, uint32_t *, nrank), *nword = NEW_ARRAY(&a, uint32_t, nrank);
  memcpy(word, of->word, nrank * sizeof *word), memcpy(nword, of->nword, nrank * sizeof *nword);
  word[r] = arena_alloc(&a, (nword[r] + (size_t)4) * sizeof **word);
  memcpy(word[r], of->word[r], nword[r] * sizeof **word);
  for (uint32_t k = 1 + draw(2); k > 0; k--)
    nword[r] = forge(word[r], nword[r]);
  e.word = word, e.nword = nword;
  set_words(&a, &e, &c, of->cls->p);
  char text[400] = "";
  const char *no;
  PipeProgram *p = unroll(&l->table, &c, 0);
  if (!p || pipe_validate(p, text, sizeof text)) {
    t->none++;
  } else {
    e.p = p;
    if (!verify_for_all(&a, &e, &no)) {
      t->refused++;
    } else {
      bool ok = is_right(p, text, sizeof text), same = true;
      int64_t n = 0;
      for (size_t i = 0; i < sizeof far / sizeof *far && ok; i++) {
        PipeProgram *q = unroll(&l->table, &c, n = far[i]);
        ok = is_right(q, text, sizeof text);
        PipeProgram *o = unroll(&l->table, of->cls, n);
        same = same && q && o && q->hash == o->hash;
        pipe_unroll_free(q), pipe_unroll_free(o);
      }
      t->wrong += !ok, t->same += ok && same, t->right += ok && !same;
      if (!ok)
        printf("%s: taken for proved, but n = %lld: %s\n", name, (long long)n, text);
    }
  }
  pipe_unroll_free(p);
  arena_free(&a);
}

/* ---- forgeries of the last update of a stage ---- */

/* A rank of a program for every M, as words that are changed. */
typedef struct Forged {
  const PipeProgram *p; /* for n = 0 */
  uint32_t rank, last;  /* row of the last update, */
  uint32_t slot;        /* which writes this one, by its number */
  uint32_t *word, n;
} Forged;

static uint32_t tag_of(uint32_t w) { return w >> 24; }
static bool ends_row(uint32_t w) {
  return tag_of(w) < PIPE_WORD_STEP || tag_of(w) == PIPE_WORD_FINISH;
}

/* The words of a row that is in no loop. False: it is in one. */
static bool find_row(const Forged *f, uint32_t row, uint32_t *first, uint32_t *end) {
  uint32_t at = 0, turns = 1, begin = 0;
  for (uint32_t i = 0; i < f->n && at <= row; i++) {
    const uint32_t tag = tag_of(f->word[i]);
    if (tag == PIPE_WORD_LOOP)
      turns = f->word[i] & 0xffffff, begin = at;
    else if (tag == PIPE_WORD_END)
      at += (at - begin) * (turns - 1), turns = 1;
    else if (tag < PIPE_NOPS && at++ == row) {
      for (*first = i++; !ends_row(f->word[i]); i++)
        ;
      *end = i;
      return turns == 1;
    }
  }
  return false;
}

/* Takes words away, and puts others there. */
static void splice(Forged *f, uint32_t at, uint32_t away, const uint32_t *put, uint32_t nput) {
  memmove(f->word + at + nput, f->word + at + away, (f->n - at - away) * sizeof *put);
  for (uint32_t i = 0; i < nput; i++)
    f->word[at + i] = put[i];
  f->n += nput - away;
}

/* Where a row has the slot of a field, and the notes of that use. */
typedef struct Place {
  uint32_t slot, use, end; /* end: behind the notes */
} Place;

static bool find_use(const Forged *f, uint32_t row, uint32_t field, Place *at) {
  uint32_t first, end, nth = 0;
  if (!find_row(f, row, &first, &end))
    return false;
  for (at->slot = first; at->slot < end; at->slot++) {
    const uint32_t tag = tag_of(f->word[at->slot]);
    if (tag == PIPE_WORD_NEW + field || tag == PIPE_WORD_SAME + field)
      break;
    nth += tag >= PIPE_WORD_NEW;
  }
  for (at->use = at->slot; at->use < end; at->use++)
    if (tag_of(f->word[at->use]) == NOTE_USE && nth-- == 0)
      break;
  for (at->end = at->use + 1; at->end < end; at->end++)
    if (tag_of(f->word[at->end]) >= NOTE_TIME && tag_of(f->word[at->end]) < NOTE_LABEL)
      break;
  return at->use < end;
}

/* The last use of a slot above a row, and its field. */
static bool use_above(const Forged *f, uint32_t row, uint32_t slot, uint32_t *field,
                      uint32_t *above) {
  const PipeWeights *w = f->p->rank[f->rank].weights;
  for (uint32_t i = row; i-- > 0;)
    if (w[i].slot == slot || w[i].out == slot) {
      *above = i, *field = w[i].slot == slot ? PIPE_FIELD_weight : PIPE_FIELD_made;
      return true;
    }
  return false;
}

/* The last update writes by distance: for n = 0 the same slot. */
static bool by_distance(Forged *f) {
  const PipeInstr *c = f->p->rank[f->rank].instr;
  uint32_t field, above, done = 0, back = 0, put[8], n = 0;
  Place u, v;
  if (!find_use(f, f->last, PIPE_FIELD_made, &u) || !use_above(f, f->last, f->slot, &field, &above))
    return false;
  if (f->p->rank[f->rank].weights[f->last].slot == f->slot) { /* in place: one use */
    if (!find_use(f, f->last, PIPE_FIELD_weight, &v))
      return false;
    splice(f, u.use, u.end - u.use, NULL, 0);
    f->word[u.slot] = (uint32_t)(PIPE_WORD_SAME + PIPE_FIELD_made) << 24 |
                      (f->word[v.slot] & 0xffffff);
    return true;
  }
  if (field != PIPE_FIELD_weight || !find_use(f, above, field, &v))
    return false;
  for (uint32_t i = 0; i <= above; i++)
    done += pipe_op_info[c[i].op].stream == PIPE_COMPUTE;
  for (uint32_t i = above; i < f->last; i++)
    back += c[i].op == c[above].op;
  for (uint32_t i = v.use; i < v.end;
       i++) { /* what the read leaves: but for its row, what it finds */
    const uint32_t w = f->word[i], tag = tag_of(w);
    put[n++] = tag == NOTE_USE ? w & ~1u : tag == NOTE_TOUCH0 ? tag << 24 | done : w;
  }
  splice(f, u.use, u.end - u.use, put, n);
  f->word[u.slot] = (uint32_t)(PIPE_WORD_SAME + PIPE_FIELD_made) << 24 |
                    (back * PIPE_DISTANCE + c[above].op * PIPE_NFIELDS + field);
  f->word[v.use] |= 1;
  return true;
}

/* The number of the last update grows. */
static bool number_grows(Forged *f) {
  Place u;
  const uint32_t g = (uint32_t)PIPE_WORD_GROW << 24 | 1;
  if (!find_use(f, f->last, PIPE_FIELD_made, &u))
    return false;
  splice(f, u.slot + 1, 0, &g, 1);
  return true;
}

/* An update above the last writes that slot by its number; the last one by distance. */
static bool number_above(Forged *f) {
  const PipeRank *k = &f->p->rank[f->rank];
  const uint32_t stage = k->instr[f->last].stage;
  uint32_t field, above, end = f->last, none;
  Place u, v;
  if (!find_use(f, f->last, PIPE_FIELD_made, &u))
    return false;
  none = f->word[u.use] & ~1u;
  while (end-- > 0)
    if (k->instr[end].op == PIPE_U && k->instr[end].stage == stage &&
        k->weights[end].out == f->slot)
      break;
  if (!use_above(f, end, f->slot, &field, &above) || !find_use(f, end, PIPE_FIELD_made, &u) ||
      !find_use(f, above, field, &v) || !by_distance(f) || !find_use(f, end, PIPE_FIELD_made, &u))
    return false;
  none |= f->word[u.use] & 1;
  splice(f, u.use, u.end - u.use, &none, 1);
  f->word[u.slot] = (uint32_t)(PIPE_WORD_NEW + PIPE_FIELD_made) << 24 | f->slot;
  f->word[v.use] &= ~1u;
  return true;
}

static const struct {
  const char *what;
  bool (*forge)(Forged *f);
} of_last[] = {{"by distance", by_distance},
               {"by a number that grows", number_grows},
               {"above by number", number_above}};

/* One of these on a rank that keeps several versions. */
static void try_last(const Looped *l, const char *name, uint32_t r, size_t kind, Tally *t) {
  Arena a = {0};
  ForAllProof e = l->every[0];
  PipeLoopClass c = *e.cls;
  const uint32_t nrank = e.p->nrank;
  const PipeRank *k = &e.p->rank[r];
  Forged f = {.p = e.p, .rank = r, .n = e.nword[r]};
  uint32_t **word = NEW_ARRAY(&a, uint32_t *, nrank), *nword = NEW_ARRAY(&a, uint32_t, nrank);
  memcpy(word, e.word, nrank * sizeof *word), memcpy(nword, e.nword, nrank * sizeof *nword);
  word[r] = f.word = arena_alloc(&a, (f.n + (size_t)16) * sizeof *f.word);
  memcpy(f.word, e.word[r], f.n * sizeof *f.word);
  e.word = word, e.nword = nword;
  for (uint32_t i = 0; i < k->ninstr; i++)
    if (k->instr[i].op == PIPE_U)
      f.last = i, f.slot = k->weights[i].out;
  if (of_last[kind].forge(&f)) {
    char text[400] = "";
    const char *no = "";
    nword[r] = f.n;
    set_words(&a, &e, &c, e.cls->p);
    PipeProgram *p = unroll(&l->table, &c, 0), *q = unroll(&l->table, &c, 1);
    const bool valid = p && !pipe_validate(p, text, sizeof text),
               right = valid && is_right(q, text, sizeof text);
    e.p = p;
    const bool proved = p && verify_for_all(&a, &e, &no);
    printf("%s, rank %u, an update %s: %s%s; n = %d: %s\n", name, r, of_last[kind].what,
           proved ? "proved" : "refused: ", proved ? "" : no, valid, right ? "right" : text);
    t->wrong += proved && !right, t->refused += !proved;
    pipe_unroll_free(p), pipe_unroll_free(q);
  }
  arena_free(&a);
}

int main(int argc, char **argv) {
  static const Sample of[] = {{"1f1b", NULL, 4, 0},
                              {"gpipe_lifo", NULL, 3, 0},
                              {"zb_h1", NULL, 4, 0},
                              {"interleaved", NULL, 3, 0},
                              {"zb_v", NULL, 3, 0},
                              {"dualpipev", NULL, 2, 0},
                              {"chimera", NULL, 4, 0},
                              {"gems", NULL, 2, 0},
                              {"bpipe", NULL, 4, 0},
                              {"po_h", NULL, 2, 0},
                              {"varuna_recompute", NULL, 3, 0},
                              {"gpipe_recompute", NULL, 3, 0},
                              {"seq1f1b", NULL, 3, 0},
                              {"terapipe", NULL, 2, 0},
                              {"pipedream", NULL, 3, 0},
                              {"pipedream_2bw", NULL, 3, 0},
                              {"pipedream_vsync", NULL, 3, 0},
                              {"pipedream_rr", NULL, 4, 0},
                              {"pipemare", NULL, 3, 0},
                              {"xpipe", NULL, 3, 0},
                              {"inference", NULL, 3, 0},
                              {"looped_bfs", NULL, 2, 0}};
  const uint32_t forgeries = argc > 2 ? (uint32_t)atoi(argv[2]) : 100;
  Tally all = {0};
  seed = argc > 3 ? (uint64_t)atoll(argv[3]) : 1;
  if (argc < 2)
    return 2;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Compiled *c = malloc(sizeof *c);
    PipeProgram *p = NULL;
    Tally t = {0};
    const char *no;
    if (!c)
      return 2;
    sample_looped(c, argv[1], &of[i], &p);
    const Looped *l = c->s.looped;
    if (!l || !verify_for_all(&c->arena, &l->every[0], &no)) {
      printf("%s: no program for every M\n", of[i].name);
      t.wrong++;
    }
    for (uint32_t r = 0; l && strcmp(of[i].name, "pipedream") == 0 && r + 1 < of[i].P; r++)
      for (size_t kind = 0; kind < sizeof of_last / sizeof *of_last; kind++)
        try_last(l, of[i].name, r, kind, &t);
    for (uint32_t k = 0; l && k < forgeries; k++)
      try_forgery(l, &l->every[draw(l->table.nclass - l->nshort)], of[i].name, &t);
    printf("%s: %u refused, %u taken for proved of which %u are the same program; %u no programs\n",
           of[i].name, t.refused, t.same + t.right, t.same, t.none);
    all.refused += t.refused, all.same += t.same, all.right += t.right, all.wrong += t.wrong;
    pipe_unroll_free(p);
    arena_free(&c->arena);
    free(c);
  }
  printf("%u refused, %u proved, %u wrong\n", all.refused, all.same + all.right, all.wrong);
  return all.wrong != 0;
}
