/* SPDX-License-Identifier: MIT
 * What the JSON form says of few programs: edges and places by microbatch, shared weights, shared links, times of
 * slices, versions of weights and formulas. Each is checked as far as a table is concerned; what it means is proved
 * by the passes. Linear. */
#include <string.h>

#include "evaluate.h"
#include "graph.h"
#include "read_json.h"

static Span top(const Read *d) { return (Span){d->file, 0, 1}; }

/* ---- edges and places by microbatch ---- */

static bool read_edge(Read *d, json_t *j, const PipeEdge *before, PipeEdge *e) {
  Sched *s = d->s;
  uint64_t from = 0, to = 0, skip = 0, send = 0, back = 0;
  if (!json_is_object(j))
    return read_bad(d, top(d), "an edge is an object");
  if (!read_keys(d, top(d), j, "an edge", " from to skip send send_back ") ||
      !read_number(d, top(d), j, "from", true, 0, s->nmodel - 1, &from) ||
      !read_number(d, top(d), j, "to", true, from + 1, s->nmodel - 1, &to) ||
      !read_number(d, top(d), j, "skip", true, 0, 1, &skip))
    return false;
  send = s->stage[from].time[PIPE_SEND_F], back = s->stage[to].time[PIPE_SEND_B];
  if (!read_number(d, top(d), j, "send", false, 0, d->most, &send) ||
      !read_number(d, top(d), j, "send_back", false, 0, d->most, &back))
    return false;
  if (!skip && to != from + 1)
    return read_bad(d, top(d), "an edge that does not skip leads to the next stage");
  *e = (PipeEdge){
      .from = (uint32_t)from, .to = (uint32_t)to, .skip = (uint32_t)skip, .send = {send, back}};
  if (before && (before->from > e->from ||
                 (before->from == e->from && (before->to >= e->to || (before->skip && !e->skip)))))
    return read_bad(
        d, top(d), "edges stand in the order of 'from', then that to the next stage, then of 'to'");
  e->out = before && before->from == e->from ? before->out + 1 : 0;
  return true;
}

bool read_edges(Read *d, json_t *root) {
  Sched *s = d->s;
  json_t *list = json_object_get(root, "edges"), *rows = json_object_get(root, "rows");
  if (!list && !rows)
    return true;
  if (!json_is_array(list) || !json_is_array(rows) || json_array_size(rows) != s->nmodel)
    return read_bad(d, top(d),
                    "\"edges\" is a list, and \"rows\" has a list for each stage of the model");
  uint32_t n = (uint32_t)json_array_size(list);
  PipeEdge *edge = NEW_ARRAY(s->arena, PipeEdge, (size_t)n + 1);
  for (uint32_t i = 0; i < n; i++)
    if (!read_edge(d, json_array_get(list, i), i ? &edge[i - 1] : NULL, &edge[i]))
      return false;
  if ((uint64_t)s->nmodel * s->nmb > strlen(d->text)) /* each number of rows is in the text */
    return read_bad(d, top(d), "a list of \"rows\" has a row for each microbatch");
  uint32_t *row = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nmodel * s->nmb);
  uint8_t *runs = NEW_ARRAY(s->arena, uint8_t, s->nstage);
  for (uint32_t m = 0; m < s->nmodel; m++) {
    json_t *of = json_array_get(rows, m);
    if (!json_is_array(of) || json_array_size(of) != s->nmb)
      return read_bad(d, top(d), "a list of \"rows\" has a row for each microbatch");
    for (uint32_t mb = 0; mb < s->nmb; mb++) {
      json_t *v = json_array_get(of, mb);
      json_int_t r = json_is_integer(v) ? json_integer_value(v) : -1;
      const PipeStage *st = r >= 0 && r < s->nstage ? &s->stage[r] : NULL;
      if (!st || st->model != m || mb < st->mb0 || mb - st->mb0 >= st->nmb)
        return read_bad(
            d, top(d),
            arena_printf(s->arena,
                         "\"rows\" of stage %u: microbatch %u is of no row of that stage and pipe",
                         m, mb / s->slices));
      row[(size_t)m * s->nmb + mb] = (uint32_t)r;
      runs[r] = 1;
    }
  }
  for (uint32_t i = 0; i < s->nstage; i++)
    if (!runs[i])
      return read_bad(d, d->stage_at.at[i], "no microbatch in \"rows\" is of this row");
  s->row_of = row;
  join_graph(s, edge, n, row);
  return true;
}

