/* SPDX-License-Identifier: MIT
 * Draws the timeline picture. Each rank has a row; an op is a rectangle in the colour of its kind,
 * with its microbatch as a label where that fits; idle time is hatched, so the reader sees the
 * bubble. With SvgOptions.memory each row has a memory curve under it (svg_curve.c).
 *
 * The fills are at least 12 of CIE L* apart, darkest first U B I F W, and their hues differ for
 * colour-blind readers: a greyscale print shows the kinds, too. A strip at the foot of an op tells
 * the chunks of a rank apart; later chunks have a higher strip.
 *
 * Detail follows scale. With few ops, each op is a <rect> with a tooltip (op, times, .pipe line).
 * With many, a row is one <path> per kind, and neighbours of one kind below 0.3 px become one. If
 * the mean op is narrower than DENSE_PX, a row becomes columns that show shares of time.
 *
 * svg_legend.c writes the text under the rows, and the style. */
#include "svg.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "svg_action.h"
#include "svg_curve.h"
#include "svg_page.h"
#include "svg_text.h"

enum {
  MAX_RECTS = 5000, /* most ops on a page with an element and a tooltip for each op */
  SHARES = 24,      /* steps of a column's height in a dense row */
  MAX_NAMED = 4     /* most stages of a rank that are named beside its row */
};
#define DENSE_PX 0.75 /* mean op width below which rows show shares of time */
#define ARROW_PX 13.0 /* room per transfer between two rows; with less, no arrows */
#define TEXT_PT  7.9  /* size of a page's text; a px is 1/96 in */

const SvgLook svg_look[PIPE_NOPS] = {
    [PIPE_F] = {"#93c0e8", "#10222f", "forward"},
    [PIPE_B] = {"#1b6a54", "#ffffff", "backward"},
    [PIPE_I] = {"#3fa183", "#06231a", "input gradient"},
    [PIPE_W] = {"#f9dd8c", "#33270a", "weight gradient"},
    [PIPE_R] = {"#c4a7d6", "#24122f", "recomputed forward"},
    [PIPE_U] = {"#3a1730", "#ffffff", "update"},
    [PIPE_OFF] = {"#c2793a", "#000000", "to host"}, /* in the lane under the row */
    [PIPE_LOAD] = {"#5b52a3", "#ffffff", "from host"},
    [PIPE_SIDE] = {"#6b2f1a", "#ffffff", "side op"},
    [PIPE_SIDE_COMM] = {"#7a7a7a", "#ffffff", "in comm"}, /* in the lane under the row */
    [PIPE_SIDE_COPY] = {"#d3a0c4", "#000000", "in copy"},
};

/* ---- geometry ---- */

static bool computes(const PipeInstr *in) {
  return in->op < PIPE_NOPS && pipe_stream_of(in->op) == PIPE_COMPUTE;
}

/* The x of time t. Signed arithmetic: t may lie before n->begin. */
static double x_at(const Page *g, const Panel *n, uint64_t t) {
  double d = t >= n->begin ? (double)(t - n->begin) : -(double)(n->begin - t);
  return g->left + d * n->track->scale * g->px;
}

static double pitch(const Page *g) { return g->row + g->lane + g->curve + g->gap; }

static double row_y(const Page *g, double top, uint32_t r) { return top + r * pitch(g); }

static double rows_height(const Page *g) {
  return g->p->nrank ? g->p->nrank * pitch(g) - g->gap : 0;
}

/* The width of the longest label of an op of its kind, at the page's label size. If short labels
 * could stand where the longest does not fit, only short ones would show. */
static double label_width(const Page *g, uint32_t mb) {
  return svg_letters(g->p, mb == PIPE_NONE ? mb : g->p->nmb - 1) * 0.58 * g->label + 2;
}

static const PipeStage *stage_of(const PipeProgram *p, const PipeInstr *in) {
  return in->stage < p->nstage ? &p->stage[in->stage] : NULL;
}

