/* SPDX-License-Identifier: MIT
 * The images that images.sh writes, the first 1500 to learn from, the others held out; and in which
 * order they come. */
#ifndef DIGITS_DATA_H
#define DIGITS_DATA_H

#include <stdint.h>

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10, DIGITS_TRAIN = 1500 };

typedef struct Images {
  float (*pixel)[DIGITS_PIXELS]; /* [n], -1 .. 1 */
  uint8_t *label;                /* [n], 0 .. 9 */
  uint32_t n, ntrain;
} Images;

/* Reads the file. NULL, or what is wrong (static text). */
const char *images_open(Images *m, const char *path);
/* Images that are only noise, as many as there are digits: the class is that of one of ten random
 * directions. For tests, which have no data. 0, or -1: out of memory. */
int images_random(Images *m, uint64_t seed);
void images_close(Images *m);

/* Which of n images the draw number k is, from 0: all of them in a random order, then all in
 * another one. */
uint32_t images_draw(uint32_t n, uint64_t seed, uint64_t k);

#endif
