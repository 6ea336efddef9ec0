/* SPDX-License-Identifier: MIT
 * A counter-example as a picture (--counterexample=FILE): the ranks of a circle of waits, what they have run up
 * to where they stand, what they would have to run next, and who waits for whom. Ops that ran are solid, at
 * their times on an idle network, or, of lists with transfers, one box each; ops that never run are dashed.
 * A red arrow goes from the op at which a rank stands to the op of the next rank that it needs, a thin one
 * along a row from that op back to the one before it at which its rank stands: following the arrows one
 * comes round. One self-contained SVG 1.1 page; the bytes depend on the program alone. */
#include <stdarg.h>
#include <string.h>

#include "stall_picture.h"
#include "svg.h"
#include "svg_text.h"

enum {
  LEFT = 92,  /* of the rows */
  PAST = 620, /* most px for what ran */
  BOX = 58,   /* px of a box that has no time: of an op */
  WIDE = 98,  /* of an instruction of a list */
  GAP = 8,
  ROW = 30,
  PITCH = 62,
  TOP = 78,
  MOST_RANKS = 24, /* rows; the circle's first */
  MOST_NEXT = 4    /* boxes before the needed one that are shown: the first of them */
};

typedef struct Box {
  double x, width;
  uint8_t op;
  bool ran, needed;
  const char *label;
} Box;

typedef struct Row {
  uint32_t rank;
  VEC(Box) box;
  bool circle;   /* it is of the circle */
  uint32_t head; /* the box at which it stands */
  double at, on; /* middle of the box at which it stands, of the one that is needed; < 0: none */
} Row;

typedef struct Page {
  Sched *s;
  FILE *out;
  Row *row;
  uint32_t nrow;
  const StallHop *hop;
  uint32_t nhop;
  double box;  /* BOX or WIDE */
  double past; /* px for what ran */
  bool lists;  /* hops are positions in lists, else rows of s->op */
} Page;

static void emit(const Page *g, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  svg_vemit(g->out, fmt, ap);
  va_end(ap);
}

/* The rows: all ranks, or if they are many those of the circle, in its order. */
static void find_rows(Page *g) {
  bool all = g->s->nrank <= MOST_RANKS;
  g->row = NEW_ARRAY(g->s->arena, Row, MOST_RANKS);
  for (uint32_t k = 0; k < (all ? g->s->nrank : g->nhop) && g->nrow < MOST_RANKS; k++) {
    uint32_t rank = all ? k : g->hop[k].rank;
    bool there = false;
    for (uint32_t i = 0; i < g->nrow; i++)
      there |= g->row[i].rank == rank;
    if (!there)
      g->row[g->nrow++] = (Row){.rank = rank, .at = -1, .on = -1};
  }
}

static const Row *row_of(const Page *g, uint32_t rank) {
  for (uint32_t i = 0; i < g->nrow; i++)
    if (g->row[i].rank == rank)
      return &g->row[i];
  return NULL;
}

/* What a rank has in the circle: where it stands, and the furthest op of its that is needed. NONE: nothing. */
static void find_ends(const Page *g, uint32_t rank, uint32_t *at, uint32_t *on) {
  *at = *on = NONE;
  for (uint32_t k = 0; k < g->nhop; k++) {
    if (g->hop[k].rank == rank && *at == NONE)
      *at = g->hop[k].at;
    uint32_t next = g->hop[(k + 1) % g->nhop].rank;
    if (next == rank && (*on == NONE || g->hop[k].on > *on))
      *on = g->hop[k].on;
  }
}

static void add(Page *g, Row *w, double x, double width, uint8_t op, bool ran, const char *label) {
  *vec_push(g->s->arena, &w->box) = (Box){x, width, op, ran, false, label};
}

static void arrow(const Page *g, double x0, double y0, double x1, double y1, bool thin) {
  double bend = y1 > y0 ? (y1 - y0) / 2 : (y0 - y1) / 2;
  if (thin)
    emit(
        g,
        "<path d=\"M~ ~C~ ~ ~ ~ ~ ~\" fill=\"none\" stroke=\"firebrick\" stroke-width=\"1\" stroke-dasharray=\"3 2\" marker-end=\"$\"/>\n",
        x0, y0, x0, y0 + 16.0, x1, y0 + 16.0, x1, y1, "url(#head)");
  else
    emit(
        g,
        "<path d=\"M~ ~C~ ~ ~ ~ ~ ~\" fill=\"none\" stroke=\"firebrick\" stroke-width=\"2\" marker-end=\"$\"/>\n",
        x0, y0, x0 + (y1 > y0 ? 14.0 : -14.0), y0 + (y1 > y0 ? bend : -bend),
        x1 + (y1 > y0 ? 14.0 : -14.0), y1 - (y1 > y0 ? bend : -bend), x1, y1, "url(#head)");
}

