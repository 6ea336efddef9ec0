/* SPDX-License-Identifier: MIT
 * --plan: reads layers and a cluster, tries the most promising plans by compiling the schedule of
 * each, and writes the one with the shortest predicted step. The result depends on the files and
 * options only. Cost: that of search.c for each variant, and at most MOST_TRIED compiles, or
 * LEAST_SHARE for each variant and LEAST_MOVED; more where plans are over the memory of a rank and
 * are tried again with recomputation. */
#include "plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "choice.h"
#include "lower.h"
#include "price.h"

enum {
  MOST_ESTIMATED = 50,
  MOST_TRIED = 150,
  LEAST_MOVED = 100,
  LEAST_SHARE = 10,
  SHOWN = 6,
  MOST_ALIKE = 3
};

/* A plan whose schedule was compiled. */
typedef struct Priced {
  const Choice *choice;
  Price price;
  const char *text; /* the schedule */
  bool moved;       /* its moves were tried */
} Priced;

typedef struct Pricing {
  Sched *s;
  Task *task;            /* [ntask] */
  uint32_t ntask, nrank; /* nrank: of the cluster */
  VEC(Priced) priced;    /* the best first; of equal ones the first that was tried */
  uint32_t tried, most;  /* plans; most: to be tried */
  const char *why;       /* what the schedule said that was refused for the least memory, */
  uint64_t least;        /*   and its bytes, or for another reason: 0; NULL: none was refused */
} Pricing;

/* ---- one plan ---- */

/* What plans are ranked by: a forward more in flight has to save half a percent of the step. */
static double worth(const Priced *p) {
  return (double)p->price.makespan * (1 + 0.005 * p->choice->early);
}

static const char *schedule_text(const Choice *c) {
  GuardText *text = guard_text();
  write_schedule(c, text->f);
  guard_text_done(text);
  const char *copy = arena_printf(c->task->s->arena, "%s", text->text);
  guard_text_end(text);
  return copy;
}

/* Compiles a plan; y is the caller's to free. False: y->diag says why. */
static bool compile_plan(const Priced *p, PricedCompile *y, Price *price) {
  const Task *t = p->choice->task;
  *y = (PricedCompile){.opt = *t->s->opt};
  y->opt.input = y->opt.output ? y->opt.output : "plan.pipe";
  y->opt.text = p->text, y->opt.text_len = strlen(p->text);
  y->opt.profile = NULL, y->opt.ndefine = 0;
  y->opt.memory_limit_bytes = t->memory;
  return compile_priced(t->s, y, price);
}

/* Has the stages spare memory whose ranks are over the limit in `s`: by as many layers that
 * recompute as it takes, if `layers`, or else by `place`. False: each of them does. */
static bool spare_memory(Choice *c, const Sched *s, StashPlace place, bool layers) {
  const uint64_t limit = c->task->memory;
  bool changed = false;
  c->stage = memcpy(NEW_ARRAY(c->task->s->arena, PlanStage, c->nstage), c->stage,
                    c->nstage * sizeof *c->stage);
  for (uint32_t i = 0, r = 0; i < c->nstage; r += c->stage[i++].replicas) {
    PlanStage *p = &c->stage[i];
    const Peak *most = &s->lowered->peak[r % c->nrank];
    for (uint32_t k = r + 1; k < r + p->replicas; k++)
      if (s->lowered->peak[k].bytes[PEAK_total] > most->bytes[PEAK_total])
        most = &s->lowered->peak[k];
    const uint64_t bytes = most->bytes[PEAK_total];
    if (bytes <= limit || p->stash != STASH_KEPT)
      continue;
    p->again = layers ? runs_to_save(c->task, p, most->inflight, bytes - limit) : 0;
    p->stash = p->again ? STASH_KEPT : place;
    changed = true;
  }
  return changed;
}

/* Prices the plan; one that is over the limit again with its fullest stages sparing memory, so or
 * so. */
