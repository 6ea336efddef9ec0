/* SPDX-License-Identifier: MIT
 * Reading and sampling of the training text; see data.h. The file is read whole. */
#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

const uint8_t *text_draw(const void *text, uint64_t step, uint32_t mb, uint32_t row) {
  const Text *t = text;
  uint64_t h = mix64(mix64(mix64(t->seed) ^ step) ^ ((uint64_t)mb << 32 | row));
  return t->byte + h % (t->len - t->seq);
}

const uint8_t *text_walk(const void *text, uint64_t step, uint32_t mb, uint32_t row) {
  const Text *t = text;
  (void)step;
  uint64_t i = ((uint64_t)mb * t->batch + row) % t->count;
  return t->byte + i * (t->len - t->seq) / t->count;
}

/* Fills d->byte and d->len. */
static const char *read_all(Data *d, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f)
    return strerror(errno);
  size_t room = 1 << 20;
  const char *error = NULL;
  for (d->byte = malloc(room); d->byte;) {
    d->len += fread(d->byte + d->len, 1, room - d->len, f);
    if (d->len < room)
      break;
    room *= 2;
    uint8_t *grown = realloc(d->byte, room);
    if (!grown)
      free(d->byte);
    d->byte = grown;
  }
  if (!d->byte)
    error = "out of memory";
  else if (ferror(f))
    error = strerror(errno);
  fclose(f);
  uint8_t *fit = !error && d->len ? realloc(d->byte, d->len) : NULL;
  d->byte = fit ? fit : d->byte;
  return error;
}

const char *data_open(Data *d, const char *path, uint32_t seq, uint32_t batch, uint64_t seed,
                      uint64_t held_windows) {
  memset(d, 0, sizeof *d);
  const char *error = read_all(d, path);
  if (!error && d->len / 20 < 2 * ((size_t)seq + 1))
    error = "too short: a twentieth of the text must hold two rows";
  if (error) {
    data_close(d);
    return error;
  }
  size_t cut = d->len - d->len / 20;
  d->train = (Text){d->byte, cut, seq, seed, 1, batch};
  d->held = (Text){d->byte + cut, d->len - cut, seq, seed, held_windows, batch};
  return NULL;
}

void data_close(Data *d) {
  free(d->byte);
  memset(d, 0, sizeof *d);
}