/* A step lasts from the first start to the last end; transfers and sums lie within. */
static Panel measure(const PipeProgram *p, const SvgTrack *t) {
  Panel n = {.track = t, .begin = UINT64_MAX};
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (in->op >= PIPE_NOPS || (pipe_op_info[in->op].comm && in->op != PIPE_SIDE_COMM))
        continue;
      uint64_t a = t->start[r][i], b = t->end[r][i];
      n.begin = a < n.begin ? a : n.begin;
      n.end = b > n.end ? b : n.end;
      if (!computes(in))
        continue;
      n.busy += (double)(b > a ? b - a : 0);
      n.nop++;
      n.count[p->rank[r].instr[i].op]++;
    }
  if (n.nop == 0)
    n.begin = n.end = 0;
  return n;
}

/* Finds where the warmup of rank r ends and its flush begins. U counts as no phase: it belongs to
 * no microbatch. False: the ops of the rank are not in the order warmup, steady, flush. */
static bool phase_bounds(const PipeProgram *p, const SvgTrack *t, uint32_t r, uint64_t at[2]) {
  uint8_t now = PIPE_WARMUP;
  uint64_t last = 0;
  bool steady = false, any = false;
  for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
    const PipeInstr *in = &p->rank[r].instr[i];
    if (!computes(in) || in->mb == PIPE_NONE)
      continue;
    if (in->phase < now)
      return false;
    now = in->phase;
    if (now != PIPE_WARMUP && !steady) {
      at[0] = t->start[r][i];
      steady = true;
    }
    if (now != PIPE_FLUSH)
      last = t->end[r][i];
    else if (!any)
      last = t->start[r][i];
    any = true;
  }
  at[1] = last;
  if (!steady)
    at[0] = last;
  return any;
}

/* Does the panel show phases? Every rank's ops must be in the order of the phases, and there must
 * be more than one phase in all. */
static bool has_phases(const PipeProgram *p, const SvgTrack *t) {
  unsigned seen = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t at[2];
    if (!phase_bounds(p, t, r, at))
      return false;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      if (computes(&p->rank[r].instr[i]) && p->rank[r].instr[i].mb != PIPE_NONE)
        seen |= 1u << (p->rank[r].instr[i].phase & 7);
  }
  return (seen & (seen - 1)) != 0;
}

/* ---- rows ---- */

static void path_rect(const Page *g, double x, double y, double w, double h) {
  svg_emit(g->out, "M~ ~h~v~h-~z", x, y, w, h, w);
}

/* The width less a hairline on the right, which keeps neighbours of one kind apart. */
static double inset(double w) { return w >= 3 ? w - 0.7 : w >= 1.5 ? w - 0.3 : w > 0.3 ? w : 0.3; }

/* The least width of a kind: an update that takes no time is still visible. */
static double least(uint8_t op) { return op == PIPE_U ? 1.4 : 0.3; }

static void draw_idle(const Page *g, const Panel *n, double top) {
  double end = g->left + span_of(n) * g->px;
  svg_emit(g->out, "<path class=\"idle\" d=\"");
  for (uint32_t r = 0; r < g->p->nrank; r++) {
    double y = row_y(g, top, r), x = g->left;
    for (uint32_t i = 0; i < g->p->rank[r].ninstr && !n->dense; i++) {
      if (!computes(&g->p->rank[r].instr[i]))
        continue;
      double a = x_at(g, n, n->track->start[r][i]), b = x_at(g, n, n->track->end[r][i]);
      if (a - x >= 0.8)
        path_rect(g, x, y, a - x, g->row);
      x = b > x ? b : x;
    }
    if (end - x >= 0.8)
      path_rect(g, x, y, end - x, g->row);
  }
  svg_emit(g->out, "\"/>\n");
}

/* Draws transfers as arrows between the facing edges of the sender's and the receiver's row. Arrows
 * that pass behind other rows are fainter. */
