/* SPDX-License-Identifier: MIT
 * Computes the costs of the ops of each stage from `time`, `bytes` and profiles, with the defaults
 * of lang/spec.md 6. Part of expand. Requires the placement. Ensures the costs of Model.stage; no
 * sum of costs over all ops can overflow. Cost: linear in stages times entries. */
#include <string.h>

#include "base.h"
#include "instance.h"
#include "graph.h"
#include "hints.h"
#include "stages.h"

uint64_t *cost_field(PipeStage *st, CostKey k) {
  switch (k) {
  case KEY_F: return &st->time[PIPE_F];
  case KEY_B: return &st->time[PIPE_B];
  case KEY_I: return &st->time[PIPE_I];
  case KEY_W: return &st->time[PIPE_W];
  case KEY_R: return &st->time[PIPE_R];
  case KEY_U: return &st->time[PIPE_U];
  case KEY_FB: return &st->time_fb;
  case KEY_SEND: return &st->time[PIPE_SEND_F];
  case KEY_REDUCE: return &st->time[PIPE_REDUCE];
  case KEY_OFF: return &st->time[PIPE_OFF];
  case KEY_LOAD: return &st->time[PIPE_LOAD];
  case KEY_ACT: return &st->act_bytes;
  case KEY_GOUT: return &st->gout_bytes;
  case KEY_BOUNDARY: return &st->boundary_bytes;
  case KEY_WEIGHT: return &st->weight_bytes;
  case KEY_GRAD: return &st->grad_bytes;
  case KEY_OPT: return &st->opt_bytes;
  case KEY_EDGE: return &st->edge_bytes;
  case KEY_TIED: return &st->tied_bytes;
  default: return &st->work_bytes;
  }
}

void cost_defaults(PipeStage *st, const bool has[NKEYS]) {
  if (!has[KEY_F])
    st->time[PIPE_F] = 1;
  if (!has[KEY_B])
    st->time[PIPE_B] = has[KEY_I] && has[KEY_W] ? st->time[PIPE_I] + st->time[PIPE_W]
                                                : 2 * st->time[PIPE_F];
  uint64_t b = st->time[PIPE_B];
  if (!has[KEY_I])
    st->time[PIPE_I] = has[KEY_W] && st->time[PIPE_W] <= b ? b - st->time[PIPE_W] : (b + 1) / 2;
  if (!has[KEY_W])
    st->time[PIPE_W] = has[KEY_I] && st->time[PIPE_I] <= b ? b - st->time[PIPE_I] : b / 2;
  if (!has[KEY_R])
    st->time[PIPE_R] = st->time[PIPE_F];
  st->time[PIPE_SEND_B] = st->time[PIPE_SEND_F];
  st->time[PIPE_TIE] = st->time[PIPE_REDUCE];
  if (!has[KEY_LOAD])
    st->time[PIPE_LOAD] = st->time[PIPE_OFF];
  if (!has[KEY_GRAD])
    st->grad_bytes = st->weight_bytes;
  if (!has[KEY_EDGE])
    st->edge_bytes = st->boundary_bytes;
  if (!has[KEY_TIED])
    st->tied_bytes = st->grad_bytes;
}

/* Sets costs that only some stages have to 0 on the other stages. Gives all rows of a tie one size
 * and one time. */
static bool set_shared(Instance *x) {
  Sched *s = x->s;
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    bool skips = false;
    for (uint32_t k = 0; s->model->graph && k < st->nout; k++)
      skips |= s->model->graph->edge[s->model->graph->out0[st->model] + k].skip != 0;
    if (!skips)
      st->edge_bytes = 0;
    if (st->tied == NONE)
      st->tied_bytes = 0, st->time[PIPE_TIE] = 0;
  }
  for (uint32_t k = 0, c = 0; k < s->model->ntie; k++, c++) {
    uint64_t most = 0;
    while (x->clauses.at[c].clause->kind != CL_TIE) /* tie k is the k-th `tie` clause */
      c++;
    Span at = x->clauses.at[c].clause->at;
    const PipeStage *first = &s->model->stage[s->model->tie_row[s->model->tie_row0[k]]];
    for (uint32_t j = s->model->tie_row0[k]; j < s->model->tie_row0[k + 1]; j++) {
      const PipeStage *st = &s->model->stage[s->model->tie_row[j]];
      most = st->time[PIPE_TIE] > most ? st->time[PIPE_TIE] : most;
      if (st->tied_bytes == first->tied_bytes && st->tied_bytes <= st->grad_bytes)
        continue;
      if (st->tied_bytes > st->grad_bytes)
        diag_error(s->diag, DIAG_TIE, at, "stage %u shares %s of weights, but has %s of gradients",
                   st->model, bytes_text(s, st->tied_bytes), bytes_text(s, st->grad_bytes));
      else
        diag_error(s->diag, DIAG_TIE, at,
                   "stages %u and %u share weights, but their shared gradients have %s and %s",
                   first->model, st->model, bytes_text(s, first->tied_bytes),
                   bytes_text(s, st->tied_bytes));
      diag_help(s->diag, "'bytes s { tied = e }' gives the shared part of a stage's gradient");
      return false;
    }
    for (uint32_t j = s->model->tie_row0[k]; j < s->model->tie_row0[k + 1]; j++)
      s->model->stage[s->model->tie_row[j]].time[PIPE_TIE] = most;
  }
  return true;
}

