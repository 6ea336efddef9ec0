/* SPDX-License-Identifier: MIT
 * Draws a counter-example (--counterexample=FILE): the ranks of a wait cycle, the ops that ran, the
 * ops that would run next, and the waits between ranks. The output is one self-contained SVG 1.1
 * page, and its bytes depend on the program alone.
 *
 * Ops that ran are solid. They stand at their times on an idle network. For lists with transfers
 * each instruction takes one unit of time, with transfers and copies in lanes below the ops. Ops
 * that never run are dashed. A red arrow leads from the op at which a rank stands to the op of the
 * next rank that it needs. A thin arrow leads from this op back along its row to the op at which
 * its rank stands. The arrows close the cycle. For two transfers, or two sums, that meet with
 * different tensors, the arrows connect them. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"
#include "base.h"
#include "orders.h"
#include "prove.h"
#include "svg.h"
#include "svg_text.h"

enum {
  LEFT = 92,  /* px left of the rows */
  PAST = 620, /* px for ops that ran */
  BOX = 58,   /* px of the box of an op that never ran */
  WIDE = 98,  /* px of the box of an instruction of a list */
  GAP = 8,
  ROW = 30,
  PITCH = 62,
  LANE = 15,      /* height of a lane below a row, with the gap above it */
  MOST_LANES = 4, /* the last lane takes all further instructions */
  TOP = 100,
  MOST_RANKS = 24, /* rows; those of the wait cycle first */
  MOST_NEXT = 4,   /* boxes of a row that never run and are not in the cycle */
  MOST_NAMED = 24  /* boxes of a row in the cycle */
};

/* The first line of each picture: a file that begins with it may be removed. */
static const char mark[] = "<!-- a counter-example, drawn by pipec -->\n";

typedef struct Box {
  double x, width;
  uint8_t op;
  bool ran, stands, needed; /* stands: a rank waits at it; needed: a hop of the cycle needs it */
  uint8_t lane;             /* 0: the row itself */
  uint32_t item;            /* never ran: row of Orders.op, or position in the list */
  const char *label;
} Box;

typedef struct Row {
  uint32_t rank;
  VEC(Box) box;
} Row;

typedef struct Page {
  Sched *s;
  FILE *out;
  Row *row;
  uint32_t nrow;
  const StallHop *hop;
  uint32_t nhop;
  const char *what; /* title */
  double box;       /* width of boxes: BOX or WIDE */
  double past;      /* px for ops that ran */
  double pitch;     /* px from row to row */
  double begin, px; /* time at the left edge; px per unit of time */
  uint64_t last;    /* time of the stall */
  bool timed;       /* times are ns */
} Page;

/* Chooses the rows: all ranks or, if they are too many, those of the wait cycle in its order. */
static void find_rows(Page *g) {
  bool all = g->s->model->nrank <= MOST_RANKS;
  g->row = NEW_ARRAY(g->s->arena, Row, MOST_RANKS);
  for (uint32_t k = 0; k < (all ? g->s->model->nrank : g->nhop) && g->nrow < MOST_RANKS; k++) {
    uint32_t rank = all ? k : g->hop[k].rank;
    bool there = false;
    for (uint32_t i = 0; i < g->nrow; i++)
      there |= g->row[i].rank == rank;
    if (!there)
      g->row[g->nrow++] = (Row){.rank = rank};
  }
}

static const Row *row_of(const Page *g, uint32_t rank) {
  for (uint32_t i = 0; i < g->nrow; i++)
    if (g->row[i].rank == rank)
      return &g->row[i];
  return NULL;
}

/* Does a hop of the wait cycle stand at item i of a rank? Does a hop need it? */
static bool stands(const Page *g, uint32_t rank, uint32_t i) {
  for (uint32_t k = 0; k < g->nhop; k++)
    if (g->hop[k].rank == rank && g->hop[k].at == i)
      return true;
  return false;
}
static bool needed(const Page *g, uint32_t rank, uint32_t i) {
  for (uint32_t k = 0; k < g->nhop; k++)
    if (g->hop[(k + 1) % g->nhop].rank == rank && g->hop[k].on == i)
      return true;
  return false;
}

/* The last item of a rank that the wait cycle names; NONE: the rank is not in it. */
static uint32_t furthest(const Page *g, uint32_t rank) {
  uint32_t last = NONE;
  for (uint32_t k = 0; k < g->nhop; k++) {
    if (g->hop[k].rank == rank && (last == NONE || g->hop[k].at > last))
      last = g->hop[k].at;
    if (g->hop[(k + 1) % g->nhop].rank == rank && (last == NONE || g->hop[k].on > last))
      last = g->hop[k].on;
  }
  return last;
}