/* ---- shared weights ---- */

bool read_ties(Read *d, json_t *stages) {
  Sched *s = d->s;
  uint32_t *group = NEW_ARRAY(s->arena, uint32_t, s->nmodel),
           *members = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nmodel + 1);
  for (uint32_t i = 0; i < s->nstage; i++) {
    json_t *j = json_array_get(stages, i);
    uint64_t with = NONE;
    uint32_t m = s->stage[i].model;
    if (!read_number(d, d->stage_at.at[i], j, "tied_with", false, 0, m, &with))
      return false;
    bool row_of_model = i < s->nmodel;
    if (with != NONE && row_of_model && with == m)
      group[m] = ++s->ntie;
    else if (with != NONE && row_of_model)
      group[m] = group[with];
    members[group[m]] += row_of_model;
    uint32_t want = with == NONE ? 0 : group[with];
    if (group[m] != want || (with != NONE && want == 0))
      return read_bad(d, d->stage_at.at[i],
                      "'tied_with' is the first of the stages that share weights, in every pipe");
  }
  for (uint32_t k = 1; k <= s->ntie; k++)
    if (members[k] < 2)
      return read_bad(d, top(d), "weights are shared by two stages or more");
  if (s->ntie > 0 && s->forward)
    return read_bad(d, top(d), "'tied_with' in a program that only runs forward");
  if (s->ntie > 0)
    join_ties(s, group);
  for (uint32_t i = 0; i < s->nstage; i++) {
    PipeStage *st = &s->stage[i];
    json_t *j = json_array_get(stages, i);
    bool skips = false;
    for (uint32_t k = 0; s->graph && k < st->nout; k++)
      skips |= s->graph->edge[s->graph->out0[st->model] + k].skip != 0;
    st->edge_bytes = skips ? st->edge_bytes : 0;
    if (st->tied == NONE)
      st->tied_bytes = st->time[PIPE_TIE] = 0;
    else if (!json_object_get(j, "tie"))
      st->time[PIPE_TIE] = st->time[PIPE_REDUCE];
    const PipeStage *first = st->tied == NONE ? st
                                              : &s->stage[s->tie_row[s->tie_row0[s->tie_of[i]]]];
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
          json_integer_value(a) >= s->nrank || json_integer_value(b) >= s->nrank ||
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
      return read_bad(d, top(d), "a pair stands twice in a link");
  s->share = share.n ? share.at : NULL, s->nshare = share.n,
  s->nlink = (uint32_t)json_array_size(list);
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
  for (uint32_t i = 0; name && i < s->nstage; i++)
    most = s->stage[i].nmb > most ? s->stage[i].nmb : most;
  if (name) {
    s->nunit_time = *name == 's' ? s->slices : most;
    s->unit_time = NEW_ARRAY(s->arena, uint64_t,
                             PIPE_UNIT_TIMES * (size_t)s->nstage * s->nunit_time);
  }
  for (uint32_t i = 0; i < s->nstage; i++) {
    json_t *stage = json_array_get(stages, i), *list = name ? json_object_get(stage, name) : NULL;
    uint32_t n = !name ? 0 : *name == 's' ? s->slices : s->stage[i].nmb;
    bool by_slice = json_object_get(stage, "slice_times"),
         by_unit = json_object_get(stage, "unit_times");
    if ((by_slice && by_unit) || (by_slice || by_unit) != (list != NULL) ||
        (name && (json_array_size(list) != n || (by_slice && s->slices < 2))))
      return read_bad(
          d, d->stage_at.at[i],
          "all stages have 'slice_times', a list for each slice, or all 'unit_times', a "
          "list for each unit of the pipe, or none");
    for (uint32_t u = 0; u < n; u++) {
      json_t *times = json_array_get(list, u);
      uint64_t *to = &s->unit_time[((size_t)i * s->nunit_time + u) * PIPE_UNIT_TIMES];
      size_t given = json_array_size(times);
      if (given != PIPE_R && given != PIPE_R + 1 && given != PIPE_UNIT_TIMES)
        return read_bad(
            d, d->stage_at.at[i],
            "a slice or unit has times of F, B, I and W, of R, and of OFF, LOAD and FB");
      for (uint32_t k = 0; k < PIPE_UNIT_TIMES; k++)
        to[k] = *cost_field(&s->stage[i], unit_key[k]);
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

/* ---- formulas ---- */

typedef struct Formula {
  Read *d;
  const char *at, *text;
  PipeTerm term[PIPE_FORMULA_TERMS];
  uint32_t n, nesting;
} Formula;

enum { MOST_NESTING = 100 };

static bool wrong(Formula *f, const char *what) {
  return read_bad(
      f->d, top(f->d),
      arena_printf(f->d->s->arena, "formula '%.60s', at '%.20s': %s", f->text, f->at, what));
}

static bool term(Formula *f, uint32_t op, uint32_t arg, double value) {
  if (f->n == PIPE_FORMULA_TERMS)
    return wrong(f, "it has too many terms");
  f->term[f->n++] = (PipeTerm){op, arg, value};
  return true;
}

static bool next_is(Formula *f, const char *text) {
  f->at += strspn(f->at, " ");
  if (strncmp(f->at, text, strlen(text)) != 0)
    return false;
  f->at += strlen(text);
  return true;
}

static bool conditional(Formula *f);

static bool named(Formula *f) {
  static const char *const array[] = {"w", "old", "g", "v", "v2"};
  const Sched *s = f->d->s;
  size_t n = strspn(f->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  const char *name = arena_strndup(s->arena, f->at, n);
  f->at += n;
  for (uint32_t op = PIPE_TERM_ABS; *f->at == '(' && op < PIPE_NTERMS; op++) {
    if (strcmp(pr_term_text[op], name) != 0)
      continue;
    f->at++;
    for (uint32_t k = 0; k < pr_term_operands[op]; k++)
      if ((k && !next_is(f, ",")) || !conditional(f))
        return *f->at && f->d->s->diag->errors
                   ? false
                   : wrong(f, "a function has its operands in brackets");
    return next_is(f, ")") ? term(f, op, 0, 0) : wrong(f, "expected ')'");
  }
  if (strcmp(name, "lr") == 0 || strcmp(name, "k") == 0)
    return term(f, PIPE_TERM_REAL, *name == 'l' ? PIPE_REAL_LR : PIPE_REAL_K, 0);
  for (uint32_t k = 0; k < 5; k++)
    if (strcmp(name, array[k]) == 0)
      return term(f, PIPE_TERM_ELEM, k, 0);
  for (uint32_t k = 0; k < s->nstate; k++)
    if (strcmp(name, s->state[k]) == 0)
      return term(f, PIPE_TERM_ELEM, PIPE_ELEM_STATE + k, 0);
  f->at -= n;
  return wrong(f, "expected a number, a name that formulas know, or a state");
}

static bool primary(Formula *f) {
  if (next_is(f, "("))
    return conditional(f) && (next_is(f, ")") || wrong(f, "expected ')'"));
  if (*f->at >= '0' && *f->at <= '9') {
    size_t n = strspn(f->at, "0123456789.");
    n += f->at[n] == 'e' ? 1 + strspn(f->at + n + 1, "+-") : 0;
    n += strspn(f->at + n, "0123456789");
    double v = strtod(arena_strndup(f->d->s->arena, f->at, n), NULL);
    f->at += n;
    return v <= 1e300 ? term(f, PIPE_TERM_CONST, 0, v) : wrong(f, "a number that is too large");
  }
  return named(f);
}

static bool unary(Formula *f) {
  if (++f->nesting > MOST_NESTING)
    return wrong(f, "brackets and signs nest too deeply");
  bool negative = next_is(f, "-"),
       not = !negative && strncmp(f->at, "!=", 2) != 0 && next_is(f, "!");
  bool ok = negative || not ? unary(f) : primary(f);
  f->nesting--;
  if (!ok)
    return false;
  PipeTerm *last = &f->term[f->n - 1];
  if (negative && last->op == PIPE_TERM_CONST &&
      last->value >= 0) { /* as it is written: no operation */
    last->value = -last->value;
    return true;
  }
  return !(negative || not ) || term(f, negative ? PIPE_TERM_NEG : PIPE_TERM_NOT, 0, 0);
}

/* Operators from the loosest; longer texts first. */
static const struct {
  const char *text;
  uint8_t op, level;
} binary[] = {{"||", PIPE_TERM_OR, 1}, {"&&", PIPE_TERM_AND, 2}, {"<=", PIPE_TERM_LE, 3},
              {">=", PIPE_TERM_GE, 3}, {"==", PIPE_TERM_EQ, 3},  {"!=", PIPE_TERM_NE, 3},
              {"<", PIPE_TERM_LT, 3},  {">", PIPE_TERM_GT, 3},   {"+", PIPE_TERM_ADD, 4},
              {"-", PIPE_TERM_SUB, 4}, {"*", PIPE_TERM_MUL, 5},  {"/", PIPE_TERM_DIV, 5}};
enum { NBINARY = sizeof binary / sizeof *binary, TIGHTEST = 5 };

static bool operation(Formula *f, int level) {
  if (level > TIGHTEST)
    return unary(f);
  if (!operation(f, level + 1))
    return false;
  for (int k = 0; k < NBINARY; k++)
    if (binary[k].level == level && next_is(f, binary[k].text)) {
      if (!operation(f, level + 1) || !term(f, binary[k].op, 0, 0))
        return false;
      k = -1; /* a further one of this level */
    }
  return true;
}

static bool conditional(Formula *f) {
  if (++f->nesting > MOST_NESTING)
    return wrong(f, "brackets and signs nest too deeply");
  bool ok = operation(f, 1);
  if (ok && next_is(f, "?"))
    ok = conditional(f) && (next_is(f, ":") || wrong(f, "expected ':'")) && conditional(f) &&
         term(f, PIPE_TERM_COND, 0, 0);
  f->nesting--;
  return ok;
}

/* The number of values at once, and whether the result is a number. */
static void measure(PipeFormula *p) {
  uint32_t depth = 0;
  uint64_t array[PIPE_FORMULA_TERMS / 64 + 1] = {0};
  p->depth = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    bool is_array = p->term[i].op == PIPE_TERM_ELEM;
    for (uint32_t k = pr_term_operands[p->term[i].op]; k > 0; k--) {
      depth--;
      is_array |= array[depth / 64] >> depth % 64 & 1;
    }
    array[depth / 64] = (array[depth / 64] & ~(UINT64_C(1) << depth % 64)) | (uint64_t)is_array
                                                                                 << depth % 64;
    p->depth = ++depth > p->depth ? depth : p->depth;
  }
  p->scalar = !(array[0] & 1);
}

static bool read_formula(Read *d, json_t *j, PipeFormula *p) {
  Sched *s = d->s;
  Formula *f = NEW(s->arena, Formula);
  if (!json_is_string(j) || strlen(json_string_value(j)) > 20 * PIPE_FORMULA_TERMS)
    return read_bad(d, top(d), "a formula is a string");
  *f = (Formula){.d = d, .at = json_string_value(j), .text = json_string_value(j)};
  if (!conditional(f))
    return false;
  f->at += strspn(f->at, " ");
  if (*f->at)
    return wrong(f, "expected its end");
  PipeTerm *t = arena_alloc(s->arena, f->n * sizeof *t);
  memcpy(t, f->term, f->n * sizeof *t);
  *p = (PipeFormula){.term = t, .n = f->n};
  measure(p);
  if (p->depth > PIPE_FORMULA_DEPTH)
    return wrong(f, "it needs too many values at once");
  return true;
}

static uint32_t find_state(Sched *s, const char *name) {
  uint32_t k = 0;
  while (k < s->nstate && strcmp(s->state[k], name) != 0)
    k++;
  return k;
}

/* The states of all stages, in the order in which they first stand, which all stages keep. */
static bool read_states(Read *d, json_t *stages) {
  Sched *s = d->s;
  static const char *const taken[] = {"w", "old", "g", "v", "v2", "lr", "k"};
  s->state = NEW_ARRAY(s->arena, const char *, 32);
  for (uint32_t i = 0; i < s->nstage; i++) {
    json_t *list = json_object_get(json_array_get(stages, i), "states");
    uint32_t last = 0;
    for (size_t k = 0; k < json_array_size(list); k++) {
      const char *name = json_string_value(json_array_get(list, k));
      bool bad = !name || !*name || (*name >= '0' && *name <= '9') ||
                 strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") !=
                     strlen(name);
      for (size_t n = 0; !bad && n < sizeof taken / sizeof *taken; n++)
        bad = strcmp(name, taken[n]) == 0;
      uint32_t at = bad ? 0 : find_state(s, name);
      if (bad || at == 32 || (k > 0 && at <= last))
        return read_bad(d, d->stage_at.at[i],
                        "'states' are at most 32 names, in one order for all stages");
      if (at == s->nstate)
        s->state[s->nstate++] = arena_strndup(s->arena, name, strlen(name));
      s->stage[i].states |= 1u << at;
      last = at;
    }
  }
  return true;
}

static bool read_rule(Read *d, json_t *j, PipeRule *r) {
  Sched *s = d->s;
  json_t *list = json_object_get(j, "then");
  uint64_t applies = NONE, rate = NONE, most = s->nformula - 1;
  if (!json_is_object(j) || !read_keys(d, top(d), j, "a rule", " applies rate then ") ||
      !read_number(d, top(d), j, "applies", false, 0, most, &applies) ||
      !read_number(d, top(d), j, "rate", false, 0, most, &rate))
    return json_is_object(j) ? false : read_bad(d, top(d), "a rule is an object");
  *r = (PipeRule){(uint32_t)applies, (uint32_t)rate, s->nthen, (uint32_t)json_array_size(list)};
  for (size_t k = 0; k < json_array_size(list); k++) {
    json_t *then = json_array_get(list, k), *state = json_object_get(then, "state");
    uint64_t formula = 0;
    if (json_is_object(then) && !read_keys(d, top(d), then, "a 'then'", " state formula "))
      return false;
    uint32_t at = json_is_string(state) ? find_state(s, json_string_value(state)) : s->nstate;
    if (at == s->nstate || (k > 0 && s->then[s->nthen - 1].state >= at))
      return read_bad(d, top(d), "'then' sets states that stages keep, in their order");
    if (!read_number(d, top(d), then, "formula", true, 0, most, &formula))
      return false;
    s->then[s->nthen++] = (PipeThen){at, (uint32_t)formula};
  }
  return true;
}

bool read_formulas(Read *d, json_t *root, json_t *stages) {
  Sched *s = d->s;
  json_t *list = json_object_get(root, "formulas"), *rules = json_object_get(root, "rules");
  size_t nthen = 0;
  for (uint32_t i = 0; i < s->nstage; i++)
    d->weighted |= json_object_get(json_array_get(stages, i), "versions") != NULL;
  if (d->weighted && s->forward)
    return read_bad(d, top(d), "'versions' of weights in a program that only runs forward");
  if (!read_states(d, stages))
    return false;
  if (!list)
    return true;
  if (!json_is_array(list) || json_array_size(list) == 0 || !d->weighted ||
      (rules && !json_is_array(rules)))
    return read_bad(
        d, top(d),
        "\"formulas\" and \"rules\" are lists, of a program whose weights have versions");
  s->formula = NEW_ARRAY(s->arena, PipeFormula, json_array_size(list));
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!read_formula(d, json_array_get(list, i), &s->formula[s->nformula++]))
      return false;
  for (size_t i = 0; i < json_array_size(rules); i++)
    nthen += json_array_size(json_object_get(json_array_get(rules, i), "then"));
  s->rule = NEW_ARRAY(s->arena, PipeRule, json_array_size(rules) + 1);
  s->then = NEW_ARRAY(s->arena, PipeThen, nthen + 1);
  for (size_t i = 0; i < json_array_size(rules); i++)
    if (!read_rule(d, json_array_get(rules, i), &s->rule[s->nrule++]))
      return false;
  return true;
}

/* ---- what an op reads ---- */

/* A formula stands where only the arrays `may` and the states of the stage are known. */
static bool may_use(Read *d, Span at, const PipeStage *st, uint32_t row, uint32_t may,
                    bool number) {
  const PipeFormula *f = &d->s->formula[row];
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    bool state = t->op == PIPE_TERM_ELEM && t->arg >= PIPE_ELEM_STATE;
    if (t->op == PIPE_TERM_ELEM &&
        !((state ? st->states >> (t->arg - PIPE_ELEM_STATE) : may >> t->arg) & 1))
      return read_bad(
          d, at,
          arena_printf(d->s->arena,
                       "formula %u reads an array that is not known here, or a state that stage %u "
                       "does not keep",
                       row, st->model));
  }
  return !number || f->scalar ||
         read_bad(d, at, arena_printf(d->s->arena, "formula %u is a rate and no number", row));
}

static bool may_rule(Read *d, Span at, const PipeStage *st, uint32_t row) {
  enum {
    W = 1 << PIPE_ELEM_W,
    OLD = 1 << PIPE_ELEM_OLD,
    G = 1 << PIPE_ELEM_G,
    V = 1 << PIPE_ELEM_V | 1 << PIPE_ELEM_V2
  };
  const Sched *s = d->s;
  const PipeRule *r = &s->rule[row];
  if ((r->applies != NONE && !may_use(d, at, st, r->applies, W | G | V, false)) ||
      (r->rate != NONE && !may_use(d, at, st, r->rate, 0, true)))
    return false;
  for (uint32_t k = 0; k < r->nthen; k++) {
    const PipeThen *t = &s->then[r->then0 + k];
    if (!(st->states >> t->state & 1))
      return read_bad(d, at, "its rule sets a state that its stage does not keep");
    if (!may_use(d, at, st, t->formula, W | OLD | V, false))
      return false;
  }
  return true;
}

bool read_weights(Read *d, Span at, json_t *j) {
  Sched *s = d->s;
  const Op *o = &s->op[s->nop - 1];
  const PipeStage *st = &s->stage[o->stage];
  uint64_t version = 0, formula = NONE, guess = NONE;
  bool update = o->kind == PIPE_U;
  if (!d->weighted)
    return true;
  uint64_t most = update ? s->nrule : s->nformula;
  if (o->kind != PIPE_W &&
      (!read_number(d, at, j, "version", !update, 0, UINT32_MAX - 1, &version) ||
       !read_number(d, at, j, "guess", false, 0, d->instr_at.n, &guess) ||
       (most > 0 && !read_number(d, at, j, "formula", false, 0, most - 1, &formula))))
    return false;
  if (most == 0 && json_object_get(j, "formula"))
    return read_bad(d, at, "'formula' in a program without formulas");
  bool shares = !update && o->kind != PIPE_W && guess != NONE && !json_object_get(j, "weight");
  *vec_push(s->arena, &d->given) = (GivenRead){(uint32_t)version, (uint32_t)formula,
                                               (uint32_t)guess, shares};
  if (formula == NONE || shares)
    return true;
  return update ? may_rule(d, at, st, (uint32_t)formula)
                : may_use(d, at, st, (uint32_t)formula,
                          1 << PIPE_ELEM_W | 1 << PIPE_ELEM_V | 1 << PIPE_ELEM_V2, false);
}
