/* SPDX-License-Identifier: MIT
 * The tensors of the GPT in the order they lie in memory: X(name, kind, elements). A matrix of a
 * linear layer is [outputs][inputs]. The b of a layernorm follows its g. */
#ifndef GPT_TENSORS_H
#define GPT_TENSORS_H

/* clang-format off */
#define LAYER_TENSORS(X)     \
  X(ln1_g, ONE, d)           \
  X(ln1_b, ZERO, d)          \
  X(qkv_w, NORMAL, 3 * d * d) \
  X(qkv_b, ZERO, 3 * d)      \
  X(proj_w, RESIDUAL, d * d) \
  X(proj_b, ZERO, d)         \
  X(ln2_g, ONE, d)           \
  X(ln2_b, ZERO, d)          \
  X(fc_w, NORMAL, 4 * d * d) \
  X(fc_b, ZERO, 4 * d)       \
  X(out_w, RESIDUAL, 4 * d * d) \
  X(out_b, ZERO, d)
/* Before the layers of the first stage, after those of the last. */
#define FIRST_TENSORS(X) X(wte, NORMAL, GPT_VOCAB * d) X(wpe, NORMAL, seq * d)
#define LAST_TENSORS(X) X(lnf_g, ONE, d) X(lnf_b, ZERO, d) X(head_w, NORMAL, GPT_VOCAB * d)
/* clang-format on */

#endif