/* The top of a box in its row, and its height. */
static double box_top(const Box *b) { return b->lane ? ROW + 2 + LANE * (b->lane - 1.0) : 0; }
static double box_height(const Box *b) { return b->lane ? LANE - 2 : ROW; }

/* Finds the box of an item of a rank; false: it is not on the page. */
typedef struct Spot {
  const Row *row;
  double x, top, foot; /* x: its middle */
} Spot;
static bool find_box(const Page *g, uint32_t rank, uint32_t item, Spot *at) {
  const Row *w = row_of(g, rank);
  for (uint32_t i = 0; w && i < w->box.n; i++) {
    const Box *b = &w->box.at[i];
    if (b->item != item)
      continue;
    double y = TOP + g->pitch * (double)(w - g->row) + box_top(b);
    *at = (Spot){w, b->x + b->width / 2, y, y + box_height(b)};
    return true;
  }
  return false;
}

static Box *add(Page *g, Row *w, double x, double width, uint8_t op, bool ran, const char *label) {
  Box *b = vec_push(g->s->arena, &w->box);
  *b = (Box){.x = x, .width = width, .op = op, .ran = ran, .item = NONE, .label = label};
  return b;
}

static void arrow(const Page *g, double x0, double y0, double x1, double y1, bool thin) {
  double bend = y1 > y0 ? (y1 - y0) / 2 : (y0 - y1) / 2;
  if (thin)
    svg_emit(
        g->out,
        "<path d=\"M~ ~C~ ~ ~ ~ ~ ~\" fill=\"none\" stroke=\"firebrick\" stroke-width=\"1\" stroke-dasharray=\"3 2\" marker-end=\"$\"/>\n",
        x0, y0, x0, y0 + 16.0, x1, y0 + 16.0, x1, y1, "url(#head)");
  else
    svg_emit(
        g->out,
        "<path d=\"M~ ~C~ ~ ~ ~ ~ ~\" fill=\"none\" stroke=\"firebrick\" stroke-width=\"2\" marker-end=\"$\"/>\n",
        x0, y0, x0 + (y1 > y0 ? 14.0 : -14.0), y0 + (y1 > y0 ? bend : -bend),
        x1 + (y1 > y0 ? 14.0 : -14.0), y1 - (y1 > y0 ? bend : -bend), x1, y1, "url(#head)");
}

/* Draws an arrow within a row. */
static void along(const Page *g, const Spot *a, const Spot *b) {
  double in = b->x > a->x ? 12 : -12;
  arrow(g, a->x + in, a->foot, b->x - in, b->foot + 1, true);
}

static void draw_row(const Page *g, const Row *w, double y) {
  svg_emit(g->out, "<text x=\"16\" y=\"~\">rank #</text>\n", y + ROW / 2.0 + 4, w->rank);
  for (uint32_t i = 0; i < w->box.n; i++) {
    const Box *b = &w->box.at[i];
    const SvgLook *look = &svg_look[b->op];
    double top = y + box_top(b), high = box_height(b);
    if (b->ran)
      svg_emit(
          g->out,
          "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" fill=\"$\" stroke=\"$\" stroke-width=\"$\"/>\n",
          b->x, top, b->width, high, look->fill ? look->fill : "gainsboro",
          b->item == NONE ? "white" : "firebrick", b->item == NONE ? "0.5" : "2");
    else
      svg_emit(
          g->out,
          "<rect x=\"~\" y=\"~\" width=\"~\" height=\"#\" fill=\"$\" stroke=\"$\" stroke-width=\"$\" stroke-dasharray=\"4 2\"/>\n",
          b->x, y, b->width, (unsigned)ROW, b->needed && !b->stands ? "white" : "mistyrose",
          b->needed || b->stands ? "firebrick" : "gray", b->needed || b->stands ? "2" : "1");
    double letters = (double)strlen(b->label), size = 11;
    size = b->lane ? 9 : letters * 6.6 < b->width ? 11 : 9;
    if (letters * size * 0.6 < b->width)
      svg_emit(g->out,
               "<text x=\"~\" y=\"~\" text-anchor=\"middle\" font-size=\"~\" fill=\"$\">$</text>\n",
               b->x + b->width / 2, top + high / 2 + 4 * size / 11, size,
               b->ran && look->ink ? look->ink : "black", b->label);
  }
}