static void draw_transfers(const Page *g, const Panel *n, double top) {
  const PipeProgram *p = g->p;
  static const char *const layer[3] = {"far send", "send", "head"};
  for (int k = 0; k < 3; k++) {
    svg_emit(g->out, "<path class=\"$\" d=\"", layer[k]);
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *in = &p->rank[r].instr[i];
        if ((in->op != PIPE_SEND_F && in->op != PIPE_SEND_B) || in->peer >= p->nrank)
          continue;
        bool down = in->peer > r, far = in->peer > r + 1 || r > in->peer + 1;
        if (in->peer == r || (k < 2 && far != (k == 0)))
          continue;
        double x0 = x_at(g, n, n->track->start[r][i]), x1 = x_at(g, n, n->track->end[r][i]);
        double y0 = row_y(g, top, r) + (down ? g->row : 0);
        double y1 = row_y(g, top, in->peer) + (down ? 0 : g->row);
        double len = hypot(x1 - x0, y1 - y0), ux = (x1 - x0) / len, uy = (y1 - y0) / len;
        double bx = x1 - 3.6 * ux, by = y1 - 3.6 * uy;
        if (k == 2)
          svg_emit(g->out, "M~ ~L~ ~L~ ~z", x1, y1, bx - 1.5 * uy, by + 1.5 * ux, bx + 1.5 * uy,
                   by - 1.5 * ux);
        else
          svg_emit(g->out, "M~ ~L~ ~", x0, y0, bx, by);
      }
    svg_emit(g->out, "\"/>\n");
  }
}

/* Draws one element per op, with a tooltip. */
static void draw_rects(const Page *g, const Panel *n, uint32_t r, double y) {
  const PipeProgram *p = g->p;
  for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
    const PipeInstr *in = &p->rank[r].instr[i];
    if (!computes(in))
      continue;
    uint64_t a = n->track->start[r][i], b = n->track->end[r][i];
    double x = x_at(g, n, a), w = inset(x_at(g, n, b) - x);
    char op[PIPE_OP_TEXT], took[SVG_NUMBER], from[SVG_NUMBER];
    pipe_instr_text(op, pipe_graph(g->p), in);
    svg_emit(g->out,
             "<rect class=\"$\" x=\"~\" y=\"~\" width=\"~\" height=\"~\"><title>$: $, starts at $",
             pipe_op_info[in->op].text, x, y, w > least(in->op) ? w : least(in->op), g->row, op,
             svg_time(took, (double)(b - a), n->track->timed),
             svg_time(from, (double)(a - n->begin), n->track->timed));
    const PipeWeights *v = p->rank[r].weights ? &p->rank[r].weights[i] : NULL;
    if (v && v->version != PIPE_NONE)
      svg_emit(g->out, ", $ version # of the weights", in->op == PIPE_U ? "makes" : "reads",
               (unsigned)v->version);
    if (in->site < p->nsite && p->site[in->site].file < p->nfile) {
      const PipeSite *s = &p->site[in->site];
      svg_emit(g->out, "\n$:#:#", p->file[s->file], (unsigned)s->line, (unsigned)s->col);
    }
    svg_emit(g->out, "</title></rect>\n");
  }
}

/* Draws one path per kind; narrow neighbours of one kind become one. */
static void draw_paths(const Page *g, const Panel *n, uint32_t r, double y) {
  const PipeRank *rank = &g->p->rank[r];
  for (uint8_t op = 0; op < PIPE_NOPS; op++) {
    double x = 0, w = 0;
    bool open = false, pending = false;
    if (pipe_stream_of(op) != PIPE_COMPUTE)
      continue;
    for (uint32_t i = 0; i < rank->ninstr; i++) {
      if (rank->instr[i].op != op)
        continue;
      double a = x_at(g, n, n->track->start[r][i]), b = x_at(g, n, n->track->end[r][i]);
      if (pending && b - a < 0.3 && a - (x + w) < 0.3) {
        w = b - x;
        continue;
      }
      if (!open)
        svg_emit(g->out, "<path class=\"$\" d=\"", pipe_op_info[op].text);
      open = true;
      if (pending)
        path_rect(g, x, y, inset(w) > least(op) ? inset(w) : least(op), g->row);
      x = a;
      w = b - a;
      pending = true;
    }
    if (pending)
      path_rect(g, x, y, inset(w) > least(op) ? inset(w) : least(op), g->row);
    if (open)
      svg_emit(g->out, "\"/>\n");
  }
}

/* Draws columns `g->column` px wide; each stacks the kinds from the foot by their share of its
 * time. */
