/* SPDX-License-Identifier: MIT
 * See graph_model.h. */
#include "graph_model.h"

#include <string.h>

static float engine_rate;

static void init_weight(const Meant *g, uint32_t stage, float *w) {
  for (int i = 0; i < NW; i++)
    w[i] = 0.5f * noise(1, i < TIED && g->tie[stage] ? 100 + g->tie[stage] : stage, (uint64_t)i);
}

/* What enters at the k-th input, and leaves at the k-th output. */
static float weight_in(uint32_t k) { return 1.0f - 0.125f * (float)k; }
static float weight_out(uint32_t k) { return 0.75f + 0.25f * (float)k; }

/* The k-th input of those of a stage, or output: that of the chain, then ascending. NULL: no more.
 * */
static const Arc *input_of(const Meant *g, uint32_t stage, uint32_t k) {
  for (int skip = 0; skip < 2; skip++)
    for (uint32_t from = 0; from < g->nstage; from++)
      for (uint32_t i = 0; i < g->narc; i++)
        if (g->arc[i].to == stage && g->arc[i].from == from && g->arc[i].skip == (skip == 1) &&
            k-- == 0)
          return &g->arc[i];
  return NULL;
}
static const Arc *output_of(const Meant *g, uint32_t stage, uint32_t k) {
  for (int skip = 0; skip < 2; skip++)
    for (uint32_t to = 0; to < g->nstage; to++)
      for (uint32_t i = 0; i < g->narc; i++)
        if (g->arc[i].from == stage && g->arc[i].to == to && g->arc[i].skip == (skip == 1) &&
            k-- == 0)
          return &g->arc[i];
  return NULL;
}
static int elements(const Arc *a) { return a->skip ? PART : N; }

static void first_input(uint64_t step, uint32_t stage, uint32_t mb, float *x) {
  for (int i = 0; i < N; i++)
    x[i] = noise(2 + stage, step * 1000003 + mb, (uint64_t)i);
}

static void add_part(float *x, const float *from, int n, float weight) {
  for (int i = 0; i < n; i++)
    x[i] += weight * from[i];
}

/* ---- the definition ---- */

static float added[MOST_STAGES][MOST_ROWS][NW], momentum[MOST_STAGES][NW]; /* gradients, by copy */

/* Copies of a stage are summed in their order, then what is shared, stage by stage; then all are
 * updated. */
static void update_all(const Meant *g, Result *r) {
  static float sum[MOST_STAGES][NW];
  for (uint32_t s = 0; s < g->nstage; s++) {
    uint32_t most = 0;
    for (uint32_t mb = 0; mb < g->nmb; mb++)
      most = g->owner[s][mb] > most ? g->owner[s][mb] : most;
    memcpy(sum[s], added[s][0], sizeof sum[s]);
    for (uint32_t k = 1; k <= most; k++)
      add_part(sum[s], added[s][k], NW, 1);
    memset(added[s], 0, sizeof added[s]);
  }
  for (uint32_t t = 1; t <= g->nstage; t++) {
    float all[TIED];
    bool any = false;
    for (uint32_t s = 0; s < g->nstage; s++)
      for (int i = 0; g->tie[s] == t && i < TIED; i++)
        all[i] = any ? all[i] + sum[s][i] : sum[s][i], any |= i + 1 == TIED;
    for (uint32_t s = 0; s < g->nstage; s++)
      if (g->tie[s] == t)
        memcpy(sum[s], all, sizeof all);
  }
  for (uint32_t s = 0; s < g->nstage; s++)
    update(r->weight[s], r->weight[s], sum[s], momentum[s], RATE);
}

void graph_sequential(const Meant *g, Result *r) {
  static float x[MOST_STAGES][N], h[MOST_STAGES][N], dh[MOST_STAGES][N];
  memset(r, 0, sizeof *r), memset(added, 0, sizeof added), memset(momentum, 0, sizeof momentum);
  for (uint32_t s = 0; s < g->nstage; s++)
    init_weight(g, s, r->weight[s]);
  for (uint64_t step = 0; step < STEPS; step++) {
    double loss[MOST_MBS] = {0};
    uint32_t slices = g->slices ? g->slices : 1;
    for (uint32_t turn = 0; turn < g->nmb; turn++) {
      uint32_t mb = turn - turn % slices + slices - 1 - turn % slices;
      for (uint32_t s = 0; s < g->nstage; s++) {
        memset(x[s], 0, sizeof x[s]), memset(dh[s], 0, sizeof dh[s]);
        if (!input_of(g, s, 0))
          first_input(step, s, mb, x[s]);
        const Arc *a;
        for (uint32_t k = 0; (a = input_of(g, s, k)); k++) {
          uint32_t out = 0;
          float y[N];
          while (output_of(g, a->from, out) != a)
            out++;
          for (int i = 0; i < elements(a); i++)
            y[i] = weight_out(out) * h[a->from][i];
          add_part(x[s], y, elements(a), weight_in(k));
        }
        layer(x[s], r->weight[s], h[s]);
        if (!output_of(g, s, 0))
          loss[mb] += loss_of(h[s], g->nmb, dh[s]);
      }
      if (g->forward)
        continue;
      static float dx[MOST_STAGES][N];
      for (uint32_t s = g->nstage; s-- > 0;) {
        const Arc *a;
        float dz[N];
        for (uint32_t k = 0; (a = output_of(g, s, k)); k++) {
          uint32_t in = 0;
          float dy[N];
          while (input_of(g, a->to, in) != a)
            in++;
          for (int i = 0; i < elements(a); i++)
            dy[i] = weight_in(in) * dx[a->to][i];
          add_part(dh[s], dy, elements(a), weight_out(k));
        }
        layer_input(dh[s], h[s], r->weight[s], dz, dx[s]);
        layer_weight(x[s], dz, added[s][g->owner[s][mb]]);
      }
      if (turn + 1 == g->nmb || (g->every && (turn + 1) % g->every == 0))
        update_all(g, r);
    }
    for (uint32_t mb = 0; mb < g->nmb; mb++)
      r->loss[step][mb / slices] += loss[mb];
  }
}