static void draw_row(const Page *g, const Row *w, double y) {
  emit(g, "<text x=\"16\" y=\"~\">rank #</text>\n", y + ROW / 2.0 + 4, w->rank);
  for (uint32_t i = 0; i < w->box.n; i++) {
    const Box *b = &w->box.at[i];
    const SvgLook *look = &svg_look[b->op];
    if (b->ran)
      emit(
          g,
          "<rect x=\"~\" y=\"~\" width=\"~\" height=\"#\" fill=\"$\" stroke=\"white\" stroke-width=\"0.5\"/>\n",
          b->x, y, b->width, (unsigned)ROW, look->fill ? look->fill : "gainsboro");
    else
      emit(
          g,
          "<rect x=\"~\" y=\"~\" width=\"~\" height=\"#\" fill=\"$\" stroke=\"$\" stroke-width=\"$\" stroke-dasharray=\"4 2\"/>\n",
          b->x, y, b->width, (unsigned)ROW, b->needed ? "white" : "mistyrose",
          b->needed || (w->circle && i == w->head) ? "firebrick" : "gray",
          b->needed || (w->circle && i == w->head) ? "2" : "1");
    double letters = (double)strlen(b->label) * 6.6;
    if (letters < b->width)
      emit(g, "<text x=\"~\" y=\"~\" text-anchor=\"middle\" font-size=\"11\" fill=\"$\">$</text>\n",
           b->x + b->width / 2, y + ROW / 2.0 + 4, b->ran && look->ink ? look->ink : "black",
           b->label);
  }
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
  unsigned w = (unsigned)width + 30, h = TOP + PITCH * g->nrow + 20 * shown + 30;
  emit(
      g,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"#\" height=\"#\" viewBox=\"0 0 # #\" font-family=\"sans-serif\" font-size=\"12\">\n",
      w, h, w, h);
  emit(g, "<title>$$$: deadlock</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
       s->name, *s->params ? " " : "", s->params);
  emit(
      g,
      "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" "
      "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"firebrick\"/></marker></defs>\n");
  emit(g, "<text x=\"16\" y=\"26\" font-size=\"16\">$$$: deadlock</text>\n", s->name,
       *s->params ? " " : "", s->params);
  emit(
      g,
      "<text x=\"16\" y=\"46\" fill=\"dimgray\">$; model: $. Solid: has run. Dashed: never does.</text>\n",
      scale, model);
  emit(g, "<path d=\"M# #V#\" stroke=\"firebrick\" stroke-dasharray=\"1 3\"/>\n",
       LEFT + (unsigned)g->past + GAP / 2u, TOP - 12u, TOP + PITCH * (g->nrow - 1) + ROW + 12u);
  for (uint32_t i = 0; i < g->nrow; i++)
    draw_row(g, &g->row[i], TOP + (double)PITCH * i);
  for (uint32_t k = 0; k < g->nhop; k++) {
    const Row *a = row_of(g, g->hop[k].rank), *b = row_of(g, g->hop[(k + 1) % g->nhop].rank);
    if (!a || !b || a->at < 0)
      continue;
    if (a == b) { /* it waits for itself: what it needs stands behind */
      if (a->on > a->at)
        arrow(g, a->at + 12, TOP + (double)PITCH * (double)(a - g->row) + ROW, a->on - 12,
              TOP + (double)PITCH * (double)(a - g->row) + ROW + 1, true);
      continue;
    }
    uint32_t i = (uint32_t)(a - g->row), j = (uint32_t)(b - g->row);
    double to = b->on < 0 ? b->at : b->on;
    arrow(g, a->at, TOP + (double)PITCH * i + (j > i ? ROW : 0), to,
          TOP + (double)PITCH * j + (j > i ? 0 : ROW), false);
    if (b->on >= 0 && b->on > b->at)
      arrow(g, b->on - 12, TOP + (double)PITCH * j + ROW, b->at + 12,
            TOP + (double)PITCH * j + ROW + 1, true);
  }
  for (uint32_t k = 0; k < shown; k++)
    emit(g, "<text x=\"16\" y=\"#\">$$</text>\n", TOP + PITCH * g->nrow + 20 * k + 6u,
         g->hop[k].text, k + 1 == shown && shown < g->nhop ? ", and so on" : "");
  emit(g, "</svg>\n");
}