/* Draws the times above the rows, up to the stall. */
static void draw_axis(const Page *g) {
  const SvgUnit *unit = svg_time_unit((double)g->last, g->timed);
  double step = 1;
  char num[SVG_NUMBER];
  for (int k = 0; step * g->px < 48 && k < 60; k++)
    step = k % 3 == 1 ? step / 2 * 5 : step * 2;
  double t = step * (double)(uint64_t)(g->begin / step);
  for (t = t < g->begin ? t + step : t; t <= (double)g->last; t += step) {
    double x = LEFT + (t - g->begin) * g->px;
    svg_emit(g->out, "<path d=\"M~ #v4\" stroke=\"dimgray\"/>\n", x, TOP - 9u);
    svg_emit(
        g->out,
        "<text class=\"tick\" font-size=\"10\" fill=\"dimgray\" x=\"~\" y=\"#\" text-anchor=\"middle\">$</text>\n",
        x, TOP - 12u, svg_fixed(num, t / unit->per, 3, true));
  }
  svg_emit(g->out, "<text font-size=\"10\" fill=\"dimgray\" x=\"16\" y=\"#\">$</text>\n", TOP - 12u,
           unit->name);
}

static void draw_picture(Page *g, const char *scale, const char *model) {
  Sched *s = g->s;
  double width = 0;
  for (uint32_t i = 0; i < g->nrow; i++)
    for (uint32_t k = 0; k < g->row[i].box.n; k++) {
      const Box *b = &g->row[i].box.at[k];
      width = b->x + b->width > width ? b->x + b->width : width;
    }
  uint32_t shown = g->nhop < MOST_RANKS ? g->nhop : MOST_RANKS;
  for (uint32_t k = 0; k < shown; k++) {
    double text = 16 + 6.4 * (double)strlen(g->hop[k].text);
    width = text > width ? text : width;
  }
  const char *said[2] = {arena_printf(s->arena, "%s. Solid: has run. Dashed: never does.", scale),
                         arena_printf(s->arena, "Model: %s.", model)};
  for (int k = 0; k < 2; k++) {
    double text = 16 + 6.4 * (double)strlen(said[k]);
    width = text > width ? text : width;
  }
  unsigned w = (unsigned)width + 30, h = TOP + (unsigned)(g->pitch * g->nrow) + 20 * shown + 30;
  svg_emit(
      g->out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"#\" height=\"#\" viewBox=\"0 0 # #\" font-family=\"sans-serif\" font-size=\"12\">\n",
      w, h, w, h);
  svg_emit(g->out, "<title>$$$: $</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
           s->model->name, *s->model->params ? " " : "", s->model->params, g->what);
  svg_emit(
      g->out,
      "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" "
      "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"firebrick\"/></marker></defs>\n");
  svg_emit(g->out, "<text x=\"16\" y=\"26\" font-size=\"16\">$$$: $</text>\n", s->model->name,
           *s->model->params ? " " : "", s->model->params, g->what);
  svg_emit(
      g->out,
      "<text x=\"16\" y=\"46\" fill=\"dimgray\">$</text>\n<text x=\"16\" y=\"62\" fill=\"dimgray\">$</text>\n",
      said[0], said[1]);
  svg_emit(g->out, "<path d=\"M# #V#\" stroke=\"firebrick\" stroke-dasharray=\"1 3\"/>\n",
           LEFT + (unsigned)g->past + GAP / 2u, TOP - 12u,
           TOP + (unsigned)g->pitch * (g->nrow - 1) + ROW + 12u);
  draw_axis(g);
  for (uint32_t i = 0; i < g->nrow; i++)
    draw_row(g, &g->row[i], TOP + g->pitch * i);
  for (uint32_t k = 0; k < g->nhop; k++) {
    const StallHop *from = &g->hop[k], *next = &g->hop[(k + 1) % g->nhop];
    Spot a, b, c;
    if (!find_box(g, from->rank, from->at, &a) || !find_box(g, next->rank, from->on, &b))
      continue;
    if (a.row == b.row) /* it waits for its own rank */
      along(g, &a, &b);
    else
      arrow(g, a.x, b.row > a.row ? a.foot : a.top, b.x, b.row > a.row ? b.top : b.foot, false);
    if (from->on != next->at && find_box(g, next->rank, next->at, &c))
      along(g, &b, &c);
  }
  for (uint32_t k = 0; k < shown; k++)
    svg_emit(g->out, "<text x=\"16\" y=\"#\">$$</text>\n",
             TOP + (unsigned)(g->pitch * g->nrow) + 20 * k + 6u, g->hop[k].text,
             k + 1 == shown && shown < g->nhop ? ", and so on" : "");
  svg_emit(g->out, "</svg>\n");
}

