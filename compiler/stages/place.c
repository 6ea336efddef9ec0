/* SPDX-License-Identifier: MIT
 * Builds the ranks and pipes of a schedule, and places each stage on a rank. Requires bound
 * parameters. Ensures nrank, npipe, nstage, nmb, nmodel, stage (without costs), rank_stage and
 * row_of; graph.c joins the rows. Refuses a schedule that needs more memory than the machine has,
 * before it allocates. Cost: linear, and a sort of the stages of each rank. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base.h"
#include "instance.h"
#include "graph.h"
#include "names.h"

static bool count_clause(Sched *s, const Expr *e, const char *what, int64_t most, uint32_t *out) {
  int64_t v;
  if (!eval(s, e, &v))
    return false;
  if (v < 1) {
    diag_error(s->diag, DIAG_RANGE, e->at, "%lld %s: there must be at least 1", (long long)v, what);
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

/* The compiler memory that is counted for each
 *
 *   (row, microbatch)  its maps, and the state of check_match
 *   op                 the op, twice while the table grows; its end in the play of order; its
 *                      instruction, and two times of it
 *   transfer           the transfer, twice because it is sorted; its two instructions, and two
 *                      times of each
 *   copy               the copy; its instruction and times; its maps
 *   op, instruction    with weight versions, a row of PipeWeights */
enum { MAP_BYTES = 6 * (int)sizeof(uint32_t), RANK_BYTES = 1024 };

typedef unsigned __int128 Bytes;

static bool refuse(Sched *s, const Clause *c, Bytes ops, Bytes moves) {
  uint64_t instr = sizeof(PipeInstr) + 2 * sizeof(uint64_t),
           op = 2 * sizeof(Op) + sizeof(uint64_t) + instr, move = 2 * sizeof(Xfer) + 2 * instr,
           copy = sizeof(Copy) + instr + MAP_BYTES, limit = s->opt->host_limit_bytes,
           rows = (uint64_t)NONE / 6 * (op + move); /* rows of ops are 32 bits */
  struct rlimit space;
  if (!limit) {
    limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < limit)
      limit = space.rlim_cur;
  }
  bool by_rows = rows < limit;
  limit = by_rows ? rows : limit;
  Bytes cells = (Bytes)s->model->nstage * s->model->nmb,
        edges = (Bytes)s->model->nedge * s->model->nmb;
  Bytes need = (cells + edges) * MAP_BYTES + ops * op + moves * move +
               (Bytes)s->model->nrank * RANK_BYTES;
  if (s->model->weighted)
    need += (2 * ops + 2 * moves) * sizeof(PipeWeights);
  need += (s->orders->noffload ? 2 * cells : s->orders->ncopy) * copy;
  need += need / 8; /* rounding of the arena, and small tables */
  if (need <= limit && cells + edges < NONE / 2 && ops + 2 * moves < NONE)
    return false;
  uint64_t shown = need > UINT64_MAX ? UINT64_MAX : (uint64_t)need;
  diag_error(s->diag, DIAG_TOO_LARGE, c->at,
             "%u stages%s x %u microbatches may need %s to compile; the limit is %s",
             s->model->nstage,
             s->model->nedge ? arena_printf(s->arena, " and %u edges", s->model->nedge) : "",
             s->model->nmb, bytes_text(s, shown), bytes_text(s, limit));
  if (!by_rows)
    diag_help(s->diag,
              "--host-memory=SIZE sets this limit; by default it is the memory of the machine");
  return true;
}

bool fits(Sched *s, const Clause *c) {
  Bytes ops = 0, passes = s->model->forward ? 1 : 2; /* F and B of each stage of each pipe */
  for (uint32_t i = 0; i < s->model->npipe; i++)
    ops += passes * s->model->pipe[i].nstage * s->model->pipe[i].nmb;
  return !refuse(s, c, ops, ops + passes * s->model->nedge * s->model->nmb);
}

bool ops_fit(Sched *s) {
  Bytes moves = 0;
  for (uint32_t i = 0; i < s->orders->nop; i++)
    moves += op_outputs(s, &s->orders->op[i]);
  return !refuse(s, s->model->pipe[0].clause, s->orders->nop, moves);
}

