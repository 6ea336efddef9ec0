/* SPDX-License-Identifier: MIT
 * Compares schedules: `pipec --compare a.pipe b.pipe -D P=8 -D M=8..64:8` compiles and proves each
 * schedule at each point of the swept parameters and ranks the rows by --by. The output is a table,
 * CSV or a picture of time against memory. A refused schedule is a row. Times in units are scaled
 * to equal work (equal_work.c). `work` is makespan x ranks over the work of the model: 1 means no
 * bubble and no recomputation. Stashes count in 1/ranks of the stashes of the model. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "driver.h"
#include "equal_work.h"
#include "graph.h"
#include "orders.h"
#include "report.h"
#include "svg_text.h"
#include "sweep.h"
#include "timing.h"
#include "weights.h"

enum { MOST_ROWS = 100000 };

typedef struct Row {
  const char *file, *name, *params; /* params: the values in use */
  uint32_t which;                   /* index of the input */
  const char *refused, *why;        /* NULL, or the name and the text of the first error */
  const char *unchecked;            /* NULL, or a line about other schedules of the file */
  bool sized, front;                /* front: no row of the point is better in time and memory */
  ModelWork model;
  double scale; /* factor of times to equal work */
  uint64_t makespan, span, bound, span_bound, transfers, volume, bytes;
  uint32_t versions, staleness;          /* on the worst rank */
  double bubble, work, inflight, memory; /* memory: bytes of the worst rank, or inflight */
  double by;                             /* the value of --by */
} Row;

typedef struct Compare {
  Sched *s; /* the command line: options, messages, arena */
  Row *row;
  uint32_t nrow, ninput;
  bool sized;          /* every compiled row has sizes */
  bool scaled;         /* some row has a scale other than 1 */
  const char **beside; /* [ninput] text after the name of the schedule; "": the name is unique */
} Compare;

/* ---- one row ---- */

/* Compiles input `which` with the current values of the defines. */
static void fill(Compare *c, uint32_t which, Row *row) {
  Arena arena = {0};
  Diag diag;
  Options opt = *c->s->opt;
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt, .work = opt.work};
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

static const char *shown_name(Compare *c, const Row *w) {
  return arena_printf(c->s->arena, "%s%s", w->name, c->beside[w->which]);
}

static const char *row_time(Compare *c, const Row *w, uint64_t t) {
  Sched shown = {.arena = c->s->arena, .model = &(Model){.timed = w->model.timed}};
  return w->scale == 1
             ? time_text(&shown, t)
             : arena_printf(c->s->arena, "%.10g", round(100 * w->scale * (double)t) / 100);
}

/* The parameters of a row, such as " M=8 V=2": swept, given by -D, or all others. */
typedef enum Which { SWEPT, GIVEN, OTHERS } Which;
static const char *some_params(Compare *c, const Row *w, Which which) {
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
      "file,schedule,params,refused,front,makespan,span,work,bubble_percent,inflight,bytes,transfers,volume,makespan_bound,span_bound,versions,staleness,makespan_gap_percent,span_gap_percent,scale,forward_only,why\n");
  for (uint32_t i = 0; i < c->nrow; i++) {
    const Row *w = &c->row[i];
    quoted(f, w->file), fputc(',', f);
    quoted(f, w->name), fputc(',', f);
    quoted(f, w->params);
    if (w->refused) {
      fprintf(f, ",%s,,,,,,,,,,,,,,,,,,", w->refused);
      quoted(f, w->why), fputc('\n', f);
      continue;
    }
    fprintf(f, ",,%d,%.17g,%.17g,%.6f,%.4f,%.4f,", w->front, w->scale * (double)w->makespan,
            w->scale * (double)w->span, w->work, w->bubble, w->inflight);
    if (w->sized)
      fprintf(f, "%" PRIu64 ",%" PRIu64 ",%" PRIu64, w->bytes, w->transfers, w->volume);
    else
      fprintf(f, ",%" PRIu64 ",", w->transfers);
    fprintf(f, ",%.17g,%.17g,%u,%u,%.4f,%.4f,%.17g,%d,\n", w->scale * (double)w->bound,
            w->scale * (double)w->span_bound, w->versions, w->staleness,
            above_percent(w->makespan, w->bound), above_percent(w->span, w->span_bound), w->scale,
            w->model.forward_only);
  }
}

