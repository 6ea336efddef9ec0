/* SPDX-License-Identifier: MIT
 * Reads what a run measured (--with): the trace of pr_write_trace, or of --emit=trace --with. The
 * form is that of runtime/tables/trace_json.h: a head that names the program, and a slice for each
 * instruction, with its rank, row and step. Only slices of the group "Measured" are read.
 *
 * The reader is strict: the head comes first and names this program, steps follow one another, and
 * each has every instruction once. jansson reads one event at a time: so the place of a mistake is
 * known, and memory is that of the text and its times. Cost: linear. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "import.h"
#include "json_text.h"

#define MOST_US 9e12 /* 104 days */

typedef struct Trace {
  Sched *s;
  const char *text;
  uint32_t file, len, at; /* at: next byte to read */
  bool named;             /* the head has named this program */
  json_int_t group;       /* pid of "Measured"; -1: not seen yet */
  uint64_t total, left;   /* instructions in a step; missing from the last step */
  uint32_t nstep;
  VEC(uint64_t *) start, end; /* [nstep * nrank] */
} Trace;

/* Reports what is wrong from byte `from` on. Returns false. */
static bool bad(Trace *t, uint32_t from, const char *what) {
  diag_error(t->s->diag, DIAG_TRACE, (Span){t->file, from, t->at > from ? t->at : from + 1}, "%s",
             what);
  return false;
}

/* The next byte that is not blank; 0 at the end. */
static char peek(Trace *t) {
  t->at += (uint32_t)strspn(t->text + t->at, " \t\r\n");
  return t->text[t->at];
}

static bool take(Trace *t, char c) {
  if (peek(t) != c)
    return false;
  t->at++;
  return true;
}

static bool expect(Trace *t, char c) {
  return take(t, c) || bad(t, t->at, arena_printf(t->s->arena, "expected '%c'", c));
}

/* Reads the next value; the caller frees it. NULL: reported. */
static json_t *value(Trace *t) {
  json_error_t err;
  json_t *v = json_load_value(t->text + t->at, t->len - t->at,
                              JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES,
                              &err);
  const uint32_t read = err.position > 0 ? (uint32_t)err.position : 0;
  t->at = read < t->len - t->at ? t->at + read : t->len;
  if (!v)
    bad(t, t->at > 0 ? t->at - 1 : 0, err.text);
  return v;
}

