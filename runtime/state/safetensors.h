/* SPDX-License-Identifier: MIT
 * The header of a safetensors file; not installed. Such a file is little-endian: 8 bytes with the
 * length of a JSON text, the text, and the data of the tensors without gaps. The text is an object
 * with one member per tensor:
 *
 *   "h0.w": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}
 *
 * Offsets count from the first byte of data. A member __metadata__ has strings; the string
 * xxh3:h0.w is the checksum of h0.w. Files of other programs have no checksums.
 *
 * Files may come from strangers: a header that breaks a rule of the format is refused, and its
 * tensors take at most about twenty times its length in memory. */
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
  uint64_t at, bytes; /* at: offset from the first byte of data */
  uint64_t sum;       /* XXH3 of the data; 0 if has_sum is false */
  bool has_sum;
  char *data; /* when writing: the data; NULL: another process has it */
} StTensor;

/* Identifies a file as the one that was written. */
typedef struct StSeal {
  uint64_t bytes; /* of the file */
  uint64_t sum;   /* of its header */
} StSeal;

typedef struct StHead {
  StTensor *t; /* [n] by key; owned */
  uint32_t n;
  uint64_t bytes; /* offset of the data in the file */
  StSeal seal;
} StHead;

/* Bytes of a tensor; UINT64_MAX: 64-bit overflow, or an unknown dtype. */
uint64_t st_bytes(PrDtype dtype, uint32_t ndim, const uint64_t *shape);

/* Writes "F32 [4, 3]". */
void st_form(const StTensor *t, char to[ST_FORM]);

/* Sorts tensors for a file, largest elements first, so that all are aligned, and sets `at`. */
void st_place(StTensor *t, uint32_t n);

/* Makes the head of a file from tensors that st_place has placed; data begins at a multiple of
 * ST_ALIGN. `about`: pairs of name and text for the metadata, then NULL. The caller frees the
 * result. NULL: no memory. */
char *st_write(const StTensor *t, uint32_t n, const char *const about[], size_t *bytes);

/* Opens a regular file for reading. Returns NULL, or the reason, with errno. Other files are
 * refused: they could block forever, as a pipe without a writer does. */
const char *st_open(const char *path, FILE **in);

/* Parses the text of a header: n bytes, followed by `data` bytes of data. True: the caller frees
 * head->t. False: why is set. */
bool st_parse(const char *text, size_t n, uint64_t data, StHead *head, char why[ST_WHY]);

/* Reads the header of a file. The file must match `seal` unless that is NULL. */
bool st_read(const char *path, const StSeal *seal, StHead *head, char why[ST_WHY]);

/* Parses the text of an index, {"metadata": {...}, "weight_map": {"h0.w": "a.safetensors", ...}}.
 * Calls `add` for each file named, perhaps several times for one file, until it returns non-zero;
 * returns that value. -1: why is set. */
int st_parse_index(const char *text, size_t n, int (*add)(void *arg, const char *file), void *arg,
                   char why[ST_WHY]);

#endif
