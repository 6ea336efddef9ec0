/* SPDX-License-Identifier: MIT
 * Profiles of layers (profile_layers.c). */
#ifndef PIPEC_PROFILE_LAYERS_H
#define PIPEC_PROFILE_LAYERS_H

#include "pipec.h"

bool is_layer_profile(const char *text, uint32_t len);
/* Cuts the layers of source `file` into the stages of the model and gives them their costs; at:
 * where the profile was asked for. Ensures Model.layers. False: reported. */
bool apply_layer_profile(Sched *s, Model *model, Span at, const char *path, uint32_t file,
                         bool *has);

#endif