/* ---- the same through the callbacks of an engine ---- */

int graph_sizes(void *self, uint32_t stage, PrSizes *out) {
  const Meant *g = self;
  bool chain = false, skip = false;
  const Arc *a;
  for (uint32_t k = 0; (a = output_of(g, stage, k)); k++)
    chain |= !a->skip, skip |= a->skip;
  *out = (PrSizes){.act = sizeof(Act),
                   .gout = N * sizeof(float),
                   .boundary = chain ? N * sizeof(float) : 0,
                   .weight = NW * sizeof(float),
                   .grad = NW * sizeof(float),
                   .opt = NW * sizeof(float),
                   .work = N * sizeof(float),
                   .edge = skip ? PART * sizeof(float) : 0,
                   .tied = g->tie[stage] ? TIED * sizeof(float) : 0};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)opt;
  const Meant *g = self;
  init_weight(g, stage, weight);
  for (int i = 0; g->forward && i < NW; i++)
    ((float *)weight)[i] *= engine_rate / RATE;
  return 0;
}

static int forward(void *self, const PrCall *c) {
  const Meant *g = self;
  Act *a = c->act;
  const Arc *arc;
  uint32_t k;
  memset(a->x, 0, sizeof a->x), memset(a->dh, 0, sizeof a->dh);
  if (c->nx == 0)
    first_input(c->step, c->stage, c->mb * c->nslice + c->slice, a->x);
  for (k = 0; (arc = input_of(g, c->stage, k)); k++)
    add_part(a->x, c->xs[k], elements(arc), weight_in(k));
  if (k != c->nx || (k > 0) != (c->x != NULL) || (k > 0 && c->x != c->xs[0]))
    return 1;
  layer(a->x, c->weight, a->h);
  for (k = 0; (arc = output_of(g, c->stage, k)); k++)
    for (int i = 0; i < elements(arc); i++)
      ((float *)c->ys[k])[i] = weight_out(k) * a->h[i];
  if (k != c->ny || (k == 0) != (c->loss != NULL))
    return 2;
  if (c->loss)
    *c->loss = loss_of(a->h, g->nmb, a->dh);
  return 0;
}

static void input_gradient(const Meant *g, const PrCall *c, float *dz) {
  Act *a = c->act;
  const Arc *arc;
  float dx[N];
  for (uint32_t k = 0; (arc = output_of(g, c->stage, k)); k++)
    add_part(a->dh, c->dys[k], elements(arc), weight_out(k));
  layer_input(a->dh, a->h, c->weight, dz, dx);
  for (uint32_t k = 0; (arc = input_of(g, c->stage, k)); k++)
    for (int i = 0; i < elements(arc); i++)
      ((float *)c->dxs[k])[i] = weight_in(k) * dx[i];
}

static int backward_input(void *self, const PrCall *c) {
  input_gradient(self, c, c->gout);
  return 0;
}

static int backward_weight(void *self, const PrCall *c) {
  (void)self;
  layer_weight(((Act *)c->act)->x, c->gout, c->grad);
  return 0;
}

static int backward(void *self, const PrCall *c) {
  input_gradient(self, c, c->work);
  layer_weight(((Act *)c->act)->x, c->work, c->grad);
  return 0;
}

static int apply(void *self, const PrCall *c) {
  (void)self;
  update(c->weight, c->newest, c->grad, c->opt, engine_rate);
  return 0;
}

static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage;
  for (uint32_t k = 1; k < n; k++)
    add_part(grad[0], grad[k], (int)(bytes / sizeof(float)), 1);
  for (uint32_t k = 1; k < n; k++)
    memcpy(grad[k], grad[0], bytes);
  return 0;
}

static int tie(void *self, const uint32_t *stage, void *const *grad, uint32_t n, uint64_t bytes) {
  const Meant *g = self;
  if (bytes > TIED * sizeof(float))
    return 1;
  for (uint32_t k = 0; k < n; k++)
    if (g->tie[stage[k]] != g->tie[stage[0]] || (k > 0 && stage[k] <= stage[k - 1]))
      return 2;
  for (uint32_t k = 1; k < n; k++)
    add_part(grad[0], grad[k], (int)(bytes / sizeof(float)), 1);
  for (uint32_t k = 1; k < n; k++)
    memcpy(grad[k], grad[0], bytes);
  return 0;
}

PrModel graph_model(Meant *g, float rate) {
  engine_rate = rate;
  if (g->forward)
    return (PrModel){
        .self = g, .nstage = g->nstage, .sizes = graph_sizes, .init = init, .forward = forward};
  return (PrModel){.self = g,
                   .nstage = g->nstage,
                   .sizes = graph_sizes,
                   .init = init,
                   .forward = forward,
                   .backward = backward,
                   .backward_input = backward_input,
                   .backward_weight = backward_weight,
                   .update = apply,
                   .reduce = reduce,
                   .tie = tie,
                   .nslice = g->slices};
}
