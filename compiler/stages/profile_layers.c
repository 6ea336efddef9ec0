/* SPDX-License-Identifier: MIT
 * Reads profiles of layers as planners write them (lang/spec.md 6) and cuts the layers into stages.
 * The file has a line for each layer and a line for each edge between two layers, in any order:
 *
 *   node4 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=2.25,
 *   activation_size=64.0, parameter_size=16.0
 *       node4 -- node5
 *
 * A layer is one line. Times are in ms, sizes in bytes. activation_size of several outputs is
 * [64.0; 8.0]. After the sizes there may be ` -- stage_id=2`.
 *
 * The layers get an order that respects the edges, ties by number, and are cut into as many runs as
 * the schedule has stages: by stage_id if every layer has one, otherwise so that the slowest run
 * takes the least time, with runs filled from the first on. Inputs, and parts of outputs that
 * nobody reads, are left out, as planners do. A stage takes the sum of the times of its layers; act
 * is all that they make, boundary all that later stages read of it and of earlier stages, weight
 * and grad the parameters.
 *
 * Cost: linear, times at most 64 steps of a binary search for the time of the slowest stage. */
#include <string.h>

#include "profile_layers.h"
#include "stages.h"

typedef struct Layer {
  uint32_t number, line; /* line: offset of its text */
  uint64_t forward, backward, out, weight;
  uint32_t stage; /* stage_id, or the run that it is put into; NONE */
  uint32_t nin, nout, first_out;
  uint32_t last_use; /* latest stage that reads it */
  bool input, part, gone;
} Layer;

typedef struct Edge {
  uint32_t from, to, at; /* rows of layer; offset of its line */
} Edge;

typedef struct Layers {
  Sched *s;
  uint32_t file;
  const char *text;
  VEC(Layer) layer;
  VEC(Edge) edge;
  uint32_t *sorted, n; /* rows, in order, those that are gone left out */
  uint32_t *out;       /* [nedge] by `from`: rows of edge */
} Layers;

static bool bad(Layers *l, const char *p, const char *end, const char *what) {
  Span at = {l->file, (uint32_t)(p - l->text), (uint32_t)(end - l->text)};
  diag_error(l->s->diag, DIAG_PROFILE, at, "%s", what);
  return false;
}

/* A decimal, times 10^digits, rounded: "2.513" and 6 is 2513000. */
static bool decimal(const char **p, const char *end, int digits, uint64_t *value) {
  const char *q = *p;
  uint64_t v = 0;
  bool any = false, point = false, up = false, cut = false;
  int after = 0;
  for (; q < end && ((*q >= '0' && *q <= '9') || (*q == '.' && !point)); q++) {
    if (*q == '.') {
      point = true;
      continue;
    }
    any = true;
    if (point && after == digits) {
      up |= !cut && *q >= '5';
      cut = true;
      continue;
    }
    if (v > (UINT64_MAX >> 8) / 10)
      return false;
    v = 10 * v + (uint64_t)(*q - '0');
    after += point;
  }
  for (; after < digits; after++) {
    if (v > (UINT64_MAX >> 8) / 10)
      return false;
    v *= 10;
  }
  *p = q, *value = v + up;
  return any;
}

static bool skip(const char **p, const char *end, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(end - *p) < n || memcmp(*p, word, n) != 0)
    return false;
  *p += n;
  return true;
}

static bool node(const char **p, const char *end, uint32_t *number) {
  uint64_t v;
  if (!skip(p, end, "node") || *p == end || **p == '.' || !decimal(p, end, 0, &v) || v >= NONE)
    return false;
  *number = (uint32_t)v;
  return true;
}

/* "64.0", or the sum of "[64.0; 8.0]". */
static bool sizes(const char **p, const char *end, uint64_t *value) {
  if (!skip(p, end, "["))
    return decimal(p, end, 0, value);
  *value = 0;
  for (uint64_t v; decimal(p, end, 0, &v);) {
    *value += v;
    if (skip(p, end, "]"))
      return true;
    if (!skip(p, end, "; "))
      return false;
  }
  return false;
}