const CostKey unit_key[PIPE_UNIT_TIMES] = {KEY_F, KEY_B,   KEY_I,    KEY_W,
                                           KEY_R, KEY_OFF, KEY_LOAD, KEY_FB};

static uint64_t *unit_row(const Sched *s, uint32_t st, uint32_t u) {
  return &s->model->unit_time[PIPE_UNIT_TIMES * ((size_t)st * s->model->nunit_time + u)];
}

/* Does unit u of the row's pipe never run on this row, because its microbatch is placed
 * elsewhere? */
static bool is_elsewhere(const Sched *s, uint32_t st, uint32_t u) {
  const PipeStage *p = &s->model->stage[st];
  return u >= p->nmb || (s->model->row_of && s->model->nunit_time != s->model->slices &&
                         s->model->row_of[(size_t)p->model * s->model->nmb + p->mb0 + u] != st);
}

/* Makes one row of unit_time for each slice if no entry depends on the microbatch, else one for
 * each unit. */
static void make_units(Instance *x) {
  Sched *s = x->s;
  bool any = false;
  uint32_t n = s->model->slices;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    for (const Entry *e = c->kind == CL_TIME ? c->entries : NULL; e; e = e->next) {
      any |= e->by_unit;
      for (uint32_t st = 0;
           e->by_unit && hint_mentions(e->value, c->mb_var) && st < s->model->nstage; st++)
        n = s->model->stage[st].nmb > n ? s->model->stage[st].nmb : n;
    }
  }
  if (any)
    x->model->nunit_time = n,
    x->model->unit_time = NEW_ARRAY(s->arena, uint64_t,
                                    PIPE_UNIT_TIMES * (size_t)s->model->nstage * n);
}

/* Evaluates e for a row, with the variables of its clause. */
static bool cost_of(Sched *s, const Clause *c, const Entry *e, uint32_t st, int64_t *v) {
  if (c->var)
    s->eval.env[c->slot] = s->model->stage[st].model;
  if (c->rank_var)
    s->eval.env[c->rank_slot] = s->model->stage[st].rank;
  return eval(s, e->value, v);
}

/* Sets the times of key k for each unit of each stage. */
static bool set_units(Sched *s, const Clause *c, const Entry *e, CostKey k, uint64_t most) {
  uint32_t column = 0;
  while (unit_key[column] != k)
    column++;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    for (uint32_t u = 0; u < s->model->nunit_time; u++) {
      int64_t v;
      if (is_elsewhere(s, st, u))
        continue;
      s->eval.env[c->mb_slot] = u / s->model->slices;
      if (c->slice_var)
        s->eval.env[c->slice_slot] = u % s->model->slices;
      if (!cost_of(s, c, e, st, &v))
        return false;
      if (v < 0 || (uint64_t)v > most) {
        bool by_mb = s->model->nunit_time != s->model->slices;
        diag_error(s->diag, v < 0 ? DIAG_RANGE : DIAG_TOO_LARGE, e->value->at,
                   "%s of %s%s%sstage %u is %lld; it %s", e->key,
                   s->model->slices > 1
                       ? arena_printf(s->arena, "slice %u of ", u % s->model->slices)
                       : "",
                   by_mb ? arena_printf(s->arena, "microbatch %u ", u / s->model->slices) : "",
                   by_mb ? "on " : "", s->model->stage[st].model, (long long)v,
                   v < 0 ? "cannot be negative" : "is too large for sums over all ops");
        return false;
      }
      unit_row(s, st, u)[column] = (uint64_t)v;
    }
  return true;
}