/* ---- picture: memory across, time up; a colour and a mark per schedule ---- */

static void put(FILE *f, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  svg_vemit(f, fmt, ap);
  va_end(ap);
}

static const char *const colour[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                     "#e69f00", "#56b4e9", "#000000", "#7f7f7f"};

/* size: 1, or less for a mark that covers another */
static void mark(FILE *f, uint32_t which, double x, double y, bool filled, double size) {
  const char *hue = colour[which % 8], *fill = filled ? hue : "white";
  put(f, "<g transform=\"translate(~ ~) scale(~)\" fill=\"$\" stroke=\"$\">", x, y, size, fill,
      hue);
  switch (which / 8 + which % 4) {
  case 0: put(f, "<circle r=\"4.5\"/>"); break;
  case 1: put(f, "<rect x=\"-4\" y=\"-4\" width=\"8\" height=\"8\"/>"); break;
  case 2: put(f, "<path d=\"M0 -5l5 9h-10z\"/>"); break;
  default: put(f, "<path d=\"M0 -5l5 5l-5 5l-5 -5z\"/>");
  }
  put(f, "</g>\n");
}

/* A round step for an axis 0..most: 1, 2 or 5 times a power of 10; at least five steps. */
static double step_of(double most) {
  double step = 1;
  while (step * 5 > most)
    step /= 10;
  while (step * 50 <= most)
    step *= 10;
  return step * 25 <= most ? step * 5 : step * 10 <= most ? step * 2 : step;
}

/* The tooltip text of a row. */
static const char *said(Compare *c, const Row *w) {
  Arena *a = c->s->arena;
  return arena_printf(
      a,
      "%.4f times the model's work per rank, %s\nmakespan %s, bound %s (+%.2f %%)\nspan %s, bound %s (+%.2f %%)",
      w->work,
      c->sized ? bytes_text(c->s, w->bytes)
               : arena_printf(a, "%.2f stashes in flight", w->inflight),
      row_time(c, w, w->makespan), row_time(c, w, w->bound), above_percent(w->makespan, w->bound),
      row_time(c, w, w->span), row_time(c, w, w->span_bound),
      above_percent(w->span, w->span_bound));
}

/* ---- labels of the front, placed where there is room ---- */

enum {
  LEFT = 78,
  TOP = 58,
  W = 640,
  H = 420,
  KEY = 24,
  BESIDE = 40, /* px right of the plot */
  CELL = 3,
  ACROSS = (LEFT + W + BESIDE) / CELL,
  DOWN = (TOP + H) / CELL
};
#define LETTER 6.6 /* px of the widest letters of names and numbers, on average */

typedef enum Use { MARK = 1, LINE = 2 } Use; /* MARK: marks and text */
typedef struct Taken {
  uint8_t cell[DOWN][ACROSS]; /* Use, or'ed */
  VEC(const char *) label;    /* placed labels, each after the place of its mark */
} Taken;

static void take(Taken *t, double x, double y, double w, double h, Use as) {
  for (int j = (int)y / CELL; j <= (int)(y + h) / CELL && j < DOWN; j++)
    for (int i = (int)x / CELL; i <= (int)(x + w) / CELL && i < ACROSS; i++)
      t->cell[j][i] |= as;
}

/* Is the box on the page, and free of uses in `in`? */
static bool box_free(const Taken *t, double x, double y, double w, double h, int in) {
  if (x < LEFT + 1 || y < TOP - 8 || x + w >= CELL * ACROSS || y + h >= CELL * DOWN)
    return false;
  for (int j = (int)y / CELL; j <= (int)(y + h) / CELL; j++)
    for (int i = (int)x / CELL; i <= (int)(x + w) / CELL; i++)
      if (t->cell[j][i] & in)
        return false;
  return true;
}