static void draw_dense(const Page *g, const Panel *n, uint32_t r, double y) {
  const PipeRank *rank = &g->p->rank[r];
  size_t ncol = (size_t)ceil(span_of(n) * g->px / g->column) + 1;
  Arena own = {0};
  double *share = NEW_ARRAY(&own, double, ncol *PIPE_NOPS); /* [op][column] */
  int *foot = NEW_ARRAY(&own, int, ncol); /* steps of the column that are drawn so far */
  double *sum = NEW_ARRAY(&own, double, ncol);
  for (uint32_t i = 0; i < rank->ninstr; i++) {
    if (!computes(&rank->instr[i]))
      continue;
    double *col = share + rank->instr[i].op * ncol;
    double a = (x_at(g, n, n->track->start[r][i]) - g->left) / g->column;
    double b = (x_at(g, n, n->track->end[r][i]) - g->left) / g->column;
    for (size_t c = (size_t)a; c < ncol && (double)c < b; c++)
      col[c] += fmin(b, (double)c + 1) - fmax(a, (double)c);
  }
  for (uint8_t op = 0; op < PIPE_NOPS; op++) {
    bool open = false;
    size_t from = 0;
    int low = 0, high = 0; /* foot and head of the run of equal columns from `from` */
    if (pipe_stream_of(op) != PIPE_COMPUTE)
      continue;
    for (size_t c = 0; c <= ncol; c++) {
      int l = 0, h = 0;
      if (c < ncol) {
        sum[c] += share[op * ncol + c];
        l = foot[c];
        h = foot[c] = (int)lround(fmin(sum[c], 1) * SHARES);
      }
      if (c < ncol && l == low && h == high)
        continue;
      if (high > low) {
        if (!open)
          svg_emit(g->out, "<path class=\"$\" d=\"", pipe_op_info[op].text);
        open = true;
        path_rect(g, g->left + (double)from * g->column, y + g->row * (SHARES - high) / SHARES,
                  (double)(c - from) * g->column, g->row * (high - low) / SHARES);
      }
      from = c;
      low = l;
      high = h;
    }
    if (open)
      svg_emit(g->out, "\"/>\n");
  }
  arena_free(&own);
}

/* None for chunk 0, 0.24 of the row for the last. */
double svg_strip(const Page *g, uint32_t chunk) {
  return g->nchunk > 1 ? g->row * 0.24 * chunk / (g->nchunk - 1) : 0;
}

static void draw_strips(const Page *g, const Panel *n, double top) {
  svg_emit(g->out, "<path class=\"chunk\" d=\"");
  for (uint32_t r = 0; r < g->p->nrank; r++)
    for (uint32_t i = 0; i < g->p->rank[r].ninstr; i++) {
      const PipeInstr *in = &g->p->rank[r].instr[i];
      const PipeStage *s = stage_of(g->p, in);
      if (!computes(in) || in->mb == PIPE_NONE || !s || s->chunk == 0)
        continue;
      double x = x_at(g, n, n->track->start[r][i]), h = svg_strip(g, s->chunk);
      double w = x_at(g, n, n->track->end[r][i]) - x;
      if (w >= 1.5)
        path_rect(g, x, row_y(g, top, r) + g->row - h, inset(w), h);
    }
  svg_emit(g->out, "\"/>\n");
}

/* Draws the labels of the kinds of which at least half the ops have room for one. */
static void draw_labels(const Page *g, const Panel *n, double top) {
  for (uint8_t op = 0; op < PIPE_NOPS; op++) {
    if (n->fits[op] * 2 < n->count[op] || n->fits[op] == 0)
      continue;
    svg_emit(g->out, "<g class=\"mb\" fill=\"$\">\n", svg_look[op].ink);
    for (uint32_t r = 0; r < g->p->nrank; r++) {
      double y = row_y(g, top, r) + (g->row - (g->nchunk > 1 ? g->row * 0.14 : 0)) / 2 +
                 0.36 * g->label;
      for (uint32_t i = 0; i < g->p->rank[r].ninstr; i++) {
        const PipeInstr *in = &g->p->rank[r].instr[i];
        double x = x_at(g, n, n->track->start[r][i]), w = x_at(g, n, n->track->end[r][i]) - x;
        if (in->op != op || w < label_width(g, in->mb))
          continue;
        if (in->mb == PIPE_NONE)
          svg_emit(g->out, "<text x=\"~\" y=\"~\">$</text>\n", x + inset(w) / 2, y,
                   op == PIPE_SIDE ? "S" : pipe_op_info[op].text);
        else if (g->p->slices > 1 && op != PIPE_U)
          svg_emit(g->out, "<text x=\"~\" y=\"~\">#.#</text>\n", x + inset(w) / 2, y,
                   (unsigned)(in->mb / g->p->slices), (unsigned)(in->mb % g->p->slices));
        else
          svg_emit(g->out, "<text x=\"~\" y=\"~\">#</text>\n", x + inset(w) / 2, y,
                   (unsigned)(in->mb / pipe_slices(g->p)));
      }
    }
    svg_emit(g->out, "</g>\n");
  }
}

