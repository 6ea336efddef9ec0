/* SPDX-License-Identifier: MIT
 * Draws when each op of a PipeProgram ran, as one self-contained SVG 1.1 page that a paper can
 * print: ranks down, time across, one panel per track, all panels on one time scale.
 *
 * Needs only the program and the times. The bytes written depend on the arguments alone, not on the
 * locale; all text from the program is escaped. */
#ifndef PIPE_SVG_H
#define PIPE_SVG_H

#include <stdio.h>

#include "arena.h"
#include "pipe_instr.h"

/* One panel. Instruction i of rank r's list ran from start[r][i] to end[r][i], in ns or in the
 * program's abstract units; what is drawn is shifted so that the first compute op starts at 0. */
typedef struct SvgTrack {
  const char *title;      /* of the panel: "Measured" */
  uint64_t *const *start; /* [nrank][ninstr] */
  uint64_t *const *end;
  int timed;              /* 1: times are ns; 0: abstract units */
  double scale;           /* > 0: times are multiplied by it for drawing only; 1 for the first
                             track, and for all that share its unit */
} SvgTrack;

#define FIGURE_PT 7.5 /* as small as a paper's captions */

/* What svg_draw adds to a page. All zero: nothing. */
typedef struct SvgOptions {
  int memory;             /* 1: under each row the stashes alive over time, with the limit. Left out
                             when rows are too low for it */
  uint64_t limit_bytes;   /* per rank, of a program with sizes; 0: what was proved is the line */
  int arrows;             /* transfers: 0 if there is room for them, 1 always, 2 never */
  /* > 0: for a paper, so many px wide (1/96 in), without title, caption and the columns beside the
   * rows; several panels have their names */
  double figure;
  double figure_pt;       /* size of its text; 0: FIGURE_PT */
  /* of the program: where a rank is over the limit, marked; NULL: nowhere */
  const PipeInstr *over;
  const char *said;       /* a sentence at the end of the caption; NULL: none */
} SvgOptions;

/* How a compute op is drawn: colours as #rrggbb, of the op and of its label, and what it is
 * called. */
typedef struct SvgLook {
  const char *fill, *ink, *name; /* NULL: of another stream */
} SvgLook;
extern const SvgLook svg_look[PIPE_NOPS];

/* Writes the page. Panels stand in the order of the tracks; the proved columns (in flight, memory)
 * stand beside the last. Linear in instructions; ops too narrow to be seen are drawn together, so a
 * page stays below a few MB. */
void svg_draw(FILE *out, const PipeProgram *p, const SvgTrack *track, int ntrack,
             const SvgOptions *o);

#endif
