/* SPDX-License-Identifier: MIT
 * Reads the JSON form (lang/spec.md 9), so that other tools can make schedules: the ranks, the
 * stages with places and costs, and the compute ops and copies of each rank in list order. Derived
 * keys may be present and are ignored. Keys that change the program and are not derived are refused
 * (written_only). Ensures what expand ensures. read_tables.c reads the rarer parts.
 *
 * The reader is strict: an unknown key, a wrong type or a number out of range is an error at the
 * object of the list around it. jansson parses the text, but keeps no places. So a second scan,
 * over text that is JSON by then, finds where the objects of the lists begin and end. Cost:
 * linear. */
#include <string.h>

#include "import.h"
#include "base.h"
#include "graph.h"
#include "stages.h"
#include "read_json.h"

/* ---- places of values; the text is valid JSON ---- */

static const char *blanks(const char *p) { return p + strspn(p, " \t\r\n"); }

static const char *skip_string(const char *p) {
  for (p++; *p != '"'; p++)
    p += *p == '\\';
  return p + 1;
}

static const char *skip_value(const char *p) {
  p = blanks(p);
  uint32_t depth = 0;
  do {
    if (*p == '"') {
      p = skip_string(p);
      continue;
    }
    depth += *p == '{' || *p == '[';
    depth -= *p == '}' || *p == ']';
    p++;
  } while (depth > 0);
  return p + strspn(p, "+-.0123456789abcdefghijklmnopqrstuvwxyzE"); /* true, false, null, number */
}

/* Calls each() for every value of the object or array at p, with its key; "" in an array. */
static void each_value(Read *d, const char *p,
                       void (*each)(Read *, const char *key, uint32_t n, const char *value)) {
  bool object = *p == '{';
  for (p = blanks(p + 1); *p != '}' && *p != ']'; p = blanks(p + (*p == ','))) {
    const char *key = "";
    uint32_t n = 0;
    if (object) {
      key = p + 1;
      p = skip_string(p);
      n = (uint32_t)(p - 1 - key);
      p = blanks(blanks(p) + 1);
    }
    each(d, key, n, p);
    p = blanks(skip_value(p));
  }
}

static bool is_key(const char *key, uint32_t n, const char *name) {
  return n == strlen(name) && memcmp(key, name, n) == 0;
}

static Span span_of(const Read *d, const char *p) {
  return (Span){d->file, (uint32_t)(p - d->text), (uint32_t)(skip_value(p) - d->text)};
}

static void note_instr(Read *d, const char *key, uint32_t n, const char *value) {
  (void)key, (void)n;
  *vec_push(d->s->arena, &d->instr_at) = span_of(d, value);
}
static void note_stage(Read *d, const char *key, uint32_t n, const char *value) {
  (void)key, (void)n;
  *vec_push(d->s->arena, &d->stage_at) = span_of(d, value);
}
static void in_rank(Read *d, const char *key, uint32_t n, const char *value) {
  if (is_key(key, n, "instr") && *value == '[')
    each_value(d, value, note_instr);
}
static void note_rank(Read *d, const char *key, uint32_t n, const char *value) {
  (void)key, (void)n;
  uint32_t at = (uint32_t)(value - d->text);
  *vec_push(d->s->arena, &d->rank_at) = (Span){d->file, at, at + 1};
  if (*value == '{')
    each_value(d, value, in_rank);
}
static void in_top(Read *d, const char *key, uint32_t n, const char *value) {
  if (is_key(key, n, "stages") && *value == '[')
    each_value(d, value, note_stage);
  if (is_key(key, n, "rank") && *value == '[')
    each_value(d, value, note_rank);
}

/* ---- values ---- */

bool read_bad(Read *d, Span at, const char *what) {
  diag_error(d->s->diag, DIAG_JSON, at, "%s", what);
  return false;
}

bool read_keys(Read *d, Span at, json_t *object, const char *what, const char *known) {
  const char *key = json_unknown_key(object, known);
  return !key ||
         read_bad(d, at, arena_printf(d->s->arena, "%s has the unknown key '%s'", what, key));
}