/* Is a line free, or if taking: takes its cells. Lines may cross lines, but not text or marks. */
static bool line_free(Taken *t, double x0, double y0, double x1, double y1, bool taking) {
  enum { STEPS = 40 };
  for (int k = 0; k < STEPS; k++) {
    double x = x0 + (x1 - x0) * k / STEPS, y = y0 + (y1 - y0) * k / STEPS;
    if (taking)
      take(t, x, y, 0, 0, LINE);
    else if (!box_free(t, x, y, 0, 0, MARK))
      return false;
  }
  return true;
}

typedef struct Place {
  double x, y;       /* px */
  uint32_t row, end; /* first and last of its rows, in a list by Picture.next */
  bool front;
} Place;

typedef struct Picture {
  VEC(Place) place;
  uint32_t *next; /* next row of the same place, in order; NONE: the last */
  uint32_t *at;   /* place of each row */
  Taken taken;
} Picture;

/* Puts a label near its mark, with a line unless they touch. If there is no room, drops the label;
 * if it `must` be there, its line may cross marks and text. */
static void label(Compare *c, FILE *f, Picture *pic, uint32_t i, bool must) {
  enum { AROUND = 16, HIGH = 12, OFF = 7, NEAR = 8, STEP = 8, FAR = 120, FARTHEST = 480 };
  static const double dx[AROUND] = {1,     -1,     0.924, -0.924, 0.924, -0.924, 0.707, -0.707,
                                    0.707, -0.707, 0.383, -0.383, 0.383, -0.383, 0,     0},
                      dy[AROUND] = {0,     0,     -0.383, -0.383, 0.383, 0.383, -0.707, -0.707,
                                    0.707, 0.707, -0.924, -0.924, 0.924, 0.924, -1,     1};
  Taken *t = &pic->taken;
  const Row *w = &c->row[i];
  double x = pic->place.at[pic->at[i]].x, y = pic->place.at[pic->at[i]].y;
  const char *text = arena_printf(c->s->arena, "%s%s", shown_name(c, w), some_params(c, w, SWEPT));
  double wide = LETTER * (double)strlen(text);
  const char *at = arena_printf(c->s->arena, "%.2f %.2f %s", x, y, text);
  for (uint32_t k = 0; k < t->label.n; k++)
    if (strcmp(t->label.at[k], at) ==
        0) /* labelled already; or the schedule lacks the parameter that is swept */
      return;
  for (int over = 0; over <= must; over++)
    for (int far = NEAR; far <= (over ? FARTHEST : FAR); far += STEP)
      for (int k = 0; k < AROUND; k++) {
        double ex = x + far * dx[k], ey = y + far * dy[k], sx = x + OFF * dx[k],
               sy = y + OFF * dy[k];
        double bx = dx[k] == 0 ? ex - wide / 2 : dx[k] > 0 ? ex : ex - wide;
        double by = dx[k] == 0 ? (dy[k] < 0 ? ey - HIGH : ey) : ey - HIGH / 2.0;
        if (!box_free(t, bx, by, wide, HIGH, MARK | LINE) ||
            (far > NEAR && !over && !line_free(t, sx, sy, ex, ey, false)))
          continue;
        if (far > NEAR) {
          put(f, "<path d=\"M~ ~L~ ~\" stroke=\"gray\" stroke-width=\"0.7\"/>\n", sx, sy, ex, ey);
          line_free(t, sx, sy, ex, ey, true);
        }
        take(t, bx, by, wide, HIGH, MARK);
        *vec_push(c->s->arena, &t->label) = at;
        put(f,
            "<text class=\"label\" font-size=\"10\" x=\"~\" y=\"~\" text-anchor=\"$\">$</text>\n",
            ex, by + HIGH / 2.0 + 3.5,
            dx[k] == 0  ? "middle"
            : dx[k] > 0 ? "start"
                        : "end",
            text);
        return;
      }
}

/* Labels the first and last point of the front of each schedule, then the others in order. */
static void put_labels(Compare *c, FILE *f, Picture *pic) {
  for (uint32_t k = 0; k < c->ninput; k++) {
    uint32_t first = NONE, last = NONE;
    for (uint32_t i = 0; i < c->nrow; i++)
      if (c->row[i].which == k && c->row[i].front)
        first = first == NONE ? i : first, last = i;
    if (first != NONE)
      label(c, f, pic, first, true), label(c, f, pic, last, true);
  }
  for (uint32_t i = 0; i < c->nrow; i++)
    if (c->row[i].front)
      label(c, f, pic, i, false);
}