static void try_plan(Pricing *x, Choice choice) {
  const Task *t = choice.task;
  Choice *c = NEW(t->s->arena, Choice), again[] = {choice, choice, choice};
  *c = choice;
  Priced p = {.choice = c, .text = schedule_text(c)};
  PricedCompile y;
  bool retry[] = {false, false, false};
  if (compile_plan(&p, &y, &p.price)) {
    *vec_push(t->s->arena, &x->priced) = p;
    for (uint32_t i = x->priced.n - 1; i > 0 && worth(&p) < worth(&x->priced.at[i - 1]); i--) {
      x->priced.at[i] = x->priced.at[i - 1];
      x->priced.at[i - 1] = p;
    }
  } else {
    if (x->s->opt->plan_cost == COST_STEP && y.diag.first == DIAG_MEMORY &&
        c->order != ORDER_ZB_H1) {
      retry[0] = spare_memory(&again[0], &y.s, STASH_MADE_AGAIN, true);
      retry[1] = spare_memory(&again[1], &y.s, STASH_MADE_AGAIN, false);
      retry[2] = t->cluster.host > 0 && spare_memory(&again[2], &y.s, STASH_AT_HOST, false);
    }
    const uint64_t needs = y.diag.first == DIAG_MEMORY ? fullest_rank(&y.s) : 0;
    if (!x->why || needs < x->least)
      x->why = arena_printf(t->s->arena, "%s: %s", choice_text(c), y.diag.first_text),
      x->least = needs;
  }
  arena_free(&y.arena);
  for (int i = 0; i < 3; i++)
    if (retry[i] && add_choice(again[i]))
      try_plan(x, again[i]);
}

static int by_estimate(const void *a, const void *b) {
  const Choice *x = a, *y = b;
  if (x->estimate != y->estimate)
    return x->estimate < y->estimate ? -1 : 1;
  if (x->task != y->task)
    return x->task < y->task ? -1 : 1;
  if (x->order != y->order)
    return x->order < y->order ? -1 : 1;
  if (x->nstage != y->nstage)
    return x->nstage < y->nstage ? -1 : 1;
  return memcmp(x->stage, y->stage, x->nstage * sizeof *x->stage);
}

static void show_progress(const Pricing *x) {
  FILE *f = x->s->opt->progress;
  if (f)
    fprintf(f, "\rplan %u, best step %.6g s ", x->tried,
            x->priced.n ? (double)x->priced.at[0].price.makespan / 1e9 : 0.0);
}

/* ---- moves of a plan ---- */

typedef enum Move {
  CUT_UP, /* the cut behind the stage: by one state or two */
  CUT_UP_2,
  CUT_DOWN,
  CUT_DOWN_2,
  GIVE, /* a rank to the next stage, or from it */
  TAKE,
  JOIN, /* with the next stage */
  NCUTMOVES,
  GROW = NCUTMOVES, /* by an idle rank */
  SHRINK,
  KEEP,    /* its stashes */
  STAGE,   /* recomputes as one, not some of its layers */
  TO_HOST, /* its stashes go there and its forwards run once */
  EARLIER, /* forwards of all ranks, by one */
  LATER,
  SPLIT /* + k: in two, the first on k + 1 ranks */
} Move;

/* Moves the cut behind stage a. False: the layers are not cut so. */
static bool move_cut(const States *st, PlanStage *a, int by) {
  const uint32_t to = a->to + (uint32_t)by;
  if (to >= st->n || !is_below(st, to, a[1].to) || (a->from != START && !is_below(st, a->from, to)))
    return false;
  a->to = a[1].from = to;
  return true;
}

/* Cuts stage a where its first part has k of n parts of the work; the second stage is there.
 * False: there is no cut in it. */
static bool split(const States *st, PlanStage *a, uint32_t k, uint32_t n) {
  const double begin = a->from == START ? 0 : (double)st->time[a->from],
               want = begin + ((double)st->time[a->to] - begin) * k / n;
  uint32_t best = NONE;
  for (uint32_t i = a->from + 1; i < a->to; i++)
    if ((a->from == START || is_below(st, a->from, i)) && is_below(st, i, a->to) &&
        (best == NONE || fabs((double)st->time[i] - want) < fabs((double)st->time[best] - want)))
      best = i;
  a[1] = (PlanStage){.from = best, .to = a->to, .replicas = n - k, .stash = a->stash};
  a->to = best, a->replicas = k;
  return best != NONE;
}

