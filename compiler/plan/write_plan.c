/* SPDX-License-Identifier: MIT
 * Writes a plan as a schedule: the library's where no stage has replicas, otherwise 1F1B in which
 * the ranks of a stage take turns. Its costs are the sums of the profile, by stage. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "choice.h"
#include "price.h"

typedef struct Writer {
  const Task *t;
  const Choice *c;
  FILE *f;
  uint32_t *first; /* [nstage + 1] first rank of a stage; with ORDER_INTERLEAVED unused */
  bool own;        /* the plan has an order of its own: no schedule of the library */
  bool by_rank;    /* its ranks have other speeds */
} Writer;

/* ---- values ---- */

typedef struct Unit {
  const char *name;
  uint64_t by;
} Unit;
static const Unit time_unit[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
static const Unit size_unit[] = {{"GB", 1000000000}, {"MB", 1000000}, {"kB", 1000}, {"B", 1}};

/* The value exactly, in the largest unit that it reaches: "12.345678ms". */
static const char *exact(const Task *t, const Unit *unit, uint64_t v) {
  while (unit->by > 1 && v < unit->by)
    unit++;
  const char *text = arena_printf(t->s->arena, "%" PRIu64, v / unit->by);
  if (v % unit->by) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, unit->by + v % unit->by);
    while (digits[n - 1] == '0')
      digits[--n] = 0;
    text = arena_printf(t->s->arena, "%s.%s", text, digits + 1);
  }
  return arena_printf(t->s->arena, "%s%s", text, unit->name);
}

/* "    F = s < 1 ? 1ms : s < 2 ? 2ms : 3ms", where n values stand in text; equal neighbours are
 * one case. */
static void put_cases(const Writer *w, const char *head, const char *of, const char *const *text,
                      uint32_t n) {
  fprintf(w->f, "%s", head);
  for (uint32_t i = 0, k; i < n; i = k) {
    for (k = i + 1; k < n && strcmp(text[k], text[i]) == 0;)
      k++;
    if (k < n)
      fprintf(w->f, "%s < %u ? %s : ", of, k, text[i]);
    else
      fprintf(w->f, "%s\n", text[i]);
  }
}

/* ---- clauses ---- */

static double speed_of(const Writer *w, uint32_t rank) { return w->t->cluster.speed[rank]; }

static uint32_t stage_of(const Writer *w, uint32_t rank) {
  uint32_t s = 0;
  while (w->first[s + 1] <= rank)
    s++;
  return s;
}

/* The ranks of stage s, from *lo to below *hi. */
static void ranks_of(const Writer *w, uint32_t s, uint32_t *lo, uint32_t *hi) {
  const bool chunks = w->c->order == ORDER_INTERLEAVED;
  *lo = chunks ? s % w->c->nrank : w->first[s];
  *hi = chunks ? *lo + 1 : w->first[s + 1];
}

/* The slowest level between the ranks of stages a and b; a stage with itself: among its ranks. */
static const Level *slowest(const Writer *w, uint32_t a, uint32_t b) {
  uint32_t lo, hi, lo2, hi2;
  const Level *worst = w->t->cluster.level;
  ranks_of(w, a, &lo, &hi), ranks_of(w, b, &lo2, &hi2);
  for (uint32_t r = lo; r < hi; r++)
    for (uint32_t q = lo2; q < hi2; q++) {
      const Level *l = level_between(&w->t->cluster, r, q);
      worst = l > worst ? l : worst;
    }
  return worst;
}

static void put_times(const Writer *w) {
  const Task *t = w->t;
  const uint32_t nstage = w->c->nstage, n = w->by_rank ? w->c->nrank : nstage;
  const char **text = NEW_ARRAY(t->s->arena, const char *, n);
  fprintf(w->f, "  time s%s {\n", w->by_rank ? " on r" : "");
  for (int k = 0; k < NTIMEKEYS; k++) {
    if (!t->layers.has[k])
      continue;
    for (uint32_t i = 0; i < n; i++) {
      uint32_t s = w->by_rank ? stage_of(w, i) : i, lo, hi;
      ranks_of(w, s, &lo, &hi);
      const uint64_t v = stage_cost(t, &w->c->stage[s], k);
      text[i] = exact(t, time_unit, (uint64_t)ceil((double)v / speed_of(w, w->by_rank ? i : lo)));
    }
    put_cases(w, arena_printf(t->s->arena, "    %s = ", cost_key[k]), w->by_rank ? "r" : "s", text,
              n);
  }
  fprintf(w->f, "  }\n");
  if (!w->own && nstage == 1)
    return;
  fprintf(w->f, "  time s {\n");
  static const char *const key[] = {"latency", "bandwidth", "sum_latency", "sum_bandwidth"};
  text = NEW_ARRAY(t->s->arena, const char *, nstage);
  for (int k = 0; k < (w->own ? 4 : 2); k++) {
    for (uint32_t s = 0; s < nstage; s++) {
      const Level *l = slowest(w, s, k >= 2 || s + 1 == nstage ? s : s + 1);
      text[s] = k % 2 ? exact(t, size_unit, l->bandwidth) : exact(t, time_unit, l->latency);
    }
    put_cases(w, arena_printf(t->s->arena, "    %s = ", key[k]), "s", text, nstage);
  }
  fprintf(w->f, "  }\n");
}

