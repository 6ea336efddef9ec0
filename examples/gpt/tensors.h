/* SPDX-License-Identifier: MIT
 * The tensors of the GPT in the order they lie in memory: X(name, kind, rows, columns). A matrix of
 * a linear layer is [outputs][inputs]; a vector has one column. The b of a layernorm follows its
 * g. */
#ifndef GPT_TENSORS_H
#define GPT_TENSORS_H

/* clang-format off */
#define LAYER_TENSORS(X)        \
  X(ln1_g, ONE, d, 1)           \
  X(ln1_b, ZERO, d, 1)          \
  X(qkv_w, NORMAL, 3 * d, d)    \
  X(qkv_b, ZERO, 3 * d, 1)      \
  X(proj_w, RESIDUAL, d, d)     \
  X(proj_b, ZERO, d, 1)         \
  X(ln2_g, ONE, d, 1)           \
  X(ln2_b, ZERO, d, 1)          \
  X(fc_w, NORMAL, 4 * d, d)     \
  X(fc_b, ZERO, 4 * d, 1)       \
  X(out_w, RESIDUAL, d, 4 * d)  \
  X(out_b, ZERO, d, 1)
/* Before the layers of the first stage, after those of the last. */
#define FIRST_TENSORS(X) X(wte, NORMAL, GPT_VOCAB, d) X(wpe, NORMAL, seq, d)
#define LAST_TENSORS(X) X(lnf_g, ONE, d, 1) X(lnf_b, ZERO, d, 1) X(head_w, NORMAL, GPT_VOCAB, d)
/* clang-format on */

#endif
