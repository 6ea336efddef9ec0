/* SPDX-License-Identifier: MIT
 * The memory curve under a row of the timeline. For svg.c only. */
#ifndef PIPE_SVG_CURVE_H
#define PIPE_SVG_CURVE_H

#include "svg.h"

/* The place of a panel's curves. The x of time t is left + (t - begin) * px. */
typedef struct SvgCurve {
  FILE *out;
  const PipeProgram *p;
  const SvgTrack *track;
  uint64_t begin, end; /* of the panel, in the track's unit */
  double left, px;
  double top, pitch;   /* y of the head of rank 0's curve; distance to the next rank's curve */
  double height;
  uint64_t limit;      /* per rank; 0: no limit, the line shows the proved amount */
} SvgCurve;

/* Draws the curve of every rank, all on one scale. With sizes, the curve has bytes: the constant
 * part at the foot, above it the stashes alive. Without sizes it has the number of stashes alive. A
 * stash lives from the start of the op that takes it to the end of the op that gives it back. Of
 * changes closer than a dot the highest level is drawn, so no peak is lost. */
void svg_curves(const SvgCurve *c);

/* Draws the COPY stream of each rank, and side ops of its COMM stream, as one strip per rank. */
void svg_lanes(const SvgCurve *c);

#endif