/* as in read_json.h */
bool read_number(Read *d, Span at, json_t *object, const char *key, bool needed, uint64_t least,
                 uint64_t most, uint64_t *v) {
  json_t *j = json_object_get(object, key);
  if (!j && !needed)
    return true;
  if (!json_is_integer(j) || json_integer_value(j) < 0 || (uint64_t)json_integer_value(j) < least ||
      (uint64_t)json_integer_value(j) > most)
    return read_bad(d, at,
                    arena_printf(d->s->arena, "'%s' must be a whole number from %llu to %llu", key,
                                 (unsigned long long)least, (unsigned long long)most));
  *v = (uint64_t)json_integer_value(j);
  return true;
}

static bool read_word(Read *d, Span at, json_t *object, const char *key, const char **v) {
  json_t *j = json_object_get(object, key);
  if (!json_is_string(j) || strlen(json_string_value(j)) > 1000)
    return read_bad(d, at, arena_printf(d->s->arena, "'%s' must be a string", key));
  const char *text = json_string_value(j);
  *v = arena_strndup(d->s->arena, text, strlen(text));
  return true;
}

/* ---- the parts of the form ---- */

/* Refuses keys that --emit=json writes and this file ignores although they change the program. */
static bool written_only(Read *d, Span at, json_t *object, const char *const *key) {
  for (; *key; key++)
    if (json_object_get(object, *key)) {
      diag_error(d->s->diag, DIAG_JSON, at,
                 "--emit=json writes '%s', but pipec does not read '%s' back", *key, *key);
      diag_help(d->s->diag, "compile the .pipe text of this program");
      return false;
    }
  return true;
}

static bool read_head(Read *d, json_t *root) {
  static const char known[] =
      " pipec_json schedule params hash ranks microbatches slices sized timed forward channel_slots makespan span ideal"
      " busy utilisation messages volume idle bytes bound gap steady send lowering channels least_buffer files stages critical_path rank transfers edges rows links link_wait comm_channels ";
  static const char *const only[] = {"formulas", "rules", "sides", NULL};
  Sched *s = d->s;
  Span at = {d->file, 0, 1};
  uint64_t version = 0, ranks = 0, mbs = 0, slices = 1, sized = 0, timed = 0, forward = 0;
  const char *send = "";
  if (!read_number(d, at, root, "pipec_json", true, 0, UINT32_MAX, &version))
    return false;
  if (version != 1)
    return read_bad(d, at,
                    arena_printf(s->arena, "version %llu of the format; this pipec reads version 1",
                                 (unsigned long long)version));
  if (!written_only(d, at, root, only) || !read_keys(d, at, root, "the program", known) ||
      !read_word(d, at, root, "schedule", &d->x.in.model->name) ||
      !read_word(d, at, root, "params", &d->x.in.model->params) ||
      !read_word(d, at, root, "send", &send) ||
      !read_number(d, at, root, "ranks", true, 1, MAX_RANKS, &ranks) ||
      !read_number(d, at, root, "microbatches", true, 1, INT32_MAX, &mbs) ||
      !read_number(d, at, root, "slices", false, 1, INT32_MAX, &slices) ||
      !read_number(d, at, root, "sized", false, 0, 1, &sized) ||
      !read_number(d, at, root, "timed", false, 0, 1, &timed) ||
      !read_number(d, at, root, "forward", false, 0, 1, &forward))
    return false;
  if (mbs * slices > INT32_MAX)
    return read_bad(d, at, "too many microbatches and slices");
  for (d->x.orders->send = SEND_END;
       s->orders->send <= SEND_NEXT && strcmp(send, send_text(s)) != 0;)
    d->x.orders->send++;
  if (s->orders->send > SEND_NEXT)
    return read_bad(d, at, "'send' is end, eager or next");
  const char *lowering = "auto";
  if (json_object_get(root, "lowering") && !read_word(d, at, root, "lowering", &lowering))
    return false;
  if (lowering_of(lowering) == NLOWERINGS)
    return read_bad(d, at, "'lowering' is auto, global or channels");
  d->x.orders->lowering = asked_lowering(s, lowering_of(lowering));
  d->x.orders->lowering_at = at;
  d->tables = json_object_get(root, "edges") != NULL;
  d->x.in.model->nrank = (uint32_t)ranks, d->x.in.model->nmb = (uint32_t)(mbs * slices),
  d->x.in.model->slices = (uint32_t)slices;
  d->x.in.model->sized = sized, d->x.in.model->timed = timed, d->x.in.model->forward = forward;
  return true;
}

