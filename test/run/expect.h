/* SPDX-License-Identifier: MIT
 * Expectations of a test program: one that fails is printed and counts; the program goes on. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>

static int wrong; /* 1 once one has failed: the exit status */

#define EXPECT(e) \
  do { \
    if (!(e)) { \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #e); \
      wrong = 1; \
    } \
  } while (0)

#endif
