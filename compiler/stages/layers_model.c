/* SPDX-License-Identifier: MIT
 * A model card (lang/spec.md 6): the layers of a transformer that nobody has measured, from its
 * shape. A block is attention and a perceptron four times as wide, with biases, two norms and
 * dropout. With microbatch b, sequence s, hidden size h, heads a, vocabulary V, values of e bytes:
 *
 *               F                 I                 W       act                      parameters
 *   embedding   0                 0                 0       bsh                      (V + s)h
 *   block       24bshh + 4bssh    24bshh + 8bssh    24bshh  (16e+2)bsh + (2e+1)abss  12hh + 13h
 *   head        2bshV             2bshV             2bshV   2e bsh + 4bsV            Vh + 2h
 *
 * A layer may be divided over t ranks (Shoeybi et al. 2019). Each has 1/t of F, I, W, scores,
 * logits and the rows of V; of a block 1/t of 12e bsh of act, 7e bsh of gout and 12hh + 7h
 * parameters. The rest is on all of them. They sum up e bsh bytes by a ring, 2(t-1)/t of them over
 * each link: a block twice in F and twice in I, the embedding once in F, the head once in I.
 *
 * F, I and W are floating point operations (Narayanan et al. 2021), act is bytes (Korthikanti et
 * al. 2022: masks of one byte, logits of four); flash attention does not keep the scores, abss. The
 * optimizer is Adam: two moments of 4 bytes and, beside weights of 2 bytes, a copy of 4 bytes. */
#include <string.h>

#include "layers.h"

enum { LAYERS, HIDDEN, HEADS, SEQUENCE, VOCABULARY, MICROBATCH, WIDTH, BYTES, NNUMBERS };

/* missing: the default; 0: the key must be there. */
static const struct {
  const char *key;
  json_int_t missing, most;
} number[NNUMBERS] = {{"layers", 0, 1000},        {"hidden", 0, 1 << 20},
                      {"heads", 0, 1 << 20},      {"sequence", 0, 1 << 24},
                      {"vocabulary", 0, 1 << 24}, {"microbatch", 1, MOST_SAMPLES},
                      {"width", 1, 1 << 10},      {"bytes", 2, 4}};

typedef struct Card {
  double number[NNUMBERS];
  double speed; /* floating point operations in a ns */
  double link;  /* bytes in a ns between ranks that divide a layer */
  bool flash;
} Card;

static bool refused(const Layers *l, const char *key, const char *what) {
  return layers_refused(l, arena_printf(l->s->arena, "'%s' of the model must be %s", key, what));
}

static size_t values(json_t *v) { return json_is_array(v) ? json_array_size(v) : 1; }

size_t model_variants(json_t *card) {
  return values(json_object_get(card, number[MICROBATCH].key)) *
         values(json_object_get(card, number[WIDTH].key));
}

/* The value of a number, of the k-th of all pairs of a microbatch and a width. */
static json_t *value_of(json_t *card, int id, uint32_t k) {
  json_t *v = json_object_get(card, number[id].key);
  const size_t widths = values(json_object_get(card, number[WIDTH].key));
  return json_array_size(v) == 0 || widths == 0 ? v
         : id == MICROBATCH                     ? json_array_get(v, k / widths)
         : id == WIDTH                          ? json_array_get(v, k % widths)
                                                : v;
}

static bool read_card(const Layers *l, json_t *v, uint32_t variant, Card *c) {
  static const char known[] = " layers hidden heads sequence vocabulary microbatch width "
                              "width_bandwidth bytes flops efficiency flash ";
  Arena *a = l->s->arena;
  const char *unknown = json_unknown_key(v, known);
  if (!json_is_object(v))
    return layers_refused(l, "\"model\" is not an object");
  if (unknown)
    return layers_refused(l, arena_printf(a, "unknown key '%s' of the model; the keys are%.*s",
                                          unknown, (int)strlen(known) - 1, known));
  for (int k = 0; k < NNUMBERS; k++) {
    json_t *given = value_of(v, k, variant);
    const json_int_t n = given ? json_integer_value(given) : number[k].missing;
    if (n < 1 || n > number[k].most)
      return refused(l, number[k].key,
                     arena_printf(a, "a whole number from 1 to %lld", (long long)number[k].most));
    c->number[k] = (double)n;
  }
  if (c->number[BYTES] != 2 && c->number[BYTES] != 4)
    return refused(l, "bytes", "2 or 4");
  if ((uint32_t)c->number[HIDDEN] % (uint32_t)c->number[HEADS] != 0)
    return refused(l, "hidden", "a multiple of 'heads'");
  if ((uint32_t)c->number[HEADS] % (uint32_t)c->number[WIDTH] != 0)
    return refused(l, "heads", "a multiple of 'width'");
  json_t *efficiency = json_object_get(v, "efficiency"), *flash = json_object_get(v, "flash");
  const double part = efficiency ? json_number_value(efficiency) : 0.5;
  uint64_t flops, link = 1;
  if (!json_quantity(json_object_get(v, "flops"), OF_FLOPS, &flops) || flops == 0)
    return refused(l, "flops", "the speed of a rank in FLOP/s, such as \"312T\"");
  if (!(part > 0 && part <= 1))
    return refused(l, "efficiency", "a number above 0, at most 1");
  if (flash && !json_is_boolean(flash))
    return refused(l, "flash", "true or false");
  if (c->number[WIDTH] > 1 &&
      (!json_quantity(json_object_get(v, "width_bandwidth"), OF_BYTES, &link) || link == 0))
    return refused(l, "width_bandwidth", "bytes a second, such as \"300GB\"");
  c->link = (double)link / 1e9;
  c->speed = (double)flops * part / 1e9;
  c->flash = json_is_true(flash);
  return true;
}