static int by_number(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static bool read_stage(Read *d, uint32_t i, json_t *j) {
  Sched *s = d->s;
  Span at = d->stage_at.at[i];
  PipeStage *st = &s->model->stage[i];
  bool has[NKEYS] = {false};
  uint64_t number_of = i, rank = 0, model = 0, mb0 = 0, mbs = 0, back = 0, chunk;
  if (!json_is_object(j))
    return read_bad(d, at, "a stage is an object");
  const char *known =
      " stage rank chunk model mb0 mbs send_back tie tied_with delay slice_times unit_times ";
  static const char *const only[] = {"versions", "states", NULL};
  for (int k = 0; k < NKEYS; k++)
    known = arena_printf(s->arena, "%s%s ", known, cost_key[k]);
  if (!written_only(d, at, j, only) || !read_keys(d, at, j, "the stage", known) ||
      !read_number(d, at, j, "stage", true, i, i, &number_of) ||
      !read_number(d, at, j, "rank", true, 0, s->model->nrank - 1, &rank) ||
      !read_number(d, at, j, "chunk", false, 0, UINT32_MAX, &chunk) ||
      !read_number(d, at, j, "model", true, 0, s->model->nstage - 1, &model) ||
      !read_number(d, at, j, "mb0", true, 0, s->model->nmb / s->model->slices - 1, &mb0) ||
      !read_number(d, at, j, "mbs", true, 1, s->model->nmb / s->model->slices - mb0, &mbs))
    return false;
  *st = (PipeStage){.rank = (uint32_t)rank,
                    .prev = NONE,
                    .next = NONE,
                    .model = (uint32_t)model,
                    .replica = i,
                    .mb0 = (uint32_t)mb0 * s->model->slices,
                    .nmb = (uint32_t)mbs * s->model->slices,
                    .tied = NONE,
                    .tie = i};
  for (int k = 0; k < NKEYS; k++) {
    has[k] = json_object_get(j, cost_key[k]) != NULL;
    if (has[k] && k >= NTIMEKEYS && !s->model->sized)
      return read_bad(d, at,
                      arena_printf(s->arena, "'%s' in a program with \"sized\": 0", cost_key[k]));
    if (!read_number(d, at, j, cost_key[k], false, 0, d->most, cost_field(st, (CostKey)k)))
      return false;
  }
  cost_defaults(st, has);
  back = st->time[PIPE_SEND_B];
  if (!read_number(d, at, j, "send_back", false, 0, d->most, &back))
    return false;
  st->time[PIPE_SEND_B] = back;
  return read_number(d, at, j, "tie", false, 0, d->most, &st->time[PIPE_TIE]);
}

/* Divides the rows of stages into pipes: one row for each stage of the model; with tables, further
 * rows behind these, by stage. The microbatches of pipes are consecutive. */
static bool join_pipes(Read *d) {
  Sched *s = d->s;
  uint32_t n = 0, mb = 0;
  while (n < s->model->nstage && s->model->stage[n].model == n)
    n++;
  d->x.in.model->nmodel = n;
  for (uint32_t i = 0; i < s->model->nstage;) {
    uint32_t first = i, mbs = s->model->stage[i].nmb;
    for (; i < s->model->nstage && (i < first + n || s->model->stage[i].mb0 == mb); i++) {
      PipeStage *st = &s->model->stage[i];
      bool main_row = i < first + n;
      if (st->mb0 != mb || st->nmb != mbs || (main_row && st->model != i - first) ||
          (!main_row &&
           (!d->tables || st->model >= n || (i > first + n && st->model < st[-1].model))))
        return read_bad(
            d, d->stage_at.at[i],
            "every pipe has all stages of the model, and its microbatches follow the microbatches of the pipe before");
      if (main_row && i > first)
        st->prev = i - 1, st->nin = 1, st[-1].next = i, st[-1].nout = 1;
    }
    if (i < first + n)
      return read_bad(d, d->stage_at.at[i - 1], "every pipe has all stages of the model");
    mb += mbs;
  }
  if (mb != s->model->nmb)
    return read_bad(
        d, d->stage_at.at[s->model->nstage - 1],
        "the microbatches of all pipes together differ from the microbatches of the program");
  return true;
}

/* Links the rows of each stage of the model into a ring of replicas. Requires costs. */
static bool join_rows(Read *d) {
  Sched *s = d->s;
  uint32_t *last = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel); /* 1 + the last row */
  uint64_t *seen = NEW_ARRAY(s->arena, uint64_t, s->model->nstage); /* model << 32 | rank */
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    uint32_t m = st->model;
    st->replica = m; /* its first row */
    if (last[m])
      s->model->stage[last[m] - 1].replica = i;
    last[m] = i + 1;
    seen[i] = (uint64_t)m << 32 | st->rank;
    for (int k = 0; k < NKEYS; k++)
      if ((k >= NTIMEKEYS || k == KEY_SEND ||
           k == KEY_REDUCE) && /* times of its ops may differ by rank */
          (*cost_field(st, (CostKey)k) != *cost_field(&s->model->stage[m], (CostKey)k) ||
           st->time[PIPE_SEND_B] != s->model->stage[m].time[PIPE_SEND_B]))
        return read_bad(d, d->stage_at.at[i],
                        "replicas of a stage have the same sizes, 'send' and 'reduce'");
  }
  qsort(seen, s->model->nstage, sizeof *seen, by_number);
  for (uint32_t i = 1; i < s->model->nstage; i++)
    if (seen[i] == seen[i - 1])
      return read_bad(d, d->stage_at.at[seen[i] >> 32],
                      "replicas of a stage are on different ranks");
  return true;
}

