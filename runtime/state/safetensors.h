/* SPDX-License-Identifier: MIT
 * The header of a safetensors file; not installed. Such a file is little-endian: 8 bytes with the
 * length of a text in JSON, that text, and the data of the tensors without gaps. The text is an
 * object with a member for each tensor:
 *
 *   "h0.w": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}
 *
 * Offsets count from the first byte of data. A member __metadata__ has strings. That of h0.w's
 * checksum has the name xxh3:h0.w; files of other programs have none.
 *
 * What is read may come from a stranger: a header that breaks a rule of the format is refused,
 * and its tensors take at most some twenty times its length. */
#ifndef PIPE_SAFETENSORS_H
#define PIPE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "pipe_run.h"

enum { ST_MOST = 100000000, ST_ALIGN = 64, ST_FORM = 256, ST_WHY = 512 };

typedef struct StTensor {
  char key[PR_NAME]; /* UTF-8 */
  PrDtype dtype;
  uint32_t ndim;
  uint64_t shape[PR_DIMS];
  uint64_t at, bytes; /* at: from the first byte of data */
  uint64_t sum;       /* XXH3 of the data; 0 where has_sum is false */
  bool has_sum;
  char *data; /* of a tensor to write: in memory; NULL: in another process */
} StTensor;

/* What says that a file is the one that was written. */
typedef struct StSeal {
  uint64_t bytes; /* of the file */
  uint64_t sum;   /* of its header */
} StSeal;

typedef struct StHead {
  StTensor *t; /* [n] by key; owned */
  uint32_t n;
  uint64_t bytes; /* where the data begins in the file */
  StSeal seal;
} StHead;

/* Bytes of a tensor; UINT64_MAX: more than 64 bits can count, or no such dtype. */
uint64_t st_bytes(PrDtype dtype, uint32_t ndim, const uint64_t *shape);

/* "F32 [4, 3]" */
void st_form(const StTensor *t, char to[ST_FORM]);

/* Orders tensors for a file, the largest elements first, so that each is aligned, and sets `at`. */
void st_place(StTensor *t, uint32_t n);

/* The first bytes of a file of tensors that are placed, which the caller frees. Data begins at a
 * multiple of ST_ALIGN. Each of `about`, pairs of a name and a text up to NULL, is in the metadata.
 * NULL: no memory. */
char *st_write(const StTensor *t, uint32_t n, const char *const about[], size_t *bytes);

/* Opens a regular file to read. NULL, or why not, with errno: anything else could wait for ever, as
 * a pipe does for a writer. */
const char *st_open(const char *path, FILE **in);

/* Reads the text of a header, n bytes in front of `data` bytes. False with why set; else the caller
 * frees head->t. */
bool st_parse(const char *text, size_t n, uint64_t data, StHead *head, char why[ST_WHY]);

/* Reads the header of a file, which must have this seal unless that is NULL. */
bool st_read(const char *path, const StSeal *seal, StHead *head, char why[ST_WHY]);

/* Reads the text of an index, {"metadata": {...}, "weight_map": {"h0.w": "a.safetensors", ...}}:
 * calls `add` with each file named, once or several times, until it returns non-zero, and returns
 * that. -1: with why set. */
int st_parse_index(const char *text, size_t n, int (*add)(void *arg, const char *file), void *arg,
                   char why[ST_WHY]);

#endif
