/* SPDX-License-Identifier: MIT
 * The bars over ops that are one action. For svg.c only. */
#ifndef PIPE_SVG_ACTION_H
#define PIPE_SVG_ACTION_H

#include "svg_curve.h"

/* What the caption says of them: a sentence, or nothing without actions of several ops. */
const char *svg_actions_said(const PipeProgram *p);

/* Draws a bar over each action of several ops, from its start to its end, at the head of its row,
 * where it is wide enough to be seen. c: where the rows of the panel stand; head: y of rank 0's
 * row. */
void svg_actions(const SvgCurve *c, double head);

#endif
