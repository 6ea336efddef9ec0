/* SPDX-License-Identifier: MIT
 * Draws memory curves (svg_curve.h). The changes of a rank are lists that ascend in time, because
 * the ops of a stream run one after another: for each stream, what ops take at their start, and
 * what they give back at their end. One merge of the lists gives the steps. Cost: linear in
 * instructions.
 *
 * The constant part is the proved bytes of the rank less its ACT, GOUT and KEEP pools and its
 * buffers. So the curve never passes the proved line, and touches it when all of these are full at
 * once. */
#include "svg_curve.h"

#include <stdbool.h>

#include "svg_text.h"

static uint64_t round64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* The bytes of a slot on the rank that holds `stage`; PIPE_NONE: 0. */
static uint64_t buffer(const PipeProgram *p, uint32_t stage, uint32_t slot) {
  const PipeRank *k = &p->rank[p->stage[stage].rank];
  for (uint32_t i = 0; slot != PIPE_NONE && i < k->npool; i++)
    if (slot - k->pool[i].first < k->pool[i].count)
      return round64(k->pool[i].bytes);
  return 0;
}

/* Finds how many stashes end with each F of the rank: those of its microbatch that nothing reads
 * after the last slice. mbs: [model stage][microbatch] scratch, all zero. */
static void find_ends(const PipeProgram *p, uint32_t r, uint32_t *mbs, uint32_t *ends) {
  const PipeRank *k = &p->rank[r];
  uint32_t slices = pipe_slices(p);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    ends[i] = 0;
    if (in->op != PIPE_F)
      continue;
    uint32_t *n = &mbs[(size_t)p->stage[in->stage].model * (p->nmb / slices) + in->mb / slices];
    *n += p->forward || in->keep != PIPE_NONE;
    if ((in->mb + 1) % slices == 0)
      ends[i] = *n;
  }
}

/* The bytes (without sizes: the stashes) that `in` takes at its start, or gives back at its end. */
static uint64_t amount(const PipeProgram *p, const PipeInstr *in, bool taken, uint32_t ends) {
  if (pipe_is_side(in->op))
    return p->sized ? buffer(p, in->stage, taken ? in->taken : in->given) : 0;
  const PipeOpInfo *k = &pipe_op_info[in->op];
  const PipeStage *s = &p->stage[in->stage];
  int sign = taken ? 1 : -1;
  uint64_t n = 0;
  if (k->act == sign && in->act != PIPE_NONE)
    n += p->sized ? round64(s->act_bytes) : 1;
  if (!taken)
    n += (p->sized ? round64(s->act_bytes) : 1) * ends;
  bool kept = in->op == PIPE_F || in->op == PIPE_R;
  if (p->sized && kept && taken == (in->op == PIPE_F))
    n += buffer(p, in->stage, in->keep);
  if (k->gout == sign && in->gout != PIPE_NONE && p->sized)
    n += round64(s->gout_bytes);
  return n;
}

static uint64_t always(const PipeProgram *p, uint32_t r) {
  uint64_t n = p->rank[r].bytes;
  for (uint32_t i = 0; i < p->rank[r].npool; i++) {
    const PipePool *q = &p->rank[r].pool[i];
    if (q->cls == PIPE_ACT || q->cls == PIPE_GOUT || q->cls == PIPE_KEEP || q->cls == PIPE_BUFFER)
      n -= q->count * round64(q->bytes);
  }
  return p->sized ? n : 0;
}

/* Finds the next op of a stream of rank r, from *i on, that takes or gives back anything. Returns
 * its start or end; UINT64_MAX: none. */
static uint64_t next_change(const SvgCurve *c, const uint32_t *ends, uint32_t r, uint32_t *i,
                            uint8_t stream, bool taken) {
  const PipeRank *k = &c->p->rank[r];
  while (*i < k->ninstr && (pipe_stream_of(k->instr[*i].op) != stream ||
                            amount(c->p, &k->instr[*i], taken, ends[*i]) == 0))
    ++*i;
  if (*i == k->ninstr)
    return UINT64_MAX;
  return taken ? c->track->start[r][*i] : c->track->end[r][*i];
}

typedef struct Step {
  double x;
  uint64_t level; /* bytes or stashes from x on */
} Step;

#define DOT 0.5 /* px */

/* Fills step[], at most 2 per op and one, and returns their number. Changes within a dot are one
 * step up to their highest level, and one step down to their last level if it is lower. */