/* Cuts the microbatches of p into slices, as many as in all other pipes. */
static bool cut(Sched *s, Model *model, Pipe *p) {
  const Clause *c = p->clause;
  uint32_t slices = 1;
  if (c->slices && !count_clause(s, c->slices, "slices", INT32_MAX, &slices))
    return false;
  if (s->model->npipe > 0 && slices != s->model->slices) {
    diag_error(s->diag, DIAG_CLAUSE, c->slices ? c->slices->at : c->at,
               "all pipes of a schedule have the same number of slices: %u, not %u",
               s->model->slices, slices);
    diag_note(s->diag, s->model->pipe[0].clause->at, "the first pipe");
    diag_help(s->diag, "sizes and times of a stage are of one slice, in every pipe");
    return false;
  }
  model->slices = slices;
  if ((uint64_t)p->nmb * slices > INT32_MAX) {
    diag_error(s->diag, DIAG_TOO_LARGE, c->at, "%u microbatches of %u slices", p->nmb, slices);
    return false;
  }
  p->nmb *= slices;
  return true;
}

/* Adds a pipe of the `pipe` clause c. index: of the pipe in its array, if c makes an array. */
static bool add_pipe(Instance *x, const Clause *c, int64_t index, uint64_t *nstage, uint64_t *nmb,
                     uint32_t *cap) {
  Sched *s = x->s;
  if (s->model->npipe == *cap)
    vec_grow(s->arena, (void **)&s->model->pipe, cap, sizeof *s->model->pipe);
  Pipe *p = &s->model->pipe[s->model->npipe];
  *p = (Pipe){.clause = c, .index = index, .first = (uint32_t)*nstage, .mb0 = (uint32_t)*nmb};
  if (c->index)
    s->eval.env[c->index_slot] = index;
  if (!count_clause(s, c->value, "stages", INT32_MAX, &p->nstage) ||
      !count_clause(s, c->mbs, "microbatches", INT32_MAX, &p->nmb))
    return false;
  const Clause *root = s->model->pipe[0].clause;
  if (!cut(s, x->model, p))
    return false;
  if (root != c && !c->root) {
    diag_error(s->diag, DIAG_CLAUSE, c->at,
               "a second pipe must be a replica of the first: 'replica of %s'", root->name);
    diag_note(s->diag, root->at, "the first pipe");
    diag_help(
        s->diag,
        "for a second model, add its stages to the first pipe: 'dag', with the edges of both models");
    return false;
  }
  if (root != c && c->dag) {
    diag_error(s->diag, DIAG_CLAUSE, c->at,
               "a replica has the edges of the first pipe: write 'dag' only there");
    diag_note(s->diag, root->at, "the first pipe");
    return false;
  }
  if (s->model->npipe > 0 && p->nstage != s->model->pipe[0].nstage) {
    diag_error(s->diag, DIAG_CLAUSE, c->value->at,
               "a replica has as many stages as the first pipe: %u, not %u",
               s->model->pipe[0].nstage, p->nstage);
    diag_note(s->diag, root->at, "the first pipe");
    return false;
  }
  if (s->model->npipe > 0 && c->forward != s->model->forward) {
    diag_error(
        s->diag, DIAG_FORWARD_ONLY, c->at,
        "this pipe is %s, but the first pipe is %s: make all pipes of a schedule 'forward', or no pipe",
        c->forward ? "forward-only" : "trained", s->model->forward ? "forward-only" : "trained");
    diag_note(s->diag, root->at, "the first pipe");
    return false;
  }
  x->model->forward = c->forward;
  p->nrow = p->nstage;
  *nstage += p->nstage, *nmb += p->nmb;
  x->model->npipe++;
  if (*nstage > INT32_MAX || *nmb > INT32_MAX) {
    diag_error(s->diag, DIAG_TOO_LARGE, c->at,
               "%llu stages and %llu microbatches in all pipes together",
               (unsigned long long)*nstage, (unsigned long long)*nmb);
    return false;
  }
  x->model->nstage = (uint32_t)*nstage, x->model->nmb = (uint32_t)*nmb;
  return (s->model->npipe & (s->model->npipe - 1)) != 0 || fits(s, c);
}

