/* SPDX-License-Identifier: MIT
 * Reads the rarer parts of the JSON form: edges and places by microbatch, shared weights, shared
 * links, times of slices. Checks the form of each table; the passes prove its meaning. Cost:
 * linear. */
#include <string.h>

#include "graph.h"
#include "stages.h"
#include "read_json.h"

static Span top(const Read *d) { return (Span){d->file, 0, 1}; }

/* ---- edges and places by microbatch ---- */

static bool read_edge(Read *d, json_t *j, const PipeEdge *before, PipeEdge *e) {
  Sched *s = d->s;
  uint64_t from = 0, to = 0, skip = 0, send = 0, back = 0;
  if (!json_is_object(j))
    return read_bad(d, top(d), "an edge is an object");
  if (!read_keys(d, top(d), j, "an edge", " from to skip send send_back ") ||
      !read_number(d, top(d), j, "from", true, 0, s->model->nmodel - 1, &from) ||
      !read_number(d, top(d), j, "to", true, from + 1, s->model->nmodel - 1, &to) ||
      !read_number(d, top(d), j, "skip", true, 0, 1, &skip))
    return false;
  send = s->model->stage[from].time[PIPE_SEND_F], back = s->model->stage[to].time[PIPE_SEND_B];
  if (!read_number(d, top(d), j, "send", false, 0, d->most, &send) ||
      !read_number(d, top(d), j, "send_back", false, 0, d->most, &back))
    return false;
  if (!skip && to != from + 1)
    return read_bad(d, top(d), "an edge that does not skip leads to the next stage");
  *e = (PipeEdge){
      .from = (uint32_t)from, .to = (uint32_t)to, .skip = (uint32_t)skip, .send = {send, back}};
  if (before && (before->from > e->from ||
                 (before->from == e->from && (before->to >= e->to || (before->skip && !e->skip)))))
    return read_bad(d, top(d),
                    "edges are sorted by 'from', then the edge to the next stage, then by 'to'");
  e->out = before && before->from == e->from ? before->out + 1 : 0;
  return true;
}

bool read_edges(Read *d, json_t *root) {
  Sched *s = d->s;
  json_t *list = json_object_get(root, "edges"), *rows = json_object_get(root, "rows");
  if (!list && !rows)
    return true;
  if (!json_is_array(list) || !json_is_array(rows) || json_array_size(rows) != s->model->nmodel)
    return read_bad(d, top(d),
                    "\"edges\" is a list, and \"rows\" has a list for each stage of the model");
  uint32_t n = (uint32_t)json_array_size(list);
  PipeEdge *edge = NEW_ARRAY(s->arena, PipeEdge, (size_t)n + 1);
  for (uint32_t i = 0; i < n; i++)
    if (!read_edge(d, json_array_get(list, i), i ? &edge[i - 1] : NULL, &edge[i]))
      return false;
  if ((uint64_t)s->model->nmodel * s->model->nmb >
      strlen(d->text)) /* the text has every number of the rows */
    return read_bad(d, top(d), "a list of \"rows\" has a row for each microbatch");
  uint32_t *row = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nmodel * s->model->nmb);
  uint8_t *runs = NEW_ARRAY(s->arena, uint8_t, s->model->nstage);
  for (uint32_t m = 0; m < s->model->nmodel; m++) {
    json_t *of = json_array_get(rows, m);
    if (!json_is_array(of) || json_array_size(of) != s->model->nmb)
      return read_bad(d, top(d), "a list of \"rows\" has a row for each microbatch");
    for (uint32_t mb = 0; mb < s->model->nmb; mb++) {
      json_t *v = json_array_get(of, mb);
      json_int_t r = json_is_integer(v) ? json_integer_value(v) : -1;
      const PipeStage *st = r >= 0 && r < s->model->nstage ? &s->model->stage[r] : NULL;
      if (!st || st->model != m || mb < st->mb0 || mb - st->mb0 >= st->nmb)
        return read_bad(
            d, top(d),
            arena_printf(
                s->arena,
                "\"rows\" of stage %u: microbatch %u belongs to no row of this stage and pipe", m,
                mb / s->model->slices));
      row[(size_t)m * s->model->nmb + mb] = (uint32_t)r;
      runs[r] = 1;
    }
  }
  for (uint32_t i = 0; i < s->model->nstage; i++)
    if (!runs[i])
      return read_bad(d, d->stage_at.at[i], "no microbatch in \"rows\" belongs to this row");
  d->x.in.model->row_of = row;
  join_graph(s, d->x.in.model, edge, n, row);
  return true;
}

