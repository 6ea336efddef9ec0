/* SPDX-License-Identifier: MIT
 * Compares schedules: `pipec --compare a.pipe b.pipe -D P=8 -D M=8..64:8` compiles and proves each
 * schedule at each point of the swept parameters and ranks the rows by --by. The output is a table,
 * CSV or a picture of time against memory. A refused schedule is a row. Times in units are scaled
 * to equal work (equal_work.c). `work` is makespan x ranks over the work of the model: 1 means no
 * bubble and no recomputation. Stashes count in 1/ranks of the stashes of the model. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "compare.h"
#include "driver.h"
#include "graph.h"
#include "orders.h"
#include "report.h"
#include "stages.h"
#include "sweep.h"
#include "timing.h"
#include "weights.h"

enum { MOST_ROWS = 100000 };

/* ---- one row ---- */

/* Compiles input `which` with the current values of the defines. */
static void fill(Compare *c, uint32_t which, Row *row) {
  Arena arena = {0};
  Diag diag;
  Options opt = *c->s->opt;
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, NULL);
  opt.input = opt.compare[which], opt.emit = EMIT_NONE;
  opt.counterexample = opt.dump_after = NULL, opt.check_only = opt.time_passes = false;
  opt.define = arena_alloc(&arena, (opt.ndefine + 1) * sizeof *opt.define);
  memcpy(opt.define, c->s->opt->define, opt.ndefine * sizeof *opt.define);
  *row = (Row){.file = c->s->opt->compare[which], .which = which, .scale = 1};
  bool ok = compile_only(&s) && diag.errors == 0;
  for (uint32_t i = 0; i < opt.ndefine; i++)
    c->s->opt->define[i].used |= opt.define[i].used;
  row->name = arena_printf(c->s->arena, "%s", s.model->name ? s.model->name : row->file);
  row->params = arena_printf(c->s->arena, "%s", s.model->params ? s.model->params : "");
  if (s.parsed->unchecked)
    row->unchecked = arena_printf(c->s->arena, "not in the table: %s: %s", row->file,
                                  s.parsed->unchecked);
  if (!ok || !s.prog) {
    const char *why = diag.errors ? diag.first_text : "not a program of ours";
    row->refused = diag.errors ? diag_name(diag.first) : "transfers";
    row->why = arena_printf(c->s->arena, "%s", why);
    arena_free(&arena);
    return;
  }
  const Timing bound = program_bound(&s);
  const char *lacks = profile_lacks(&s);
  row->lacks = lacks ? arena_printf(c->s->arena, "%s", lacks) : NULL;
  row->sized = s.model->sized, row->model = model_work(&s), row->transfers = s.ideal->nxfer;
  row->makespan = s.times->makespan, row->span = s.times->span;
  row->bound = bound.makespan, row->span_bound = bound.span;
  row->bubble = bubble_percent(&s, s.times->makespan);
  row->work = row->model.all > 0 ? (double)s.times->makespan * s.model->nrank / row->model.all : 1;
  const uint32_t *late = s.versions->staleness;
  for (uint32_t r = 0; r < s.model->nrank; r++) {
    const Peak *p = &s.lowered->peak[r];
    row->inflight = fmax(row->inflight, (double)p->inflight * s.model->nrank / s.model->nmodel);
    row->versions = p->versions > row->versions ? p->versions : row->versions;
    row->staleness = late[r] > row->staleness ? late[r] : row->staleness;
    row->bytes = p->bytes[PEAK_total] > row->bytes ? p->bytes[PEAK_total] : row->bytes;
  }
  for (const Xfer *x = s.lowered->xfer; x < s.lowered->xfer + s.ideal->nxfer; x++)
    row->volume += xfer_moves(x) ? link_bytes(&s, link_at(&s, xfer_link(&s, x))) : 0;
  arena_free(&arena);
}

/* ---- ranking of the rows of one point ---- */

static int by_time(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (!x->refused != !y->refused)
    return x->refused ? 1 : -1;
  if (x->model.forward_only != y->model.forward_only) /* they do not compete with the others */
    return x->model.forward_only ? 1 : -1;
  if (x->work != y->work)
    return x->work < y->work ? -1 : 1;
  if (x->memory != y->memory)
    return x->memory < y->memory ? -1 : 1;
  return x->which < y->which ? -1 : x->which > y->which;
}

static int by_choice(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (x->refused || y->refused || x->model.forward_only != y->model.forward_only || x->by == y->by)
    return by_time(a, b);
  return x->by < y->by ? -1 : 1;
}