/* Warns if pipes divide the microbatches among them with a remainder, which then is in no pipe. */
static bool warn_remainder(Sched *s) {
  int64_t all = 0, sum = 0;
  for (uint32_t i = 0; i < s->model->npipe; i++) {
    const Clause *c = s->model->pipe[i].clause;
    int64_t of;
    if (c->mbs->kind != EX_DIV)
      return true;
    if (c->index)
      s->eval.env[c->index_slot] = s->model->pipe[i].index;
    if (!eval(s, c->mbs->a, &of))
      return false;
    if (i > 0 && of != all)
      return true; /* for example (M+1)/2 and M/2 */
    all = of;
    sum += s->model->pipe[i].nmb / s->model->slices;
  }
  if (s->model->npipe > 1 && sum < all) {
    diag_warn(s->diag, DIAG_REMAINDER, s->model->pipe[0].clause->mbs->at,
              "the %u pipes have %lld of %lld microbatches together: %lld %s in no pipe",
              s->model->npipe, (long long)sum, (long long)all, (long long)(all - sum),
              all - sum == 1 ? "is" : "are");
    diag_help(s->diag, "let the schedule require that %u divides %s, or give a pipe the rest",
              s->model->npipe, span_text(s, s->model->pipe[0].clause->mbs->a->at));
  }
  return true;
}

/* Adds the pipes of all `pipe` clauses, in order. A replica has the stages of the first pipe. All
 * pipes together have the microbatches of a step, numbered from pipe to pipe. */
bool find_pipes(Instance *x) {
  Sched *s = x->s;
  uint64_t nstage = 0, nmb = 0;
  uint32_t cap = 0;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    int64_t lo = 0, hi = 1, step = 1;
    if (c->kind != CL_PIPE)
      continue;
    if (c->index && !eval_range(s, &c->range, &lo, &hi, &step))
      return false;
    if (c->index && (step > 0 ? lo >= hi : lo <= hi)) {
      diag_error(s->diag, DIAG_RANGE, c->at, "an array of no pipes");
      return false;
    }
    for (int64_t k = lo; step > 0 ? k < hi : k > hi;) {
      if (!add_pipe(x, c, k, &nstage, &nmb, &cap))
        return false;
      if (__builtin_add_overflow(k, step, &k))
        break;
    }
  }
  if (s->model->npipe == 0) {
    diag_error(s->diag, DIAG_CLAUSE, s->parsed->def->name_at, "schedule '%s' has no 'pipe' clause",
               s->model->name);
    diag_help(s->diag, "such as 'pipe net stages P mbs M place s -> s'");
    return false;
  }
  x->model->nmodel = s->model->pipe[0].nstage;
  return warn_remainder(s);
}

/* Evaluates the rank of stage m of pipe p for its microbatch mb. */
static bool place_of(Sched *s, const Pipe *p, uint32_t m, uint32_t mb, uint32_t *rank) {
  const Clause *c = p->clause;
  int64_t r;
  s->eval.env[c->slot] = m;
  if (c->index)
    s->eval.env[c->index_slot] = p->index;
  if (c->mb_var)
    s->eval.env[c->mb_slot] = mb;
  if (!eval(s, c->place, &r))
    return false;
  if (r < 0 || r >= s->model->nrank) {
    diag_error(s->diag, DIAG_PLACE, c->place->at,
               "stage %u is placed on rank %lld%s; the ranks are 0 to %u", m, (long long)r,
               c->mb_var ? arena_printf(s->arena, " for microbatch %u", mb) : "",
               s->model->nrank - 1);
    if (p->nstage > s->model->nrank)
      diag_help(
          s->diag,
          "%u stages on %u rank%s: '%s %% %u' deals them out in turn, '%s / %u' keeps neighbours together",
          p->nstage, s->model->nrank, s->model->nrank == 1 ? "" : "s", c->var, s->model->nrank,
          c->var, (p->nstage + s->model->nrank - 1) / s->model->nrank);
    else if (!c->mb_var && (r == -1 || r == s->model->nrank))
      diag_help(s->diag, "ranks are counted from 0, as stages are");
    return false;
  }
  *rank = (uint32_t)r;
  return true;
}

typedef VEC(uint32_t) Ranks;

/* Adds the rows of pipe p, whose place may depend on the microbatch: one row for each rank that
 * runs a stage. The row of the first microbatch of stage k is p->first + k; the other rows follow.
 * Sets the rank and model of each row, and row_of. */