/* Where hop k stands in the text, and that line. */
static void put_place(Page *g, const StallHop *k) {
  const Sched *s = g->s;
  uint32_t site = !g->lists  ? s->op[k->at].site
                  : s->lists ? s->lists[k->rank].instr[k->at].site
                             : s->prog->rank[k->rank].instr[k->at].site;
  Span at = s->site[site];
  if (at.file == NO_FILE)
    return;
  const Source *source = &s->diag->source[at.file];
  LineCol place = diag_linecol(s->diag, at.file, at.beg);
  uint32_t beg = at.beg - (place.col - 1), end = beg + (uint32_t)strcspn(source->text + beg, "\n");
  enum { LONGEST = 200 };
  emit(g, "<pre><b>$:#:#</b>  $</pre>\n", source->path, place.line, place.col,
       arena_strndup(s->arena, source->text + beg, end - beg < LONGEST ? end - beg : LONGEST));
}

/* The picture as a page by itself, with the place of each hop. */
static void draw_html(Page *g, const char *scale, const char *model) {
  emit(
      g,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>$: deadlock</title>\n<style>\n"
      ":root { color-scheme: light dark }\nbody { font-family: sans-serif; margin: 1rem }\n"
      "figure { margin: 0; overflow: auto }\npre { overflow: auto; margin: 0 0 .8rem 0 }\n"
      "@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg) } }\n"
      "</style>\n</head>\n<body>\n<figure>\n",
      g->s->name);
  draw_picture(g, scale, model);
  emit(g, "</figure>\n<ol>\n");
  for (uint32_t k = 0; k < g->nhop && k < MOST_RANKS; k++) {
    emit(g, "<li>$\n", g->hop[k].text);
    put_place(g, &g->hop[k]);
    emit(g, "</li>\n");
  }
  emit(g, "</ol>\n</body>\n</html>\n");
}

/* --emit=html of what is refuted is a page of that. */
static bool wants_html(const Options *o) {
  return o->emit == EMIT_HTML && o->ncompare < 2 && !o->check_only && !o->show &&
         !o->critical_path && !o->text;
}

static bool write_page(Page *g, const char *scale, const char *model) {
  Sched *s = g->s;
  OutFile out;
  bool ok = true;
  for (int html = 0; html < 2; html++) {
    if (html ? !wants_html(s->opt) : !s->opt->counterexample)
      continue;
    if (!file_open(s, &out, html ? s->opt->output : s->opt->counterexample)) {
      ok = false;
      continue;
    }
    g->out = out.f;
    (html ? draw_html : draw_picture)(g, scale, model);
    ok &= file_close(s, &out, true);
  }
  return ok;
}

/* The boxes of what row w runs next, from item `at` to item `on`, which label() names. */
static void add_next(Page *g, Row *w, uint32_t at, uint32_t on,
                     uint8_t (*op)(Sched *, uint32_t, uint32_t),
                     const char *(*label)(Sched *, uint32_t, uint32_t)) {
  double x = LEFT + g->past + GAP;
  uint32_t last = on == NONE || on < at ? at : on;
  for (uint32_t i = at; i <= last; i++) {
    if (i > at && i != last && i - at >= MOST_NEXT) { /* leave some out */
      *vec_push(g->s->arena, &w->box) = (Box){x, g->box / 2, PIPE_F, false, false, "..."};
      x += g->box / 2 + GAP;
      i = last;
    }
    add(g, w, x, g->box, op(g->s, w->rank, i), false, label(g->s, w->rank, i));
    if (i == at)
      w->head = w->box.n - 1, w->at = x + g->box / 2;
    if (i == on) {
      w->on = x + g->box / 2;
      w->box.at[w->box.n - 1].needed = i != at;
    }
    x += g->box + GAP;
  }
}

/* ---- orders ---- */

static uint8_t order_op(Sched *s, uint32_t rank, uint32_t i) {
  (void)rank;
  return s->op[i].kind;
}
static const char *order_label(Sched *s, uint32_t rank, uint32_t i) {
  (void)rank;
  return op_text(s, i);
}