/* Draws the two staircases between the phases, and the names of the phases over rank 0. */
static void draw_phases(const Page *g, const Panel *n, double top) {
  double at[2] = {g->left, g->left};
  for (int k = 0; k < 2; k++) {
    svg_emit(g->out, "<path class=\"phase\" d=\"");
    double before = 0;
    for (uint32_t r = 0; r < g->p->nrank; r++) {
      uint64_t t[2] = {n->begin, n->begin};
      phase_bounds(g->p, n->track, r, t);
      double x = x_at(g, n, t[k]) - 0.35, y = row_y(g, top, r);
      if (r == 0) {
        at[k] = x;
        svg_emit(g->out, "M~ ~", x, y - 9);
      } else if (fabs(x - before) > 0.01) {
        svg_emit(g->out, "V~H~", y - g->gap / 2, x);
      }
      before = x;
      if (r + 1 == g->p->nrank)
        svg_emit(g->out, "V~", y + g->row + 2);
    }
    svg_emit(g->out, "\"/>\n");
  }
  const double edge[4] = {g->left, at[0], at[1], g->left + span_of(n) * g->px};
  for (int k = 0; k < PIPE_NPHASES; k++)
    if (edge[k + 1] - edge[k] >= 5.4 * (double)strlen(pipe_phase_name[k]))
      svg_emit(g->out, "<text class=\"name\" x=\"~\" y=\"~\">$</text>\n",
               (edge[k] + edge[k + 1]) / 2, top - 5, pipe_phase_name[k]);
}

static void draw_over(const Page *g, const Panel *n, double top) {
  for (uint32_t r = 0; r < g->p->nrank; r++) {
    const PipeRank *k = &g->p->rank[r];
    if (g->over < k->instr || g->over >= k->instr + k->ninstr)
      continue;
    uint32_t i = (uint32_t)(g->over - k->instr);
    double x = x_at(g, n, n->track->start[r][i]), y = row_y(g, top, r);
    double w = fmax(x_at(g, n, n->track->end[r][i]) - x, 2);
    svg_emit(g->out, "<path class=\"over\" d=\"M~ ~h~v~h-~z\"/>\n", x, y, inset(w), g->row,
             inset(w));
    svg_emit(g->out, "<path class=\"over\" d=\"M~ ~v~\"/>\n", x, y + g->row,
             pitch(g) - g->row - g->gap);
  }
}

/* ---- around the rows ---- */

static void draw_rank_names(const Page *g, double top) {
  double size = fmin(11, g->row + g->gap - 2.5);
  uint32_t every = 1;
  while (size < 6 && pitch(g) * every < 9)
    every++;
  size = fmax(size, 6);
  for (uint32_t r = 0; r < g->p->nrank; r += every) {
    double y = row_y(g, top, r) + g->row / 2;
    uint32_t n = 0;
    for (uint32_t s = 0; s < g->p->nstage; s++)
      n += g->p->stage[s].rank == r;
    bool stages = n > 1 && n <= MAX_NAMED && g->row >= 21; /* a second line names its stages */
    svg_emit(g->out, "<text class=\"rank\" font-size=\"~\" x=\"~\" y=\"~\">rank #</text>\n", size,
             g->left - 9, y + (stages ? -1.5 : 0.36 * size), (unsigned)r);
    if (!stages)
      continue;
    svg_emit(g->out, "<text class=\"rank soft\" font-size=\"8\" x=\"~\" y=\"~\">stages",
             g->left - 9, y + 9);
    for (uint32_t s = 0; s < g->p->nstage; s++)
      if (g->p->stage[s].rank == r)
        svg_emit(g->out, " #", (unsigned)s);
    svg_emit(g->out, "</text>\n");
  }
}

