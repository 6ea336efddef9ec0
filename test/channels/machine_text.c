/* SPDX-License-Identifier: MIT
 * A tiny program as a schedule with transfers by hand (lang/spec.md 8.4).
 *
 * The stages are no chain: a message is two of them with an edge between, on the ranks of its ends; its SEND is of the
 * F of the first, which stands above all else and holds nothing up, its RECV of the F of the second, which is the
 * computation that needs it first, or stands below all else. A collective is the TIE of one stage on each member; their
 * F and B stand above all else, U is what needs it. A computation that needs nothing new is a stage of its own.
 *
 * A text says of a transfer that it begins when the ops above it have ended, and those above it in its queue are done.
 * A list says what it needs; so here it comes to stand below the last computation that it, or one above it in its queue,
 * needs. What stands in other queues may change places with it. With TIEs there have to be gradients: theirs go back
 * below all else, on all ranks in the order of the messages, which completes if what is above it does. */
#include "machine_program.h"

#include <assert.h>
#include <string.h>

enum { STAGES = 2 * MOST + RANKS, NONE = STAGES };

typedef struct Text {
  const Program *p;
  const ChannelModel *m;
  FILE *f;
  bool back;                 /* there are collectives, so B and U */
  uint32_t nstage, nmessage; /* the stages 2k and 2k + 1 are of message k */
  uint32_t rank[STAGES], bytes[STAGES];
  uint32_t tie[STAGES]; /* first stage of its collective, else NONE */
  uint32_t
      stage[RANKS]
           [PER_RANK]; /* of an instruction; NONE: a computation that is those which it needs */
  uint32_t unit[RANKS][PER_RANK]; /* first instruction of its group */
  uint32_t slot[RANKS][PER_RANK]; /* of a unit: below how many computations of its rank it stands */
  uint32_t
      user[RANKS]
          [PER_RANK]; /* of a RECV or ALL: the first computation that needs it, else PER_RANK */
} Text;

static bool like(const MachineInstr *x, const MachineInstr *y) {
  return x->kind == y->kind && x->peer == y->peer;
}

/* Two communications of one rank. */
static bool in_one_queue(const Text *t, const MachineInstr *x, const MachineInstr *y) {
  if (t->m->channels == CHANNELS_RANK)
    return true;
  if (x->kind == MACHINE_ALL || y->kind == MACHINE_ALL)
    return like(x, y);
  return x->peer == y->peer &&
         (t->m->channels == CHANNELS_PAIR || (t->m->channels == CHANNELS_EDGE && like(x, y)));
}

/* Is y, above x in the list, posted before x? */
static bool in_order(const Text *t, const MachineInstr *x, const MachineInstr *y) {
  return in_one_queue(t, x, y) || (t->m->channels == CHANNELS_TAGGED && like(x, y));
}

static uint32_t computes_above(const Program *p, uint32_t r, uint32_t i) {
  uint32_t n = 0;
  for (uint32_t j = 0; j < i; j++)
    n += p->list[r][j].kind == MACHINE_COMPUTE;
  return n;
}

/* Those of its rank, kind, peer and tensor above it. */
static uint32_t nth(const Program *p, uint32_t r, uint32_t i) {
  const MachineInstr *x = &p->list[r][i];
  uint32_t n = 0;
  for (uint32_t j = 0; j < i; j++)
    n += like(x, &p->list[r][j]) && x->tensor == p->list[r][j].tensor;
  return n;
}

/* On rank q, the n-th of this kind, peer and tensor; PER_RANK: there is none. */
static uint32_t find_nth(const Program *p, uint32_t q, uint32_t kind, uint32_t peer,
                         uint64_t tensor, uint32_t n) {
  for (uint32_t j = 0; j < p->n[q]; j++) {
    const MachineInstr *y = &p->list[q][j];
    if (y->kind == kind && y->peer == peer && y->tensor == tensor && n-- == 0)
      return j;
  }
  return PER_RANK;
}