/* Fills in the unit times that the text lacks. A stage's time of a key with unit times becomes
 * their mean. */
static void unit_defaults(Sched *s, uint32_t st, const bool has[NKEYS], const bool by_unit[NKEYS]) {
  uint64_t sum[PIPE_UNIT_TIMES] = {0}, n = 0;
  for (uint32_t u = 0; u < s->model->nunit_time; u++) {
    uint64_t *time = unit_row(s, st, u);
    PipeStage one = s->model->stage[st];
    if (is_elsewhere(s, st, u))
      continue;
    for (int k = 0; k < PIPE_UNIT_TIMES; k++)
      if (by_unit[unit_key[k]])
        *cost_field(&one, unit_key[k]) = time[k];
    cost_defaults(&one, has);
    for (int k = 0; k < PIPE_UNIT_TIMES; k++)
      sum[k] += time[k] = *cost_field(&one, unit_key[k]);
    n++;
  }
  for (int k = 0; k < PIPE_UNIT_TIMES && n > 0; k++)
    if (by_unit[unit_key[k]])
      *cost_field(&s->model->stage[st], unit_key[k]) = sum[k] / n;
}

static bool takes_time(const Sched *s, CostKey k) {
  for (uint32_t st = 0; st < s->model->nstage; st++)
    if (*cost_field(&s->model->stage[st], k) != 0)
      return true;
  return false;
}

/* What the clauses so far say of each cost. */
typedef struct Given {
  bool has[NENTRIES];
  bool by_unit[NENTRIES];   /* its times are in Model.unit_time */
  uint32_t depth[NENTRIES]; /* of the clause that says it: how far its schedule is extended */
  uint64_t **link;          /* [key - NKEYS][stage] */
} Given;

/* Drops what schedules say that the one with this profile extends, where the profile says part of
 * the same. If it has any of B, I and W, all three are the profile's. If it has latency or
 * bandwidth, both are the profile's; if it has `send`, latency and bandwidth of the text remain for
 * sums only. wins: the keys of the profile; depth: that of its schedule. */
static void profile_wins(const Sched *s, Given *given, const bool wins[NENTRIES], uint32_t depth) {
  static const CostKey backward[] = {KEY_B, KEY_I, KEY_W}, network[] = {KEY_LATENCY, KEY_BANDWIDTH};
  const bool own_backward = wins[KEY_B] || wins[KEY_I] || wins[KEY_W],
             own_network = wins[KEY_LATENCY] || wins[KEY_BANDWIDTH];
  bool drops[NENTRIES] = {false};
  for (int i = 0; i < 3; i++)
    drops[backward[i]] = own_backward && !wins[backward[i]];
  for (int i = 0; i < 2; i++)
    drops[network[i]] = own_network && !wins[network[i]];
  drops[KEY_SEND] = own_network && !wins[KEY_SEND];
  for (int k = 0; k < NENTRIES; k++) {
    if (!drops[k] || given->depth[k] <= depth)
      continue;
    given->has[k] = given->by_unit[k] = false;
    if (k >= NKEYS)
      memset(given->link[k - NKEYS], 0, s->model->nstage * sizeof **given->link);
  }
}

static bool gives(const Sched *s, CostKey k) { return s->model->given >> k & 1; }

bool has_op(const Sched *s, PipeOp kind) {
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (s->orders->op[i].kind == kind)
      return true;
  return false;
}

/* Does the output of a row leave its rank? Of several rows that may read it, some are elsewhere. */
static bool sends(const Model *model, const PipeStage *row) {
  return row->next == PIPE_MANY ||
         (row->next != PIPE_NONE && model->stage[row->next].rank != row->rank);
}

/* Are the gradients of a row summed with those of other ranks? */
static bool sums(const Model *model, uint32_t row) {
  const uint32_t tied = model->stage[row].tied;
  return model->stage[row].replica != row || (tied != PIPE_NONE && model->stage[tied].tie != tied);
}

/* Does some action consist of one F and one B? */
static bool pairs(const Sched *s) {
  for (uint32_t i = 0; i + 1 < s->orders->nop; i += 1u + s->orders->op[i].group) {
    const Op *a = &s->orders->op[i], *b = a + 1;
    if (a->group == 1 &&
        ((a->kind == PIPE_F && b->kind == PIPE_B) || (a->kind == PIPE_B && b->kind == PIPE_F)))
      return true;
  }
  return false;
}

