/* SPDX-License-Identifier: MIT
 * Random tiny programs: a third are pipelines with transfers in one global order, a third are those
 * with up to three mutations (two instructions swapped, one dropped, doubled, redirected or moved),
 * a third are any instructions at all, half of them with copies, and a few with messages that fill
 * a buffer. Half of all have groups. */
#include <string.h>

#include "machine_program.h"

static uint64_t rng_state;
static uint32_t below(uint32_t n) { /* SplitMix64 */
  uint64_t z = (rng_state += 0x9E3779B97F4A7C15u);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ z >> 31) % n);
}

uint32_t program_below(uint32_t n) { return below(n); }

void program_draw_from(uint64_t seed) { rng_state = seed * 0x2545F4914F6CDD1Du; }

uint32_t program_size(const Program *p) {
  uint32_t n = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    n += p->n[r];
  return n;
}

static bool moves(const MachineInstr *in) {
  return in->kind == MACHINE_SEND || in->kind == MACHINE_RECV;
}

static bool put(Program *p, uint32_t r, MachineInstr in) {
  if (program_size(p) >= MOST - 1 || p->n[r] >= PER_RANK)
    return false;
  p->list[r][p->n[r]++] = in;
  return true;
}

/* What compute ops need and communication comes after, from what the list says. Computes carry the
 * tensor they need in `bytes` and the one they make in `tensor`; 0: none. */
static void set_needs(Program *p) {
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint32_t above = MACHINE_NONE;
    for (uint32_t i = 0; i < p->n[r]; i++) {
      MachineInstr *in = &p->list[r][i];
      in->need[0] = in->kind == MACHINE_COMPUTE ? MACHINE_NONE : above;
      in->need[1] = MACHINE_NONE;
      for (uint32_t j = 0; j < p->n[r]; j++) {
        const MachineInstr *x = &p->list[r][j];
        if (in->kind == MACHINE_COMPUTE && in->bytes && x->kind == MACHINE_RECV &&
            x->tensor == in->bytes)
          in->need[0] = j;
        if (in->kind == MACHINE_SEND && x->kind == MACHINE_COMPUTE && x->tensor == in->tensor)
          in->need[1] = j;
      }
      above = in->kind == MACHINE_COMPUTE ? i : above;
    }
  }
}

/* A chain of stages, forwards and backwards, each transfer put into both lists at once, and at
 * times a collective of all ranks at the end. */
static void pipeline(Program *p) {
  uint32_t nstage = 2 + below(3), nmb = 1 + below(2), place[4], f[4] = {0}, b[4] = {0};
  memset(p, 0, sizeof *p);
  p->nrank = 2 + below(RANKS - 1);
  for (uint32_t s = 0; s < nstage; s++)
    place[s] = s < p->nrank ? s : below(p->nrank);
  for (uint32_t left = 2 * nstage * nmb; left > 0;) {
    uint32_t s = below(nstage);
    bool back = below(2) == 1;
    uint32_t mb = back ? b[s] : f[s];
    if (mb == nmb ||
        (back ? mb >= f[s] || (s + 1 < nstage && mb >= b[s + 1]) : s > 0 && mb >= f[s - 1]))
      continue;
    left--;
    *(back ? &b[s] : &f[s]) += 1;
    MachineInstr in = program_instr(MACHINE_COMPUTE);
    uint32_t from = back ? s + 1 : s - 1,
             to = back ? s - 1 : s + 1; /* wraps to beyond nstage at the ends */
    in.tensor = 1 + (s * 2 + back) * 4 + mb;
    in.bytes = from < nstage && place[from] != place[s] ? 1 + (from * 2 + back) * 4 + mb : 0;
    if (!put(p, place[s], in))
      break;
    if (to >= nstage || place[to] == place[s])
      continue;
    MachineInstr send = program_instr(MACHINE_SEND), recv = program_instr(MACHINE_RECV);
    send.tensor = recv.tensor = in.tensor;
    send.peer = place[to], recv.peer = place[s];
    send.bytes = 1 + below(3);
    if (program_size(p) + 2 >= MOST || !put(p, place[s], send) || !put(p, place[to], recv))
      break;
  }
  for (uint32_t c = below(3); c > 0 && program_size(p) + p->nrank < MOST; c--)
    for (uint32_t r = 0; r < p->nrank; r++) {
      MachineInstr all = program_instr(MACHINE_ALL);
      all.peer = all.tensor = c;
      put(p, r, all);
    }
  set_needs(p);
}