static bool deal(Sched *s, Pipe *p, Ranks *rank, Ranks *model) {
  /* row: [nrank] 1 + row of the present stage */
  uint32_t *row = NEW_ARRAY(s->arena, uint32_t, s->model->nrank), r;
  p->first = rank->n;
  for (uint32_t m = 0; m < p->nstage; m++) {
    if (!place_of(s, p, m, 0, &r))
      return false;
    *vec_push(s->arena, rank) = r, *vec_push(s->arena, model) = m;
  }
  for (uint32_t m = 0; m < p->nstage; m++) {
    uint32_t begin = rank->n;
    row[rank->at[p->first + m]] = p->first + m + 1;
    for (uint32_t mb = 0; mb < p->nmb; mb++) {
      if (p->clause->mb_var && mb % s->model->slices == 0 &&
          !place_of(s, p, m, mb / s->model->slices, &r))
        return false;
      if (!p->clause->mb_var)
        r = rank->at[p->first + m];
      if (!row[r]) {
        *vec_push(s->arena, rank) = r, *vec_push(s->arena, model) = m;
        row[r] = rank->n;
      }
      s->model->row_of[(size_t)m * s->model->nmb + p->mb0 + mb] = row[r] - 1;
    }
    row[rank->at[p->first + m]] = 0;
    for (; begin < rank->n; begin++)
      row[rank->at[begin]] = 0;
  }
  p->nrow = rank->n - p->first;
  return true;
}

uint32_t pipe_of(const Sched *s, uint32_t row) {
  uint32_t first = 0, n = s->model->npipe; /* the last pipe whose first microbatch is not larger */
  while (n > 1) {
    uint32_t half = n / 2;
    if (s->model->pipe[first + half].mb0 <= s->model->stage[row].mb0)
      first += half, n -= half;
    else
      n = half;
  }
  return first;
}

/* Links the rows of each stage of the model in a ring. Refuses two rows of a stage on one rank. */
static bool join_replicas(Sched *s) {
  uint32_t *first = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel),
           *last = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel); /* row + 1 */
  /* 1 + the last model stage seen on a rank */
  uint32_t *on = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    uint32_t m = s->model->stage[i].model;
    if (last[m])
      s->model->stage[last[m] - 1].replica = i;
    else
      first[m] = i;
    s->model->stage[i].replica = first[m];
    last[m] = i + 1;
  }
  for (uint32_t m = 0; m < s->model->nmodel; m++) {
    uint32_t i = first[m];
    do {
      uint32_t r = s->model->stage[i].rank;
      if (on[r] == m + 1) {
        diag_error(s->diag, DIAG_PLACE, s->model->pipe[pipe_of(s, i)].clause->place->at,
                   "rank %u holds stage %u twice: replicas are on different ranks", r, m);
        diag_help(
            s->diag,
            "let one pipe have all microbatches, 'place s, m -> ...': one copy of the weights is enough");
        return false;
      }
      on[r] = m + 1;
    } while ((i = s->model->stage[i].replica) != first[m]);
  }
  return true;
}

static int by_stage(const void *va, const void *vb) { /* the key has pipe and stage */
  const uint64_t *a = va, *b = vb;
  return *a < *b ? -1 : *a > *b;
}

void number_chunks(Sched *s, Model *model) {
  uint32_t *rank = arena_alloc(s->arena, model->nstage * sizeof *rank);
  for (uint32_t i = 0; i < model->nstage; i++)
    rank[i] = model->stage[i].rank;
  model->rank_stage = group_by(s->arena, rank, model->nstage, model->nrank, &model->rank_stage0);
  for (uint32_t i = 0; i < model->nstage; i++) {
    const uint32_t st = model->rank_stage[i];
    model->stage[st].chunk = i - model->rank_stage0[rank[st]];
  }
}

/* Sorts the rows of each rank, so that chunks ascend with stages, because deal appends rows out of
 * order. */