/* "send, U": the costs that count as 0, "" if there is none. */
static const char *zero_costs(Sched *s, bool splits) {
  const Model *model = s->model;
  const bool trains = !model->forward, sized = model->sized;
  const bool network = gives(s, KEY_LATENCY) || gives(s, KEY_BANDWIDTH);
  bool moved = false, summed = false;
  for (uint32_t row = 0; row < model->nstage; row++) {
    moved |= sends(model, &model->stage[row]);
    summed |= sums(model, row);
  }
  const bool ring = network || gives(s, KEY_SUM_LATENCY) || gives(s, KEY_SUM_BANDWIDTH);
  const struct {
    CostKey key;
    bool counts;
  } cost[] = {{KEY_SEND, moved && !network},
              {KEY_U, trains},
              {KEY_REDUCE, trains && summed && !ring},
              {KEY_OFF, s->orders->noffload > 0},
              {KEY_ACT, sized},
              {KEY_GOUT, sized && splits},
              {KEY_BOUNDARY, sized},
              {KEY_WEIGHT, sized},
              {KEY_OPT, sized && trains}};
  const char *text = "";
  for (size_t i = 0; i < sizeof cost / sizeof *cost; i++)
    if (cost[i].counts && !gives(s, cost[i].key))
      text = arena_printf(s->arena, "%s%s%s", text, *text ? ", " : "", cost_key[cost[i].key]);
  return text;
}