/* The plan with one move of stage s; `stage` has room for one stage more. False: there is no such
 * plan. */
static bool moved(const Choice *c, uint32_t s, uint32_t move, PlanStage *stage, Choice *other) {
  const Task *t = c->task;
  const States *st = &t->states;
  PlanStage *a = stage + s;
  const uint32_t idle = t->cluster.nrank - c->nrank, behind = c->nstage - s - 1;
  *other = *c;
  other->stage = memcpy(stage, c->stage, c->nstage * sizeof *c->stage);
  for (uint32_t i = 0; i < c->nstage; i++)
    stage[i].again = 0; /* as many layers recompute as the other plan needs */
  if (move < NCUTMOVES ? behind == 0 : move == GROW && idle == 0)
    return false;
  if (move >= GIVE && c->order != ORDER_1F1B)
    return false;
  switch (move) {
  case CUT_UP: return move_cut(st, a, 1);
  case CUT_UP_2: return move_cut(st, a, 2);
  case CUT_DOWN: return move_cut(st, a, -1);
  case CUT_DOWN_2: return move_cut(st, a, -2);
  case GIVE: a->replicas--, a[1].replicas++; break;
  case TAKE: a->replicas++, a[1].replicas--; break;
  case GROW: a->replicas++, other->nrank++; break;
  case SHRINK: a->replicas--, other->nrank--; break;
  case KEEP:
    if (a->stash == STASH_KEPT)
      return false;
    a->stash = STASH_KEPT;
    break;
  case STAGE:
    if (c->stage[s].again == 0)
      return false;
    a->stash = STASH_MADE_AGAIN;
    break;
  case TO_HOST:
    if (a->stash != STASH_MADE_AGAIN || t->cluster.host == 0)
      return false;
    a->stash = STASH_AT_HOST;
    break;
  case EARLIER: other->early++; break;
  case LATER:
    if (other->early-- == 0)
      return false;
    break;
  case JOIN:
    a->to = a[1].to, a->replicas += a[1].replicas, a->stash = a->stash ? a->stash : a[1].stash;
    memmove(a + 1, a + 2, (behind - 1) * sizeof *a);
    other->nstage--;
    break;
  default:
    memmove(a + 2, a + 1, behind * sizeof *a);
    other->nstage++, other->nrank = t->cluster.nrank;
    if (!split(st, a, move - SPLIT + 1, a->replicas + idle))
      return false;
  }
  for (uint32_t i = 0; i < other->nstage; i++)
    if (other->stage[i].replicas == 0 || other->stage[i].replicas > t->nmb)
      return false;
  return true;
}

/* Tries the moves of a plan, those of its busiest stage first, until one is the best of all. */
static void try_moves(Pricing *x, const Priced p) {
  const Choice *c = p.choice;
  const Task *t = c->task;
  const double best = worth(&x->priced.at[0]);
  const uint32_t idle = t->cluster.nrank - c->nrank;
  PlanStage *stage = NEW_ARRAY(x->s->arena, PlanStage, (size_t)c->nstage + 1);
  uint32_t busiest = 0;
  for (uint32_t r = 0;
       r + c->stage[busiest].replicas <= p.price.busiest && busiest + 1 < c->nstage;)
    r += c->stage[busiest++].replicas;
  for (uint32_t far = 0; far < 2 * c->nstage; far++) {
    const uint32_t s = far % 2 ? busiest - 1 - far / 2 : busiest + far / 2; /* may wrap */
    const uint32_t moves = s < c->nstage ? SPLIT + c->stage[s].replicas + idle - 1 : 0;
    for (uint32_t move = 0; move < moves; move++) {
      Choice other;
      if (!moved(c, s, move, stage, &other) || !add_choice(other))
        continue;
      x->tried++;
      try_plan(x, t->found.at[t->found.n - 1]);
      show_progress(x);
      if (x->tried >= x->most || worth(&x->priced.at[0]) < best)
        return;
    }
  }
}

/* The same but for cuts, places of stashes, and forwards in flight. */
static bool are_alike(const Choice *a, const Choice *b) {
  bool alike = a->task == b->task && a->order == b->order && a->nstage == b->nstage;
  for (uint32_t s = 0; alike && s < a->nstage; s++)
    alike = a->stage[s].replicas == b->stage[s].replicas;
  return alike;
}