static bool read_stages(Read *d, json_t *list) {
  Sched *s = d->s;
  Span at = {d->file, 0, 1};
  if (!json_is_array(list) || json_array_size(list) == 0)
    return read_bad(d, at, "there is no list \"stages\"");
  d->x.in.model->nstage = (uint32_t)json_array_size(list);
  if (json_array_size(list) != d->stage_at.n || json_array_size(list) > INT32_MAX)
    return read_bad(d, at, "keys are written without escapes");
  d->most = ((uint64_t)1 << 62) /
            (8 * ((uint64_t)s->model->nstage * s->model->nmb + s->model->nstage));
  d->x.in.model->stage = NEW_ARRAY(s->arena, PipeStage, s->model->nstage);
  for (uint32_t i = 0; i < s->model->nstage; i++)
    if (!read_stage(d, i, json_array_get(list, i)))
      return false;
  if (!join_pipes(d) || !join_rows(d))
    return false;
  number_chunks(s, d->x.in.model);
  if (d->tables)
    sort_chunks(s);
  return true;
}

/* The kind of an op from its text; PIPE_NOPS: none. */
static uint32_t kind_of(const char *text) {
  const char *p = text + strspn(text, "0123456789");
  size_t n = strcspn(p, "0123456789.<>");
  uint32_t k = 0;
  while (k < PIPE_NOPS &&
         !(strlen(pipe_op_info[k].text) == n && memcmp(p, pipe_op_info[k].text, n) == 0))
    k++;
  return p == text ? (uint32_t)PIPE_NOPS : k;
}

static bool copy_in_order(Read *d, Span at, uint32_t r) {
  const Sched *s = d->s;
  const Copy *c = &s->orders->copy[s->orders->ncopy - 1];
  return s->orders->ncopy < 2 || s->model->stage[c[-1].stage].rank != r || c[-1].at <= c->at ||
         read_bad(d, at, "'wait' is less than 'wait' of the copy before");
}