/* Adds a layer behind the last one. Of `cost`, times are floating point operations, and WEIGHT is
 * the number of parameters. */
static bool add_layer(Layers *l, const Card *c, const char *name, const double cost[NKEYS]) {
  const double e = c->number[BYTES];
  const uint32_t row = l->layer.n;
  Layer y = {.name = name, .number = row, .stage = NONE};
  for (CostKey k = 0; k < NKEYS; k++) {
    const double v = k == KEY_WEIGHT ? e * cost[k]
                     : k == KEY_OPT  ? (e == 2 ? 12 : 8) * cost[KEY_WEIGHT]
                     : k < NTIMEKEYS ? cost[k] / c->speed
                                     : cost[k];
    if (v > (double)MOST_COST)
      return layers_refused(l, arena_printf(l->s->arena,
                                            "'%s' of the model's %s is above 2^50 ns or bytes",
                                            cost_key[k], name));
    y.cost[k] = (uint64_t)(v + 0.5);
  }
  if (row > 0)
    *vec_push(l->s->arena, &l->edge) = (LayerEdge){row - 1, row};
  *vec_push(l->s->arena, &l->layer) = y;
  return true;
}

bool layers_of_model(Layers *l, json_t *card, uint32_t k) {
  static const CostKey given[] = {KEY_F,    KEY_I,        KEY_W,      KEY_ACT,
                                  KEY_GOUT, KEY_BOUNDARY, KEY_WEIGHT, KEY_OPT};
  Card c = {.speed = 0};
  if (!read_card(l, card, k, &c))
    return false;
  l->microbatch = (uint32_t)c.number[MICROBATCH], l->width = (uint32_t)c.number[WIDTH];
  const double h = c.number[HIDDEN], s = c.number[SEQUENCE], V = c.number[VOCABULARY],
               e = c.number[BYTES], bs = c.number[MICROBATCH] * s, bsh = bs * h,
               t = c.number[WIDTH];
  const double linear = 24 * bsh * h / t, scores = c.flash ? 0 : c.number[HEADS] * bs * s / t,
               logits = 2 * bsh * V / t;
  const double sum = 2 * (t - 1) / t * e * bsh / c.link * c.speed; /* over t, as operations */
  const double embedding[NKEYS] = {[KEY_F] = sum,
                                   [KEY_ACT] = bsh,
                                   [KEY_GOUT] = e * bsh,
                                   [KEY_BOUNDARY] = e * bsh,
                                   [KEY_WEIGHT] = (V / t + s) * h};
  const double block[NKEYS] = {[KEY_F] = linear + 4 * bsh * s / t + 2 * sum,
                               [KEY_I] = linear + 8 * bsh * s / t + 2 * sum,
                               [KEY_W] = linear,
                               [KEY_ACT] = (4 * e + 2 + 12 * e / t) * bsh + (2 * e + 1) * scores,
                               [KEY_GOUT] = (2 + 7 / t) * e * bsh,
                               [KEY_BOUNDARY] = e * bsh,
                               [KEY_WEIGHT] = (12 * h * h + 7 * h) / t + 6 * h};
  const double head[NKEYS] = {[KEY_F] = logits,
                              [KEY_I] = logits + sum,
                              [KEY_W] = logits,
                              [KEY_ACT] = 2 * e * bsh +
                                          4 * bs * V / t, /* I writes over the logits */
                              [KEY_WEIGHT] = V / t * h + 2 * h};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    l->has[given[i]] = true;
  bool ok = add_layer(l, &c, "embedding", embedding);
  for (int i = 1; ok && i <= (int)c.number[LAYERS]; i++)
    ok = add_layer(l, &c, arena_printf(l->s->arena, "block%d", i), block);
  return ok && add_layer(l, &c, "head", head);
}