static bool layer_line(Layers *l, const char *line, const char *name, const char *end,
                       uint32_t number) {
  Layer y = {.number = number, .line = (uint32_t)(line - l->text), .stage = NONE};
  static const char last[] = " -- forward_compute_time=";
  const char *p = name;
  while (p < end && !skip(&p, end, last))
    p++;
  if (p == end)
    return bad(l, line, end, "a layer has ' -- forward_compute_time=MS' after its name");
  y.input = strncmp(name, "Input", 5) == 0;
  y.part = strncmp(name, "__getitem__", 11) == 0;
  const char *at = p;
  bool ok = decimal(&p, end, 6, &y.forward) && skip(&p, end, ", backward_compute_time=") &&
            decimal(&p, end, 6, &y.backward) && skip(&p, end, ", activation_size=") &&
            sizes(&p, end, &y.out) && skip(&p, end, ", parameter_size=") &&
            decimal(&p, end, 0, &y.weight);
  uint64_t stage = NONE;
  if (ok && p < end)
    ok = skip(&p, end, " -- stage_id=") && decimal(&p, end, 0, &stage) && stage < NONE && p == end;
  if (!ok)
    return bad(l, at > p ? at : p, end > p ? end : p + 1,
               "a layer goes on 'forward_compute_time=MS, backward_compute_time=MS, "
               "activation_size=BYTES, parameter_size=BYTES'");
  y.stage = (uint32_t)stage;
  *vec_push(l->s->arena, &l->layer) = y;
  return true;
}

static int by_number(const void *a, const void *b) {
  uint32_t x = ((const Layer *)a)->number, y = ((const Layer *)b)->number;
  return x < y ? -1 : x > y;
}

/* Row of the layer of that number, or NONE. */
static uint32_t find(const Layers *l, uint32_t number) {
  Layer key = {.number = number};
  const Layer *at = bsearch(&key, l->layer.at, l->layer.n, sizeof key, by_number);
  return at ? (uint32_t)(at - l->layer.at) : NONE;
}