static bool write_picture(Page *g, const char *scale, const char *model) {
  OutFile out;
  if (!file_open(g->s, &out, g->s->opt->counterexample))
    return false;
  g->out = out.f;
  fputs(mark, out.f);
  draw_picture(g, scale, model);
  return file_close(g->s, &out, true);
}

/* Shows time from 8 ops (of `mean` units) before the first rank of the cycle stands. */
static void set_window(Page *g, uint64_t first, uint64_t last, double mean) {
  double shown = (double)(last - first) + 8 * mean;
  shown = (double)last < shown || shown <= 0 ? (double)last : shown;
  g->px = shown > 0 ? PAST / shown : 1;
  g->begin = (double)last - shown;
  g->past = PAST;
  g->last = last;
}

/* Adds boxes for what row w runs next: from item `from` to the last that the wait cycle names,
 * except items with end != 0, which ran. op and label give kind and text of an item. */
static void add_next(Page *g, Row *w, uint32_t from, const uint32_t *end,
                     uint8_t (*op)(Sched *, uint32_t, uint32_t),
                     const char *(*label)(Sched *, uint32_t, uint32_t)) {
  double x = LEFT + g->past + GAP;
  uint32_t last = furthest(g, w->rank), n = 0, named = 0;
  bool left_out = false;
  for (uint32_t i = from; i == from || (last != NONE && i <= last); i++) {
    bool at = stands(g, w->rank, i), on = needed(g, w->rank, i);
    if (end && end[i])
      continue;
    if (at || on ? named == MOST_NAMED : n == MOST_NEXT) {
      if (!left_out)
        add(g, w, x, g->box / 2, PIPE_F, false, "..."), x += g->box / 2 + GAP;
      left_out = true;
      continue;
    }
    Box *b = add(g, w, x, g->box, op(g->s, w->rank, i), false, label(g->s, w->rank, i));
    b->item = i, b->stands = at, b->needed = on;
    left_out = false, n += !(at || on), named += at || on;
    x += g->box + GAP;
  }
}

/* ---- orders ---- */

static uint8_t order_op(Sched *s, uint32_t rank, uint32_t i) {
  (void)rank;
  return s->orders->op[i].kind;
}
static const char *order_label(Sched *s, uint32_t rank, uint32_t i) {
  (void)rank;
  return op_text(s, i);
}

static bool draw_orders(Sched *s, const uint64_t *end, const uint32_t *head, const StallHop *hop,
                        uint32_t nhop) {
  Page g = {.s = s,
            .hop = hop,
            .nhop = nhop,
            .box = BOX,
            .pitch = PITCH,
            .timed = s->model->timed,
            .what = "deadlock"};
  find_rows(&g);
  uint64_t last = 0, sum = 0;
  uint32_t n = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->orders->rank_op0[r]; i < head[r]; i++) {
      last = end[i] > last ? end[i] : last;
      sum += s->model->stage[s->orders->op[i].stage].time[s->orders->op[i].kind], n++;
    }
  uint64_t first = last;
  for (uint32_t k = 0; k < nhop; k++) {
    uint32_t h = head[hop[k].rank];
    uint64_t stop = h > s->orders->rank_op0[hop[k].rank] ? end[h - 1] : 0;
    first = stop < first ? stop : first;
  }
  set_window(&g, first, last, n ? (double)sum / n : 1);
  for (uint32_t k = 0; k < g.nrow; k++) {
    Row *w = &g.row[k];
    for (uint32_t i = s->orders->rank_op0[w->rank]; i < head[w->rank];
         i += s->orders->op[i].group + 1u) {
      uint32_t members = s->orders->op[i].group + 1u;
      double stop = (double)end[i + members - 1],
             from = stop - (double)action_time(s, s->model->stage, false, i);
      if (stop <= g.begin)
        continue;
      from = from < g.begin ? g.begin : from;
      double each = (stop - from) / members;
      for (uint32_t m = 0; m < members; m++)
        add(&g, w, LEFT + (from + each * m - g.begin) * g.px, each * g.px,
            s->orders->op[i + m].kind, true, op_text(s, i + m));
    }
    if (head[w->rank] < s->orders->rank_op0[w->rank + 1])
      add_next(&g, w, head[w->rank], NULL, order_op, order_label);
  }
  char t[SVG_NUMBER], u[SVG_NUMBER];
  return write_picture(&g,
                       arena_printf(s->arena, "from %s to %s, when nothing runs any more",
                                    svg_time(u, g.begin, s->model->timed),
                                    svg_time(t, (double)last, s->model->timed)),
                       "any");
}

/* ---- lists ---- */