static size_t steps_of(const SvgCurve *c, const uint32_t *ends, uint32_t r, Step *step) {
  size_t n = 0;
  enum { NS = PIPE_NSTREAMS };
  /* lists of ends come first: an end and a start at one time make no peak */
  uint32_t at[2 * NS] = {0};
  uint64_t level = 0;
  step[n++] = (Step){c->left, 0};
  for (;;) {
    uint64_t t = UINT64_MAX;
    int which = 0;
    for (int i = 0; i < 2 * NS; i++) {
      uint64_t next = next_change(c, ends, r, &at[i], (uint8_t)(i % NS), i >= NS);
      if (next < t)
        t = next, which = i;
    }
    double x = c->left + (double)(t > c->begin ? t - c->begin : 0) * c->px;
    Step *last = &step[n - 1];
    bool done = t == UINT64_MAX, apart = done || x >= last->x + DOT;
    if (apart && last->level != level)
      step[n++] = (Step){last->x + DOT, level};
    if (done)
      return n;
    uint32_t i = at[which]++;
    uint64_t change = amount(c->p, &c->p->rank[r].instr[i], which >= NS, ends[i]);
    level += which >= NS ? change : -change;
    if (apart)
      step[n++] = (Step){x, level};
    else if (level > last->level)
      last->level = level;
  }
}

void svg_lanes(const SvgCurve *c) {
  for (uint8_t op = 0; op < PIPE_NOPS; op++) {
    bool below = op == PIPE_SIDE_COMM; /* COMM may run beside COPY */
    if (pipe_stream_of(op) != PIPE_COPY && !below)
      continue;
    svg_emit(c->out, "<path class=\"$\" d=\"", pipe_op_info[op].text);
    for (uint32_t r = 0; r < c->p->nrank; r++)
      for (uint32_t i = 0; i < c->p->rank[r].ninstr; i++) {
        if (c->p->rank[r].instr[i].op != op)
          continue;
        uint64_t a = c->track->start[r][i], b = c->track->end[r][i];
        double x = c->left + (double)(a > c->begin ? a - c->begin : 0) * c->px,
               w = (double)(b > a ? b - a : 0) * c->px;
        w = w > 0.8 ? w - 0.3 : 0.5;
        double h = below ? c->height / 2 : c->height;
        svg_emit(c->out, "M~ ~h~v~h-~z", x, c->top + r * c->pitch + c->height - h, w, h, w);
      }
    svg_emit(c->out, "\"/>\n");
  }
}

void svg_curves(const SvgCurve *c) {
  const PipeProgram *p = c->p;
  uint64_t most = c->limit;
  uint32_t longest = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t n = p->sized ? p->rank[r].bytes : p->rank[r].inflight;
    most = n > most ? n : most;
    longest = p->rank[r].ninstr > longest ? p->rank[r].ninstr : longest;
  }
  Arena own = {0};
  Step *step = arena_alloc(&own, (2 * (size_t)longest + 2) * sizeof *step);
  uint32_t *ends = arena_alloc(&own, longest * sizeof *ends),
           *mbs = NEW_ARRAY(&own, uint32_t, (size_t)p->nmodel * p->nmb);
  double right = c->left + (double)(c->end - c->begin) * c->px;
  double unit = most ? c->height / (1.06 * (double)most) : 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    double foot = c->top + r * c->pitch + c->height, fixed = (double)always(p, r) * unit;
    find_ends(p, r, mbs, ends);
    size_t n = steps_of(c, ends, r, step);
    uint64_t line = c->limit ? c->limit : p->sized ? p->rank[r].bytes : p->rank[r].inflight;
    svg_emit(c->out, "<path class=\"live\" d=\"M~ ~", c->left, foot - fixed);
    for (size_t i = 0; i < n; i++) {
      double y = foot - fixed - (double)step[i].level * unit;
      svg_emit(c->out, "H~V~", step[i].x, y);
    }
    svg_emit(c->out, "H~V~z\"/>\n", right, foot - fixed);
    if (fixed > 0)
      svg_emit(c->out, "<path class=\"fixed\" d=\"M~ ~h~v~h-~z\"/>\n", c->left, foot - fixed,
               right - c->left, fixed, right - c->left);
    svg_emit(c->out, "<path class=\"foot\" d=\"M~ ~H~\"/><path class=\"limit\" d=\"M~ ~H~\"/>\n",
             c->left, foot, right, c->left, foot - (double)line * unit, right);
    const SvgUnit *u = svg_byte_unit((double)line);
    char num[SVG_NUMBER];
    svg_emit(c->out, "<text class=\"bound\" x=\"~\" y=\"~\">$$$</text>\n", right + 3,
             foot - (double)line * unit + 2.8,
             svg_digits(num, p->sized ? (double)line / u->per : (double)line, 3, true),
             p->sized ? " " : "", p->sized ? u->name : "");
  }
  arena_free(&own);
}
