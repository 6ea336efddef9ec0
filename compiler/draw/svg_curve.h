/* SPDX-License-Identifier: MIT
 * The memory curve under a row of the timeline. For svg.c only. */
#ifndef PIPE_SVG_CURVE_H
#define PIPE_SVG_CURVE_H

#include "svg.h"

/* Where the curves of a panel stand. x of time t is left + (t - begin) * px. */
typedef struct SvgCurve {
  FILE *out;
  const PipeProgram *p;
  const SvgTrack *track;
  uint64_t begin, end; /* of the panel, in the track's unit */
  double left, px;
  double top, pitch;   /* y of the head of rank 0's curve; from one rank's to the next one's */
  double height;
  uint64_t limit;      /* per rank; 0: none, the line is what was proved of the rank */
} SvgCurve;

/* Draws the curve of every rank. With sizes: bytes, from the foot what is always there, on it the
 * stashes alive. Without: the number of stashes alive. All ranks have one scale. A stash lives from
 * the start of the op that takes it to the end of the op that gives it back; where changes come
 * closer than a dot the highest is drawn, so no peak is lost. */
void svg_curves(const SvgCurve *c);

/* Draws what the COPY stream of each rank does, as one strip per rank. */
void svg_lanes(const SvgCurve *c);

#endif
