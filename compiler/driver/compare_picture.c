/* SPDX-License-Identifier: MIT
 * The picture of --compare: memory across, time up; a colour and a mark per schedule. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base.h"
#include "compare.h"
#include "report.h"
#include "svg_text.h"
#include "timing.h"

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
      "%.4f times the model's work per rank, %s\nmakespan %s, bound %s (+%.2f %%)\nspan %s, bound %s (+%.2f %%)%s%s",
      w->work,
      c->sized ? bytes_text(c->s, w->bytes)
               : arena_printf(a, "%.2f stashes in flight", w->inflight),
      row_time(c, w, w->makespan), row_time(c, w, w->bound), above_percent(w->makespan, w->bound),
      row_time(c, w, w->span), row_time(c, w, w->span_bound), above_percent(w->span, w->span_bound),
      w->lacks ? "\nprofile has " : "", w->lacks ? w->lacks : "");
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

void compare_picture(Compare *c, FILE *f) {
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
