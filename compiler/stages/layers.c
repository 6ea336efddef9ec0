/* SPDX-License-Identifier: MIT
 * Reads the layers of a model (lang/spec.md 6). The text form, of planners, has a line for each
 * layer and a line for each edge between two layers, in any order:
 *
 *   node4 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=2.25,
 *   activation_size=64.0, parameter_size=16.0
 *       node4 -- node5
 *
 * A layer is one line. Times are in ms, sizes in bytes. activation_size of several outputs is
 * [64.0; 8.0]. After the sizes there may be ` -- stage_id=2`. The JSON form has the costs of a
 * profile of stages, in ns and bytes, and the layers that each layer reads:
 *
 *   {"pipe_profile": 1, "layers": [{"name": "a", "F": 1200, ...}, {"name": "b", "from": ["a"], ...}]}
 *
 * or "model", the shape of a transformer, in place of "layers" (layers_model.c), or "variants", one
 * table for each size of a microbatch and number of ranks that divide a layer:
 *
 *   {"pipe_profile": 1, "variants": [{"microbatch": 4, "width": 2, "layers": [...]}, ...]}
 *
 * The layers get an order that respects the edges, ties by number. Inputs of the text form, and
 * parts of outputs that nobody reads, are left out, as planners do.
 *
 * Cost: linear, but for the names of the JSON form, each of which is compared with all above it. */
#include <string.h>

#include "base.h"
#include "heap.h"
#include "json_text.h"
#include "layers.h"
#include "stages.h"

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
  Layer y = {.name = arena_printf(l->s->arena, "node%u", number),
             .number = number,
             .line = (uint32_t)(line - l->text),
             .stage = NONE};
  static const char last[] = " -- forward_compute_time=";
  const char *p = name;
  while (p < end && !skip(&p, end, last))
    p++;
  if (p == end)
    return bad(l, line, end, "a layer has ' -- forward_compute_time=MS' after its name");
  y.input = strncmp(name, "Input", 5) == 0;
  y.part = strncmp(name, "__getitem__", 11) == 0;
  const char *at = p;
  bool ok = decimal(&p, end, 6, &y.cost[KEY_F]) && skip(&p, end, ", backward_compute_time=") &&
            decimal(&p, end, 6, &y.cost[KEY_B]) && skip(&p, end, ", activation_size=") &&
            sizes(&p, end, &y.cost[KEY_ACT]) && skip(&p, end, ", parameter_size=") &&
            decimal(&p, end, 0, &y.cost[KEY_WEIGHT]);
  uint64_t stage = NONE;
  if (ok && p < end)
    ok = skip(&p, end, " -- stage_id=") && decimal(&p, end, 0, &stage) && stage < NONE && p == end;
  if (!ok)
    return bad(l, at > p ? at : p, end > p ? end : p + 1,
               "after its name a layer has 'forward_compute_time=MS, backward_compute_time=MS, "
               "activation_size=BYTES, parameter_size=BYTES'");
  y.stage = (uint32_t)stage;
  y.cost[KEY_BOUNDARY] = y.cost[KEY_ACT];
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
        *vec_push(l->s->arena, &l->edge) = (LayerEdge){from, to};
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
        return bad(l, l->text + at, line_end(l, at, len), "this layer is given twice");
      }
  }
  return true;
}

static bool is_lower(const void *a, const void *b, const void *of) {
  (void)of;
  return *(const uint32_t *)a < *(const uint32_t *)b;
}

typedef VEC(uint32_t) LayerHeap;

static void put_ready(Layers *l, LayerHeap *heap, uint32_t row) {
  vec_push(l->s->arena, heap);
  heap_put(heap->at, heap->n, sizeof row, &row, is_lower, NULL);
}