/* Draws the numbers beside the rows; beside the last panel also the proved numbers of each rank. */
static void draw_columns(const Page *g, const Panel *n, double top, double head, bool proved) {
  double size = fmin(10.5, g->row + g->gap - 2.5), x = g->left + g->width + COLUMN - 12;
  int ncol = proved ? 2 + g->sized : 1;
  uint64_t most = 0;
  for (uint32_t r = 0; r < g->p->nrank; r++)
    most = g->p->rank[r].bytes > most ? g->p->rank[r].bytes : most;
  const SvgUnit *unit = svg_byte_unit((double)most);
  const char *const name[3] = {"idle, %", "in flight", "memory, "};
  for (int c = 0; c < ncol; c++)
    svg_emit(g->out, "<text class=\"col soft\" font-size=\"9.5\" x=\"~\" y=\"~\">$$</text>\n",
             x + c * COLUMN, head, name[c], c == 2 ? unit->name : "");
  if (size < 5)
    return;
  for (uint32_t r = 0; r < g->p->nrank; r++) {
    double busy = 0, len = (double)(n->end - n->begin), y = row_y(g, top, r) + g->row / 2;
    for (uint32_t i = 0; i < g->p->rank[r].ninstr; i++)
      if (computes(&g->p->rank[r].instr[i]))
        busy += (double)(n->track->end[r][i] - n->track->start[r][i]);
    const double value[3] = {len > 0 ? 100 * (1 - busy / len) : 0, g->p->rank[r].inflight,
                             (double)g->p->rank[r].bytes / unit->per};
    const int decimals[3] = {1, 0, unit->per == 1 ? 0 : 2};
    for (int c = 0; c < ncol; c++) {
      char num[SVG_NUMBER];
      svg_emit(g->out, "<text class=\"col\" font-size=\"~\" x=\"~\" y=\"~\">$</text>\n", size,
               x + c * COLUMN, y + 0.36 * size, svg_fixed(num, value[c], decimals[c], false));
    }
  }
}

/* Draws an axis from 0 to the right end of the rows, with ticks at 1, 2 or 5 times a power of
 * ten. */
static void draw_axis(const Page *g, const Panel *n, double y) {
  double extent = g->width / g->px / n->track->scale; /* in the track's unit */
  const SvgUnit *u = svg_time_unit(extent, n->track->timed);
  double px = g->px * n->track->scale * u->per; /* px of one axis unit */
  double step = 1;                              /* in axis units */
  int decimals = 0;
  for (; u->per > 1 && step * px > 600; decimals++)
    step /= 10;
  for (int k = 0; step * px < 60; k++)
    step *= k % 3 == 1 ? 2.5 : 2;
  decimals = step >= 1 ? 0 : decimals;
  svg_emit(g->out, "<path class=\"axis\" d=\"M~ ~h~", g->left, y, g->width);
  long long nstep = (long long)floor(extent / u->per / step + 1e-9);
  for (long long i = 0; i <= nstep; i++)
    svg_emit(g->out, "M~ ~v4", g->left + (double)i * step * px, y);
  svg_emit(g->out, "\"/>\n<g class=\"tick\">\n");
  for (long long i = 0; i <= nstep; i++) {
    char num[SVG_NUMBER];
    svg_emit(g->out, "<text x=\"~\" y=\"~\">$</text>\n", g->left + (double)i * step * px, y + 14.5,
             svg_fixed(num, (double)i * step, decimals, false));
  }
  svg_emit(g->out, "</g>\n<text class=\"soft\" font-size=\"10\" x=\"~\" y=\"~\">$</text>\n",
           g->left + g->width + 12, y + 14.5, u->name);
}

/* The height above the rows, for the heading and the names of the phases. */
static double head_height(const Page *g, const Panel *n) {
  return (g->figure <= 0 ? 22 : g->npanel > 1 ? 13 : 0) + (n->phases ? 15 : 4);
}

static double panel_height(const Page *g, const Panel *n) {
  return head_height(g, n) + rows_height(g) + 6 + 20;
}