bool draw_orders(Sched *s, const uint64_t *end, const uint32_t *head, const StallHop *hop,
                 uint32_t nhop) {
  if (!s->opt->counterexample && !wants_html(s->opt))
    return false;
  Page g = {.s = s, .hop = hop, .nhop = nhop, .box = BOX, .past = PAST};
  find_rows(&g);
  uint64_t last = 0, sum = 0;
  uint32_t n = 0;
  for (uint32_t r = 0; r < s->nrank; r++)
    for (uint32_t i = s->rank_op0[r]; i < head[r]; i++) {
      last = end[i] > last ? end[i] : last;
      sum += s->stage[s->op[i].stage].time[s->op[i].kind], n++;
    }
  /* From some ops before the first rank of the circle stands. */
  uint64_t first = last;
  for (uint32_t k = 0; k < nhop; k++) {
    uint32_t h = head[hop[k].rank];
    uint64_t stop = h > s->rank_op0[hop[k].rank] ? end[h - 1] : 0;
    first = stop < first ? stop : first;
  }
  double mean = n ? (double)sum / n : 1, shown = (double)(last - first) + 8 * mean;
  shown = (double)last < shown || shown <= 0 ? (double)last : shown;
  double px = shown > 0 ? PAST / shown : 1, begin = (double)last - shown;
  for (uint32_t k = 0; k < g.nrow; k++) {
    Row *w = &g.row[k];
    for (uint32_t i = s->rank_op0[w->rank]; i < head[w->rank]; i += s->op[i].group + 1u) {
      uint32_t members = s->op[i].group + 1u;
      double stop = (double)end[i + members - 1],
             from = stop - (double)action_time(s, s->stage, false, i);
      if (stop <= begin)
        continue;
      from = from < begin ? begin : from;
      double each = (stop - from) / members;
      for (uint32_t m = 0; m < members; m++)
        add(&g, w, LEFT + (from + each * m - begin) * px, each * px, s->op[i + m].kind, true,
            op_text(s, i + m));
    }
    uint32_t at, on;
    find_ends(&g, w->rank, &at, &on);
    w->circle = at != NONE;
    if (head[w->rank] < s->rank_op0[w->rank + 1])
      add_next(&g, w, head[w->rank], at == NONE ? NONE : on, order_op, order_label);
  }
  char t[SVG_NUMBER], u[SVG_NUMBER];
  return write_page(&g,
                    arena_printf(s->arena, "from %s to %s, when nothing runs any more",
                                 svg_time(u, begin, s->timed), svg_time(t, (double)last, s->timed)),
                    "any");
}

/* ---- lists ---- */

static uint8_t list_op(Sched *s, uint32_t rank, uint32_t i) {
  return s->lists ? s->lists[rank].instr[i].op : s->prog->rank[rank].instr[i].op;
}
static const char *list_label(Sched *s, uint32_t rank, uint32_t i) {
  return list_text(s, (MachineAt){rank, i});
}

bool draw_lists(Sched *s, const MachineList *list, const bool *const *done, const StallHop *hop,
                uint32_t nhop) {
  if (!s->opt->counterexample && !wants_html(s->opt))
    return false;
  Page g = {.s = s, .hop = hop, .nhop = nhop, .box = WIDE, .lists = true};
  find_rows(&g);
  uint32_t *ran = NEW_ARRAY(s->arena, uint32_t, MOST_RANKS), most = 1;
  for (uint32_t k = 0; k < g.nrow; k++) {
    enum { SHOWN = PAST / (WIDE + GAP) };
    uint32_t r = g.row[k].rank;
    while (ran[k] < list[r].n && done[r][ran[k]])
      ran[k]++;
    most = ran[k] < SHOWN ? ran[k] > most ? ran[k] : most : SHOWN;
  }
  g.past = most * (WIDE + GAP);
  for (uint32_t k = 0; k < g.nrow; k++) {
    Row *w = &g.row[k];
    uint32_t at, on, first = ran[k], nshown = first < most ? first : most;
    for (uint32_t i = first - nshown; i < first; i++)
      add(&g, w, LEFT + g.past - (double)(first - i) * (WIDE + GAP), WIDE, list_op(s, w->rank, i),
          true, list_label(s, w->rank, i));
    find_ends(&g, w->rank, &at, &on);
    w->circle = at != NONE;
    if (first < list[w->rank].n)
      add_next(&g, w, first, at == NONE ? NONE : on > at ? on : at, list_op, list_label);
  }
  return write_page(&g, "instructions in the order of each rank's list", model_text(s));
}
