/* SPDX-License-Identifier: MIT
 * Shrinking of a tiny program, and its listing. */
#include "machine_program.h"

#include <inttypes.h>
#include <string.h>

void program_print(const Program *p) {
  static const char *const kind[] = {"compute", "send", "recv", "all", "copy"};
  for (uint32_t r = 0; r < p->nrank; r++) {
    printf("rank %u:\n", r);
    for (uint32_t i = 0; i < p->n[r]; i++) {
      const MachineInstr *in = &p->list[r][i];
      printf("  %2u %s", i, kind[in->kind]);
      if (in->kind != MACHINE_COMPUTE && in->kind != MACHINE_COPY)
        printf(in->kind == MACHINE_SEND   ? " to %u"
               : in->kind == MACHINE_RECV ? " from %u"
                                          : " on %u",
               in->peer);
      printf(" tensor %" PRIu64 " bytes %" PRIu64, in->tensor, in->bytes);
      for (int k = 0; k < 2; k++)
        if (in->need[k] != MACHINE_NONE)
          printf(" needs %u", in->need[k]);
      if (in->group)
        printf(" with the %u below", in->group);
      printf("\n");
    }
  }
}

static void leave_out(Program *p, uint32_t r, uint32_t i) {
  memmove(&p->list[r][i], &p->list[r][i + 1], (p->n[r] - i - 1) * sizeof p->list[r][0]);
  p->n[r]--;
  for (uint32_t j = 0; j < i; j++)
    p->list[r][j].group -= p->list[r][j].group >= i - j;
  for (uint32_t j = 0; j < p->n[r]; j++)
    for (int k = 0; k < 2; k++) {
      uint32_t *need = &p->list[r][j].need[k];
      if (*need != MACHINE_NONE && *need >= i)
        *need = *need == i ? MACHINE_NONE : *need - 1;
    }
}

/* Is y, on rank q, the kind of thing that meets x, on rank r? */
static bool meets(const MachineInstr *x, uint32_t r, const MachineInstr *y, uint32_t q) {
  if (x->tensor != y->tensor || r == q)
    return false;
  if (x->kind == MACHINE_ALL)
    return y->kind == MACHINE_ALL && x->peer == y->peer;
  return y->kind == (x->kind == MACHINE_SEND ? MACHINE_RECV : MACHINE_SEND) && x->peer == q &&
         y->peer == r;
}

/* With instruction i of rank r what it meets on each other rank: as many of those like it stand
 * above that. */
static void leave_out_whole(Program *p, uint32_t r, uint32_t i) {
  const MachineInstr x = p->list[r][i];
  uint32_t above = 0;
  for (uint32_t j = 0; j < i; j++) {
    const MachineInstr *y = &p->list[r][j];
    above += y->kind == x.kind && y->peer == x.peer && y->tensor == x.tensor;
  }
  leave_out(p, r, i);
  for (uint32_t q = 0; q < p->nrank && x.kind != MACHINE_COMPUTE; q++)
    for (uint32_t j = 0, n = 0; j < p->n[q]; j++)
      if (meets(&x, r, &p->list[q][j], q) && n++ == above) {
        leave_out(p, q, j);
        break;
      }
}

typedef struct Shrink {
  Program *p;
  uint32_t (*badness)(const Program *, void *);
  void *arg;
  uint32_t bad;
} Shrink;

static bool take(Shrink *s, const Program *less) {
  const uint32_t bad = s->badness(less, s->arg);
  if (bad < s->bad)
    return false;
  *s->p = *less, s->bad = bad;
  return true;
}

static bool leave_out_each(Shrink *s, void (*leave)(Program *, uint32_t, uint32_t)) {
  bool smaller = false;
  for (uint32_t r = 0; r < s->p->nrank; r++)
    for (uint32_t i = 0; i < s->p->n[r];) {
      Program less = *s->p;
      leave(&less, r, i);
      if (take(s, &less))
        smaller = true;
      else
        i++;
    }
  return smaller;
}

static bool leave_out_needs(Shrink *s) {
  bool smaller = false;
  for (uint32_t r = 0; r < s->p->nrank; r++)
    for (uint32_t i = 0; i < s->p->n[r]; i++)
      for (int k = 0; k < 2; k++) {
        Program less = *s->p;
        uint32_t *need = &less.list[r][i].need[k];
        const bool any = *need != MACHINE_NONE;
        *need = MACHINE_NONE;
        smaller |= any && take(s, &less);
      }
  return smaller;
}

/* False: it is a peer. */
static bool leave_out_rank(Program *p, uint32_t rank) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++) {
      MachineInstr *in = &p->list[r][i];
      if (in->kind != MACHINE_SEND && in->kind != MACHINE_RECV)
        continue;
      if (in->peer == rank)
        return false;
      in->peer -= in->peer > rank;
    }
  p->nrank--;
  memmove(&p->list[rank], &p->list[rank + 1], (p->nrank - rank) * sizeof p->list[0]);
  memmove(&p->n[rank], &p->n[rank + 1], (p->nrank - rank) * sizeof p->n[0]);
  return true;
}

void program_shrink(Program *p, uint32_t (*badness)(const Program *, void *), void *arg) {
  Shrink s = {p, badness, arg, badness(p, arg)};
  for (bool smaller = true; smaller;)
    smaller = leave_out_each(&s, leave_out_whole) || leave_out_each(&s, leave_out) ||
              leave_out_needs(&s);
  for (uint32_t r = p->nrank; r-- > 0 && p->nrank > 2;) {
    Program less = *p;
    if (p->n[r] == 0 && leave_out_rank(&less, r))
      take(&s, &less);
  }
}
