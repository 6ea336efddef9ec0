/* SPDX-License-Identifier: MIT
 * Reads JSON from left to right, without a tree; not installed. The caller asks for what must come
 * next:
 *
 *   pr_json_expect(&j, '{');
 *   for (uint32_t i = 0; pr_json_more(&j, '}', i); i++) {
 *     pr_json_key(&j, name, sizeof name);
 *     number = pr_json_number(&j);
 *   }
 *
 * Something else is an error. After the first one every object and list has ended, numbers are 0
 * and strings empty, so only the end needs a look at `bad`. */
#ifndef PIPE_JSON_H
#define PIPE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run.h"

enum { JSON_WHY = 512 };

typedef struct Json {
  const char *begin, *at, *end; /* UTF-8 is checked where it is read */
  bool bad;
  char *why; /* [JSON_WHY] of the first error, with its byte */
} Json;

void pr_json_fail(Json *j, const char *format, ...) PR_PRINTF(2, 3);

void pr_json_expect(Json *j, char c);

/* Is there another member? i: how many there were. */
bool pr_json_more(Json *j, char close, uint32_t i);

/* A string, which to[room] has cut to fit and with a NUL: its bytes. A NUL inside is an error. */
size_t pr_json_string(Json *j, char *to, size_t room);
size_t pr_json_key(Json *j, char *to, size_t room); /* and the colon behind it */

/* A whole number of 64 bits without a sign. */
uint64_t pr_json_number(Json *j);

/* Any value; deeper than 32 is an error. */
void pr_json_skip(Json *j);

/* Only blanks are left. */
void pr_json_end(Json *j);

#endif
