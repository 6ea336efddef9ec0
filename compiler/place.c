/* SPDX-License-Identifier: MIT
 * The machine and the model of a schedule: its ranks, its pipes, and which rank holds which stage.
 * Requires that the parameters are bound; sets nrank, npipe, nstage, nmb, nmodel, stage (but for
 * costs), rank_stage. Refuses what would need more memory than there is, before taking any. Linear. */
#include <sys/resource.h>
#include <unistd.h>

#include "expand.h"

static bool count_clause(Sched *s, const Expr *e, const char *what, int64_t least, int64_t most,
                         uint32_t *out) {
  int64_t v;
  if (!eval(s, e, &v))
    return false;
  if (v < least) {
    diag_error(s->diag, DIAG_RANGE, e->at, "%lld %s: there must be at least %lld", (long long)v,
               what, (long long)least);
    return false;
  }
  if (v > most) {
    diag_error(s->diag, DIAG_TOO_LARGE, e->at, "%lld %s: there can be at most %lld", (long long)v,
               what, (long long)most);
    return false;
  }
  *out = (uint32_t)v;
  return true;
}

/* Bytes of compiler memory per (stage, microbatch) with F, R, I and W, both transfers across ranks: maps;
 * 4 ops, twice, with their ends in two plays; 2 transfers, sorted, and their 4 ends, sorted; 8 instructions,
 * twice, and when they start. */
enum {
  BYTES_PER_CELL = 16 + 4 * (2 * (int)sizeof(Op) + 16) + 2 * 3 * (int)sizeof(Xfer) + 4 * 2 * 16 +
                   8 * (2 * (int)sizeof(PipeInstr) + 8)
};

bool fits(Sched *s, const Clause *c) {
  uint64_t limit = s->opt->host_limit_bytes,
           rows = (uint64_t)NONE / 6 * BYTES_PER_CELL; /* 32-bit rows of ops */
  struct rlimit space;
  if (!limit) {
    limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < limit)
      limit = space.rlim_cur;
  }
  bool by_rows = rows < limit;
  limit = by_rows ? rows : limit;
  unsigned __int128 cells = (unsigned __int128)s->nstage * s->nmb;
  unsigned __int128 need = cells * BYTES_PER_CELL + (unsigned __int128)s->nrank * 1024;
  need += need / 16; /* what the arena rounds up */
  if (need <= limit && cells * 4 < NONE / 2)
    return true;
  uint64_t shown = need > UINT64_MAX ? UINT64_MAX : (uint64_t)need;
  diag_error(s->diag, DIAG_TOO_LARGE, c->at,
             "%u stages x %u microbatches may need %s to compile; the limit is %s", s->nstage,
             s->nmb, bytes_text(s, shown), bytes_text(s, limit));
  if (!by_rows)
    diag_help(s->diag,
              "--host-memory=SIZE sets this limit; by default it is the memory of the machine");
  return false;
}

/* The `pipe` clauses, in order. A replica has its root's stages; together they share out the
 * microbatches of a step, numbered on from pipe to pipe. */