/* Rows in an order that respects the edges: of those that are ready, the lowest number first. */
static bool sort_layers(Layers *l) {
  Arena *a = l->s->arena;
  uint32_t n = l->layer.n, nedge = l->edge.n;
  Layer *y = l->layer.at;
  uint32_t *from = arena_alloc(a, nedge * sizeof *from), *first_out;
  for (uint32_t i = 0; i < nedge; i++) {
    from[i] = l->edge.at[i].from;
    y[from[i]].nout++, y[l->edge.at[i].to].nin++;
  }
  l->out = group_by(a, from, nedge, n, &first_out);
  for (uint32_t i = 0; i < n; i++) {
    y[i].first_out = first_out[i];
    y[i].gone = y[i].input || (y[i].part && y[i].nout == 0);
  }
  LayerHeap heap = {0};
  uint32_t *left = NEW_ARRAY(a, uint32_t, n), done = 0;
  l->sorted = NEW_ARRAY(a, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    left[i] = y[i].nin;
    if (left[i] == 0)
      put_ready(l, &heap, i);
  }
  while (heap.n > 0) {
    uint32_t row = heap.at[0];
    heap_drop(heap.at, heap.n--, sizeof row, is_lower, NULL);
    done++;
    if (!y[row].gone)
      l->sorted[l->n++] = row;
    for (uint32_t j = 0; j < y[row].nout; j++) {
      uint32_t to = l->edge.at[l->out[y[row].first_out + j]].to;
      if (--left[to] == 0)
        put_ready(l, &heap, to);
    }
  }
  if (done == n)
    return true;
  uint32_t row = 0;
  while (left[row] == 0)
    row++;
  diag_error(l->s->diag, DIAG_PROFILE,
             l->text ? (Span){l->file, y[row].line, y[row].line + 4} : l->at,
             "%sthe edges form a cycle through %s",
             l->text ? "" : arena_printf(l->s->arena, "%s: ", l->path),
             l->text ? "this layer" : y[row].name);
  return false;
}

bool is_layer_text(const char *text, uint32_t len) {
  uint32_t at = 0;
  while (at < len && strchr(" \t\r\n", text[at]) && text[at])
    at++;
  return len - at > 4 && memcmp(text + at, "node", 4) == 0;
}

bool layers_of_text(Layers *l) {
  static const CostKey given[] = {KEY_F, KEY_B, KEY_ACT, KEY_BOUNDARY, KEY_WEIGHT};
  l->text = l->s->diag->source[l->file].text;
  l->width = 1;
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    l->has[given[i]] = true;
  return read_lines(l, l->s->diag->source[l->file].len) && sort_layers(l);
}

/* ---- the JSON form ---- */

bool layers_refused(const Layers *l, const char *what) {
  diag_error(l->s->diag, DIAG_PROFILE, l->at, "%s: %s", l->path, what);
  return false;
}

/* The costs of a layer: those of a stage that are sums, or the largest, over its layers. */
static CostKey layer_key(const char *key) {
  static const CostKey keys[] = {KEY_F,    KEY_B,   KEY_I,    KEY_W,        KEY_R,
                                 KEY_U,    KEY_ACT, KEY_GOUT, KEY_BOUNDARY, KEY_WEIGHT,
                                 KEY_GRAD, KEY_OPT, KEY_WORK};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, cost_key[keys[i]]) == 0)
      return keys[i];
  return NKEYS;
}

static bool list_layer(Layers *l, json_t *v) {
  Arena *a = l->s->arena;
  const uint32_t row = l->layer.n;
  const char *name = json_string_value(json_object_get(v, "name")), *key;
  if (!name)
    return layers_refused(l, arena_printf(a, "layer %u is not an object with a \"name\"", row));
  Layer y = {.name = arena_printf(a, "%s", name), .number = row, .stage = NONE};
  bool seen[NKEYS] = {false};
  json_t *cost;
  json_object_foreach(v, key, cost) {
    CostKey k = layer_key(key);
    if (strcmp(key, "name") == 0 || strcmp(key, "from") == 0)
      continue;
    if (k == NKEYS)
      return layers_refused(
          l, arena_printf(a,
                          "layer '%s' has an unknown key '%s'; the keys are name from F "
                          "B I W R U act gout boundary weight grad opt work",
                          name, key));
    if (!json_is_integer(cost) || json_integer_value(cost) < 0 ||
        (uint64_t)json_integer_value(cost) > MOST_COST)
      return layers_refused(
          l, arena_printf(a, "'%s' of layer '%s' must be a whole number of %s from 0 to 2^50", key,
                          name, k < NTIMEKEYS ? "ns" : "bytes"));
    y.cost[k] = (uint64_t)json_integer_value(cost), seen[k] = true;
  }
  for (int k = 0; k < NKEYS; k++) {
    if (row > 0 && seen[k] != l->has[k])
      return layers_refused(l, arena_printf(a, "'%s' is given for some layers, but not for '%s'",
                                            cost_key[k], seen[k] ? l->layer.at[0].name : name));
    l->has[k] = seen[k];
  }
  for (uint32_t i = 0; i < row; i++)
    if (strcmp(l->layer.at[i].name, name) == 0)
      return layers_refused(l, arena_printf(a, "layer '%s' is given twice", name));
  *vec_push(a, &l->layer) = y;
  return true;
}

