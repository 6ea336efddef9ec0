/* SPDX-License-Identifier: MIT
 * The layers of a model as measured, before anybody cuts them into stages. */
#ifndef PIPEC_LAYERS_H
#define PIPEC_LAYERS_H

#include "json_text.h"
#include "names.h"

typedef struct Layer {
  const char *name;     /* "node4" of the text form */
  uint64_t cost[NKEYS]; /* ns and bytes, of Layers.has; BOUNDARY: of all that the layer makes */
  uint32_t number;      /* its number in the text form, its row in the JSON form */
  uint32_t line;        /* text form: offset of its line */
  uint32_t stage;       /* stage_id, or the stage that it is put into; NONE */
  uint32_t nin, nout, first_out;
  bool input, part, gone; /* gone: it has no part in any stage */
} Layer;

typedef struct LayerEdge { uint32_t from, to; } LayerEdge; /* rows of layer */

typedef struct Layers {
  Sched *s;
  const char *path; /* of the profile, and where it was asked for: for messages */
  Span at;
  uint32_t file;    /* the source */
  const char *text;
  VEC(Layer) layer; /* ascending by number */
  VEC(LayerEdge) edge;
  uint32_t microbatch, width; /* samples of a microbatch, 0: unknown; ranks that divide a layer */
  bool has[NKEYS];            /* costs: of one of these ranks */
  uint32_t *sorted, n; /* rows in an order that respects the edges; those that are gone left out */
  uint32_t *out;       /* rows of edge; those out of a layer stand at first_out */
} Layers;

/* F and the backward of the k-th layer in order. */
static inline uint64_t layer_time(const Layers *l, uint32_t k) {
  const uint64_t *cost = l->layer.at[l->sorted[k]].cost;
  return cost[KEY_F] + (l->has[KEY_B] ? cost[KEY_B] : cost[KEY_I] + cost[KEY_W]);
}
/* ---- layers.c: both require s, path, at and file, and ensure the rest. False: reported ---- */
bool is_layer_text(const char *text, uint32_t len);
bool layers_of_text(Layers *l);
/* Variant k of its "layers", "variants" or "model". */
bool layers_of_json(Layers *l, json_t *profile, uint32_t k);
/* The tables of layers of a profile; NULL: of the text form. */
size_t layer_variants(json_t *profile);
enum { MOST_SAMPLES = 1 << 20, MOST_VARIANTS = 64 };
/* ns or bytes of a layer: sums over all layers then fit in 64 bits. */
#define MOST_COST ((uint64_t)1 << 50)
/* Returns false, reported at the profile. */
bool layers_refused(const Layers *l, const char *what);
/* ---- layers_model.c: adds the layers of variant k of a card, a chain. False: reported ---- */
bool layers_of_model(Layers *l, json_t *card, uint32_t k);
size_t model_variants(json_t *card);
/* ---- profile_layers.c: cuts the layers into the stages of the model and gives them their costs.
 * Ensures Model.layers. False: reported ---- */
bool cut_layers(Layers *l, Model *model, bool *has);
/* ---- profile.c: reads all variants of a profile of layers, for a plan. False: reported ---- */
typedef VEC(Layers) Variants;
bool layers_read(Sched *s, const char *path, Variants *v);

#endif
