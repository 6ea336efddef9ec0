/* SPDX-License-Identifier: MIT
 * Draws a plan as one SVG page. A row is a node, the innermost group of ranks; a box is a rank, in
 * the colours of its stages, with its share of the step in compute and its memory under it. A table
 * has the stages and what they send. */
#include <math.h>
#include <string.h>

#include "choice.h"
#include "price.h"
#include "svg_text.h"

#include "critical.h"
#include "lower.h"

#define MARGIN 24.0
#define WIDE   912.0 /* of what stands between the margins */
#define LEFT   64.0  /* of the names of the nodes */
#define BOX    46.0  /* height of a box, */
#define BAR    7.0   /*   of a bar, and of what a bar says */
#define SAYS   11.0
#define LINE   18.0 /* of the table */

static const char *const colour[] = {"#93c0e8", "#f9dd8c", "#a9d6b8", "#f0b59b",
                                     "#c4a7d6", "#d8d3c8", "#8fd3d1"};
enum { NCOLOURS = sizeof colour / sizeof *colour };

typedef struct Drawing {
  const Choice *c;
  const Sched *s; /* the compiled plan */
  const Price *price;
  const uint64_t *busy; /* [nrank] ns */
  uint32_t node;        /* ranks of a row */
  FILE *f;
} Drawing;

/* The first rank of stage s. */
static uint32_t first_rank(const Choice *c, uint32_t s) {
  uint32_t r = 0;
  if (c->order == ORDER_INTERLEAVED)
    return s % c->nrank;
  for (uint32_t i = 0; i < s; i++)
    r += c->stage[i].replicas;
  return r;
}

static bool is_on(const Choice *c, uint32_t s, uint32_t r) {
  const uint32_t first = first_rank(c, s);
  return r >= first && r < first + c->stage[s].replicas;
}

/* A bar that is filled to `share` of its width. */
static void put_bar(const Drawing *d, double x, double y, double width, double share,
                    const char *fill) {
  svg_emit(d->f, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" fill=\"$\"/>", x, y, width, BAR,
           "#e6e6e6");
  svg_emit(d->f, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" fill=\"$\"/>\n", x, y,
           width * (share < 1 ? share : 1), BAR, fill);
}

/* The rank at (x, y), so wide. */
static void put_rank(const Drawing *d, uint32_t r, double x, double y, double width) {
  const Choice *c = d->c;
  Sched *s = c->task->s;
  const bool idle = r >= c->nrank;
  const uint64_t limit = c->task->memory ? c->task->memory : d->price->memory,
                 memory = idle ? 0 : d->s->lowered->peak[r].bytes[PEAK_total];
  const double busy = idle ? 0 : (double)d->busy[r] / (double)d->price->makespan;
  uint32_t n = 0, at = 0;
  const char *names = "";
  for (uint32_t k = 0; k < c->nstage; k++)
    n += is_on(c, k, r);
  for (uint32_t k = 0; k < c->nstage; k++) {
    if (!is_on(c, k, r))
      continue;
    svg_emit(d->f, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" fill=\"$\"/>\n",
             x + width * at / n, y, width / n, BOX, colour[k % NCOLOURS]);
    names = arena_printf(s->arena, "%s%s%u", names, at++ ? ", " : "", k);
  }
  svg_emit(
      d->f,
      "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" fill=\"none\" stroke=\"$\"><title>rank #: "
      "stage $, $ computing, $</title></rect>\n",
      x, y, width, BOX, "#555555", r, idle ? "none" : names,
      arena_printf(s->arena, "%.1f %%", 100 * busy), bytes_text(s, memory));
  if (width >= 20)
    svg_emit(d->f, "<text class=\"in\" x=\"~\" y=\"~\">$#</text>\n", x + width / 2, y + 18,
             width >= 52 ? "rank " : "", r);
  if (width >= 52 && !idle)
    svg_emit(d->f, "<text class=\"in\" x=\"~\" y=\"~\">stage $</text>\n", x + width / 2, y + 36,
             names);
  if (idle)
    return;
  const double first = y + BOX + 3, second = first + BAR + (width >= 52 ? SAYS + 3 : 2);
  put_bar(d, x, first, width, busy, "#1b6a54");
  put_bar(d, x, second, width, (double)memory / (double)limit, "#5b52a3");
  if (width >= 52) {
    svg_emit(d->f, "<text class=\"says\" x=\"~\" y=\"~\">$</text>\n", x + width / 2,
             first + BAR + SAYS - 1, arena_printf(s->arena, "%.1f %%", 100 * busy));
    svg_emit(d->f, "<text class=\"says\" x=\"~\" y=\"~\">$</text>\n", x + width / 2,
             second + BAR + SAYS - 1, bytes_text(s, memory));
  }
}