static void sort_chunks(Sched *s) {
  uint64_t *key = arena_alloc(s->arena, s->model->nstage * sizeof *key);
  /* mb0 orders pipes: each has its own microbatches */
  for (uint32_t i = 0; i < s->model->nstage; i++)
    key[i] = (uint64_t)s->model->stage[i].mb0 << 32 | s->model->stage[i].model;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t a = s->model->rank_stage0[r], n = s->model->rank_stage0[r + 1] - a;
    /* pairs of key and row; keys differ on a rank */
    uint64_t *of = arena_alloc(s->arena, sizeof *of * 2 * n + 1);
    for (size_t i = 0; i < n; i++)
      of[2 * i] = key[s->model->rank_stage[a + i]], of[2 * i + 1] = s->model->rank_stage[a + i];
    qsort(of, n, 2 * sizeof *of, by_stage);
    for (uint32_t i = 0; i < n; i++) {
      s->model->rank_stage[a + i] = (uint32_t)of[2 * i + 1];
      s->model->stage[s->model->rank_stage[a + i]].chunk = i;
    }
  }
}

bool place_stages(Instance *x) {
  Sched *s = x->s;
  Ranks rank = {0}, model = {0};
  bool dealt = false;
  for (uint32_t k = 0; k < s->model->npipe; k++)
    dealt |= s->model->pipe[k].clause->mb_var != NULL;
  if (dealt) {
    x->model->row_of = arena_alloc(s->arena, (size_t)s->model->nmodel * s->model->nmb *
                                                 sizeof *s->model->row_of);
    for (uint32_t k = 0; k < s->model->npipe; k++)
      if (!deal(s, &s->model->pipe[k], &rank, &model))
        return false;
    x->model->nstage = rank.n;
    if (!fits(s, s->model->pipe[0].clause))
      return false;
  }
  x->model->stage = NEW_ARRAY(s->arena, PipeStage, s->model->nstage);
  for (uint32_t k = 0; k < s->model->npipe; k++) {
    const Pipe *p = &s->model->pipe[k];
    for (uint32_t i = p->first; i < p->first + p->nrow; i++) {
      uint32_t m = dealt ? model.at[i] : i - p->first, r;
      if (dealt)
        r = rank.at[i];
      else if (!place_of(s, p, m, 0, &r))
        return false;
      s->model->stage[i] = (PipeStage){.rank = r,
                                       .prev = m ? i - 1 : NONE,
                                       .next = m + 1 < p->nstage ? i + 1 : NONE,
                                       .model = m,
                                       .mb0 = p->mb0,
                                       .nmb = p->nmb,
                                       .nin = m > 0,
                                       .nout = m + 1 < p->nstage};
    }
  }
  if (!join_replicas(s))
    return false;
  number_chunks(s, x->model);
  if (s->model->row_of)
    sort_chunks(s); /* without row_of, rows are in this order already */
  return find_graph(x) && find_ties(x);
}

typedef struct Linked { /* a rank and the value of its link */
  int64_t link;
  uint32_t rank;
} Linked;

static int by_link(const void *a, const void *b) {
  const Linked *x = a, *y = b;
  if (x->link != y->link)
    return x->link < y->link ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

bool find_copy_links(Instance *x) {
  Sched *s = x->s;
  const Clause *c;
  if (!find_only(x, CL_EXCLUSIVE, "exclusive", &c))
    return false;
  if (!c)
    return true;
  Linked *at = arena_alloc(s->arena, s->model->nrank * sizeof *at);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    s->eval.env[c->slot] = at[r].rank = r;
    if (!eval(s, c->to, &at[r].link))
      return false;
  }
  qsort(at, s->model->nrank, sizeof *at, by_link);
  x->model->copy_link = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t i = 0, n; i < s->model->nrank; i += n) {
    for (n = 1; i + n < s->model->nrank && at[i + n].link == at[i].link;)
      n++;
    x->model->ncopy_link += n > 1;
    for (uint32_t k = i; k < i + n && n > 1; k++)
      s->model->copy_link[at[k].rank] = s->model->ncopy_link;
  }
  if (s->model->ncopy_link == 0)
    x->model->copy_link = NULL; /* no two ranks share a link */
  return true;
}

bool find_ranks(Instance *x) {
  Sched *s = x->s;
  const Clause *ranks;
  if (!find_only(x, CL_RANKS, "ranks", &ranks))
    return false;
  if (!ranks) {
    diag_error(s->diag, DIAG_CLAUSE, s->parsed->def->name_at, "schedule '%s' has no 'ranks' clause",
               s->model->name);
    diag_help(s->diag, "such as 'ranks P'");
    return false;
  }
  return count_clause(s, ranks->value, "ranks", MAX_RANKS, &x->model->nrank);
}