/* ---- marks: those that cover each other are one, with one tooltip ---- */

enum { SAME = 2, COLUMNS = (LEFT + W + BESIDE) / SAME, ROWS = (TOP + H + BESIDE) / SAME }; /* px */

/* The place less than SAME px away in x and y, or a new one. cell: 1 + index of a place */
static uint32_t place_at(Compare *c, Picture *pic, uint32_t *cell, double x, double y) {
  int col = (int)x / SAME, row = (int)y / SAME;
  for (int j = row > 0 ? row - 1 : 0; j <= row + 1; j++)
    for (int i = col - 1; i <= col + 1; i++) {
      uint32_t p = cell[j * COLUMNS + i];
      const Place *at = p ? &pic->place.at[p - 1] : NULL;
      if (at && at->x - x < SAME && x - at->x < SAME && at->y - y < SAME && y - at->y < SAME)
        return p - 1;
    }
  *vec_push(c->s->arena, &pic->place) = (Place){.x = x, .y = y, .row = NONE, .end = NONE};
  cell[row * COLUMNS + col] = pic->place.n;
  return pic->place.n - 1;
}

/* Puts row i at a point. Compiles that differ only in a parameter that they lack count once. */
static void put_row(Compare *c, Picture *pic, uint32_t *cell, uint32_t i, double x, double y) {
  pic->at[i] = place_at(c, pic, cell, x, y);
  Place *p = &pic->place.at[pic->at[i]];
  const Row *w = &c->row[i], *before = p->end == NONE ? NULL : &c->row[p->end];
  p->front |= w->front;
  if (before && before->which == w->which && strcmp(before->params, w->params) == 0) {
    c->row[p->end].front |= w->front;
    return;
  }
  pic->next[i] = NONE;
  *(p->end == NONE ? &p->row : &pic->next[p->end]) = i;
  p->end = i;
}

/* Draws the marks of a place, one for each schedule: small ones over large ones, the front on
 * top. */
static void put_place(Compare *c, FILE *f, const Picture *pic, const Place *p) {
  put(f, "<g class=\"place\"><title>");
  for (uint32_t i = p->row; i != NONE; i = pic->next[i]) {
    const Row *w = &c->row[i];
    put(f, "$$ $: $", i == p->row ? "" : "\n", shown_name(c, w), w->params, said(c, w));
  }
  put(f, "</title>\n");
  double size = 1;
  for (int filled = 0; filled < 2; filled++)
    for (uint32_t i = p->row, to; i != NONE; i = to) {
      bool front = false;
      for (to = i; to != NONE && c->row[to].which == c->row[i].which; to = pic->next[to])
        front |= c->row[to].front;
      if (front != filled)
        continue;
      mark(f, c->row[i].which, p->x, p->y, filled, size);
      size *= 0.72;
    }
  put(f, "</g>\n");
}