/* The layers that a layer reads: those that "from" names, or else the one above it. */
static bool list_edges(Layers *l, uint32_t row, json_t *from) {
  Arena *a = l->s->arena;
  if (!from && row > 0)
    *vec_push(a, &l->edge) = (LayerEdge){row - 1, row};
  if (from && !json_is_array(from))
    return layers_refused(
        l, arena_printf(a, "\"from\" of layer '%s' is not a list of names", l->layer.at[row].name));
  for (size_t i = 0; i < json_array_size(from); i++) {
    const char *name = json_string_value(json_array_get(from, i));
    uint32_t k = 0;
    while (name && k < l->layer.n && strcmp(l->layer.at[k].name, name) != 0)
      k++;
    if (!name || k == l->layer.n)
      return layers_refused(l, arena_printf(a, "layer '%s' reads '%s', which is no layer",
                                            l->layer.at[row].name, name ? name : "?"));
    *vec_push(a, &l->edge) = (LayerEdge){k, row};
  }
  return true;
}

static bool list_layers(Layers *l, json_t *list) {
  if (!json_is_array(list) || json_array_size(list) == 0)
    return layers_refused(l, "\"layers\" is not a list with a layer");
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!list_layer(l, json_array_get(list, i)))
      return false;
  for (uint32_t i = 0; i < l->layer.n; i++)
    if (!list_edges(l, i, json_object_get(json_array_get(list, i), "from")))
      return false;
  return true;
}

/* The number of an entry of "variants", from 1 on; missing: 0 if there must be one. */
static bool variant_number(const Layers *l, json_t *entry, const char *key, uint32_t missing,
                           uint32_t *value) {
  json_t *v = json_object_get(entry, key);
  const json_int_t n = v ? json_integer_value(v) : missing;
  *value = (uint32_t)n;
  return (n >= 1 && n <= MOST_SAMPLES) ||
         layers_refused(l, arena_printf(l->s->arena, "\"%s\" is not a whole number from 1 to %d",
                                        key, MOST_SAMPLES));
}

static bool list_variant(Layers *l, json_t *entry, uint32_t k) {
  static const char known[] = " microbatch width layers ";
  const char *unknown = json_unknown_key(entry, known);
  l->path = arena_printf(l->s->arena, "%s: variant %u", l->path, k);
  if (!json_is_object(entry))
    return layers_refused(l, "it is not an object");
  if (unknown)
    return layers_refused(l, arena_printf(l->s->arena, "unknown key '%s'; the keys are%.*s",
                                          unknown, (int)strlen(known) - 1, known));
  return variant_number(l, entry, "microbatch", 0, &l->microbatch) &&
         variant_number(l, entry, "width", 1, &l->width) &&
         list_layers(l, json_object_get(entry, "layers"));
}

size_t layer_variants(json_t *profile) {
  json_t *list = json_object_get(profile, "variants");
  return list ? json_array_size(list) : model_variants(json_object_get(profile, "model"));
}

bool layers_of_json(Layers *l, json_t *profile, uint32_t k) {
  json_t *list = json_object_get(profile, "layers"), *card = json_object_get(profile, "model"),
         *variants = json_object_get(profile, "variants");
  if (list && card)
    return layers_refused(l, "\"layers\" and \"model\" conflict: a model has its own layers");
  if (variants && (list || card))
    return layers_refused(l, arena_printf(l->s->arena,
                                          "\"variants\" and \"%s\" conflict: leave one out",
                                          list ? "layers" : "model"));
  if (variants && json_array_size(variants) == 0)
    return layers_refused(l, "\"variants\" is not a list with a variant");
  l->width = 1;
  return (variants ? list_variant(l, json_array_get(variants, k), k)
          : card   ? layers_of_model(l, card, k)
                   : list_layers(l, list)) &&
         sort_layers(l);
}