/* The share of each task: its plans with the least estimates, at most MOST_ALIKE that are alike.
 * All of them by estimate. */
static Choices first_choices(const Pricing *x) {
  Choices first = {0};
  const uint32_t n = MOST_ESTIMATED / x->ntask, share = n > LEAST_SHARE ? n : LEAST_SHARE;
  for (uint32_t k = 0; k < x->ntask; k++) {
    Choices *found = &x->task[k].found;
    if (found->n > 1)
      qsort(found->at, found->n, sizeof *found->at, by_estimate);
    const uint32_t begin = first.n;
    for (uint32_t i = 0; i < found->n && first.n - begin < share; i++) {
      uint32_t alike = 0;
      for (uint32_t j = begin; j < first.n; j++)
        alike += are_alike(&first.at[j], &found->at[i]);
      if (alike < MOST_ALIKE)
        *vec_push(x->s->arena, &first) = found->at[i];
    }
  }
  if (first.n > 1)
    qsort(first.at, first.n, sizeof *first.at, by_estimate);
  return first;
}

/* Reports that no cut fits, with the largest layer of the variant where that is least. */
static void no_cut(const Pricing *x) {
  Sched *s = x->s;
  const char *name = "";
  uint64_t least = UINT64_MAX;
  for (const Task *t = x->task; t < x->task + x->ntask; t++) {
    uint64_t most = 0;
    const char *largest = "";
    for (uint32_t i = 0; i < t->layers.n; i++) {
      const Layer *y = &t->layers.layer.at[t->layers.sorted[i]];
      const uint64_t bytes = y->cost[KEY_WEIGHT] + y->cost[KEY_OPT] + y->cost[KEY_ACT] +
                             y->cost[t->layers.has[KEY_GRAD] ? KEY_GRAD : KEY_WEIGHT];
      if (bytes > most)
        most = bytes, largest = y->name;
    }
    if (most < least)
      least = most, name = largest;
  }
  diag_error(s->diag, DIAG_PLAN, NO_SPAN, "no cut of the layers fits in the %s of a rank",
             bytes_text(s, x->task[0].memory));
  diag_help(s->diag, "layer '%s' alone has %s of weights, gradients, optimizer state and stash",
            printable(s, name), bytes_text(s, least));
}

static bool price_all(Pricing *x) {
  Sched *s = x->s;
  const Choices first = first_choices(x);
  x->most = first.n + LEAST_MOVED > MOST_TRIED ? first.n + LEAST_MOVED : MOST_TRIED;
  for (uint32_t i = 0; i < first.n; i++) {
    x->tried++;
    try_plan(x, first.at[i]);
    show_progress(x);
  }
  for (uint32_t i = 0; s->opt->plan_cost == COST_STEP && i < x->priced.n;) {
    if (x->tried >= x->most)
      break;
    Priced *p = &x->priced.at[i];
    i = p->moved ? i + 1 : 0; /* the best one whose moves were not tried */
    if (!p->moved) {
      p->moved = true;
      try_moves(x, *p);
    }
  }
  if (s->opt->progress)
    fprintf(s->opt->progress, "\r%*s\r", 60, "");
  if (x->priced.n > 0)
    return true;
  if (x->tried > 0)
    diag_error(s->diag, DIAG_PLAN, NO_SPAN, "none of %u plans holds: %s", x->tried, x->why);
  else
    no_cut(x);
  return false;
}

/* ---- the file ---- */

static void put_stages(const Choice *c, FILE *f) {
  const Task *t = c->task;
  const States *st = &t->states;
  fprintf(f, "#\n# stage  ranks    up to layer           compute    weights    sends\n");
  for (uint32_t s = 0, r = 0; s < c->nstage; s++) {
    const PlanStage *p = &c->stage[s];
    const bool chunks = c->order == ORDER_INTERLEAVED;
    const uint32_t lo = chunks ? s % c->nrank : r;
    r += p->replicas;
    fprintf(f, "# %5u  %-7s  %-20s  %-9s  %-9s  %s%s\n", s,
            p->replicas > 1 ? arena_printf(t->s->arena, "%u-%u", lo, r - 1)
                            : arena_printf(t->s->arena, "%u", lo),
            printable(t->s, st->last[p->to]), seconds(t->s, range_time(st, p->from, p->to)),
            bytes_text(t->s, range_cost(st, p->from, p->to, KEY_WEIGHT)),
            bytes_text(t->s, st->cross[p->to]),
            p->stash || p->again ? arena_printf(t->s->arena, "  %s", stash_text(t, p)) : "");
  }
}

