/* SPDX-License-Identifier: MIT
 * What the JSON form says beside the compute ops of a rank: side ops, transfers where a text had them, and limits. Where
 * they stand is read, from `wait`; what follows from that is proved by the passes, as of a text. Sorts of the
 * side ops of a rank apart, linear. */
#include <string.h>

#include "graph.h"
#include "limit.h"
#include "read_json.h"

static Span top(const Read *d) { return (Span){d->file, 0, 1}; }

static uint32_t add_site(Sched *s, Span at) {
  if (s->nsite == s->capsite)
    vec_grow(s->arena, (void **)&s->site, &s->capsite, sizeof *s->site);
  s->site[s->nsite] = at;
  return s->nsite++;
}

/* Does something that stands before row `at` of rank r, whose ops end at s->nop, stand between actions? */
static bool between_actions(Read *d, Span at, uint32_t r, uint32_t row) {
  const Sched *s = d->s;
  if (row > s->nop)
    return read_bad(d, at, "'wait' counts more ops than the rank has");
  return row == s->rank_op0[r] || s->op[row - 1].group == 0 ||
         read_bad(d, at, "by its 'wait' it stands between ops of one action");
}

/* ---- the side ops that there are ---- */

static bool is_name(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  size_t n = strlen(text);
  for (uint32_t k = 0; k < PIPE_NOPS; k++)
    if (strcmp(text, pipe_op_info[k].text) == 0)
      return false;
  return n > 0 && n <= LONGEST_SIDE_NAME && strchr(letters, *text) &&
         strspn(text + 1, letters) + strspn(text + 1 + strspn(text + 1, letters), "0123456789") ==
             n - 1;
}

/* Values of all rows of stages. */
static bool read_row_values(Read *d, Span at, json_t *j, const char *key, uint64_t most,
                            PipeSide *row) {
  const Sched *s = d->s;
  json_t *list = json_object_get(j, key);
  if (json_is_array(list) && json_array_size(list) == s->nstage)
    for (uint32_t st = 0; st < s->nstage; st++) {
      json_t *v = json_array_get(list, st);
      if (!json_is_integer(v) || json_integer_value(v) < 0 ||
          (uint64_t)json_integer_value(v) > most)
        break;
      *(*key == 'c' ? &row[st].time : &row[st].bytes) = (uint64_t)json_integer_value(v);
      if (st + 1 == s->nstage)
        return true;
    }
  return read_bad(d, at,
                  arena_printf(s->arena,
                               "'%s' is a list with a whole number from 0 to %llu for each of %u "
                               "stages",
                               key, (unsigned long long)most, s->nstage));
}

static bool read_side(Read *d, uint32_t k, json_t *j, const Clause **decl) {
  Sched *s = d->s;
  Span at = d->side_at.at[k];
  static const char *const stream_name[PIPE_NSTREAMS] = {"compute", "comm", "copy"};
  static const uint8_t op_of[PIPE_NSTREAMS] = {PIPE_SIDE, PIPE_SIDE_COMM, PIPE_SIDE_COPY};
  const char *name, *stream, *gives = NULL;
  if (!json_is_object(j))
    return read_bad(d, at, "a side op is an object");
  if (!read_keys(d, at, j, "a side op", " side stream gives cost memory ") ||
      !read_word(d, at, j, "side", &name) || !read_word(d, at, j, "stream", &stream) ||
      (json_object_get(j, "gives") && !read_word(d, at, j, "gives", &gives)))
    return false;
  if (!is_name(name))
    return read_bad(d, at,
                    arena_printf(s->arena,
                                 "'side' is a name of at most %d letters and of no other op",
                                 LONGEST_SIDE_NAME));
  for (uint32_t i = 0; i < k; i++)
    if (strcmp(decl[i]->name, name) == 0)
      return read_bad(d, at, arena_printf(s->arena, "there are two side ops '%s'", name));
  uint32_t on = 0;
  while (on < PIPE_NSTREAMS && strcmp(stream, stream_name[on]) != 0)
    on++;
  if (on == PIPE_NSTREAMS)
    return read_bad(d, at, "'stream' is compute, comm or copy");
  Clause *c = NEW(s->arena, Clause);
  c->side = NEW(s->arena, Side);
  c->kind = CL_SIDE, c->at = c->name_at = at, c->name = name;
  c->side->op = op_of[on], c->side->gives = gives, c->side->gives_at = at;
  decl[k] = c;
  uint64_t uses = (uint64_t)s->nside_decl * ((uint64_t)s->nstage * s->nmb + s->nstage);
  uint64_t most = ((uint64_t)1 << 62) / (8 * (uses > d->instr_at.n ? uses : d->instr_at.n));
  PipeSide *row = &s->side[(size_t)k * s->nstage];
  for (uint32_t st = 0; st < s->nstage; st++)
    row[st] = (PipeSide){.name = name, .op = op_of[on], .decl = k, .stage = st};
  add_site(s, at);
  return read_row_values(d, at, j, "cost", most, row) &&
         read_row_values(d, at, j, "memory", most, row);
}