static void put_bytes(const Writer *w) {
  const Task *t = w->t;
  const char **text = NEW_ARRAY(t->s->arena, const char *, w->c->nstage);
  bool again = false;
  for (uint32_t s = 0; s < w->c->nstage; s++)
    again |= w->c->stage[s].again > 0;
  fprintf(w->f, "  bytes s {\n");
  for (CostKey k = NTIMEKEYS; k < NKEYS; k++) {
    if (!t->layers.has[k] && (k != KEY_WORK || !again))
      continue;
    for (uint32_t s = 0; s < w->c->nstage; s++)
      text[s] = exact(t, size_unit, stage_cost(t, &w->c->stage[s], k));
    put_cases(w, arena_printf(t->s->arena, "    %s = ", cost_key[k]), "s", text, w->c->nstage);
  }
  fprintf(w->f, "  }\n");
}

/* `clause` for the stages whose stashes have this place. */
static void put_stashes(const Writer *w, const char *clause, StashPlace place) {
  const char *when = "";
  uint32_t n = 0;
  for (uint32_t s = 0; s < w->c->nstage; s++)
    if (w->c->stage[s].stash == place)
      when = arena_printf(w->t->s->arena, "%s%s s == %u", when, n++ ? " ||" : "", s);
  if (n > 0)
    fprintf(w->f, n == w->c->nstage ? "  %s\n" : "  %s s, m when%s\n", clause, when);
}

/* The times of copies to host memory; back they are the same. */
static void put_copies(const Writer *w) {
  const Task *t = w->t;
  const char **text = NEW_ARRAY(t->s->arena, const char *, w->c->nstage);
  bool any = false;
  for (uint32_t s = 0; s < w->c->nstage; s++) {
    const PlanStage *p = &w->c->stage[s];
    const double act = (double)range_cost(&t->states, p->from, p->to, KEY_ACT);
    const bool copies = p->stash == STASH_AT_HOST;
    text[s] = exact(t, time_unit, copies ? (uint64_t)ceil(act * 1e9 / (double)t->cluster.host) : 0);
    any |= copies;
  }
  if (!any)
    return;
  fprintf(w->f, "  time s {\n");
  put_cases(w, "    OFF = ", "s", text, w->c->nstage);
  fprintf(w->f, "  }\n");
}

/* What leaves and enters a group whose link is shared, and counts as shared. */
static void put_shared(const Writer *w) {
  const Cluster *c = &w->t->cluster;
  for (uint32_t k = 0; k < c->nlevel && !w->t->s->opt->no_contention; k++) {
    const uint32_t n = k > 0 ? c->level[k - 1].ranks : 1;
    if (c->level[k].shared && n < w->c->nrank)
      fprintf(w->f,
              "  exclusive a, b -> a/%u == b/%u ? -1 : a/%u\n"
              "  exclusive a, b -> a/%u == b/%u ? -1 : b/%u\n",
              n, n, n, n, n, n);
  }
}

/* The ranks of a stage take turns: replica i has microbatches i, i + n, ... */
static void put_turns(const Writer *w) {
  const Choice *c = w->c;
  Arena *a = w->t->s->arena;
  const char **replicas = NEW_ARRAY(a, const char *, c->nstage),
             **first = NEW_ARRAY(a, const char *, c->nstage),
             **stage = NEW_ARRAY(a, const char *, c->nrank);
  for (uint32_t s = 0; s < c->nstage; s++) {
    replicas[s] = arena_printf(a, "%u", c->stage[s].replicas);
    first[s] = arena_printf(a, "%u", w->first[s]);
    for (uint32_t r = w->first[s]; r < w->first[s + 1]; r++)
      stage[r] = arena_printf(a, "%u", s);
  }
  put_cases(w, "  fn replicas(s) = ", "s", replicas, c->nstage);
  put_cases(w, "  fn first(s) = ", "s", first, c->nstage);
  put_cases(w, "  fn stage_of(r) = ", "r", stage, c->nrank);
  fprintf(w->f,
          "  ranks %u\n"
          "  pipe net stages %u mbs M place s, m -> first(s) + m %% replicas(s)\n"
          "  order r {\n"
          "    let n = replicas(stage_of(r))\n"
          "    let i = r - first(stage_of(r))\n"
          "    let ahead = (%u - first(stage_of(r))) / n%s\n"
          "    op f(k) = F(k*n + i)\n"
          "    op b(k) = B(k*n + i)\n",
          c->nrank, c->nstage, c->nrank - 1, c->early ? arena_printf(a, " + %u", c->early) : "");
  const uint32_t batch = w->t->nmb, turns = batch / c->stage[0].replicas;
  if (c->order == ORDER_2BW)
    fprintf(
        w->f,
        "    op u(k) = U(k*n + i)\n"
        "    steady k in 0..M/n { f(k)  b(k - ahead)  if (k - ahead) %% %u == %u { u(k - ahead) } }\n"
        "  }\n"
        "  weights s, m { F reads max(m/%u - 1, 0)  B reads F  versions 2 }\n",
        turns, turns - 1, batch);
  else
    fprintf(w->f, "    steady k in 0..(M - i + n - 1)/n { f(k)  b(k - ahead) }\n"
                  "    U\n"
                  "  }\n");
}