/* Reads an OFF or LOAD. It stands before the op whose index on the rank is `wait`. */
static bool read_copy(Read *d, uint32_t r, json_t *j, const OpRef *use, uint32_t stage,
                      uint32_t mb) {
  Sched *s = d->s;
  uint64_t wait = 0, peer = NONE;
  if (s->model->forward)
    return read_bad(d, use->at, "copies to and from host memory in a forward-only program");
  if (!read_number(d, use->at, j, "wait", true, 0, INT32_MAX, &wait) ||
      !read_number(d, use->at, j, "peer", false, 0, s->model->nrank - 1, &peer))
    return false;
  if (peer == r)
    return read_bad(d, use->at, "'peer' must be another rank");
  if (!push_copy(&d->x, (uint8_t)use->op, stage, mb))
    return false;
  Copy *c = &s->orders->copy[s->orders->ncopy - 1];
  c->to = (uint32_t)peer;
  c->at = s->orders->rank_op0[r] + (uint32_t)wait;
  if (!copy_in_order(d, use->at, r))
    return false;
  uint32_t other = (c->kind == PIPE_OFF ? s->orders->at_load
                                        : s->orders->at_off)[(size_t)stage * s->model->nmb + mb];
  if (other && s->orders->copy[other - 1].to != c->to)
    return read_bad(d, use->at,
                    "OFF and LOAD of a microbatch have the same 'peer', or both have no 'peer'");
  return true;
}

/* Reads the stage of an instruction; it must be on rank r. */
static bool read_own_stage(Read *d, Span at, json_t *j, const char *text, uint32_t r,
                           uint64_t *stage) {
  const Sched *s = d->s;
  if (!read_number(d, at, j, "stage", true, 0, s->model->nstage - 1, stage))
    return false;
  return s->model->stage[*stage].rank == r ||
         read_bad(d, at,
                  arena_printf(s->arena, "rank %u runs %s, but stage %u is on rank %u", r, text,
                               (uint32_t)*stage, s->model->stage[*stage].rank));
}

/* Reads microbatch and slice. */
static bool read_unit(Read *d, Span at, json_t *j, uint64_t stage, bool needed, uint64_t *mb,
                      uint64_t *slice) {
  const Sched *s = d->s;
  const PipeStage *st = &s->model->stage[stage];
  uint32_t first = st->mb0 / s->model->slices, last = first + st->nmb / s->model->slices - 1;
  if (!read_number(d, at, j, "mb", needed, first, last, mb) ||
      !read_number(d, at, j, "slice", needed && s->model->slices > 1, 0, s->model->slices - 1,
                   slice))
    return false;
  return *mb == NONE || runs_mb(s, (uint32_t)stage, (uint32_t)*mb * s->model->slices) ||
         read_bad(d, at,
                  arena_printf(s->arena, "\"rows\" have microbatch %u of this stage elsewhere",
                               (uint32_t)*mb));
}

static bool read_instr(Read *d, uint32_t r, json_t *j, uint64_t *group) {
  static const char known[] =
      " op stage mb slice phase group start end peer act gout turn channel keep in out ins outs wait wait_copy at"
      " behind ahead ";
  Sched *s = d->s;
  Span at = d->instr_at.at[d->instr++];
  const char *text, *phase = "steady";
  uint64_t stage = 0, mb = NONE, slice = 0;
  if (!json_is_object(j))
    return read_bad(d, at, "an instruction is an object");
  if (!read_word(d, at, j, "op", &text) || !read_keys(d, at, j, "the instruction", known))
    return false;
  uint32_t kind = kind_of(text);
  bool copies = kind == PIPE_OFF || kind == PIPE_LOAD;
  if (kind == PIPE_NOPS || kind >= PIPE_SIDE)
    return read_bad(d, at,
                    arena_printf(s->arena, "'%s' is an op that pipec does not read back", text));
  if (pipe_op_info[kind].comm)
    return true; /* derived, so ignored */
  if (json_object_get(j, "phase") && !read_word(d, at, j, "phase", &phase))
    return false;
  uint8_t p = 0;
  while (p < PIPE_NPHASES && strcmp(phase, pipe_phase_name[p]) != 0)
    p++;
  if (p == PIPE_NPHASES)
    return read_bad(d, at, "'phase' is warmup, steady or flush");
  if (!read_own_stage(d, at, j, text, r, &stage) ||
      !read_unit(d, at, j, stage, kind != PIPE_U, &mb, &slice) ||
      !read_number(d, at, j, "group", false, 0, 63, group))
    return false;
  uint32_t unit = mb == NONE ? NONE : (uint32_t)mb * s->model->slices + (uint32_t)slice;
  char says[PIPE_OP_TEXT];
  pipe_unit_text(says, (PipeOp)kind, (uint32_t)stage, unit, s->model->slices);
  if (strcmp(says, text) != 0)
    return read_bad(
        d, at, arena_printf(s->arena, "'op' is %s, but stage and microbatch say %s", text, says));
  if (s->model->forward && kind != PIPE_F)
    return read_bad(d, at, arena_printf(s->arena, "%s in a forward-only program", text));
  OpRef *use = NEW(s->arena, OpRef);
  use->at = at;
  use->op = (uint8_t)kind;
  d->x.use = use, d->x.phase = p, d->x.labelled = true, d->x.rank = r;
  if (copies)
    return read_copy(d, r, j, use, (uint32_t)stage, unit);
  return push_op(&d->x, (uint8_t)kind, (uint32_t)stage, unit);
}