static void draw_panel(const Page *g, const Panel *n, double y, bool proved) {
  double head = y + 12, top = y + head_height(g, n), len = (double)(n->end - n->begin);
  char time[SVG_NUMBER], bubble[SVG_NUMBER];
  if (g->figure <= 0)
    svg_emit(g->out,
             "<text class=\"panel\" x=\"~\" y=\"~\">$<tspan class=\"fact\" dx=\"10\">makespan $"
             " \302\267 bubble $</tspan></text>\n",
             g->left, head, n->track->title, svg_time(time, len, n->track->timed),
             svg_percent(bubble, len > 0 ? 1 - n->busy / (len * g->p->nrank) : 0));
  else if (g->npanel > 1)
    svg_emit(g->out, "<text class=\"key\" font-weight=\"bold\" x=\"~\" y=\"~\">$</text>\n", g->left,
             head, n->track->title);
  draw_rank_names(g, top);
  if (g->figure <= 0)
    draw_columns(g, n, top, head, proved);
  draw_idle(g, n, top);
  SvgCurve c = {g->out,
                g->p,
                n->track,
                n->begin,
                n->end,
                g->left,
                n->track->scale * g->px,
                top + g->row + g->lane + 3,
                pitch(g),
                g->curve - 3,
                g->sized ? g->limit : 0};
  if (g->curve > 0)
    svg_curves(&c);
  c.top = top + g->row + 1;
  c.height = g->lane - 1;
  if (g->lane > 0)
    svg_lanes(&c);
  if (g->arrows)
    draw_transfers(g, n, top);
  for (uint32_t r = 0; r < g->p->nrank; r++) {
    double ry = row_y(g, top, r);
    if (n->dense)
      draw_dense(g, n, r, ry);
    else if (g->rects)
      draw_rects(g, n, r, ry);
    else
      draw_paths(g, n, r, ry);
  }
  if (g->nchunk > 1 && !n->dense)
    draw_strips(g, n, top);
  svg_actions(&c, top);
  if (n->phases)
    draw_phases(g, n, top);
  draw_labels(g, n, top);
  if (g->over)
    draw_over(g, n, top);
  draw_axis(g, n, top + rows_height(g) + 6);
}

/* Sets the sizes that depend on the program and on the length of the panels. */
static void lay_out(Page *g, Panel *n, int npanel) {
  const PipeProgram *p = g->p;
  double extent = 0, busy = 0, nop = 0, arrows = 0;
  for (int i = 0; i < npanel; i++) {
    extent = fmax(extent, span_of(&n[i]));
    busy += n[i].busy * n[i].track->scale;
    nop += (double)n[i].nop;
    for (int op = 0; op < PIPE_NOPS; op++)
      g->used[op] |= n[i].count[op] > 0;
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (in->op >= PIPE_NOPS || (pipe_stream_of(in->op) != PIPE_COPY && in->op != PIPE_SIDE_COMM))
        continue;
      g->used[in->op] = true;
      g->lane = 5;
    }
  for (uint32_t s = 0; s < p->nstage; s++) {
    g->nchunk = p->stage[s].chunk + 1 > g->nchunk ? p->stage[s].chunk + 1 : g->nchunk;
    const PipeStage *st = &p->stage[s];
    arrows += st->next == PIPE_MANY ? st->nout
                                    : st->next < p->nstage && p->stage[st->next].rank != st->rank;
  }
  extent = extent > 0 ? extent : 1;
  double mean = nop > 0 && busy > 0 ? busy / nop : extent;
  int digits = 1; /* digits of the last stage's number */
  for (uint32_t k = p->nstage ? p->nstage - 1 : 0; k >= 10; k /= 10)
    digits++;
  g->margin = g->figure > 0 ? 3 : 24;
  g->left = g->margin + (g->figure > 0 ? 44 : 50);
  if (g->nchunk > 1 && g->nchunk <= MAX_NAMED) /* room for "stages 7 15 23 31", 8 px high */
    g->left = fmax(g->left, g->margin + 9 + 4.3 * (6 + g->nchunk * (digits + 1.0)));
  g->sized = p->sized != 0;
  g->beside = g->figure > 0 ? 40 : COLUMN * (2 + g->sized) - 12;
  g->width = g->figure > 0 ? g->figure / g->scale - g->left - g->beside - g->margin
                           : fmin(fmax(20 * extent / mean, 760), 1520);
  g->px = g->width / extent;
  g->column = fmin(fmax(ceil(6 * mean * g->px), 1), 6);
  g->rects = nop <= MAX_RECTS;
  bool room = g->width * fmax(1, p->nrank - 1) >= ARROW_PX * arrows * 2 * p->nmb;
  g->arrows = p->nrank > 1 && arrows > 0 && (g->wanted == 0 ? room : g->wanted == 1);
  g->row = p->nrank <= 4    ? 28
           : p->nrank <= 8  ? 26
           : p->nrank <= 16 ? 22
           : p->nrank <= 32 ? 17
                            : fmax(1, fmin(13, 832.0 / p->nrank));
  if (g->curve > 0)
    g->curve = g->row < 17 ? 0 : g->row;
  g->lane = g->row < 13 ? 0 : g->lane;
  g->gap = g->arrows ? 10 : g->row >= 13 ? 3 : g->row * 0.2;
  double letters = svg_letters(p, p->nmb ? p->nmb - 1 : 0);
  g->label = fmax(6, fmin(fmin(10.5, g->row * 0.45), (mean * g->px - 2) / (letters * 0.58)));
  for (int k = 0; k < npanel; k++) {
    n[k].dense = mean * g->px < DENSE_PX;
    n[k].phases = has_phases(p, n[k].track);
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *in = &p->rank[r].instr[i];
        double w = (double)(n[k].track->end[r][i] - n[k].track->start[r][i]) * n[k].track->scale;
        if (computes(in) && g->row >= 8)
          n[k].fits[in->op] += w * g->px >= label_width(g, in->mb);
      }
  }
}