bool read_sides(Read *d, json_t *root) {
  Sched *s = d->s;
  json_t *list = json_object_get(root, "sides");
  if (!list)
    return true;
  s->nside_decl = (uint32_t)json_array_size(list);
  if (!json_is_array(list) || s->nside_decl == 0)
    return read_bad(d, top(d), "\"sides\" is a list of side ops, which is not empty");
  if (s->nside_decl != d->side_at.n)
    return read_bad(d, top(d), "keys are written without escapes");
  if ((uint64_t)s->nside_decl * s->nstage > strlen(d->text)) /* each number is in the text */
    return read_bad(
        d, d->side_at.at[0],
        arena_printf(s->arena, "'cost' is a list with a number for each of %u stages", s->nstage));
  const Clause **decl = NEW_ARRAY(s->arena, const Clause *, s->nside_decl);
  s->side_decl = decl, s->side_site0 = s->nsite, s->sides_given = true;
  s->nside = s->nside_decl * s->nstage;
  s->side = NEW_ARRAY(s->arena, PipeSide, s->nside);
  s->side_use0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nrank + 1);
  for (uint32_t k = 0; k < s->nside_decl; k++)
    if (!read_side(d, k, json_array_get(list, k), decl))
      return false;
  return side_givers(s);
}

/* ---- side ops in the list of a rank ---- */

bool read_side_op(Read *d, uint32_t r, Span at, json_t *j, const char *text, uint8_t phase) {
  Sched *s = d->s;
  uint64_t decl = 0, stage = 0, mb = NONE, slice = 0, wait = 0, before = NONE, order = 0;
  if (s->nside_decl == 0)
    return read_bad(d, at, "'side' is a row of \"sides\", which is not there");
  if (!read_number(d, at, j, "side", true, 0, s->nside_decl - 1, &decl) ||
      !read_own_stage(d, at, j, text, r, &stage) || !read_unit(d, at, j, stage, false, &mb, &slice))
    return false;
  uint8_t kind = s->side_decl[decl]->side->op;
  uint32_t unit = mb == NONE ? NONE : (uint32_t)mb * s->slices + (uint32_t)slice;
  char says[OP_TEXT];
  pipe_side_text(says, s->side_decl[decl]->name, (uint32_t)stage, unit, s->slices);
  if (strcmp(says, text) != 0)
    return read_bad(
        d, at,
        arena_printf(s->arena, "'op' is %s, but side, stage and microbatch say %s", text, says));
  if (!read_number(d, at, j, "wait", kind != PIPE_SIDE, 0, INT32_MAX, &wait) ||
      !read_number(d, at, j, "before", false, 0, INT32_MAX, &before) ||
      !read_number(d, at, j, "order", false, 0, INT32_MAX, &order))
    return false;
  bool has_order = json_object_get(j, "order") != NULL;
  if (kind != PIPE_SIDE && json_object_get(j, "wait_all"))
    return read_bad(d, at, "'wait_all' of a side op that runs beside the ops");
  if (kind == PIPE_SIDE && before != NONE)
    return read_bad(d, at,
                    "'before' of a side op of the compute stream, which stands at its place");
  SideUse u = {.decl = (uint32_t)decl,
               .row = (uint32_t)(decl * s->nstage + stage),
               .stage = (uint32_t)stage,
               .mb = unit,
               .at = kind == PIPE_SIDE ? s->nop : s->rank_op0[r] + (uint32_t)wait,
               .user = before == NONE ? NONE : s->rank_op0[r] + (uint32_t)before,
               .in = NONE,
               .out = NONE,
               .kind = kind,
               .phase = phase};
  u.lo = u.op = u.at;
  memset(u.dep, 0xff, sizeof u.dep);
  uint32_t nth = d->use.n;
  if (nth > 0 && has_order != d->use.at[nth - 1].has_order)
    return read_bad(d, at, "all side ops of a rank have an 'order', or none");
  *vec_push(s->arena, &d->use) = (SideRead){u, at, (uint32_t)order, nth, has_order};
  if (kind == PIPE_SIDE) {
    push_side(&d->x, &u);
    if (d->weighted)
      *vec_push(s->arena, &d->given) = (GivenRead){.formula = NONE, .guess = NONE};
  }
  if (kind == PIPE_SIDE_COMM && d->posts.n > 0 && d->posts.at[d->posts.n - 1].at >= u.at)
    return read_bad(
        d, at,
        "it stands behind a transfer; by hand, a side op stands before those with its 'wait'");
  if (kind != PIPE_SIDE_COPY)
    return true;
  if (s->ncopy == s->capcopy)
    vec_grow(s->arena, (void **)&s->copy, &s->capcopy, sizeof *s->copy);
  s->copy[s->ncopy++] = (Copy){.kind = kind,
                               .phase = phase,
                               .stage = u.stage,
                               .mb = unit,
                               .site = s->side_site0 + u.decl,
                               .to = NONE,
                               .use = nth, /* finish_sides numbers it */
                               .at = u.at};
  return copy_in_order(d, at, r);
}

