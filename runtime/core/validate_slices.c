/* SPDX-License-Identifier: MIT
 * The order of the slices of a microbatch, and that the stashes which they read of one another are there. Part of
 * validate.c. Linear in instructions, times the slices of a microbatch for those that read others' stashes. */
#include "validate.h"

/* A stash of a slice goes where no other slice reads it: after the last F and before all that read it backward, or
 * after its own backward. */
static PrStatus check_away(Check *k, const PipeInstr *c, const Seen *first, uint32_t slice,
                           uint32_t slices) {
  uint32_t back = SEEN(B) | SEEN(I);
  if (!(first[slices - 1].ops & SEEN(F)))
    FAIL_AT(k, c, "comes before the forward of slice %u, which reads the stash", slices - 1);
  for (uint32_t i = slice + 1; !(first[slice].ops & back) && i < slices; i++)
    if (first[i].ops & (back | SEEN(R)))
      FAIL_AT(k, c, "comes after slice %u has read the stash, which it reads at its old place", i);
  return PR_OK;
}

/* Slices go forward in order and backward in the reverse; those that are recomputed in order, between their last
 * forward and their first backward. */
PrStatus pr_check_slices(Check *k, const PipeInstr *c) {
  uint32_t slices = pipe_slices(k->p), slice = c->mb % slices, back = SEEN(B) | SEEN(I), q = slice;
  if (slices == 1)
    return PR_OK;
  const Seen *first = seen_of(k, c->stage, c->mb - slice);
  if (c->op == PIPE_OFF)
    return check_away(k, c, first, slice, slices);
  if (c->op == PIPE_R || (1u << c->op & back)) { /* they read the stashes of all before them */
    for (uint32_t i = 0; i < slice; i++) {
      const Seen *s = &first[i];
      PrStatus st = (s->ops & SEEN(LOAD)) ? pr_check_turn(k, c, s->act, true) : PR_OK;
      if ((s->ops & SEEN(OFF)) && !(s->ops & SEEN(LOAD)))
        FAIL_AT(k, c, "the stash of slice %u is in host memory", i);
      if (st)
        return st;
    }
  }
  if (c->op == PIPE_R && !(first[slices - 1].ops & SEEN(F)))
    FAIL_AT(k, c, "comes before the forward of slice %u, which reads the stash", slices - 1);
  if (c->op == PIPE_R || ((1u << c->op & back) && slice + 1 == slices)) {
    while (q > 0 && first[q - 1].keep == PIPE_NONE)
      q--;
    if (q > 0 && !(first[q - 1].ops & SEEN(R)))
      FAIL_AT(k, c, "comes before slice %u is recomputed, whose stash it reads", q - 1);
  }
  if (c->op == PIPE_F && slice > 0 && !(seen_of(k, c->stage, c->mb - 1)->ops & SEEN(F)))
    FAIL_AT(k, c, "comes before that of slice %u", slice - 1);
  if ((1u << c->op & back) && slice + 1 < slices && !(seen_of(k, c->stage, c->mb + 1)->ops & back))
    FAIL_AT(k, c, "comes before that of slice %u", slice + 1);
  return PR_OK;
}