static void put_why(Pricing *x, const Priced *p, const char *by, FILE *f) {
  Sched *s = x->s;
  const Task *t = p->choice->task;
  const uint32_t width = t->layers.width;
  fprintf(f, "# Plan of pipec for %s on %s: %u rank%s, ", printable(s, s->opt->profile),
          printable(s, s->opt->cluster), x->nrank, x->nrank == 1 ? "" : "s");
  fprintf(f, t->batch ? "batch = %u.\n" : "M = %u.\n", t->batch ? t->batch : t->nmb);
  fprintf(f, "# %s.\n", choice_text(p->choice));
  if (width > 1)
    fprintf(f, "# width   rank r of the plan is the ranks %u*r to %u*r + %u of the cluster\n",
            width, width, width - 1);
  if (by)
    fprintf(f, "# cost    %s\n", by);
  put_price(s, &p->price, t->memory, f);
  if (t->states.chain)
    fprintf(f, "# cuts    of one order of the layers: the model has too many ways to cut it\n");
  put_stages(p->choice, f);
  if (x->tried > 1)
    fprintf(f, "#\n# next of %u tried, each with the best of its cuts:\n", x->tried);
  for (uint32_t i = 1, shown = 1; i < x->priced.n && shown < SHOWN; i++) {
    const Priced *q = &x->priced.at[i];
    uint32_t k = 0;
    while (k < i && !are_alike(x->priced.at[k].choice, q->choice))
      k++;
    if (k < i)
      continue;
    fprintf(f, "#   %-10s %+8.2f %%  %s\n", seconds(s, q->price.makespan),
            percent(q->price.makespan, p->price.makespan) - 100, choice_text(q->choice));
    shown++;
  }
}

static bool put_plan(Pricing *x, const char *by) {
  Sched *s = x->s;
  OutFile out;
  const Priced *p = &x->priced.at[0];
  if (!file_open(s, &out, s->opt->output))
    return false;
  if (s->opt->emit == EMIT_SVG) {
    PricedCompile y;
    Price price;
    if (compile_plan(p, &y, &price))
      draw_plan(p->choice, &y.s, &price, out.f);
    arena_free(&y.arena);
  } else {
    put_why(x, p, by, out.f);
    fprintf(out.f, "%s", p->text);
  }
  return file_close(s, &out, true);
}

/* ---- the task ---- */

