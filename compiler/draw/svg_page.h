/* SPDX-License-Identifier: MIT
 * The measures of a timeline picture, which its parts share: svg.c draws the rows, svg_legend.c
 * what stands under them. */
#ifndef PIPE_SVG_PAGE_H
#define PIPE_SVG_PAGE_H

#include <stdbool.h>

#include "svg.h"
#include "svg_text.h"

#define COLUMN 72.0 /* px of a column of numbers beside the rows */

/* What a panel shows, found in one pass over its compute ops. */
typedef struct Panel {
  const SvgTrack *track;
  uint64_t begin;                             /* first start, in the track's unit: 0 of the panel */
  uint64_t end;                               /* last end */
  uint64_t nop;                               /* compute ops */
  double busy;                                /* sum of their times, in the track's unit */
  uint64_t fits[PIPE_NOPS], count[PIPE_NOPS]; /* ops wide enough for their label; all */
  bool dense, phases;
} Panel;

typedef struct Page {
  FILE *out;
  const PipeProgram *p;
  int npanel;
  double left, width;     /* of the rows, px */
  double margin, beside;  /* around the page, and right of the rows */
  double figure;          /* SvgOptions.figure */
  double scale;           /* drawn px for each of the page */
  double px;              /* per drawn time unit */
  double row, gap, label; /* height of a row, space between rows, font size of the op labels */
  double lane;            /* height of the COPY stream under each row, 0: none */
  double curve;           /* height of the memory curve under that, 0: none */
  uint64_t limit;         /* SvgOptions.limit_bytes */
  int wanted;             /* SvgOptions.arrows */
  const PipeInstr *over;  /* SvgOptions.over */
  const char *said;       /* SvgOptions.said */
  double column;          /* width of a column in a dense row, px: some ops, or their beat shows */
  uint32_t nchunk;        /* most stages on one rank */
  bool rects, arrows, sized;
  bool used[PIPE_NOPS];
} Page;

static inline double span_of(const Panel *n) {
  return (double)(n->end - n->begin) * n->track->scale; /* in drawn units */
}

/* Height of the strip at the foot of an op of a chunk. */
double svg_strip(const Page *g, uint32_t chunk);

/* ---- svg_legend.c ---- */
/* Swatches of what the page uses. Returns the lines; writes them when `y` is positive. */
int svg_legend(const Page *g, double y, bool phases, bool dense);
/* The sentences under the picture, wrapped to the rows' width. Returns the lines; writes them when
 * `y` is positive. */
int svg_caption(const Page *g, const Panel *n, int npanel, double y);
void svg_style(const Page *g);

#endif
