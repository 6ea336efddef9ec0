/* SPDX-License-Identifier: MIT
 * The measures of a timeline picture: svg.c draws the rows, svg_legend.c the text under them. */
#ifndef PIPE_SVG_PAGE_H
#define PIPE_SVG_PAGE_H

#include <stdbool.h>

#include "svg.h"
#include "svg_text.h"

#define COLUMN 72.0 /* width of a column of numbers beside the rows, px */

/* The facts of a panel, found in one pass over its compute ops. */
typedef struct Panel {
  const SvgTrack *track;
  uint64_t begin;                             /* first start, in the track's unit; drawn at 0 */
  uint64_t end;                               /* last end */
  uint64_t nop;                               /* number of compute ops */
  /* sum of the times of compute ops, in the track's unit */
  double busy;
  uint64_t fits[PIPE_NOPS], count[PIPE_NOPS]; /* ops with room for their label; all ops */
  bool dense, phases;
} Panel;

typedef struct Page {
  FILE *out;
  const PipeProgram *p;
  int npanel;
  double left, width;     /* left edge and width of the rows, px */
  double margin, beside;  /* margin of the page; room right of the rows; px */
  double figure;          /* SvgOptions.figure */
  double scale;           /* drawn px for each px of the page */
  double px;              /* px per drawn time unit */
  double row, gap, label; /* height of a row, space between rows, font size of the op labels */
  double lane;            /* height of the COPY stream under each row, 0: none */
  double curve;           /* height of the memory curve under that, 0: none */
  uint64_t limit;         /* SvgOptions.limit_bytes */
  int wanted;             /* SvgOptions.arrows */
  const PipeInstr *over;  /* SvgOptions.over */
  const char *said;       /* SvgOptions.said */
  /* width of a column in a dense row, px: several ops, or the beat of single ops would show */
  double column;
  uint32_t nchunk;        /* most chunks of one rank */
  bool rects, arrows, sized;
  bool used[PIPE_NOPS];
} Page;

static inline double span_of(const Panel *n) {
  return (double)(n->end - n->begin) * n->track->scale; /* in drawn time units */
}

/* The height of the strip at the foot of an op of a chunk. */
double svg_strip(const Page *g, uint32_t chunk);

/* ---- svg_legend.c ---- */
/* Writes the swatches of the page's colours, if `y` is positive. Returns the number of lines. */
int svg_legend(const Page *g, double y, bool phases, bool dense);
/* Writes the sentences under the picture, wrapped to the rows' width, if `y` is positive. Returns
 * the number of lines. */
int svg_caption(const Page *g, const Panel *n, int npanel, double y);
void svg_style(const Page *g);

#endif