static double ranked_by(const Compare *c, const Row *w) {
  switch (c->s->opt->by) {
  case BY_WORK: return w->work;
  case BY_MAKESPAN: return w->scale * (double)w->makespan;
  case BY_SPAN: return w->scale * (double)w->span;
  case BY_BUBBLE: return w->bubble;
  case BY_MEMORY: return w->memory;
  case BY_VOLUME: return (double)(c->sized ? w->volume : w->transfers);
  case BY_VERSIONS: return w->versions;
  case BY_STALENESS: return w->staleness;
  }
  return 0;
}

static void scale_rows(Compare *c) {
  ModelWork *model = NEW_ARRAY(c->s->arena, ModelWork, c->nrow);
  double *scale = NEW_ARRAY(c->s->arena, double, c->nrow);
  for (uint32_t i = 0; i < c->nrow; i++)
    model[i] = c->row[i].model;
  equal_work(model, c->nrow, c->ninput, scale);
  for (uint32_t i = 0; i < c->nrow; i++)
    c->row[i].scale = scale[i], c->scaled |= scale[i] != 1;
}

/* Ranks the rows of a point. In order of time, then memory, a row is on the front if it needs less
 * memory than all rows above it, or equals the last row of the front in both. */
static void rank_rows(Compare *c, Row *row, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    row[i].memory = c->sized ? (double)row[i].bytes : row[i].inflight;
  qsort(row, n, sizeof *row, by_time);
  const Row *last = NULL; /* last row of the front */
  for (uint32_t i = 0;
       i < n && !row[i].refused && row[i].model.forward_only == row[0].model.forward_only; i++)
    if (!last || row[i].memory < last->memory ||
        (row[i].memory == last->memory && row[i].work == last->work))
      row[i].front = true, last = &row[i];
  for (uint32_t i = 0; i < n; i++)
    row[i].by = ranked_by(c, &row[i]);
  qsort(row, n, sizeof *row, by_choice);
}

/* ---- output ---- */

/* Distinguishes schedules of one name by their files, and files of one name by their paths. */
static void tell_apart(Compare *c) {
  const char *const *file = c->s->opt->compare;
  const char **name = NEW_ARRAY(c->s->arena, const char *, c->ninput);
  c->beside = NEW_ARRAY(c->s->arena, const char *, c->ninput);
  for (uint32_t i = 0; i < c->nrow; i++) /* a file that does not compile may have no other name */
    if (!name[c->row[i].which] || !c->row[i].refused)
      name[c->row[i].which] = c->row[i].name;
  for (uint32_t k = 0; k < c->ninput; k++) {
    bool same = false, path = false;
    for (uint32_t j = 0; j < c->ninput; j++)
      if (strcmp(name[j], name[k]) == 0 && strcmp(file[j], file[k]) != 0)
        same = true, path |= strcmp(file_name(file[j]), file_name(file[k])) == 0;
    c->beside[k] = "";
    if (same && strcmp(name[k], file[k]) != 0)
      c->beside[k] = arena_printf(c->s->arena, " (%s)", path ? file[k] : file_name(file[k]));
  }
}

const char *shown_name(Compare *c, const Row *w) {
  return arena_printf(c->s->arena, "%s%s", w->name, c->beside[w->which]);
}

const char *row_time(Compare *c, const Row *w, uint64_t t) {
  Sched shown = {.arena = c->s->arena, .model = &(Model){.timed = w->model.timed}};
  return w->scale == 1
             ? time_text(&shown, t)
             : arena_printf(c->s->arena, "%.10g", round(100 * w->scale * (double)t) / 100);
}

const char *some_params(Compare *c, const Row *w, Which which) {
  const Options *o = c->s->opt;
  const char *text = "";
  for (const char *at = w->params; *at; at += strcspn(at, " "), at += *at == ' ') {
    size_t n = strcspn(at, "=");
    const Define *d = NULL;
    for (uint32_t i = 0; i < o->ndefine; i++)
      if (strncmp(at, o->define[i].name, n) == 0 && !o->define[i].name[n])
        d = &o->define[i];
    if (which == OTHERS ? !d : d && (which == GIVEN || d->n > 1))
      text = arena_printf(c->s->arena, "%s %.*s", text, (int)strcspn(at, " "), at);
  }
  return text;
}