/* What stands before an op comes before it; of the others at one place each has its `order`. */
static int by_place(const void *a, const void *b) {
  const SideRead *x = a, *y = b;
  int cx = x->use.kind == PIPE_SIDE, cy = y->use.kind == PIPE_SIDE;
  if (x->use.at != y->use.at)
    return x->use.at < y->use.at ? -1 : 1;
  if (cx != cy)
    return cx - cy;
  if (x->order != y->order)
    return x->order < y->order ? -1 : 1;
  return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* The side ops of a rank whose list has been read. */
bool finish_sides(Read *d, uint32_t r, uint32_t first_copy) {
  Sched *s = d->s;
  uint32_t n = d->use.n, first = d->uses.n;
  if (!s->sides_given)
    return true;
  for (uint32_t i = 0; i < n; i++) {
    const SideRead *u = &d->use.at[i];
    if (u->use.kind != PIPE_SIDE && !between_actions(d, u->at, r, u->use.at))
      return false;
    if (u->use.user == NONE)
      continue;
    if (u->use.user < u->use.at || u->use.user >= s->nop)
      return read_bad(d, u->at, "'before' is a compute instruction of the rank behind its 'wait'");
    if (u->use.user > s->rank_op0[r] && s->op[u->use.user - 1].group > 0)
      return read_bad(d, u->at, "'before' is the first op of an action");
  }
  if (n > 1)
    qsort(d->use.at, n, sizeof *d->use.at, by_place);
  uint32_t last[PIPE_NSTREAMS] = {0}, *number = arena_alloc(s->arena, n * sizeof *number + 1);
  for (uint32_t i = 0; i < n; i++) {
    const SideRead *u = &d->use.at[i];
    uint32_t *before = &last[pipe_op_info[u->use.kind].stream];
    if (u->nth + 1 < *before)
      return read_bad(
          d, u->at,
          "by 'wait' and 'order' it stands before a side op that is above it in its stream");
    *before = u->nth + 1;
    number[u->nth] = first + i;
    *vec_push(s->arena, &d->uses) = u->use;
    s->ncomm_side += u->use.kind == PIPE_SIDE_COMM;
  }
  for (uint32_t i = first_copy; i < s->ncopy; i++)
    if (s->copy[i].kind == PIPE_SIDE_COPY)
      s->copy[i].use = number[s->copy[i].use];
  s->side_use = d->uses.at, s->nside_use = s->side_use0[r + 1] = d->uses.n;
  d->use.n = 0;
  return true;
}

/* ---- transfers of a text ---- */

/* Which tensor: its edge, where there are several. */
static bool find_edge(Read *d, Span at, const char *text, uint32_t kind, uint32_t stage,
                      uint32_t unit, uint32_t *edge) {
  Sched *s = d->s;
  PipeInstr in = pipe_instr((PipeOp)kind, stage, unit);
  Op o = {.kind = kind == PIPE_SEND_F || kind == PIPE_RECV_F ? PIPE_F : PIPE_B,
          .stage = stage,
          .mb = unit};
  bool input = kind == PIPE_RECV_F || kind == PIPE_RECV_B;
  char says[OP_TEXT];
  uint32_t n = s->graph ? input ? op_inputs(s, &o) : op_outputs(s, &o) : 1;
  pipe_unit_text(says, (PipeOp)kind, stage, unit, s->slices);
  for (uint32_t k = 0; k < n; k++) {
    if (s->graph) {
      in.keep = link_at(s, input ? input_link(s, &o, k) : output_link(s, &o, k)).edge;
      pipe_instr_text(says, sched_graph(s), &in);
    }
    *edge = in.keep;
    if (strcmp(says, text) == 0)
      return true;
  }
  return read_bad(
      d, at,
      n == 0 ? arena_printf(s->arena, "'op' is %s, but stage %u has no such tensor", text, stage)
             : arena_printf(s->arena, "'op' is %s, but stage and microbatch say %s", text, says));
}

bool read_post(Read *d, uint32_t r, Span at, json_t *j, const char *text, uint32_t kind) {
  Sched *s = d->s;
  uint64_t stage = 0, mb = NONE, slice = 0, wait = 0, group = 0, all = 0;
  bool sum = pipe_is_sum(kind);
  if (!read_own_stage(d, at, j, text, r, &stage) ||
      (!sum && !read_unit(d, at, j, stage, true, &mb, &slice)) ||
      !read_number(d, at, j, "wait", d->group_left == 0, 0, INT32_MAX, &wait) ||
      !read_number(d, at, j, "group", false, 0, sum ? 0 : PIPE_GROUP_MOST - 1, &group) ||
      !read_number(d, at, j, "wait_all", false, 0, 1, &all))
    return false;
  const PipeStage *st = &s->stage[stage];
  uint32_t unit = sum ? NONE : (uint32_t)mb * s->slices + (uint32_t)slice, edge = NONE;
  if (sum) {
    char says[OP_TEXT];
    pipe_unit_text(says, (PipeOp)kind, (uint32_t)stage, NONE, s->slices);
    if (kind == PIPE_TIE ? st->tied != stage : st->replica == stage)
      return read_bad(d, at,
                      kind == PIPE_TIE
                          ? "TIE is of the first stage of the rank that shares these weights"
                          : "REDUCE is of a stage that has replicas");
    if (strcmp(says, text) != 0)
      return read_bad(d, at, arena_printf(s->arena, "'op' is %s, but stage says %s", text, says));
  } else if (!find_edge(d, at, text, kind, (uint32_t)stage, unit, &edge)) {
    return false;
  }
  if (d->group_left > 0 && (group != d->group_left - 1 || sum))
    return read_bad(
        d, at,
        arena_printf(s->arena,
                     "%llu transfers of the group before are still to come, 'group' is %llu",
                     (unsigned long long)d->group_left - 1, (unsigned long long)group));
  const Posting *last = d->posts.n > 0 ? &d->posts.at[d->posts.n - 1] : NULL;
  Posting p = {.kind = (uint8_t)kind,
               .joint = group > 0 || d->group_left > 0,
               .group = (uint16_t)group,
               .stage = (uint32_t)stage,
               .mb = unit,
               .edge = edge,
               .at = d->group_left > 0 ? last->at : s->rank_op0[r] + (uint32_t)wait,
               .rank = r};
  if (last && p.at < last->at)
    return read_bad(d, at, "its 'wait' is less than that of the transfer before it");
  p.site = add_site(s, at);
  if (all) {
    Posting w = p;
    w.kind = PIPE_NOPS, w.group = 0, w.joint = false;
    if (d->group_left > 0)
      return read_bad(d, at, "'wait_all' is of the first transfer of a group");
    *vec_push(s->arena, &d->posts) = w;
  }
  *vec_push(s->arena, &d->posts) = p;
  d->group_left = group;
  return true;
}

bool read_wait_all(Read *d, uint32_t r, Span at, json_t *j, bool can) {
  Sched *s = d->s;
  uint64_t all = 0;
  if (!read_number(d, at, j, "wait_all", false, 0, 1, &all))
    return false;
  if (all && !can)
    return read_bad(d, at, "'wait_all' is of transfers, and of what the rank computes, by hand");
  if (all)
    *vec_push(s->arena, &d->waits) = (Posting){.kind = PIPE_NOPS,
                                               .mb = NONE,
                                               .site = add_site(s, at),
                                               .edge = NONE,
                                               .at = s->nop,
                                               .rank = r};
  return true;
}

static void add_post(Sched *s, const Posting *p) {
  if (s->npost == s->cappost)
    vec_grow(s->arena, (void **)&s->post, &s->cappost, sizeof *s->post);
  s->post[s->npost++] = *p;
}

/* The transfers of a rank whose list has been read, with the waits of its ops. */
bool finish_posts(Read *d, uint32_t r) {
  Sched *s = d->s;
  uint32_t k = 0;
  if (d->group_left > 0)
    return read_bad(d, d->rank_at.at[r], "its last group has fewer transfers than 'group' says");
  for (uint32_t i = 0; i < d->posts.n; i++) {
    const Posting *p = &d->posts.at[i];
    if (!between_actions(d, s->site[p->site], r, p->at))
      return false;
    for (; k < d->waits.n && d->waits.at[k].at < p->at; k++)
      add_post(s, &d->waits.at[k]);
    add_post(s, p);
  }
  for (uint32_t i = 0; i < d->waits.n; i++) {
    uint32_t row = d->waits.at[i].at;
    if (row > s->rank_op0[r] && s->op[row - 1].group > 0)
      return read_bad(d, s->site[d->waits.at[i].site],
                      "'wait_all' is of the first op of an action");
  }
  for (; k < d->waits.n; k++)
    add_post(s, &d->waits.at[k]);
  d->posts.n = d->waits.n = 0;
  return true;
}

/* ---- limits ---- */

/* A whole number of either sign. */
static bool read_signed(Read *d, Span at, json_t *j, const char *key, int64_t most, int64_t *v) {
  if (!json_is_integer(j) || json_integer_value(j) > most || json_integer_value(j) < -most)
    return read_bad(d, at,
                    arena_printf(d->s->arena, "'%s' of a limit must be a whole number within %lld",
                                 key, (long long)most));
  *v = json_integer_value(j);
  return true;
}

static bool read_limit(Read *d, Span at, uint32_t r, json_t *j, Limit *l) {
  Sched *s = d->s;
  uint32_t nchunk = s->rank_stage0[r + 1] - s->rank_stage0[r];
  *l = (Limit){.at = at, .rank = r};
  if (!json_is_object(j))
    return read_bad(d, at, "a limit is an object");
  if (!read_keys(d, at, j, "a limit", " inflight held kept host most peak ") ||
      !read_signed(d, at, json_object_get(j, "most"), "most", INT64_MAX / 2, &l->most))
    return false;
  l->weight = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)nchunk);
  for (uint32_t k = 0; k < NCOUNTS; k++) {
    json_t *list = json_object_get(j, count_name[k]);
    if (!list)
      continue;
    if (!json_is_array(list) || json_array_size(list) != nchunk)
      return read_bad(
          d, at,
          arena_printf(s->arena,
                       "'%s' of a limit is a list with a weight for each of %u stages of rank %u",
                       count_name[k], nchunk, r));
    for (uint32_t c = 0; c < nchunk; c++) {
      int64_t *weight = &l->weight[k * nchunk + c];
      if (!read_signed(d, at, json_array_get(list, c), count_name[k], INT64_MAX / 2, weight))
        return false;
      if (!weight_fits(s, *weight))
        return read_bad(d, at,
                        arena_printf(s->arena, "a weight of %lld in '%s' of a limit could overflow",
                                     (long long)*weight, count_name[k]));
    }
  }
  return true;
}

bool read_limits(Read *d, json_t *ranks) {
  Sched *s = d->s;
  VEC(Limit) rows = {0};
  for (uint32_t r = 0; r < s->nrank; r++) {
    json_t *list = json_object_get(json_array_get(ranks, r), "limits"), *j;
    size_t i;
    if (list && !json_is_array(list))
      return read_bad(d, d->rank_at.at[r], "\"limits\" of a rank is a list");
    json_array_foreach(list, i, j) {
      Limit l;
      if (rows.n == d->limit_at.n)
        return read_bad(d, d->rank_at.at[r], "keys are written without escapes");
      if (!read_limit(d, d->limit_at.at[rows.n], r, j, &l))
        return false;
      *vec_push(s->arena, &rows) = l;
    }
  }
  if (rows.n > 0)
    set_limits(s, rows.at, rows.n);
  return true;
}