void svg_draw(FILE *out, const PipeProgram *p, const SvgTrack *track, int ntrack,
              const SvgOptions *o) {
  Page g = {.out = out,
            .p = p,
            .npanel = ntrack,
            .curve = o->memory,
            .limit = o->limit_bytes,
            .wanted = o->arrows,
            .figure = o->figure,
            .scale = o->figure > 0 ? (o->figure_pt > 0 ? o->figure_pt : FIGURE_PT) / TEXT_PT : 1,
            .over = o->over,
            .said = o->said};
  Arena own = {0};
  Panel *n = NEW_ARRAY(&own, Panel, (size_t)ntrack);
  bool phases = false, dense = false;
  for (int i = 0; i < ntrack; i++)
    n[i] = measure(p, &track[i]);
  lay_out(&g, n, ntrack);
  bool figure = g.figure > 0;
  double y = figure ? g.margin : g.margin + 14, height = figure ? y : y + 22;
  double apart = figure ? 6 : 22; /* space between panels */
  for (int i = 0; i < ntrack; i++) {
    height += panel_height(&g, &n[i]) + apart;
    phases |= n[i].phases;
    dense |= n[i].dense;
  }
  double legend = 16.0 * svg_legend(&g, 0, phases, dense);
  height += legend + g.margin;
  if (!figure)
    height += 16 + 14.0 * (svg_caption(&g, n, ntrack, 0) - 1);
  double width = g.left + g.width + g.beside + g.margin, px = g.scale;

  svg_emit(out,
           "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"~\" height=\"~\" "
           "viewBox=\"0 0 ~ ~\">\n<title>$ $</title>\n",
           width * px, height * px, width, height, p->name, p->params);
  svg_style(&g);
  uint32_t nmb = p->nmb / pipe_slices(p);
  svg_emit(out, "<rect width=\"~\" height=\"~\" fill=\"white\"/>\n", width, height);
  if (!figure)
    svg_emit(out,
             "<text class=\"title\" x=\"~\" y=\"~\">$<tspan class=\"fact\" dx=\"10\">$ \302\267 "
             "# rank$, # stage$, # microbatch$$</tspan></text>\n",
             g.left, y, p->name, p->params, (unsigned)p->nrank, p->nrank == 1 ? "" : "s",
             (unsigned)p->nmodel, p->nmodel == 1 ? "" : "s", (unsigned)nmb, nmb == 1 ? "" : "es",
             p->slices > 1 ? " in slices" : "");
  y += figure ? 0 : 22;
  for (int i = 0; i < ntrack; i++) {
    draw_panel(&g, &n[i], y, i == ntrack - 1);
    y += panel_height(&g, &n[i]) + apart;
  }
  svg_legend(&g, y + 12, phases, dense);
  if (!figure)
    svg_caption(&g, n, ntrack, y + 16 + legend);
  svg_emit(out, "</svg>\n");
  arena_free(&own);
}