/* The column of --by, if it is not in the table already; else NULL. */
static const char *by_column(Compare *c, const Row *w) {
  Arena *a = c->s->arena;
  switch (c->s->opt->by) {
  case BY_SPAN: return w ? row_time(c, w, w->span) : "span";
  case BY_VOLUME:
    return !c->sized ? w ? arena_printf(a, "%" PRIu64, w->transfers) : "transfers"
           : w       ? bytes_text(c->s, w->volume)
                     : "volume";
  case BY_VERSIONS: return w ? arena_printf(a, "%u", w->versions) : "versions";
  case BY_STALENESS: return w ? arena_printf(a, "%u", w->staleness) : "staleness";
  default: return NULL;
  }
}

/* What -D gives at a point: " P=8 M=24". row: its first row; a schedule may lack parameters. */
static const char *point_of(Compare *c, const Row *row) {
  const char *text = "";
  for (uint32_t i = 0; i < c->ninput; i++) {
    const char *given = some_params(c, &row[i], GIVEN);
    text = strlen(given) > strlen(text) ? given : text;
  }
  return text;
}

typedef enum Column { MAKESPAN, GAP, WORK, BUBBLE, MEMORY, BY, SCALE, PARAMS, NCOLUMN } Column;
static const uint8_t column_wide[NCOLUMN] = {9, 8, 6, 7, 9, 9, 6};

/* The cell of a row; without w the head of the column; NULL: the table has no such column. */
static const char *cell_text(Compare *c, Column k, const Row *w) {
  Arena *a = c->s->arena;
  switch (k) {
  case MAKESPAN: return w ? row_time(c, w, w->makespan) : "makespan";
  case GAP: return w ? arena_printf(a, "%+.1f %%", above_percent(w->makespan, w->bound)) : "gap";
  case WORK: return w ? arena_printf(a, "%.3f", w->work) : "work";
  case BUBBLE: return w ? arena_printf(a, "%.1f %%", w->bubble) : "bubble";
  case MEMORY:
    return !w         ? c->sized ? "memory" : "in flight"
           : c->sized ? bytes_text(c->s, w->bytes)
                      : arena_printf(a, "%.2f", w->inflight);
  case BY: return by_column(c, w);
  case SCALE: return !c->scaled ? NULL : w ? arena_printf(a, "%.3g", w->scale) : "scale";
  case PARAMS: return w ? printable(c->s, some_params(c, w, OTHERS)) : " params";
  case NCOLUMN: break;
  }
  return NULL;
}

/* Drops columns until the table fits into `width`. Returns their names: ", scale, gap". */
static const char *fit_columns(Compare *c, uint32_t name, uint32_t width, bool shown[NCOLUMN]) {
  static const struct {
    Column column;
    RankBy by; /* the --by that keeps it */
  } drop[] = {{SCALE, BY_WORK},
              {GAP, BY_WORK},
              {BUBBLE, BY_BUBBLE},
              {PARAMS, BY_WORK},
              {MAKESPAN, BY_MAKESPAN}};
  size_t wide[NCOLUMN], all = 2 + name, params = strlen(" params");
  const char *out = "";
  for (uint32_t i = 0; i < c->nrow; i++) {
    size_t n = c->row[i].refused ? 0 : strlen(cell_text(c, PARAMS, &c->row[i]));
    params = n > params ? n : params;
  }
  for (Column k = 0; k < NCOLUMN; k++) {
    shown[k] = cell_text(c, k, NULL) != NULL;
    wide[k] = k == PARAMS ? 1 + params : 2 + (size_t)column_wide[k];
    all += shown[k] ? wide[k] : 0;
  }
  for (size_t i = 0; i < sizeof drop / sizeof *drop && all > width; i++) {
    Column k = drop[i].column;
    if (!shown[k] || (drop[i].by != BY_WORK && drop[i].by == c->s->opt->by))
      continue;
    shown[k] = false, all -= wide[k];
    const char *head = cell_text(c, k, NULL);
    out = arena_printf(c->s->arena, "%s, %s", out, head + (*head == ' '));
  }
  return out;
}

/* Prints the cells of a row; without w the heads. */
static void put_cells(Compare *c, FILE *f, const bool shown[NCOLUMN], const Row *w) {
  for (Column k = 0; k < NCOLUMN; k++) {
    const char *text = shown[k] ? cell_text(c, k, w) : "";
    if (*text)
      fprintf(f, "%s%*s", k == PARAMS ? " " : "  ", column_wide[k], text);
  }
  fputc('\n', f);
}