static void mutate(Program *p) {
  for (uint32_t k = 1 + below(3); k > 0; k--) {
    uint32_t r = below(p->nrank), n = p->n[r];
    if (n < 2)
      continue;
    uint32_t i = below(n), j = below(n);
    MachineInstr *l = p->list[r], t = l[i];
    switch (below(6)) {
    case 0: j = i + 1 < n ? i + 1 : i - 1; /* fall through */
    case 1: l[i] = l[j], l[j] = t; break;
    case 2:
      memmove(l + i, l + i + 1, (n - i - 1) * sizeof *l);
      p->n[r]--;
      break;
    case 3:
      memmove(l + i, l + i + 1, (n - i - 1) * sizeof *l);
      memmove(l + j + 1, l + j, (n - 1 - j) * sizeof *l);
      l[j] = t;
      break;
    case 4: put(p, r, t); break;
    default:
      if (t.kind == MACHINE_ALL)
        l[i].peer = 1 + below(2);
      else if (t.kind != MACHINE_COMPUTE && p->nrank == 3)
        l[i].peer = 3 - r - t.peer;
    }
  }
  set_needs(p);
}

static void anything(Program *p) {
  memset(p, 0, sizeof *p);
  p->nrank = 2 + below(RANKS - 1);
  uint32_t n = 2 + below(13);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t r = below(p->nrank), kind = below(8);
    MachineInstr in = program_instr(kind < 2    ? MACHINE_COMPUTE
                                    : kind == 2 ? MACHINE_ALL
                                    : kind < 5  ? MACHINE_SEND
                                                : MACHINE_RECV);
    if (in.kind == MACHINE_COMPUTE || in.kind == MACHINE_ALL || below(3) == 0) {
      in.peer = in.kind == MACHINE_ALL ? below(2) : (r + 1) % p->nrank;
      in.tensor = below(12) == 0;
      put(p, r, in);
      continue;
    }
    MachineInstr other = in; /* both ends at some place */
    uint32_t q = (r + 1 + below(p->nrank - 1)) % p->nrank;
    other.kind = in.kind == MACHINE_SEND ? MACHINE_RECV : MACHINE_SEND;
    in.peer = q, other.peer = r;
    in.tensor = other.tensor = below(3);
    in.bytes = other.bytes = 1 + below(3);
    put(p, r, in);
    put(p, q, other);
    if (below(3) == 0 && p->n[q] > 1) {
      uint32_t i = below(p->n[q]);
      MachineInstr t = p->list[q][i];
      p->list[q][i] = p->list[q][p->n[q] - 1], p->list[q][p->n[q] - 1] = t;
    }
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++)
      for (int k = 0; k < 2; k++)
        if (below(4) == 0)
          p->list[r][i].need[k] = below(10) ? below(i + 1) == i ? MACHINE_NONE : below(i)
                                            : below(p->n[r]);
}

/* A rank sends messages to one that receives them only when all have been sent: the buffer has to
 * hold them. */
static void crowd(Program *p) {
  MachineInstr send = program_instr(MACHINE_SEND), all = program_instr(MACHINE_ALL);
  memset(p, 0, sizeof *p);
  p->nrank = 2;
  send.peer = 1;
  put(p, 1, all);
  for (uint32_t k = 2 + below(4); k > 0; k--) {
    send.bytes = 1 + below(3);
    MachineInstr recv = send;
    recv.kind = MACHINE_RECV, recv.peer = 0;
    put(p, 0, send);
    put(p, 1, recv);
  }
  put(p, 0, all);
}

/* Computations become copies. */
static void beside(Program *p) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++) {
      MachineInstr *in = &p->list[r][i];
      if (in->kind == MACHINE_COMPUTE && below(3) == 0)
        in->kind = MACHINE_COPY;
    }
}

/* Transfers with nothing between them become groups. */
static void join(Program *p) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0, stop; i < p->n[r]; i = stop + 1) {
      const uint32_t most = 1 + below(4);
      for (stop = i; stop < p->n[r] && stop < i + most && moves(&p->list[r][stop]); stop++)
        ;
      for (; i + 1 < stop; i++)
        p->list[r][i].group = stop - 1 - i;
    }
}

void program_split(Program *p) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++) {
      MachineInstr *in = &p->list[r][i];
      in->channel = moves(in) ? in->tensor & 1 : in->kind == MACHINE_ALL ? in->peer & 1 : 0;
    }
}

/* Program k of a seed. */
void program_make(Program *p, uint64_t seed, uint64_t k) {
  rng_state = seed * 0x2545F4914F6CDD1Du + k;
  if (k % 24 == 2)
    crowd(p);
  else if (k % 3 == 2)
    anything(p);
  else
    pipeline(p);
  if (k % 3 == 2 && below(2))
    beside(p);
  if (k % 3 == 1)
    mutate(p);
  if (below(2))
    join(p);
}