static void svg(Compare *c, FILE *f) {
  double mem = 0, least = 1e300, most = 1;
  for (uint32_t i = 0; i < c->nrow; i++)
    if (!c->row[i].refused) {
      mem = c->row[i].memory > mem ? c->row[i].memory : mem;
      most = c->row[i].work > most ? c->row[i].work : most;
      least = c->row[i].work < least ? c->row[i].work : least;
    }
  const SvgUnit *unit = svg_byte_unit(mem);
  double per = c->sized ? unit->per : 1, xstep = step_of(mem > 0 ? mem / per : 1), xmost = xstep;
  while (xmost * per < mem)
    xmost += xstep;
  double ystep = step_of(most - 1 > 1e-6 ? most - 1 : 1e-6), ymost = 1;
  while (ymost < most - 1e-12)
    ymost += ystep;
  if (ymost <= 1)
    ymost = 1 + ystep;
  uint32_t height = TOP + H + 56 + KEY * c->ninput;
  put(f,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"#\" height=\"#\" viewBox=\"0 0 # #\" font-family=\"Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif\" font-size=\"12\">\n",
      LEFT + W + BESIDE + 0u, height, LEFT + W + BESIDE + 0u, height);
  put(f, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  put(f, "<text x=\"#\" y=\"20\" font-size=\"15\">Time against memory</text>\n", (unsigned)LEFT);
  put(f,
      "<text x=\"#\" y=\"36\" fill=\"dimgray\">filled: no other at the same parameters is as good in both and better in one; the first and the last of these</text>\n"
      "<text x=\"#\" y=\"50\" fill=\"dimgray\">are named, others where there is room; each point says its numbers under the pointer</text>\n",
      (unsigned)LEFT, (unsigned)LEFT);
  char num[SVG_NUMBER];
  Picture pic = {.next = NEW_ARRAY(c->s->arena, uint32_t, c->nrow),
                 .at = NEW_ARRAY(c->s->arena, uint32_t, c->nrow)};
  uint32_t *cell = NEW_ARRAY(c->s->arena, uint32_t, (size_t)COLUMNS * ROWS);
  for (double v = 0; v <= xmost + xstep / 2; v += xstep) {
    double x = LEFT + W * v / xmost;
    put(f, "<path d=\"M~ #v#\" stroke=\"gainsboro\"/>\n", x, (unsigned)TOP, (unsigned)H);
    put(f, "<text x=\"~\" y=\"#\" text-anchor=\"middle\">$</text>\n", x, TOP + H + 16u,
        svg_fixed(num, v, 3, true));
  }
  for (double v = 1; v <= ymost + ystep / 2; v += ystep) {
    double y = TOP + H * (ymost - v) / (ymost - 1);
    put(f, "<path d=\"M# ~h#\" stroke=\"gainsboro\"/>\n", (unsigned)LEFT, y, (unsigned)W);
    put(f, "<text x=\"#\" y=\"~\" text-anchor=\"end\">$</text>\n", LEFT - 6u, y + 4,
        svg_fixed(num, v, 4, true));
  }
  put(f, "<text x=\"~\" y=\"#\" text-anchor=\"middle\">$</text>\n", LEFT + W / 2.0, TOP + H + 36u,
      c->sized ? arena_printf(c->s->arena, "memory of the worst rank, %s", unit->name)
               : "stashes in flight on the worst rank; 1: a microbatch in 1/ranks of the model");
  put(f,
      "<text transform=\"translate(16 ~) rotate(-90)\" text-anchor=\"middle\">makespan over the work of the model per rank; 1: no bubble</text>\n",
      TOP + H / 2.0);
  for (uint32_t k = 0; k < c->ninput; k++) { /* the points of a schedule, in order */
    const char *to = "M";
    put(f, "<path fill=\"none\" stroke=\"$\" stroke-opacity=\"0.45\" d=\"", colour[k % 8]);
    for (uint32_t i = 0; i < c->nrow; i++)
      if (c->row[i].which == k && !c->row[i].refused) {
        put(f, to), to = "L";
        put(f, "~ ~", LEFT + W * c->row[i].memory / (xmost * per),
            TOP + H * (ymost - c->row[i].work) / (ymost - 1));
      }
    put(f, *to == 'M' ? "M0 0\"/>\n" : "\"/>\n");
    const char *name = c->s->opt->compare[k];
    for (uint32_t i = 0; i < c->nrow; i++) {
      const Row *w = &c->row[i];
      if (w->which != k)
        continue;
      name = shown_name(c, w);
      if (!w->refused)
        put_row(c, &pic, cell, i, LEFT + W * w->memory / (xmost * per),
                TOP + H * (ymost - w->work) / (ymost - 1));
    }
    double y = TOP + H + 60.0 + KEY * k;
    mark(f, k, LEFT + 6.0, y - 4, true, 1);
    put(f, "<text x=\"#\" y=\"~\">$</text>\n", LEFT + 18u, y, name);
  }
  for (int front = 0; front < 2; front++)
    for (uint32_t p = 0; p < pic.place.n; p++) {
      const Place *at = &pic.place.at[p];
      take(&pic.taken, at->x - 5, at->y - 5, 10, 10, MARK);
      if (at->front == front)
        put_place(c, f, &pic, at);
    }
  put_labels(c, f, &pic);
  put(f, "</svg>\n");
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
    (picture ? svg : o->emit == EMIT_CSV ? csv : table)(&c, out.f);
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