/* The first row at or behind row i that says the same of the profile; NONE: there is none. */
static uint32_t same_lacks(const Compare *c, uint32_t i, const char *lacks) {
  while (i < c->nrow && (!c->row[i].lacks || strcmp(c->row[i].lacks, lacks) != 0))
    i++;
  return i < c->nrow ? i : NONE;
}

/* Prints what the profile lacks, once for all schedules with which it lacks the same. */
static void put_lacks(Compare *c, FILE *f, uint32_t width) {
  bool *named = NEW_ARRAY(c->s->arena, bool, c->ninput);
  for (uint32_t i = 0; i < c->nrow; i++) {
    const char *lacks = c->row[i].lacks, *names = "";
    if (!lacks || same_lacks(c, 0, lacks) != i)
      continue;
    memset(named, 0, c->ninput * sizeof *named);
    for (uint32_t k = i; k != NONE; k = same_lacks(c, k + 1, lacks)) {
      const Row *row = &c->row[k];
      if (!named[row->which])
        names = arena_printf(c->s->arena, "%s%s%s", names, *names ? ", " : "", shown_name(c, row));
      named[row->which] = true;
    }
    put_wrapped(f, printable(c->s, arena_printf(c->s->arena, "profile has %s: %s", lacks, names)),
                0, 2, width);
  }
}

/* Prints a table as wide as the terminal, or with all columns; --emit=csv has more. */
static void table(Compare *c, FILE *f) {
  uint32_t name = 8, width = terminal_width(f, UINT32_MAX);
  bool star = false, apart = false, shown[NCOLUMN];
  for (uint32_t i = 0; i < c->nrow; i++) {
    uint32_t n = (uint32_t)strlen(printable(c->s, shown_name(c, &c->row[i])));
    star |= c->row[i].front;
    name = n > name ? n : name;
  }
  const char *out = fit_columns(c, name, width, shown);
  if (c->scaled) {
    put_wrapped(f,
                "times in units, scaled to equal work of the model; --equal-work=off: as they are",
                0, 0, width);
    fputc('\n', f);
  }
  fprintf(f, "  %-*s", (int)name, "schedule");
  put_cells(c, f, shown, NULL);
  for (uint32_t i = 0; i < c->nrow; i++) {
    const Row *w = &c->row[i];
    const Row *first = &c->row[i - i % c->ninput];
    if (w == first && c->s->opt->ndefine)
      fprintf(f, "%sat%s\n", i > 0 ? "\n" : "", printable(c->s, point_of(c, first)));
    bool other = !w->refused && w->model.forward_only != first->model.forward_only;
    apart |= other;
    fprintf(f, "%c %-*s",
            w->front ? '*'
            : other  ? '-'
                     : ' ',
            (int)name, printable(c->s, shown_name(c, w)));
    if (!w->refused) {
      put_cells(c, f, shown, w);
      continue;
    }
    const char *own = some_params(c, w, OTHERS);
    fputs("  ", f);
    const char *why = arena_printf(c->s->arena, "refused: %s%s%s", w->why, *own ? ";" : "", own);
    put_wrapped(f, printable(c->s, why), 4 + name, 4 + name, width);
  }
  if (star) { /* something compiled */
    fputc('\n', f);
    put_wrapped(f,
                arena_printf(c->s->arena, "%swork: makespan x ranks over the model's work",
                             shown[GAP] ? "gap: makespan over its bound; " : ""),
                0, 2, width);
    put_wrapped(f,
                arena_printf(c->s->arena,
                             "* front: none is as good in work and in %s, and better in one",
                             c->sized ? "memory" : "stashes in flight"),
                0, 2, width);
  }
  for (uint32_t i = 0; i < c->ninput; i++)
    if (c->row[i].unchecked)
      put_wrapped(f, printable(c->s, c->row[i].unchecked), 0, 2, width);
  put_lacks(c, f, width);
  if (apart)
    put_wrapped(f, "- forwards alone, which do not compete with training", 0, 2, width);
  if (*out)
    put_wrapped(
        f,
        arena_printf(c->s->arena, "left out in %u columns: %s; --emit=csv has all", width, out + 2),
        0, 2, width);
}

static void quoted(FILE *f, const char *text) {
  fputc('"', f);
  escape_put(f, ESCAPE_CSV, text);
  fputc('"', f);
}