static bool read_rank(Read *d, uint32_t r, json_t *j) {
  Sched *s = d->s;
  Span at = d->rank_at.at[r];
  uint64_t number_of = 0, group = 0, left = 0;
  json_t *list = json_object_get(j, "instr"), *in;
  size_t i;
  if (!json_is_object(j) || !json_is_array(list))
    return read_bad(d, at, "a rank is an object with a list \"instr\"");
  static const char *const only[] = {"limits", NULL};
  static const char known[] =
      " rank busy utilisation messages volume group_of_copies inflight held kept host host_bytes guests warmup_depth"
      " staleness discrepancy versions idle bytes peak_op pools instr events sync ";
  if (!written_only(d, at, j, only) || !read_keys(d, at, j, "the rank", known) ||
      !read_number(d, at, j, "rank", true, r, r, &number_of))
    return false;
  uint64_t turns = 0;
  if (!read_number(d, at, j, "group_of_copies", false, 0, s->model->nrank - 1, &turns))
    return false;
  if (json_object_get(j, "group_of_copies")) {
    d->x.in.model->group = s->model->group ? s->model->group
                                           : NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
    s->model->group[r] = (uint32_t)turns + 1;
  }
  uint32_t first_copy = s->orders->ncopy;
  s->orders->order_at[r] = at;
  s->orders->rank_op0[r] = s->orders->nop;
  json_array_foreach(list, i, in) {
    uint32_t before = s->orders->nop;
    group = 0;
    if (!read_instr(d, r, in, &group))
      return false;
    if (s->orders->nop == before)
      continue;
    Op *o = &s->orders->op[before];
    if (left > 0 && group != left - 1)
      return read_bad(
          d, s->orders->site[o->site],
          arena_printf(s->arena, "%llu ops of the action before are still to come, 'group' is %llu",
                       (unsigned long long)left - 1, (unsigned long long)group));
    left = group;
    o->group = (uint16_t)group;
  }
  for (uint32_t k = first_copy; k < s->orders->ncopy; k++) {
    uint32_t before = s->orders->copy[k].at;
    if (before > s->orders->nop)
      return read_bad(d, s->orders->site[s->orders->copy[k].site],
                      "'wait' counts more ops than the rank has");
    if (before > s->orders->rank_op0[r] && s->orders->op[before - 1].group > 0)
      return read_bad(d, s->orders->site[s->orders->copy[k].site],
                      "'wait' places this copy between ops of one action");
  }
  if (left > 0)
    return read_bad(d, at, "the last action has fewer ops than 'group' says");
  if (s->orders->nop == s->orders->rank_op0[r]) {
    diag_error(s->diag, DIAG_EMPTY_RANK, at, "rank %u has no op", r);
    return false;
  }
  return true;
}

