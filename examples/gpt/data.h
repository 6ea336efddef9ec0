/* SPDX-License-Identifier: MIT
 * A text file as training data: the first 95 % to learn from, the rest held out. A window is
 * seq + 1 consecutive bytes; which one a row gets depends on (seed, step, mb, row) alone, so
 * every stage can ask for it again instead of being sent it. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

typedef struct Text {
  const uint8_t *byte; /* owned by the Data it comes from */
  size_t len;
  uint32_t seq;
  uint64_t seed;  /* of the draw of training windows */
  uint64_t count; /* held-out windows: that many, evenly spaced; window i is at i*(len-seq)/count */
  uint32_t batch; /* rows of a microbatch */
} Text;

typedef struct Data {
  uint8_t *byte;
  size_t len;
  Text train, held;
} Data;

/* Reads the file and splits it. NULL, or what is wrong (static text or strerror). */
const char *data_open(Data *d, const char *path, uint32_t seq, uint32_t batch, uint64_t seed,
                      uint64_t held_windows);
void data_close(Data *d);

/* Two GptWindow functions; `text` is a Text. The first draws, the second walks: row r of microbatch
 * mb is window mb * batch + r, modulo count; step is ignored. */
const uint8_t *text_draw(const void *text, uint64_t step, uint32_t mb, uint32_t row);
const uint8_t *text_walk(const void *text, uint64_t step, uint32_t mb, uint32_t row);

/* A good 64-bit mix of its argument (splitmix64), for counter-based random numbers. */
uint64_t mix64(uint64_t x);

#endif