static void csv(Compare *c, FILE *f) {
  fprintf(
      f,
      "file,schedule,params,refused,front,makespan,span,work,bubble_percent,inflight,bytes,transfers,volume,makespan_bound,span_bound,versions,staleness,makespan_gap_percent,span_gap_percent,scale,forward_only,why,profile_lacks\n");
  for (uint32_t i = 0; i < c->nrow; i++) {
    const Row *w = &c->row[i];
    quoted(f, w->file), fputc(',', f);
    quoted(f, w->name), fputc(',', f);
    quoted(f, w->params);
    if (w->refused) {
      fprintf(f, ",%s,,,,,,,,,,,,,,,,,,", w->refused);
      quoted(f, w->why);
      fputs(",\n", f);
      continue;
    }
    fprintf(f, ",,%d,%.17g,%.17g,%.6f,%.4f,%.4f,", w->front, w->scale * (double)w->makespan,
            w->scale * (double)w->span, w->work, w->bubble, w->inflight);
    if (w->sized)
      fprintf(f, "%" PRIu64 ",%" PRIu64 ",%" PRIu64, w->bytes, w->transfers, w->volume);
    else
      fprintf(f, ",%" PRIu64 ",", w->transfers);
    fprintf(f, ",%.17g,%.17g,%u,%u,%.4f,%.4f,%.17g,%d,,", w->scale * (double)w->bound,
            w->scale * (double)w->span_bound, w->versions, w->staleness,
            above_percent(w->makespan, w->bound), above_percent(w->span, w->span_bound), w->scale,
            w->model.forward_only);
    if (w->lacks)
      quoted(f, w->lacks);
    fputc('\n', f);
  }
}

/* ---- the sweep ---- */

/* Refuses to rank times in units against times in ns. */
static void refuse_two_units(const Compare *c) {
  const Options *o = c->s->opt;
  const char *of[2] = {NULL, NULL}; /* in units, in ns */
  if (o->by != BY_MAKESPAN && o->by != BY_SPAN)
    return;
  for (uint32_t i = c->nrow; i-- > 0;)
    if (!c->row[i].refused)
      of[c->row[i].model.timed] = o->compare[i % c->ninput];
  if (of[0] && of[1])
    diag_error(c->s->diag, DIAG_USAGE, NO_SPAN,
               "--by=%s: the times of %s are ns, those of %s units",
               o->by == BY_SPAN ? "span" : "makespan", of[1], of[0]);
}

bool compare(Sched *s) {
  Options *o = s->opt;
  Compare c = {.s = s, .ninput = o->ncompare, .sized = true};
  for (uint32_t i = 0, len; i < c.ninput + (o->profile != NULL);
       i++) /* else it would be an error in each row */
    if (!file_read(s, i < c.ninput ? o->compare[i] : o->profile, NO_SPAN, &len))
      return false;
  const uint64_t points = sweep_points(s, MOST_ROWS / c.ninput);
  if (points == 0)
    return false;
  c.row = NEW_ARRAY(s->arena, Row, points * c.ninput);
  FILE *progress = s->opt->progress;
  for (uint64_t p = 0; p < points; p++) {
    sweep_go_to(o->define, o->ndefine, p);
    for (uint32_t k = 0; k < c.ninput; k++) {
      Row *w = &c.row[c.nrow++];
      fill(&c, k, w);
      c.sized &= w->refused || w->sized;
      if (progress)
        fprintf(progress, "\r%u of %" PRIu64 " ", c.nrow, points * c.ninput);
    }
  }
  if (progress)
    fprintf(progress, "\r%*s\r", 40, "");
  bool any = false;
  for (uint32_t i = 0; i < c.nrow; i++)
    any |= !c.row[i].refused;
  if (!o->own_units)
    scale_rows(&c);
  refuse_two_units(&c);
  for (uint64_t p = 0; p < points; p++)
    rank_rows(&c, &c.row[p * c.ninput], c.ninput);
  tell_apart(&c);
  for (uint32_t i = 0; i < o->ndefine && any; i++)
    if (!o->define[i].used)
      diag_error(s->diag, DIAG_PARAM, NO_SPAN, "none of the schedules has a parameter '%s' (-D)",
                 o->define[i].name);
  if (s->diag->errors)
    return false;
  bool picture = o->emit == EMIT_SVG;
  OutFile out;
  if ((any || !picture) && !file_open(s, &out, o->output))
    return false;
  if (any || !picture) {
    (picture ? compare_picture : o->emit == EMIT_CSV ? csv : table)(&c, out.f);
    if (!file_close(s, &out, true))
      return false;
  }
  if (any)
    return true;
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--compare: no schedule compiles at any point");
  diag_help(s->diag, "the table%s says why; without --compare the message is shown in full",
            picture ? ", without --emit=svg," : "");
  return false;
}