bool find_pipes(Ex *x) {
  Sched *s = x->s;
  uint64_t nstage = 0, nmb = 0;
  s->pipe = NEW_ARRAY(s->arena, Pipe, x->clauses.n);
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    if (c->kind != CL_PIPE)
      continue;
    Pipe *p = &s->pipe[s->npipe];
    *p = (Pipe){.clause = c, .first = (uint32_t)nstage, .mb0 = (uint32_t)nmb};
    if (!count_clause(s, c->value, "stages", 1, INT32_MAX, &p->nstage) ||
        !count_clause(s, c->mbs, "microbatches", 1, INT32_MAX, &p->nmb))
      return false;
    uint32_t slices = 1;
    if (c->slices && !count_clause(s, c->slices, "slices", 1, INT32_MAX, &slices))
      return false;
    if (s->npipe > 0 && slices != s->slices) {
      diag_error(s->diag, DIAG_CLAUSE, c->slices ? c->slices->at : c->at,
                 "all pipes of a schedule cut their microbatches into as many slices: %u, not %u",
                 s->slices, slices);
      diag_note(s->diag, s->pipe[0].clause->at, "the first one");
      return false;
    }
    s->slices = slices;
    if ((uint64_t)p->nmb * slices > INT32_MAX) {
      diag_error(s->diag, DIAG_TOO_LARGE, c->at, "%u microbatches of %u slices", p->nmb, slices);
      return false;
    }
    p->nmb *= slices;
    if (s->npipe > 0 && !c->root) {
      diag_error(s->diag, DIAG_CLAUSE, c->at,
                 "a second pipe must be a replica of the first: 'replica of %s'",
                 s->pipe[0].clause->name);
      diag_note(s->diag, s->pipe[0].clause->at, "the first one");
      return false;
    }
    if (s->npipe > 0 && p->nstage != s->pipe[0].nstage) {
      diag_error(s->diag, DIAG_CLAUSE, c->value->at,
                 "a replica has the stages of what it replicates: %u, not %u", s->pipe[0].nstage,
                 p->nstage);
      diag_note(s->diag, s->pipe[0].clause->at, "the first one");
      return false;
    }
    if (s->npipe > 0 && c->forward != s->forward) {
      diag_error(
          s->diag, DIAG_FORWARD_ONLY, c->at,
          "this pipe is %s, the first one is %s: all pipes of a schedule are 'forward', or none",
          c->forward ? "only run forward" : "trained", s->forward ? "only run forward" : "trained");
      diag_note(s->diag, s->pipe[0].clause->at, "the first one");
      return false;
    }
    s->forward = c->forward;
    nstage += p->nstage, nmb += p->nmb;
    s->npipe++;
    if (nstage > INT32_MAX || nmb > INT32_MAX) {
      diag_error(s->diag, DIAG_TOO_LARGE, c->at,
                 "%llu stages and %llu microbatches in all pipes together",
                 (unsigned long long)nstage, (unsigned long long)nmb);
      return false;
    }
  }
  if (s->npipe == 0) {
    diag_error(s->diag, DIAG_CLAUSE, s->def->name_at, "schedule '%s' has no 'pipe' clause",
               s->name);
    diag_help(s->diag, "such as 'pipe net stages P mbs M place s -> s'");
    return false;
  }
  s->nstage = (uint32_t)nstage, s->nmb = (uint32_t)nmb, s->nmodel = s->pipe[0].nstage;
  return true;
}

bool place_stages(Ex *x) {
  Sched *s = x->s;
  s->stage = NEW_ARRAY(s->arena, PipeStage, s->nstage);
  s->rank_stage = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  s->rank_stage0 = NEW_ARRAY(s->arena, uint32_t, s->nrank + 1);
  for (uint32_t k = 0; k < s->npipe; k++) {
    const Pipe *p = &s->pipe[k];
    const Clause *c = p->clause;
    for (uint32_t m = 0; m < p->nstage; m++) {
      uint32_t i = p->first + m;
      int64_t r;
      s->env[c->slot] = m;
      if (!eval(s, c->place, &r))
        return false;
      if (r < 0 || r >= s->nrank) {
        diag_error(s->diag, DIAG_PLACE, c->place->at,
                   "stage %u is placed on rank %lld; the ranks are 0 to %u", m, (long long)r,
                   s->nrank - 1);
        return false;
      }
      s->stage[i] = (PipeStage){.rank = (uint32_t)r,
                                .prev = m ? i - 1 : NONE,
                                .next = m + 1 < p->nstage ? i + 1 : NONE,
                                .model = m,
                                .replica = k + 1 < s->npipe ? i + p->nstage : m,
                                .mb0 = p->mb0,
                                .nmb = p->nmb};
      s->rank_stage0[r + 1]++;
      for (uint32_t other = m; other < i; other += p->nstage)
        if (s->stage[other].rank == r) {
          diag_error(s->diag, DIAG_PLACE, c->place->at,
                     "rank %lld holds stage %u twice: replicas are on different ranks",
                     (long long)r, m);
          return false;
        }
    }
  }
  for (uint32_t r = 0; r < s->nrank; r++)
    s->rank_stage0[r + 1] += s->rank_stage0[r];
  uint32_t *fill = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  for (uint32_t i = 0; i < s->nstage; i++) {
    uint32_t r = s->stage[i].rank;
    s->stage[i].chunk = fill[r];
    s->rank_stage[s->rank_stage0[r] + fill[r]++] = i;
  }
  return true;
}

bool find_ranks(Ex *x) {
  Sched *s = x->s;
  uint32_t depth = 0;
  const Clause *ranks = NULL;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Bound *b = &x->clauses.at[i];
    if (b->clause->kind != CL_RANKS)
      continue;
    if (ranks && depth == b->depth) {
      diag_error(s->diag, DIAG_CLAUSE, b->clause->at, "'ranks' is given twice");
      diag_note(s->diag, ranks->at, "the first one");
      return false;
    }
    ranks = b->clause;
    depth = b->depth;
  }
  if (!ranks) {
    diag_error(s->diag, DIAG_CLAUSE, s->def->name_at, "schedule '%s' has no 'ranks' clause",
               s->name);
    diag_help(s->diag, "such as 'ranks P'");
    return false;
  }
  return count_clause(s, ranks->value, "ranks", 1, MAX_RANKS, &s->nrank);
}