static uint8_t list_op(Sched *s, uint32_t rank, uint32_t i) {
  return s->orders->lists ? s->orders->lists[rank].instr[i].op : s->prog->rank[rank].instr[i].op;
}
static const char *list_label(Sched *s, uint32_t rank, uint32_t i) {
  return list_text(s, (MachineAt){rank, i});
}

/* Draws row w up to the stall: ops, and other streams in lanes below. Returns the number of
 * lanes. */
static uint32_t add_past(Page *g, Row *w, const MachineList *list, const uint32_t *end) {
  enum { UNITS = PAST / 3 }; /* boxes of 3 px */
  uint8_t beside[UNITS + 1] = {0};
  uint32_t lanes = 0, begin = (uint32_t)g->begin;
  for (uint32_t i = 0; i < list->n; i++) {
    if (end[i] <= begin)
      continue;
    uint8_t *n = &beside[end[i] - begin], op = list_op(g->s, w->rank, i);
    bool row = list->instr[i].kind == MACHINE_COMPUTE;
    *n += !row && *n < MOST_LANES;
    Box *b = add(g, w, LEFT + (end[i] - 1 - begin) * g->px, g->px, op, true,
                 list_label(g->s, w->rank, i));
    b->lane = row ? 0 : *n;
    if (stands(g, w->rank, i)) /* a buffered SEND that ran and meets another RECV */
      b->item = i;
    lanes = *n > lanes ? *n : lanes;
  }
  return lanes;
}

static bool draw_lists(Sched *s, const MachineList *list, const StallHop *hop, uint32_t nhop,
                       const char *what) {
  enum { WIDEST = 64, NARROWEST = 3 };
  Page g = {.s = s, .hop = hop, .nhop = nhop, .box = WIDE, .what = what};
  uint32_t **end = machine_times(s->arena, list, s->model->nrank, s->opt->model), last = 0,
           lanes = 0;
  uint32_t *stop = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  find_rows(&g);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    for (uint32_t i = 0; i < list[r].n; i++)
      stop[r] = end[r][i] > stop[r] ? end[r][i] : stop[r];
    last = stop[r] > last ? stop[r] : last;
  }
  uint32_t first = last;
  for (uint32_t k = 0; k < nhop; k++)
    first = stop[hop[k].rank] < first ? stop[hop[k].rank] : first;
  set_window(&g, first, last, 1);
  if (g.px > WIDEST)
    g.px = WIDEST, g.past = (last - g.begin) * g.px;
  if (g.px < NARROWEST)
    g.px = NARROWEST, g.begin = last - PAST / NARROWEST;
  for (uint32_t k = 0; k < g.nrow; k++) {
    Row *w = &g.row[k];
    uint32_t from = 0, n = add_past(&g, w, &list[w->rank], end[w->rank]);
    lanes = n > lanes ? n : lanes;
    while (from < list[w->rank].n && end[w->rank][from])
      from++;
    if (from < list[w->rank].n)
      add_next(&g, w, from, end[w->rank], list_op, list_label);
  }
  g.pitch = PITCH + LANE * lanes;
  char t[SVG_NUMBER], u[SVG_NUMBER];
  return write_picture(
      &g,
      arena_printf(
          s->arena, "each instruction takes one unit%s; from %s to %s, when nothing runs any more",
          lanes ? ", transfers under the ops" : "", svg_time(u, g.begin, 0), svg_time(t, last, 0)),
      model_text(s));
}

static bool is_picture(const char *path) {
  char head[sizeof mark] = "";
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
    return false;
  FILE *f = guard_open(path);
  const size_t n = f ? fread(head, 1, sizeof mark - 1, f) : 0;
  guard_close(f);
  return n == sizeof mark - 1 && strcmp(head, mark) == 0;
}

bool remove_stall(Sched *s) {
  const char *path = s->opt->counterexample;
  if (!path || !is_picture(path))
    return true;
  char *target = realpath(path, NULL); /* a symbolic link stays: its target is removed */
  const bool removed = target && unlink(target) == 0;
  free(target);
  if (removed)
    return true;
  diag_error(s->diag, DIAG_WRITE, NO_SPAN, "cannot remove %s, the picture of an earlier run: %s",
             path, strerror(errno));
  return false;
}

bool draw_stall(Sched *s) {
  const Stall *l = s->ideal->stall ? s->ideal->stall : s->verdict->stall;
  if (!l || !s->opt->counterexample)
    return true;
  return l->list ? draw_lists(s, l->list, l->hop, l->nhop, l->what)
                 : draw_orders(s, l->end, l->head, l->hop, l->nhop);
}