/* Checks that each group has two or more ranks and that group numbers have no gap. */
static bool number_groups(Read *d) {
  Sched *s = d->s;
  uint32_t *n = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nrank + 1);
  for (uint32_t r = 0; s->model->group && r < s->model->nrank; r++) {
    n[s->model->group[r]]++;
    d->x.in.model->ngroup = s->model->group[r] > s->model->ngroup ? s->model->group[r]
                                                                  : s->model->ngroup;
  }
  for (uint32_t r = 0; s->model->group && r < s->model->nrank; r++)
    if (s->model->group[r] && n[s->model->group[r]] < 2)
      return read_bad(d, d->rank_at.at[r], "a 'group_of_copies' has two ranks or more");
  for (uint32_t k = 1; k <= s->model->ngroup; k++)
    if (n[k] == 0)
      return read_bad(d, d->rank_at.at[0],
                      arena_printf(s->arena,
                                   "no rank is in 'group_of_copies' %u, but a rank is in %u", k - 1,
                                   s->model->ngroup - 1));
  return true;
}

static bool read_ranks(Read *d, json_t *list) {
  Sched *s = d->s;
  size_t cells = (size_t)s->model->nstage * s->model->nmb, ninstr = 0, i;
  Span at = {d->file, 0, 1};
  json_t *j;
  if (!json_is_array(list) || json_array_size(list) != s->model->nrank)
    return read_bad(d, at, "the list \"rank\" has an object for each rank");
  json_array_foreach(list, i, j) ninstr += json_array_size(json_object_get(j, "instr"));
  if (ninstr != d->instr_at.n || s->model->nrank != d->rank_at.n)
    return read_bad(d, at, "keys are written without escapes");
  uint64_t need = 0; /* each stage and microbatch has an F */
  for (uint32_t st = 0; st < s->model->nstage; st++)
    need += s->model->stage[st].nmb;
  if (need > ninstr) {
    diag_error(s->diag, DIAG_MISSING_OP, at,
               "stages x microbatches need %llu forwards; there are %zu instructions",
               (unsigned long long)need, ninstr);
    return false;
  }
  d->x.orders->at_f = NEW_ARRAY(s->arena, uint32_t, cells);
  d->x.orders->at_b = NEW_ARRAY(s->arena, uint32_t, cells);
  d->x.orders->at_w = NEW_ARRAY(s->arena, uint32_t, cells);
  d->x.orders->at_r = NEW_ARRAY(s->arena, uint32_t, cells);
  d->x.orders->rank_op0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nrank + 1);
  d->x.orders->order_at = NEW_ARRAY(s->arena, Span, s->model->nrank);
  d->x.fresh = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  d->x.last_u = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (!read_rank(d, r, json_array_get(list, r)))
      return false;
  s->orders->rank_op0[s->model->nrank] = s->orders->nop;
  return number_groups(d);
}

bool is_json(const Options *o) {
  size_t n = o->input ? strlen(o->input) : 0;
  return n >= 5 && strcmp(o->input + n - 5, ".json") == 0;
}

bool read_json(Sched *s, Expanded *e) {
  Read d = {.s = s, .x = {.s = s, .in = {.s = s, .model = &e->model}, .orders = &e->orders}};
  uint32_t len;
  d.text = input_read(s, &len);
  if (!d.text)
    return false;
  d.file = diag_source(s->diag, s->opt->input, d.text, len);
  e->model.name = file_name(s->opt->input);
  bool define = s->opt->ndefine > 0 && s->opt->ncompare == 0; /* else others may have them */
  if (define || s->opt->schedule || s->opt->profile) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN,
               "%s has one schedule, without parameters, and its own costs", s->opt->input);
    return false;
  }
  const char *zero = memchr(d.text, 0, len); /* jansson would ignore it */
  if (zero) {
    uint32_t pos = (uint32_t)(zero - d.text);
    diag_error(s->diag, DIAG_JSON, (Span){d.file, pos, pos + 1},
               "a byte 0: JSON text has no byte 0");
    return false;
  }
  json_t *root = json_parse(s, DIAG_JSON, d.file, d.text, len);
  if (!root)
    return false;
  bool ok = json_is_object(root) || read_bad(&d, (Span){d.file, 0, 1}, "a program is an object");
  if (ok) {
    each_value(&d, blanks(d.text), in_top);
    json_t *stages = json_object_get(root, "stages");
    ok = read_head(&d, root) && read_stages(&d, stages) && read_edges(&d, root) &&
         read_ties(&d, stages) && read_unit_times(&d, stages) && read_links(&d, root) &&
         read_ranks(&d, json_object_get(root, "rank"));
  }
  json_drop(root);
  return ok;
}