/* ---- shared weights ---- */

bool read_ties(Read *d, json_t *stages) {
  Sched *s = d->s;
  uint32_t *group = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel),
           *members = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nmodel + 1);
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    json_t *j = json_array_get(stages, i);
    uint64_t with = NONE;
    uint32_t m = s->model->stage[i].model;
    if (!read_number(d, d->stage_at.at[i], j, "tied_with", false, 0, m, &with))
      return false;
    bool row_of_model = i < s->model->nmodel;
    if (with != NONE && row_of_model && with == m)
      group[m] = ++d->x.in.model->ntie;
    else if (with != NONE && row_of_model)
      group[m] = group[with];
    members[group[m]] += row_of_model;
    uint32_t want = with == NONE ? 0 : group[with];
    if (group[m] != want || (with != NONE && want == 0))
      return read_bad(d, d->stage_at.at[i],
                      "'tied_with' is the first of the stages that share weights, in every pipe");
  }
  for (uint32_t k = 1; k <= s->model->ntie; k++)
    if (members[k] < 2)
      return read_bad(d, top(d), "a tie needs two stages or more");
  if (s->model->ntie > 0 && s->model->forward)
    return read_bad(d, top(d), "'tied_with' in a forward-only program");
  if (s->model->ntie > 0)
    join_ties(s, d->x.in.model, group);
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    json_t *j = json_array_get(stages, i);
    bool skips = false;
    for (uint32_t k = 0; s->model->graph && k < st->nout; k++)
      skips |= s->model->graph->edge[s->model->graph->out0[st->model] + k].skip != 0;
    st->edge_bytes = skips ? st->edge_bytes : 0;
    if (st->tied == NONE)
      st->tied_bytes = st->time[PIPE_TIE] = 0;
    else if (!json_object_get(j, "tie"))
      st->time[PIPE_TIE] = st->time[PIPE_REDUCE];
    const PipeStage *first =
        st->tied == NONE
            ? st
            : &s->model->stage[s->model->tie_row[s->model->tie_row0[s->model->tie_of[i]]]];
    if (st->tied_bytes > st->grad_bytes || st->tied_bytes != first->tied_bytes ||
        st->time[PIPE_TIE] != first->time[PIPE_TIE])
      return read_bad(
          d, d->stage_at.at[i],
          "stages that share weights have the same 'tied' and 'tie', and no more than their gradients");
  }
  return true;
}

/* ---- shared links ---- */

static int by_pair(const void *a, const void *b) {
  const PipeShare *x = a, *y = b;
  if (x->from != y->from)
    return x->from < y->from ? -1 : 1;
  if (x->to != y->to)
    return x->to < y->to ? -1 : 1;
  return x->link < y->link ? -1 : x->link > y->link;
}

