/* SPDX-License-Identifier: MIT
 * Draws the times of the ops of a PipeProgram as one self-contained SVG 1.1 page that a paper can
 * print: ranks down, time across, one panel per track, all panels on one time scale.
 *
 * Needs only the program and the times. The bytes written depend on the arguments alone, not on the
 * locale. All text from the program is escaped. */
#ifndef PIPE_SVG_H
#define PIPE_SVG_H

#include <stdio.h>

#include "arena.h"
#include "pipe_instr.h"

/* The times of one panel. Instruction i of rank r's list ran from start[r][i] to end[r][i], in ns
 * or in the program's abstract units. The first compute op is drawn at 0. */
typedef struct SvgTrack {
  const char *title;      /* title of the panel: "Measured" */
  uint64_t *const *start; /* [nrank][ninstr] */
  uint64_t *const *end;
  int timed;              /* 1: times are ns; 0: abstract units */
  /* > 0: factor for drawing only; 1 for the first track and for tracks with the same unit */
  double scale;
} SvgTrack;

#define FIGURE_PT 7.5 /* size of a caption in a paper */

/* Additions of svg_draw to a page. All zero: none. */
typedef struct SvgOptions {
  /* 1: under each row the stashes alive over time, with the limit; left out if rows are too low */
  int memory;
  /* per rank, for a program with sizes; 0: the line shows the proved bytes */
  uint64_t limit_bytes;
  int arrows;             /* arrows for transfers: 0 if there is room, 1 always, 2 never */
  /* > 0: width in px (1/96 in) of a figure for a paper, without title, caption and columns beside
   * the rows; several panels have their names */
  double figure;
  double figure_pt;       /* size of its text; 0: FIGURE_PT */
  /* the instruction of the program at which a rank is over the limit, marked; NULL: none */
  const PipeInstr *over;
  const char *said;       /* a sentence at the end of the caption; NULL: none */
} SvgOptions;

/* The look of a kind of op: colour of the op and of its label as #rrggbb, and its name. */
typedef struct SvgLook {
  const char *fill, *ink, *name; /* NULL: the kind is not drawn */
} SvgLook;
extern const SvgLook svg_look[PIPE_NOPS];

/* Writes the page. Panels stand in the order of the tracks; the proved columns (in flight, memory)
 * stand beside the last panel. Cost: linear in instructions. Ops too narrow to see are drawn
 * together, so a page stays below a few MB. */
void svg_draw(FILE *out, const PipeProgram *p, const SvgTrack *track, int ntrack,
             const SvgOptions *o);

#endif