static const char *word(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static bool read_head(Trace *t, uint32_t from, const json_t *head) {
  const PipeProgram *p = t->s->prog;
  const char *hash = word(head, "hash"), *name = word(head, "schedule"),
             *params = word(head, "params");
  t->named = strcmp(hash, arena_printf(t->s->arena, "%016" PRIx64, p->hash)) == 0;
  if (t->named)
    return true;
  if (!*hash)
    return bad(t, from, "this head of a trace names no program by its hash");
  bool other = strcmp(name, p->name) != 0 || strcmp(params, p->params) != 0;
  bad(t, from,
      other ? arena_printf(t->s->arena, "a trace of %s %s, not of %s %s", name, params, p->name,
                           p->params)
            : arena_printf(t->s->arena, "a trace of another program of %s %s", name, params));
  diag_help(
      t->s->diag,
      other
          ? "compile the schedule and the parameters that were traced"
          : "the trace is of another text, profile, library or options: compile with the same inputs, or trace again");
  return false;
}

/* Reads a whole number below `below`. False: reported. */
static bool read_index(Trace *t, uint32_t from, const json_t *args, const char *key, uint64_t below,
                       uint32_t *v) {
  const json_t *j = json_object_get(args, key);
  if (!json_is_integer(j) || json_integer_value(j) < 0 || (uint64_t)json_integer_value(j) >= below)
    return bad(t, from,
               arena_printf(t->s->arena, "'%s' must be a whole number below %" PRIu64, key, below));
  *v = (uint32_t)json_integer_value(j);
  return true;
}

static bool read_time(Trace *t, uint32_t from, const json_t *slice, const char *key, uint64_t *ns) {
  const json_t *j = json_object_get(slice, key);
  double us = json_number_value(j);
  if (!json_is_number(j) || !(us >= 0 && us <= MOST_US))
    return bad(t, from, arena_printf(t->s->arena, "'%s' must be a time in us from 0 on", key));
  *ns = (uint64_t)llround(us * 1000);
  return true;
}

static void begin_step(Trace *t) {
  const PipeProgram *p = t->s->prog;
  uint64_t *times = arena_alloc(t->s->arena, 2 * t->total * sizeof *times + 1);
  memset(times, 0xff, 2 * t->total * sizeof *times); /* UINT64_MAX: not seen */
  for (uint32_t r = 0; r < p->nrank; r++) {
    *vec_push(t->s->arena, &t->start) = times;
    *vec_push(t->s->arena, &t->end) = times + t->total;
    times += p->rank[r].ninstr;
  }
  t->nstep++;
  t->left = t->total;
}

/* Checks that the last step is complete. False: reported. */
static bool end_step(Trace *t, uint32_t from) {
  return t->left == 0 ||
         bad(t, from,
             arena_printf(t->s->arena, "step %u lacks %" PRIu64 " of its %" PRIu64 " instructions",
                          t->nstep - 1, t->left, t->total));
}

static bool read_slice(Trace *t, uint32_t from, const json_t *slice) {
  const PipeProgram *p = t->s->prog;
  const json_t *args = json_object_get(slice, "args");
  uint32_t r, i, step;
  uint64_t start, took;
  char op[PIPE_OP_TEXT];
  if (!read_index(t, from, args, "rank", p->nrank, &r) ||
      !read_index(t, from, args, "row", p->rank[r].ninstr, &i) ||
      !read_index(t, from, args, "step", t->nstep + (uint64_t)1, &step) ||
      !read_time(t, from, slice, "ts", &start) || !read_time(t, from, slice, "dur", &took))
    return false;
  pipe_instr_text(op, pipe_graph(p), &p->rank[r].instr[i]);
  if (strcmp(word(slice, "name"), op) != 0)
    return bad(t, from,
               arena_printf(t->s->arena, "row %u of rank %u is %s, not '%s'", i, r, op,
                            word(slice, "name")));
  if (step == t->nstep) {
    if (!end_step(t, from))
      return false;
    begin_step(t);
  }
  size_t row = (size_t)(t->nstep - 1) * p->nrank + r;
  if (step + 1 != t->nstep || t->start.at[row][i] != UINT64_MAX)
    return bad(t, from, arena_printf(t->s->arena, "%s is twice in step %u", op, step));
  t->start.at[row][i] = start;
  t->end.at[row][i] = start + took;
  t->left--;
  return true;
}

static bool read_event(Trace *t, uint32_t from, const json_t *event) {
  const char *ph = word(event, "ph");
  const json_int_t pid = json_integer_value(json_object_get(event, "pid"));
  if (!*ph)
    return bad(t, from, "not an event: \"ph\" is missing");
  if (strcmp(ph, "M") == 0 && strcmp(word(event, "name"), "process_name") == 0 &&
      strcmp(word(json_object_get(event, "args"), "name"), "Measured") == 0)
    t->group = pid;
  return strcmp(ph, "X") != 0 || pid != t->group || read_slice(t, from, event);
}

static bool read_events(Trace *t, uint32_t from) {
  if (!t->named)
    return bad(t, from, "\"otherData\", which names the program, must come before the events");
  if (!expect(t, '['))
    return false;
  if (take(t, ']'))
    return true;
  do {
    peek(t);
    from = t->at;
    json_t *event = value(t);
    bool ok = event && read_event(t, from, event);
    json_drop(event);
    if (!ok)
      return false;
  } while (take(t, ','));
  return expect(t, ']');
}

/* Reads a key of the outer object and its value. */
static bool read_part(Trace *t, bool *events) {
  peek(t);
  uint32_t from = t->at;
  json_t *key = value(t);
  bool ok = key && (json_is_string(key) || bad(t, from, "expected a key")) && expect(t, ':');
  const char *name = ok ? arena_printf(t->s->arena, "%s", json_string_value(key)) : "";
  json_drop(key);
  if (!ok)
    return false;
  if (strcmp(name, "traceEvents") == 0) {
    *events = true;
    return read_events(t, from);
  }
  peek(t);
  json_t *v = value(t);
  ok = v && (strcmp(name, "otherData") != 0 || read_head(t, from, v));
  json_drop(v);
  return ok;
}

bool read_trace(Sched *s, Measured *to) {
  Trace t = {.s = s, .group = -1};
  t.text = file_read_data(s, s->opt->with, NO_SPAN, &t.len);
  if (!t.text)
    return false;
  t.file = diag_source(s->diag, s->opt->with, t.text, t.len);
  if (!s->prog)
    return bad(&t, 0, "a trace is of a program, but this file has only lists");
  for (uint32_t r = 0; r < s->prog->nrank; r++)
    t.total += s->prog->rank[r].ninstr;
  bool events = false;
  if (!take(&t, '{'))
    return bad(&t, t.at, "this is no trace: a trace is a JSON object");
  if (!take(&t, '}')) {
    do
      if (!read_part(&t, &events))
        return false;
    while (take(&t, ','));
    if (!expect(&t, '}'))
      return false;
  }
  if (peek(&t) || t.at != t.len)
    return bad(&t, t.at, "something follows the trace");
  if (t.nstep == 0) {
    t.at = 0;
    bad(&t, 0,
        events ? "this trace has no measured step: it is a prediction"
               : "this is no trace: it has no \"traceEvents\"");
    diag_help(s->diag, "pr_write_trace writes the steps that a run keeps (PrOptions.trace_steps)");
    return false;
  }
  if (!end_step(&t, t.at - 1))
    return false;
  *to = (Measured){t.nstep, t.start.at, t.end.at};
  return true;
}