/* Where the line that begins at `at` ends, without blanks. */
static const char *line_end(const Layers *l, uint32_t at, uint32_t len) {
  const char *p = l->text + at, *nl = memchr(p, '\n', len - at), *end = nl ? nl : l->text + len;
  while (end > p && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
    end--;
  return end;
}

static bool read_lines(Layers *l, uint32_t len) {
  for (int edges = 0; edges < 2; edges++) { /* edges name layers of any line */
    for (uint32_t at = 0; at < len;) {
      const char *end = line_end(l, at, len), *p = l->text + at, *nl = memchr(p, '\n', len - at);
      uint32_t next = nl ? (uint32_t)(nl + 1 - l->text) : len, a, b;
      while (p < end && (*p == ' ' || *p == '\t'))
        p++;
      at = next;
      if (p == end)
        continue;
      const char *line = p, *name;
      if (!node(&p, end, &a) || !skip(&p, end, " -- "))
        return bad(l, line, end, "a line is 'node1 -- NAME -- ...' or 'node1 -- node2'");
      name = p;
      bool is_edge = node(&p, end, &b) && p == end;
      if (is_edge && edges) {
        uint32_t from = find(l, a), to = find(l, b);
        if (from == NONE || to == NONE)
          return bad(l, line, end,
                     arena_printf(l->s->arena, "there is no layer node%u", from == NONE ? a : b));
        *vec_push(l->s->arena, &l->edge) = (Edge){from, to, (uint32_t)(line - l->text)};
      } else if (!is_edge && !edges && !layer_line(l, line, name, end, a)) {
        return false;
      }
    }
    if (edges)
      break;
    qsort(l->layer.at, l->layer.n, sizeof *l->layer.at, by_number);
    for (uint32_t i = 1; i < l->layer.n; i++)
      if (l->layer.at[i].number == l->layer.at[i - 1].number) {
        uint32_t at = l->layer.at[i].line > l->layer.at[i - 1].line ? l->layer.at[i].line
                                                                    : l->layer.at[i - 1].line;
        return bad(l, l->text + at, line_end(l, at, len), "this layer is there twice");
      }
  }
  return true;
}

/* A heap of rows, the lowest at 1. */
static void heap_push(uint32_t *heap, uint32_t *n, uint32_t row) {
  uint32_t k = ++*n;
  for (; k > 1 && heap[k / 2] > row; k /= 2)
    heap[k] = heap[k / 2];
  heap[k] = row;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *n) {
  uint32_t row = heap[1], last = heap[(*n)--], k = 1;
  for (uint32_t c; (c = 2 * k) <= *n; k = c) {
    c += c < *n && heap[c + 1] < heap[c];
    if (heap[c] >= last)
      break;
    heap[k] = heap[c];
  }
  heap[k] = last;
  return row;
}

/* Rows in an order that respects the edges: of those that are ready, the lowest number first. */
static bool sort_layers(Layers *l) {
  Arena *a = l->s->arena;
  uint32_t n = l->layer.n, nedge = l->edge.n;
  Layer *y = l->layer.at;
  l->out = NEW_ARRAY(a, uint32_t, nedge);
  for (uint32_t i = 0; i < nedge; i++)
    y[l->edge.at[i].from].nout++, y[l->edge.at[i].to].nin++;
  for (uint32_t i = 0, at = 0; i < n; at += y[i++].nout) {
    y[i].first_out = at;
    y[i].gone = y[i].input || (y[i].part && y[i].nout == 0);
  }
  uint32_t *fill = NEW_ARRAY(a, uint32_t, n), *heap = NEW_ARRAY(a, uint32_t, (size_t)n + 1),
           nheap = 0;
  for (uint32_t i = 0; i < nedge; i++) {
    uint32_t from = l->edge.at[i].from;
    l->out[y[from].first_out + fill[from]++] = i;
  }
  uint32_t *left = NEW_ARRAY(a, uint32_t, n), done = 0;
  l->sorted = NEW_ARRAY(a, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    left[i] = y[i].nin;
    if (left[i] == 0)
      heap_push(heap, &nheap, i);
  }
  while (nheap > 0) {
    uint32_t row = heap_pop(heap, &nheap);
    done++;
    if (!y[row].gone)
      l->sorted[l->n++] = row;
    for (uint32_t j = 0; j < y[row].nout; j++) {
      uint32_t to = l->edge.at[l->out[y[row].first_out + j]].to;
      if (--left[to] == 0)
        heap_push(heap, &nheap, to);
    }
  }
  if (done == n)
    return true;
  uint32_t row = 0;
  while (left[row] == 0)
    row++;
  return bad(l, l->text + y[row].line, l->text + y[row].line + 4,
             "the edges are a circle through this layer");
}

static uint64_t layer_time(const Layers *l, uint32_t k) {
  const Layer *y = &l->layer.at[l->sorted[k]];
  return y->forward + y->backward;
}

/* Fills runs from the first on, none above `most` and each with a layer; how many are needed. With
 * `set` the layers are given their runs, of which there are `stages`. */
static uint32_t fill_runs(Layers *l, uint64_t most, uint32_t stages, bool set) {
  uint32_t run = 0;
  uint64_t sum = 0;
  for (uint32_t k = 0; k < l->n; k++) {
    uint64_t t = layer_time(l, k);
    bool must = set && l->n - k == stages - 1 - run; /* a layer for each run that is left */
    if (k > 0 && (sum + t > most || must))
      run++, sum = 0;
    sum += t;
    if (set)
      l->layer.at[l->sorted[k]].stage = run;
  }
  return run + 1;
}

static bool cut(Layers *l, Span at, const char *path) {
  Sched *s = l->s;
  uint32_t stages = s->model->nmodel, given = 0;
  uint64_t low = 0, high = 0;
  for (uint32_t k = 0; k < l->n; k++) {
    given += l->layer.at[l->sorted[k]].stage != NONE;
    low = layer_time(l, k) > low ? layer_time(l, k) : low;
    high += layer_time(l, k);
  }
  if (l->n < stages) {
    diag_error(s->diag, DIAG_PROFILE, at,
               "%s: layers in the profile: %u, stages in the schedule: %u", path, l->n, stages);
    return false;
  }
  if (given > 0 && given == l->n) {
    bool *has = NEW_ARRAY(s->arena, bool, stages);
    for (uint32_t k = 0; k < l->n; k++) {
      uint32_t st = l->layer.at[l->sorted[k]].stage;
      if (st >= stages || (k > 0 && st < l->layer.at[l->sorted[k - 1]].stage)) {
        diag_error(s->diag, DIAG_PROFILE, at,
                   st >= stages
                       ? "%s: node%u has stage_id %u, and the schedule has %u stages"
                       : "%s: node%u has stage_id %u, less than a layer before it; %u stages",
                   path, l->layer.at[l->sorted[k]].number, st, stages);
        return false;
      }
      has[st] = true;
    }
    for (uint32_t st = 0; st < stages; st++)
      if (!has[st]) {
        diag_error(s->diag, DIAG_PROFILE, at, "%s: no layer has stage_id %u, of %u stages", path,
                   st, stages);
        return false;
      }
    return true;
  }
  while (low < high) { /* least time of the slowest run */
    uint64_t most = low + (high - low) / 2;
    if (fill_runs(l, most, stages, false) <= stages)
      high = most;
    else
      low = most + 1;
  }
  fill_runs(l, low, stages, true);
  return true;
}

static void set(Sched *s, uint32_t st, CostKey k, uint64_t value, bool *has) {
  uint32_t row = st; /* replicas cost the same */
  do
    *cost_field(&s->model->stage[row], k) = value;
  while ((row = s->model->stage[row].replica) != st);
  has[k] = true;
}

static void set_stages(Layers *l, Model *model, bool *has) {
  Sched *s = l->s;
  Layer *y = l->layer.at;
  uint64_t(*sum)[4] = arena_zalloc(s->arena, s->model->nmodel, sizeof *sum); /* F, B, act, weight */
  uint64_t *cross = NEW_ARRAY(s->arena, uint64_t,
                              (size_t)s->model->nmodel + 1); /* bytes, by differences */
  const char *cuts = "";
  for (uint32_t k = 0; k < l->n; k++) {
    Layer *a = &y[l->sorted[k]];
    uint64_t *t = sum[a->stage];
    t[0] += a->forward, t[1] += a->backward, t[2] += a->out, t[3] += a->weight;
    uint32_t last = a->stage;
    for (uint32_t j = 0; j < a->nout; j++) {
      const Layer *to = &y[l->edge.at[l->out[a->first_out + j]].to];
      last = !to->gone && to->stage > last ? to->stage : last;
    }
    cross[a->stage] += a->out, cross[last] -= a->out; /* it passes the cuts from one to the other */
    if (k > 0 && a->stage != y[l->sorted[k - 1]].stage)
      cuts = arena_printf(s->arena, "%s%snode%u", cuts, *cuts ? ", " : "",
                          y[l->sorted[k - 1]].number);
  }
  uint64_t bytes = 0;
  for (uint32_t st = 0; st < s->model->nmodel; st++) {
    bytes += cross[st];
    set(s, st, KEY_F, sum[st][0], has), set(s, st, KEY_B, sum[st][1], has);
    set(s, st, KEY_ACT, sum[st][2], has), set(s, st, KEY_WEIGHT, sum[st][3], has);
    set(s, st, KEY_BOUNDARY, bytes, has);
  }
  model->timed = true;
  model->layers = arena_printf(s->arena, "%u in %u stages%s%s", l->n, s->model->nmodel,
                               *cuts ? ", cut after " : "", cuts);
}

bool is_layer_profile(const char *text, uint32_t len) {
  uint32_t at = 0;
  while (at < len && strchr(" \t\r\n", text[at]) && text[at])
    at++;
  return len - at > 4 && memcmp(text + at, "node", 4) == 0;
}

bool apply_layer_profile(Sched *s, Model *model, Span at, const char *path, uint32_t file,
                         bool *has) {
  Layers l = {.s = s, .file = file, .text = s->diag->source[file].text};
  if (!read_lines(&l, s->diag->source[file].len) || !sort_layers(&l) || !cut(&l, at, path))
    return false;
  set_stages(&l, model, has);
  return true;
}