static uint32_t add_stage(Text *t, uint32_t rank, uint32_t bytes) {
  assert(t->nstage < STAGES);
  t->rank[t->nstage] = rank, t->bytes[t->nstage] = bytes, t->tie[t->nstage] = NONE;
  return t->nstage++;
}

static const char *find_messages(Text *t) {
  const Program *p = t->p;
  uint32_t nrecv = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++) {
      const MachineInstr *x = &p->list[r][i];
      nrecv += x->kind == MACHINE_RECV;
      if (x->kind != MACHINE_SEND)
        continue;
      uint32_t j = find_nth(p, x->peer, MACHINE_RECV, r, x->tensor, nth(p, r, i));
      if (j == PER_RANK)
        return "a message is never received";
      t->stage[r][i] = add_stage(t, r, (uint32_t)x->bytes);
      t->stage[x->peer][j] = add_stage(t, x->peer, (uint32_t)x->bytes);
      t->nmessage++;
    }
  return nrecv == t->nmessage ? NULL : "a message is received and never sent";
}

static uint32_t members(const Program *p, uint32_t comm) {
  uint32_t set = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++)
      if (p->list[r][i].kind == MACHINE_ALL && p->list[r][i].peer == comm)
        set |= 1u << r;
  return set;
}

static const char *find_collectives(Text *t) {
  const Program *p = t->p;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++) {
      const MachineInstr *x = &p->list[r][i];
      if (x->kind != MACHINE_ALL)
        continue;
      const uint32_t set = members(p, x->peer), n = nth(p, r, i);
      if ((set & (set - 1)) == 0)
        return "a collective has one member";
      for (uint32_t j = 0; j < p->n[r]; j++)
        if (p->list[r][j].kind == MACHINE_ALL && p->list[r][j].peer != x->peer &&
            members(p, p->list[r][j].peer) == set)
          return "two communicators have the same members";
      const bool lowest = (set & ((1u << r) - 1)) == 0; /* it adds the stages of all members */
      const uint32_t first = t->nstage;
      for (uint32_t q = 0; q < p->nrank; q++) {
        if (!(set & 1u << q))
          continue;
        uint32_t j = find_nth(p, q, MACHINE_ALL, x->peer, x->tensor, n);
        if (j == PER_RANK)
          return "a member does not take part in a collective";
        if (!lowest)
          continue;
        t->stage[q][j] = add_stage(t, q, 1);
        t->tie[t->stage[q][j]] = first;
      }
      t->back = true;
    }
  return NULL;
}

/* Below how many computations of its rank instruction i has to stand; NULL or why not. */
static const char *place_transfer(Text *t, uint32_t r, uint32_t i) {
  const MachineInstr *list = t->p->list[r], *x = &list[i];
  uint32_t slot = 0;
  const uint32_t unit = i > 0 && list[i - 1].group > 0 ? t->unit[r][i - 1] : i;
  t->unit[r][i] = unit;
  for (uint32_t j = 0; j < i; j++)
    if (list[j].kind != MACHINE_COMPUTE && in_order(t, x, &list[j]) &&
        t->slot[r][t->unit[r][j]] > slot)
      slot = t->slot[r][t->unit[r][j]];
  for (int k = 0; k < 2; k++) {
    const uint32_t on = x->need[k];
    if (on == MACHINE_NONE)
      continue;
    if (list[on].kind == MACHINE_COMPUTE) {
      const uint32_t below = computes_above(t->p, r, on) + 1;
      slot = below > slot ? below : slot;
    } else if (on >= i || !in_one_queue(t, x, &list[on]) || t->unit[r][on] == unit) {
      return "a transfer needs one that is not in its queue above it";
    }
  }
  if (unit == i || slot > t->slot[r][unit])
    t->slot[r][unit] = slot;
  return NULL;
}