const char *costs_lacking(Sched *s) {
  const bool splits = has_op(s, PIPE_I) || has_op(s, PIPE_W);
  const bool has_i = gives(s, KEY_I), has_w = gives(s, KEY_W);
  const bool derives = gives(s, KEY_F); /* else all times are the defaults */
  const char *zero = zero_costs(s, splits), *text = "";
  const struct {
    bool holds;
    const char *text;
  } row[] = {{*zero, arena_printf(s->arena, "%s: counted as 0", zero)},
             {derives && !s->model->forward && !gives(s, KEY_B) && !(has_i && has_w), "B: twice F"},
             {derives && splits && !has_i && !has_w, "I, W: half of B each"},
             {derives && splits && !has_i && has_w, "I: from B and W"},
             {derives && splits && has_i && !has_w, "W: from B and I"},
             {derives && !gives(s, KEY_R) && has_op(s, PIPE_R), "R: as F"},
             {derives && !gives(s, KEY_FB) && pairs(s), "FB: the sum of F and B"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (row[i].holds)
      text = arena_printf(s->arena, "%s%sno %s", text, *text ? "; " : "", row[i].text);
  return *text ? text : NULL;
}

const char *profile_lacks(Sched *s) { return s->model->profiled ? costs_lacking(s) : NULL; }

bool set_costs(Instance *x) {
  Sched *s = x->s;
  bool from_profile[NENTRIES] = {false};
  /* bound of one cost: sums over all ops must stay below 2^62 in every order */
  uint64_t most = ((uint64_t)1 << 62) /
                  (8 * (((uint64_t)s->model->nstage + s->model->nedge) * s->model->nmb +
                        s->model->nstage));
  Span set_at[NENTRIES];
  const bool with_units = s->model->timed; /* the text itself gives times with units */
  uint64_t *link[NENTRIES - NKEYS];        /* [nstage] */
  Given given = {.link = link};
  bool *const has = given.has, *const by_unit = given.by_unit;
  uint32_t *const set_depth = given.depth;
  for (int k = 0; k < NENTRIES - NKEYS; k++)
    link[k] = NEW_ARRAY(s->arena, uint64_t, s->model->nstage);
  for (int k = 0; k < NENTRIES; k++)
    set_at[k] = NO_SPAN;
  make_units(x);
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    Clause *c = x->clauses.at[i].clause;
    uint32_t depth = x->clauses.at[i].depth;
    bool now[NENTRIES] = {false}, profile = c->kind == CL_PROFILE;
    if (profile) {
      if (s->opt->profile)
        continue;
      if (!profile_apply(s, x->model, c->path, c->at, link, now))
        return false;
    } else if (c->kind != CL_TIME && c->kind != CL_BYTES) {
      continue;
    }
    for (Entry *e = profile ? NULL : c->entries; e; e = e->next) {
      int k = 0;
      while (strcmp(cost_key[k], e->key) != 0)
        k++;
      now[k] = true;
      by_unit[k] = e->by_unit;
      if (e->by_unit && !set_units(s, c, e, (CostKey)k, most))
        return false;
      if (e->by_unit)
        continue;
      for (uint32_t st = 0; st < s->model->nstage; st++) {
        int64_t v;
        if (!cost_of(s, c, e, st, &v))
          return false;
        if (v < 0) {
          diag_error(s->diag, DIAG_RANGE, e->value->at,
                     "%s of stage %u is %lld; it cannot be negative", e->key, st, (long long)v);
          return false;
        }
        if ((k == KEY_BANDWIDTH || k == KEY_SUM_BANDWIDTH) && v == 0) {
          diag_error(s->diag, DIAG_RANGE, e->value->at,
                     "%s of stage %u is 0: nothing would ever arrive", cost_key[k], st);
          return false;
        }
        *(k >= NKEYS ? &link[k - NKEYS][st]
                     : cost_field(&s->model->stage[st], (CostKey)k)) = (uint64_t)v;
      }
    }
    for (int k = 0; k < NENTRIES; k++) {
      if (!now[k])
        continue;
      if (has[k] && set_depth[k] == depth && (profile || from_profile[k])) {
        diag_error(s->diag, DIAG_PROFILE, c->at,
                   "'%s' is given by the profile and by the schedule: drop one of them",
                   cost_key[k]);
        diag_note(s->diag, set_at[k], "also here");
        return false;
      }
      if (has[k] && set_depth[k] == depth) {
        diag_error(s->diag, DIAG_REDEFINED, c->at, "'%s' is given twice", cost_key[k]);
        diag_note(s->diag, set_at[k], "also here");
        return false;
      }
      has[k] = true;
      by_unit[k] = by_unit[k] && !profile;
      from_profile[k] = profile;
      set_depth[k] = depth;
      set_at[k] = c->at;
    }
    if (profile)
      profile_wins(s, &given, now, depth);
  }
  bool wins[NENTRIES] = {false};
  if (s->opt->profile && !profile_apply(s, x->model, s->opt->profile, NO_SPAN, link, wins))
    return false;
  for (int k = 0; s->opt->profile && k < NENTRIES; k++) { /* it extends the text */
    has[k] |= wins[k];
    by_unit[k] &= !wins[k];
    set_depth[k] = wins[k] ? 0 : set_depth[k] + 1;
    if (wins[k])
      set_at[k] = NO_SPAN;
  }
  if (s->opt->profile)
    profile_wins(s, &given, wins, 0);
  for (int k = NTIMEKEYS; k < NKEYS; k++)
    x->model->sized |= has[k];
  for (int k = 0; s->model->timed && !with_units && k < NTIMEKEYS; k++)
    if (has[k] && !wins[k] && !from_profile[k] && takes_time(s, (CostKey)k)) {
      diag_error(s->diag, DIAG_UNIT, set_at[k],
                 "'%s' has no unit of time, but the times of the profile are in ns", cost_key[k]);
      diag_help(s->diag, "add a unit, such as 2ms, or leave the time to the profile");
      return false;
    }
  for (int k = 0; k < NENTRIES; k++) {
    x->model->given |= has[k] ? (uint32_t)1 << k : 0;
    x->model->profiled |= s->opt->profile || from_profile[k];
  }
  for (int k = 0; s->model->timed && !has[KEY_F] && k < NTIMEKEYS; k++)
    if (has[k]) {
      diag_error(s->diag, DIAG_UNIT, set_at[k],
                 "times are in ns, but 'F' is not given: its default is 1 plain unit");
      return false;
    }
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    unit_defaults(s, st, has, by_unit);
    cost_defaults(&s->model->stage[st], has);
    if (s->model->forward) /* no training: these buffers do not exist */
      s->model->stage[st].gout_bytes = s->model->stage[st].grad_bytes =
          s->model->stage[st].opt_bytes = 0;
    for (int k = 0; k < NKEYS; k++)
      if (*cost_field(&s->model->stage[st], (CostKey)k) > most) {
        diag_error(s->diag, DIAG_TOO_LARGE, has[k] ? set_at[k] : NO_SPAN,
                   "%s of stage %u is %llu: the sum over all ops could exceed 2^62", cost_key[k],
                   st, (unsigned long long)*cost_field(&s->model->stage[st], (CostKey)k));
        return false;
      }
  }
  if (!set_links(s, link, has, set_depth, set_at, most))
    return false;
  return set_shared(x);
}
