/* SPDX-License-Identifier: MIT
 * Rows and loops of rows (pipe_rows.h) on the programs of ../run/samples.h: what is written out
 * again is the program, byte for byte; and with a word changed, left out, doubled or moved it is
 * refused, or is the program still (a step of a number that never moves, a slot that another row
 * names as well).
 *
 *   rows_test STDLIB_DIR    prints one line per program; exit status 0 iff all is as it should be
 *                           */
#include <string.h>

#include "../run/as_rows.h"
#include "../run/samples.h"
#include "pipe_rows.h"

enum { MUTANTS = 400 };

static uint64_t seed = 1;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

/* Is p as rows, written out, p again? */
static bool is_program(const PipeProgram *as_rows, const PipeProgram *p) {
  char why[PIPE_EXPAND_TEXT] = "";
  PipeProgram *out = pipe_expand(as_rows, why);
  bool same = out && out->hash == p->hash && pipe_program_hash(out) == p->hash;
  for (uint32_t r = 0; same && r < p->nrank; r++) {
    const PipeRank *a = &p->rank[r], *b = &out->rank[r];
    same = memcmp(a->instr, b->instr, a->ninstr * sizeof *a->instr) == 0 &&
           (a->nwait == 0 || memcmp(a->wait, b->wait, a->nwait * sizeof *a->wait) == 0) &&
           (a->nlist == 0 || memcmp(a->list, b->list, a->nlist * sizeof *a->list) == 0) &&
           (!a->weights || memcmp(a->weights, b->weights, a->ninstr * sizeof *a->weights) == 0);
  }
  pipe_expand_free(out);
  return same;
}

/* One change of the list of n words in `to`, which has room for one more. Returns how many there
 * are. */
static uint32_t mutate(const uint32_t *word, uint32_t n, uint32_t *to) {
  uint32_t at = draw(n), other = draw(n);
  memcpy(to, word, n * sizeof *to);
  switch (draw(6)) {
  case 0: to[at] ^= 1u << draw(32); return n;
  case 1: to[at] = word[other]; return n;
  case 2: to[at] += draw(2) ? 1u : UINT32_MAX; return n;
  case 3: memmove(to + at, word + at + 1, (n - at - 1) * sizeof *to); return n - 1;
  case 4: to[at] = word[other], to[other] = word[at]; return n;
  default:
    memmove(to + at + 1, word + at, (n - at) * sizeof *to);
    to[at] = word[other];
    return n + 1;
  }
}

static int try_program(const PipeProgram *p, const char *name) {
  Arena own = {0};
  PipeProgram q = *as_rows(&own, p);
  PipeRank *rank = (PipeRank *)q.rank;
  uint32_t nword = 0, nrow = 0, refused = 0, same = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    nword += rank[r].nrows, nrow += rank[r].ninstr;
  int bad = !is_program(&q, p);
  for (uint32_t i = 0; i < MUTANTS; i++) {
    uint32_t r = draw(p->nrank);
    PipeRank keep = rank[r];
    /* of its own, for the sanitizer */
    uint32_t *to = malloc((keep.nrows + (size_t)1) * sizeof *to);
    char why[PIPE_EXPAND_TEXT] = "";
    rank[r].nrows = mutate(keep.rows, keep.nrows, to);
    rank[r].rows = to;
    PipeProgram *out = pipe_expand(&q, why);
    if (out)
      same += is_program(&q, p), bad += !is_program(&q, p);
    else
      refused++, bad += !*why;
    pipe_expand_free(out);
    rank[r] = keep;
    free(to);
  }
  printf("%s: %u rows in %u words; of %u changes %u refused, %u the same program\n", name, nrow,
         nword, MUTANTS, refused, same);
  arena_free(&own);
  return bad + (refused < MUTANTS / 2);
}

int main(int argc, char **argv) {
  int bad = 0;
  Program *c = malloc(sizeof *c);
  if (argc != 2 || !c)
    return 2;
  for (uint32_t i = 0; i < nsamples; i++) {
    if (sample_compile(c, argv[1], &samples[i]))
      bad += try_program(c->s.prog, samples[i].name);
    else
      bad++;
    arena_free(&c->arena);
  }
  free(c);
  printf("%d wrong\n", bad);
  return bad != 0;
}