/* What a computation needs: those above it, which is so, or transfers that stand above it. */
static const char *place_compute(Text *t, uint32_t r, uint32_t i) {
  const MachineInstr *list = t->p->list[r];
  uint32_t nused = 0;
  for (int k = 0; k < 2; k++) {
    const uint32_t on = list[i].need[k];
    if (on == MACHINE_NONE || (list[on].kind == MACHINE_COMPUTE && on < i))
      continue;
    if (list[on].kind == MACHINE_COMPUTE)
      return "a computation needs one below it";
    if (list[on].kind == MACHINE_SEND)
      return "a computation needs a SEND";
    if (t->slot[r][t->unit[r][on]] > computes_above(t->p, r, i))
      return "a computation needs a transfer that comes after it";
    if (t->user[r][on] == PER_RANK)
      t->user[r][on] = i;
    nused += t->user[r][on] == i;
  }
  if (nused == 0)
    t->stage[r][i] = add_stage(t, r, 1);
  return NULL;
}

static const char *make_text(Text *t) {
  const Program *p = t->p;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < PER_RANK; i++) {
      t->stage[r][i] = NONE, t->user[r][i] = PER_RANK;
      const MachineInstr *in = &p->list[r][i];
      if (i < p->n[r] && (in->kind == MACHINE_COPY || in->far))
        return "a copy, or a need of another rank";
    }
  const char *why = find_messages(t);
  why = why ? why : find_collectives(t);
  for (uint32_t r = 0; r < p->nrank && !why; r++) {
    for (uint32_t i = 0; i < p->n[r] && !why; i++)
      why = p->list[r][i].kind != MACHINE_COMPUTE ? place_transfer(t, r, i) : NULL;
    for (uint32_t i = 0; i < p->n[r] && !why; i++)
      why = p->list[r][i].kind == MACHINE_COMPUTE ? place_compute(t, r, i) : NULL;
    if (p->n[r] == 0) /* each rank has an op */
      add_stage(t, r, 1);
  }
  return why;
}

/* ---- written ---- */

static void op(const Text *t, const char *word, uint32_t stage) {
  fprintf(t->f, " %s[stage %u]%s", word, stage,
          strchr(word, 'U') || strchr(word, 'T') ? "" : "(0)");
}

static void write_unit(const Text *t, uint32_t r, uint32_t unit) {
  uint32_t n = 0;
  for (uint32_t i = unit; i < t->p->n[r]; i++)
    n += t->p->list[r][i].kind != MACHINE_COMPUTE && t->unit[r][i] == unit;
  fputs(n > 1 ? " group {" : "", t->f);
  for (uint32_t i = unit; i < t->p->n[r]; i++) {
    const uint32_t kind = t->p->list[r][i].kind;
    if (kind != MACHINE_COMPUTE && t->unit[r][i] == unit)
      op(t,
         kind == MACHINE_SEND   ? "send F"
         : kind == MACHINE_RECV ? "recv F"
                                : "TIE",
         t->stage[r][i]);
  }
  fputs(n > 1 ? " }" : "", t->f);
}

static void write_compute(const Text *t, uint32_t r, uint32_t i) {
  for (uint32_t j = 0; j < t->p->n[r]; j++)
    if (t->user[r][j] == i)
      op(t, t->p->list[r][j].kind == MACHINE_ALL ? "U" : "F", t->stage[r][j]);
  if (t->stage[r][i] != NONE)
    op(t, "F", t->stage[r][i]);
}

/* Behind the list: the F of RECVs that no computation needs; and with collectives all that is left of a step. */
static void write_end(const Text *t, uint32_t r) {
  const Program *p = t->p;
  for (uint32_t i = 0; i < p->n[r]; i++)
    if (p->list[r][i].kind == MACHINE_RECV && t->user[r][i] == PER_RANK)
      op(t, "F", t->stage[r][i]);
  for (uint32_t s = 0; s < t->nstage && p->n[r] == 0; s++)
    if (t->rank[s] == r)
      op(t, "F", s);
  for (uint32_t s = 0; s < t->nstage && t->back; s++) {
    if (t->rank[s] != r || t->tie[s] != NONE)
      continue;
    const bool message = s < 2 * t->nmessage;
    if (message && s % 2 == 0)
      op(t, "recv B", s);
    op(t, "B", s);
    if (message && s % 2 == 1)
      op(t, "send B", s);
    op(t, "U", s);
  }
  for (uint32_t i = 0; i < p->n[r]; i++)
    if (p->list[r][i].kind == MACHINE_ALL && t->user[r][i] == PER_RANK)
      op(t, "U", t->stage[r][i]);
}