/* A task for each variant whose microbatch divides the batch, and whose width the cluster. */
static bool read_tasks(Pricing *x) {
  Sched *s = x->s;
  const Define *d = &s->opt->define[0];
  const uint32_t given = (uint32_t)d->value;
  const bool batch = strcmp(d->name, "batch") == 0;
  Variants variants = {0};
  Cluster cluster;
  if (!layers_read(s, s->opt->profile, &variants) || !cluster_read(s, s->opt->cluster, &cluster))
    return false;
  const uint64_t a = cluster.memory, b = s->opt->memory_limit_bytes;
  x->nrank = cluster.nrank;
  x->task = NEW_ARRAY(s->arena, Task, variants.n);
  for (uint32_t k = 0; k < variants.n; k++) {
    const Layers *l = &variants.at[k];
    Task *t = &x->task[x->ntask];
    if (!l->has[KEY_F] || !l->has[KEY_BOUNDARY] || l->n == 0) {
      diag_error(s->diag, DIAG_PLAN, NO_SPAN, "%s: a plan needs F and boundary of each layer",
                 l->path);
      return false;
    }
    uint64_t time = 0;
    for (uint32_t i = 0; i < l->n; i++)
      time += layer_time(l, i);
    if (time == 0) {
      diag_error(s->diag, DIAG_PLAN, NO_SPAN, "%s: its layers have no times above 0", l->path);
      return false;
    }
    if (batch ? l->microbatch == 0 : variants.n > 1) {
      diag_error(s->diag, DIAG_PLAN, NO_SPAN,
                 batch ? "%s: it does not say how many samples a microbatch has"
                       : "%s: its variants have microbatches of their own",
                 s->opt->profile);
      diag_help(s->diag, batch ? "give the microbatches of a step: -D M=N"
                               : "in place of M give the samples of a step: -D batch=N");
      return false;
    }
    if ((batch && given % l->microbatch) || cluster.level[0].count % l->width)
      continue;
    *t = (Task){.s = s, .layers = *l, .batch = batch ? given : 0};
    t->nmb = batch ? given / l->microbatch : given;
    t->cluster = cluster_joined(s, &cluster, l->width);
    t->memory = a == 0 || (b > 0 && b < a) ? b : a;
    find_states(&t->layers, &t->states);
    x->ntask++;
  }
  if (x->ntask == 0)
    diag_error(
        s->diag, DIAG_PLAN, NO_SPAN, "%s: no width divides the %u ranks of the innermost level%s",
        s->opt->profile, cluster.level[0].count,
        batch ? arena_printf(s->arena, " with a microbatch that divides the batch of %u", given)
              : "");
  return x->ntask > 0;
}

/* The plan of a published measure; returns what it is worth by that, or NULL: reported. */
static const char *published_choice(const Pricing *x, Choice *c) {
  Task *t = &x->task[0];
  const PlanCost cost = t->s->opt->plan_cost;
  Arena *a = t->s->arena;
  double value;
  if (cost == COST_2BW)
    return twobw_choice(t, x->ntask, c, &value)
               ? arena_printf(a, "of 2BW's planner: %.12f s a sample; this run has %d batches",
                              value / 1e9, BATCHES_2BW)
               : NULL;
  if (x->ntask > 1) {
    diag_error(t->s->diag, DIAG_PLAN, NO_SPAN, "%s: this measure compares plans of one variant",
               t->s->opt->profile);
    diag_help(t->s->diag, "keep one of them in the profile, or leave out --plan-cost");
    return NULL;
  }
  if (cost == COST_LATENCY) {
    dapple_choice(t, c, &value);
    return arena_printf(a, "of DAPPLE's planner: latency %.9f s", value / 1e9);
  }
  if (cost == COST_ALPA)
    return alpa_choice(t, c, &value)
               ? arena_printf(a, "of Alpa's search: sum of stages and M-1 slowest %.9f s",
                              value / 1e9)
               : NULL;
  const PipeDream by = {.straight = cost == COST_STRAIGHT, .transfers = cost != COST_COMPUTE};
  return pipedream_choice(t, by, c, &value)
             ? arena_printf(a, "of PipeDream's optimizer: slowest stage %.9f s; %u states", value,
                            t->states.n)
             : NULL;
}

/* False: a replica has no microbatch, reported. Only published measures choose such a plan. */
static bool has_turns(const Choice *c) {
  const Task *t = c->task;
  for (uint32_t s = 0; s < c->nstage; s++)
    if (c->stage[s].replicas > t->nmb) {
      diag_error(t->s->diag, DIAG_PLAN, NO_SPAN,
                 "stage %u has %u replicas, which take turns in %u microbatches", s,
                 c->stage[s].replicas, t->nmb);
      diag_help(t->s->diag,
                t->batch ? "-D batch=%u gives each of them one" : "-D M=%u gives each of them one",
                c->stage[s].replicas * (t->batch ? t->layers.microbatch : 1));
      return false;
    }
  return true;
}

bool plan(Sched *s) {
  Pricing x = {.s = s};
  const char *by = NULL;
  if (!read_tasks(&x))
    return false;
  if (s->opt->plan_cost != COST_STEP) {
    Choice c;
    by = published_choice(&x, &c);
    if (!by || !has_turns(&c))
      return false;
    add_choice(c);
  }
  for (uint32_t k = 0; k < x.ntask && !by; k++)
    find_choices(&x.task[k]);
  return price_all(&x) && put_plan(&x, by);
}
