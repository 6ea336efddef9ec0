/* SPDX-License-Identifier: MIT
 * Reads JSON from left to right, without building a tree; not installed. The caller asks for the
 * next value:
 *
 *   pr_json_expect(&j, '{');
 *   for (uint32_t i = 0; pr_json_more(&j, '}', i); i++) {
 *     pr_json_key(&j, name, sizeof name);
 *     number = pr_json_number(&j);
 *   }
 *
 * Anything else is an error. After the first error every object and list ends, numbers are 0 and
 * strings empty, so the caller checks `bad` only at the end. */
#ifndef PIPE_JSON_H
#define PIPE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run.h"

enum { JSON_WHY = 512 };

typedef struct Json {
  const char *begin, *at, *end; /* UTF-8 is checked as it is read */
  bool bad;
  char *why; /* [JSON_WHY] the first error, with its byte offset */
} Json;

void pr_json_fail(Json *j, const char *format, ...) PR_PRINTF(2, 3);

void pr_json_expect(Json *j, char c);

/* True if another member follows. i: members so far. */
bool pr_json_more(Json *j, char close, uint32_t i);

/* Reads a string to to[room], cut to fit, with a NUL; returns its bytes. A NUL inside is an
 * error. */
size_t pr_json_string(Json *j, char *to, size_t room);
size_t pr_json_key(Json *j, char *to, size_t room); /* reads a string and the colon after it */

/* Reads an unsigned whole number of 64 bits. */
uint64_t pr_json_number(Json *j);

/* Skips any value; nesting deeper than 32 is an error. */
void pr_json_skip(Json *j);

/* Checks that only blanks are left. */
void pr_json_end(Json *j);

#endif
