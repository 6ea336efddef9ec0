/* SPDX-License-Identifier: MIT
 * The rows of --compare, and its picture. */
#ifndef PIPEC_COMPARE_H
#define PIPEC_COMPARE_H

#include "equal_work.h"
#include "pipec.h"

typedef struct Row {
  const char *file, *name, *params; /* params: the values in use */
  uint32_t which;                   /* index of the input */
  const char *refused, *why;        /* NULL, or the name and the text of the first error */
  const char *unchecked;            /* NULL, or a line about other schedules of the file */
  const char *lacks;                /* as profile_lacks */
  bool sized, front;                /* front: no row of the point is better in time and memory */
  ModelWork model;
  double scale; /* factor of times to equal work */
  uint64_t makespan, span, bound, span_bound, transfers, volume, bytes;
  uint32_t versions, staleness;          /* on the worst rank */
  double bubble, work, inflight, memory; /* memory: bytes of the worst rank, or inflight */
  double by;                             /* the value of --by */
} Row;

typedef struct Compare {
  Sched *s; /* the command line: options, messages, arena */
  Row *row;
  uint32_t nrow, ninput;
  bool sized;          /* every compiled row has sizes */
  bool scaled;         /* some row has a scale other than 1 */
  const char **beside; /* [ninput] text after the name of the schedule; "": the name is unique */
} Compare;

/* ---- compare.c ---- */
const char *shown_name(Compare *c, const Row *w); /* apart from those of all other inputs */
const char *row_time(Compare *c, const Row *w, uint64_t t);
/* The parameters of a row, such as " M=8 V=2": swept, given by -D, or all others. */
typedef enum Which { SWEPT, GIVEN, OTHERS } Which;
const char *some_params(Compare *c, const Row *w, Which which);
/* ---- compare_picture.c ---- */
/* Draws time against memory, a mark for each row. Requires ranked rows. */
void compare_picture(Compare *c, FILE *f);

#endif