bool read_links(Read *d, json_t *root) {
  Sched *s = d->s;
  json_t *list = json_object_get(root, "links");
  VEC(PipeShare) share = {0};
  if (!list)
    return true;
  if (!json_is_array(list))
    return read_bad(d, top(d), "\"links\" is not a list");
  for (uint32_t k = 0; k < json_array_size(list); k++) {
    json_t *j = json_array_get(list, k), *pairs = json_object_get(j, "pairs");
    uint64_t number = k;
    if (!json_is_object(j) || !json_is_array(pairs) || json_array_size(pairs) == 0)
      return read_bad(d, top(d), "a link is an object with a list \"pairs\", which is not empty");
    if (!read_keys(d, top(d), j, "a link", " link busy pairs ") ||
        !read_number(d, top(d), j, "link", false, k, k, &number))
      return false;
    for (size_t i = 0; i < json_array_size(pairs); i++) {
      json_t *pair = json_array_get(pairs, i), *a = json_array_get(pair, 0),
             *b = json_array_get(pair, 1);
      if (json_array_size(pair) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
          json_integer_value(a) < 0 || json_integer_value(b) < 0 ||
          json_integer_value(a) >= s->model->nrank || json_integer_value(b) >= s->model->nrank ||
          json_integer_value(a) == json_integer_value(b))
        return read_bad(d, top(d), "a pair of a link is [from, to], two ranks");
      *vec_push(s->arena, &share) = (PipeShare){(uint32_t)json_integer_value(a),
                                                (uint32_t)json_integer_value(b), k};
    }
  }
  if (share.n > 1)
    qsort(share.at, share.n, sizeof *share.at, by_pair);
  for (uint32_t i = 1; i < share.n; i++)
    if (by_pair(&share.at[i - 1], &share.at[i]) == 0)
      return read_bad(d, top(d), "a link has the same pair twice");
  d->x.in.model->share = share.n ? share.at : NULL, d->x.in.model->nshare = share.n,
  d->x.in.model->nlink = (uint32_t)json_array_size(list);
  return true;
}

/* ---- times of slices, or of units ---- */

bool read_unit_times(Read *d, json_t *stages) {
  Sched *s = d->s;
  const char *name = "slice_times";
  uint32_t most = 0;
  if (json_object_get(json_array_get(stages, 0), "unit_times"))
    name = "unit_times";
  else if (!json_object_get(json_array_get(stages, 0), name))
    name = NULL;
  for (uint32_t i = 0; name && i < s->model->nstage; i++)
    most = s->model->stage[i].nmb > most ? s->model->stage[i].nmb : most;
  if (name) {
    d->x.in.model->nunit_time = *name == 's' ? s->model->slices : most;
    d->x.in.model->unit_time = NEW_ARRAY(
        s->arena, uint64_t, PIPE_UNIT_TIMES * (size_t)s->model->nstage * s->model->nunit_time);
  }
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    json_t *stage = json_array_get(stages, i), *list = name ? json_object_get(stage, name) : NULL;
    uint32_t n = !name ? 0 : *name == 's' ? s->model->slices : s->model->stage[i].nmb;
    bool by_slice = json_object_get(stage, "slice_times"),
         by_unit = json_object_get(stage, "unit_times");
    if ((by_slice && by_unit) || (by_slice || by_unit) != (list != NULL) ||
        (name && (json_array_size(list) != n || (by_slice && s->model->slices < 2))))
      return read_bad(
          d, d->stage_at.at[i],
          "all stages have 'slice_times', a list for each slice, or all 'unit_times', a "
          "list for each unit of the pipe, or no times");
    for (uint32_t u = 0; u < n; u++) {
      json_t *times = json_array_get(list, u);
      uint64_t *to = &s->model->unit_time[((size_t)i * s->model->nunit_time + u) * PIPE_UNIT_TIMES];
      size_t given = json_array_size(times);
      if (given != PIPE_R && given != PIPE_R + 1 && given != PIPE_UNIT_TIMES)
        return read_bad(
            d, d->stage_at.at[i],
            "a slice or unit has times of F, B, I and W, of R, and of OFF, LOAD and FB");
      for (uint32_t k = 0; k < PIPE_UNIT_TIMES; k++)
        to[k] = *cost_field(&s->model->stage[i], unit_key[k]);
      for (size_t k = 0; k < given; k++) {
        json_t *v = json_array_get(times, k);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            (uint64_t)json_integer_value(v) > d->most)
          return read_bad(d, d->stage_at.at[i], "times of slices and units are whole numbers");
        to[k] = (uint64_t)json_integer_value(v);
      }
    }
  }
  return true;
}