void write_schedule(const Choice *c, FILE *f) {
  const Task *t = c->task;
  static const char *const file[] = {"1f1b", "zb_h1", "interleaved"}, *const base[] = {
                                                                          "onef1b(P = %u",
                                                                          "zb_h1(P = %u",
                                                                          "interleaved(P = %u"};
  bool again = false;
  Writer w = {.t = t, .c = c, .f = f, .own = c->early > 0 || c->order == ORDER_2BW};
  w.first = NEW_ARRAY(t->s->arena, uint32_t, (size_t)c->nstage + 1);
  for (uint32_t s = 0; s < c->nstage; s++) {
    w.first[s + 1] = w.first[s] + c->stage[s].replicas;
    w.own |= c->stage[s].replicas > 1;
  }
  for (uint32_t r = 0; r < c->nrank && w.own; r++)
    w.by_rank |= speed_of(&w, r) != 1;
  if (!w.own)
    fprintf(f, "import \"stdlib/%s.pipe\"\n", file[c->order]);
  if (c->order == ORDER_2BW)
    fprintf(f, "schedule plan(M = %u) requires M %% %u == 0", BATCHES_2BW * t->nmb, t->nmb);
  else
    fprintf(f, "schedule plan(M = %u)", t->nmb);
  if (!w.own) {
    fprintf(f, " extends ");
    fprintf(f, base[c->order], c->nrank);
    fprintf(f, c->order == ORDER_INTERLEAVED ? ", V = %u)" : ")", c->nstage / c->nrank);
    for (uint32_t s = 0; s < c->nstage; s++)
      again |= c->stage[s].stash != STASH_KEPT;
    if (again) /* its counts of stashes no longer hold */
      fprintf(f, " without checks");
  }
  fprintf(f, " {\n");
  if (w.own)
    put_turns(&w);
  put_stashes(&w, "recompute", STASH_MADE_AGAIN);
  put_stashes(&w, "offload", STASH_AT_HOST);
  put_shared(&w);
  put_lowering(t->s, f);
  put_times(&w);
  put_copies(&w);
  put_bytes(&w);
  fprintf(f, "}\n");
}

const char *stash_text(const Task *t, const PlanStage *p) {
  static const char *const text[] = {"", "recomputes", "offloads"};
  uint32_t n = 0;
  return p->again ? arena_printf(t->s->arena, "recomputes %s", again_text(t, p, &n))
                  : text[p->stash];
}

const char *choice_text(const Choice *c) {
  static const char *const name[] = {"1F1B", "ZB-H1", "interleaved 1F1B", "2BW"};
  Arena *a = c->task->s->arena;
  const Layers *l = &c->task->layers;
  const char *ranks = "", *variant = "";
  uint32_t spare[] = {0, 0, 0}; /* stages by StashPlace */
  uint32_t again = 0;           /* layers */
  for (uint32_t s = 0; s < c->nstage; s++) {
    ranks = arena_printf(a, "%s%s%u", ranks, s ? "-" : "", c->stage[s].replicas);
    spare[c->stage[s].stash]++;
    again_text(c->task, &c->stage[s], &again);
  }
  const bool straight = c->nstage % c->nrank == 0;
  if (c->task->batch > 0)
    variant = arena_printf(a, ", microbatch %u", l->microbatch);
  if (again > 0)
    variant = arena_printf(a, ", recomputing %u layer%s%s", again, again == 1 ? "" : "s", variant);
  for (int i = STASH_AT_HOST; i >= STASH_MADE_AGAIN; i--)
    if (spare[i] > 0)
      variant = arena_printf(a, ", %s %u stage%s%s",
                             i == STASH_AT_HOST ? "offloading" : "recomputing", spare[i],
                             spare[i] == 1 ? "" : "s", variant);
  if (l->width > 1)
    variant = arena_printf(a, "%s, width %u", variant, l->width);
  return arena_printf(a, "%s%s, %u stage%s on %s rank%s%s", name[c->order],
                      c->early ? arena_printf(a, " with %u more in flight", c->early) : "",
                      c->nstage, c->nstage == 1 ? "" : "s",
                      straight ? arena_printf(a, "%u", c->nrank) : ranks, c->nrank == 1 ? "" : "s",
                      variant);
}