static void write_rank(const Text *t, uint32_t r) {
  const Program *p = t->p;
  fprintf(t->f, "  order r in %u..%u {", r, r + 1);
  for (uint32_t i = 0; i < p->n[r]; i++) {
    if (p->list[r][i].kind == MACHINE_SEND || p->list[r][i].kind == MACHINE_ALL)
      op(t, "F", t->stage[r][i]);
    if (p->list[r][i].kind == MACHINE_ALL)
      op(t, "B", t->stage[r][i]);
  }
  for (uint32_t i = 0, slot = 0; i <= p->n[r]; i++) {
    if (i < p->n[r] && p->list[r][i].kind != MACHINE_COMPUTE)
      continue;
    for (uint32_t j = 0; j < p->n[r]; j++)
      if (p->list[r][j].kind != MACHINE_COMPUTE && t->unit[r][j] == j && t->slot[r][j] == slot)
        write_unit(t, r, j);
    slot++;
    if (i < p->n[r])
      write_compute(t, r, i);
  }
  write_end(t, r);
  fputs(" }\n", t->f);
}

/* of[s] as an expression of s: the most frequent value comes last. */
static void write_choice(const Text *t, const uint32_t *of) {
  uint32_t last = 0, most = 0;
  for (uint32_t s = 0; s < t->nstage; s++) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->nstage; i++)
      n += of[i] == of[s];
    if (n > most)
      most = n, last = of[s];
  }
  for (uint32_t s = 0; s < t->nstage; s++) {
    bool told = of[s] == last;
    for (uint32_t i = 0; i < s; i++)
      told |= of[i] == of[s];
    for (uint32_t i = s; i < t->nstage && !told; i++)
      if (of[i] == of[s])
        fprintf(t->f, "%ss == %u", i > s ? " || " : "", i);
    if (!told)
      fprintf(t->f, " ? %u : ", of[s]);
  }
  fprintf(t->f, "%u", last);
}

static void write_text(const Text *t, const char *remark) {
  static const char *const channels[] = {"rank", "pair", "edge", "tagged"};
  fprintf(t->f, "# %s\n# pipec --check --channels=%s --sends=", remark, channels[t->m->channels]);
  if (t->m->buffer > 0)
    fprintf(t->f, "buffered:%u%s", (unsigned)t->m->buffer, t->m->in_bytes ? "B" : "");
  fprintf(t->f, "%s\nschedule shrunk() {\n  ranks %u\n  pipe net %sdag stages %u mbs 1 place s -> ",
          t->m->buffer > 0 ? "" : "rendezvous", t->p->nrank, t->back ? "" : "forward ", t->nstage);
  write_choice(t, t->rank);
  fputs("\n", t->f);
  for (uint32_t k = 0; k < t->nmessage; k++)
    fprintf(t->f, "  edge %u -> %u\n", 2 * k, 2 * k + 1);
  for (uint32_t s = 0; s < t->nstage; s++)
    if (t->tie[s] == s) {
      fprintf(t->f, "  tie %u", s);
      for (uint32_t i = s + 1; i < t->nstage && t->tie[i] == s; i++)
        fprintf(t->f, ", %u", i);
      fputs("\n", t->f);
    }
  if (t->m->in_bytes) {
    fputs("  bytes s { boundary = ", t->f);
    write_choice(t, t->bytes);
    fputs(" }\n", t->f);
  }
  fputs("  transfers manual\n", t->f);
  for (uint32_t r = 0; r < t->p->nrank; r++)
    write_rank(t, r);
  fputs("}\n", t->f);
}

const char *program_say(const Program *p, const ChannelModel *m, const char *remark, FILE *f) {
  Text t = {.p = p, .m = m, .f = f};
  const char *why = make_text(&t);
  if (!why && t.nstage == 0)
    why = "nothing is left";
  if (!why && f)
    write_text(&t, remark);
  return why;
}
