/* SPDX-License-Identifier: MIT
 * See data.h. */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1u << 20 };

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int grow(Images *m, uint32_t room) {
  void *p = realloc(m->pixel, room * sizeof *m->pixel), *l = NULL;
  if (p) {
    m->pixel = p;
    l = realloc(m->label, room);
  }
  if (l)
    m->label = l;
  return p && l ? 0 : -1;
}

/* One line: the number of its values that are right. */
static int read_line(const char *line, float *pixel, uint8_t *label) {
  char *end;
  for (int i = 0; i <= DIGITS_PIXELS; i++) {
    double v = strtod(line, &end);
    int last = i == DIGITS_PIXELS;
    if (end == line || !(v >= 0 && v <= (last ? DIGITS_CLASSES - 1 : 16)) ||
        (last ? *end != '\n' && *end != '\r' && *end : *end != ','))
      return i;
    if (last)
      *label = (uint8_t)v;
    else
      pixel[i] = (float)(v / 8 - 1);
    line = end + 1;
  }
  return DIGITS_PIXELS + 1;
}

const char *images_open(Images *m, const char *path) {
  memset(m, 0, sizeof *m);
  FILE *f = fopen(path, "r");
  if (!f)
    return "cannot be opened";
  char line[1024];
  const char *error = NULL;
  uint32_t room = 0;
  while (!error && fgets(line, sizeof line, f)) {
    if (m->n == room && (m->n == MOST || grow(m, room = room ? 2 * room : 2048)))
      error = "too large";
    else if (read_line(line, m->pixel[m->n], &m->label[m->n]) != DIGITS_PIXELS + 1)
      error = "not 64 values from 0 to 16 and a digit on each line";
    else
      m->n++;
  }
  if (!error && ferror(f))
    error = "cannot be read";
  if (!error && m->n <= DIGITS_TRAIN)
    error = "too few images: 1500 are learned from, the others held out";
  fclose(f);
  m->ntrain = DIGITS_TRAIN;
  if (error)
    images_close(m);
  return error;
}

int images_random(Images *m, uint64_t seed) {
  memset(m, 0, sizeof *m);
  if (grow(m, 1797)) {
    images_close(m);
    return -1;
  }
  m->n = 1797, m->ntrain = DIGITS_TRAIN;
  for (uint32_t i = 0; i < m->n; i++) {
    m->label[i] = (uint8_t)(mix(seed ^ i) % DIGITS_CLASSES);
    for (uint32_t j = 0; j < DIGITS_PIXELS; j++) {
      double noise = (double)(mix(mix(seed + i) ^ (j + 1)) >> 11) * 0x1p-52 - 1;
      double way = (double)(mix(mix(seed ^ 77) ^ (m->label[i] * 64u + j)) >> 11) * 0x1p-52 - 1;
      m->pixel[i][j] = (float)(0.5 * noise + 0.5 * way);
    }
  }
  return 0;
}

void images_close(Images *m) {
  free(m->pixel);
  free(m->label);
  memset(m, 0, sizeof *m);
}

/* A permutation of 0 .. 2^(2 half) - 1 by four Feistel rounds, walked until it hits one below n. */
uint32_t images_draw(uint32_t n, uint64_t seed, uint64_t k) {
  uint32_t half = 1;
  while ((uint64_t)1 << (2 * half) < n)
    half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1, key = mix(seed ^ mix(k / n));
  uint64_t x = k % n;
  do {
    for (uint64_t round = 0; round < 4; round++) {
      uint64_t left = x >> half, right = x & mask;
      x = right << half | (left ^ (mix(key ^ (round << 32 | right)) & mask));
    }
  } while (x >= n);
  return (uint32_t)x;
}