/* A line of the table: the stage, and what one of its ranks sends to the next stage. */
static void put_stage(const Drawing *d, uint32_t k, double y) {
  const Choice *c = d->c;
  const Task *t = c->task;
  const PlanStage *p = &c->stage[k];
  Arena *a = t->s->arena;
  const uint32_t lo = first_rank(c, k), hi = lo + p->replicas - 1;
  const char *ranks = lo == hi ? arena_printf(a, "rank %u", lo)
                               : arena_printf(a, "ranks %u-%u", lo, hi);
  svg_emit(d->f, "<rect x=\"~\" y=\"~\" width=\"12\" height=\"12\" fill=\"$\"/>\n", MARGIN, y - 10,
           colour[k % NCOLOURS]);
  svg_emit(d->f, "<text x=\"~\" y=\"~\">stage #, $, up to $: $ compute, $ weights$</text>\n",
           MARGIN + 20, y, k, ranks, arena_printf(a, "%.20s", t->states.last[p->to]),
           seconds(t->s, range_time(&t->states, p->from, p->to)),
           bytes_text(t->s, range_cost(&t->states, p->from, p->to, KEY_WEIGHT)),
           p->stash || p->again ? arena_printf(a, ", %.28s", stash_text(t, p)) : "");
  if (k + 1 == c->nstage)
    return;
  const Level *l = level_between(&t->cluster, hi, first_rank(c, k + 1));
  const double share = (double)message_time(l, t->states.cross[p->to]) * d->s->prog->nmb /
                       p->replicas / (double)d->price->makespan;
  put_bar(d, MARGIN + 540, y - 8, 100, share, "#c2793a");
  svg_emit(d->f, "<text x=\"~\" y=\"~\">sends $ at $/s: $</text>\n", MARGIN + 650, y,
           bytes_text(t->s, t->states.cross[p->to]), bytes_text(t->s, l->bandwidth),
           arena_printf(a, "%.1f %%", 100 * share));
}

void draw_plan(const Choice *c, Sched *compiled, const Price *price, FILE *f) {
  const Cluster *cluster = &c->task->cluster;
  Sched *s = c->task->s;
  const char *title = choice_text(c);
  const double letter = fmin(16, WIDE / 0.6 / (double)strlen(title)); /* px */
  Drawing d = {c, compiled, price, critical(compiled)->busy, cluster->nrank, f};
  for (uint32_t k = cluster->nlevel; k-- > 0;)
    d.node = cluster->level[k].ranks > 1 ? cluster->level[k].ranks : d.node;
  const uint32_t rows = cluster->nrank / d.node;
  const double pitch = (WIDE - LEFT) / d.node < 110 ? (WIDE - LEFT) / d.node : 110,
               width = pitch < 20 ? pitch * 0.9 : pitch - 8,
               row = BOX + 2 * (BAR + (width >= 52 ? SAYS + 3 : 2)) + 14, top = MARGIN + 50,
               table = top + rows * row + 30, high = table + (c->nstage + 1) * LINE;
  svg_emit(f,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"~\" height=\"~\" "
           "viewBox=\"0 0 ~ ~\">\n<style type=\"text/css\">\n"
           "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:"
           "12px;fill:$}\n.title{font-size:~px;font-weight:bold}\n"
           ".in,.says{text-anchor:middle}\n.says{font-size:9.5px}\n</style>\n"
           "<rect width=\"~\" height=\"~\" fill=\"white\"/>\n",
           WIDE + 2 * MARGIN, high, WIDE + 2 * MARGIN, high, "#222222", letter, WIDE + 2 * MARGIN,
           high);
  svg_emit(f, "<text class=\"title\" x=\"~\" y=\"~\">$</text>\n", MARGIN, MARGIN + 12, title);
  svg_emit(f,
           "<text x=\"~\" y=\"~\">step $; green: the part of it that a rank computes; violet: its "
           "memory, of $; orange: the part of the step that a rank sends</text>\n",
           MARGIN, MARGIN + 32, seconds(s, price->makespan),
           bytes_text(s, c->task->memory ? c->task->memory : price->memory));
  for (uint32_t r = 0; r < cluster->nrank; r++) {
    const double y = top + r / d.node * row;
    if (r % d.node == 0)
      svg_emit(f, "<text x=\"~\" y=\"~\">node #</text>\n", MARGIN, y + 27, r / d.node);
    put_rank(&d, r, MARGIN + LEFT + r % d.node * pitch, y, width);
  }
  for (uint32_t k = 0; k < c->nstage; k++)
    put_stage(&d, k, table + k * LINE);
  svg_emit(f, "</svg>\n");
}
