/* SPDX-License-Identifier: MIT
 * Bars over ops that are one action. For svg.c only. */
#ifndef PIPE_SVG_ACTION_H
#define PIPE_SVG_ACTION_H

#include "svg_curve.h"

/* A sentence on the bars for the caption; "" if no action has several ops. */
const char *svg_actions_said(const PipeProgram *p);

/* Draws a bar over each action of several ops, from its start to its end, at the head of its row,
 * if the bar is wide enough to see. c: place of the panel's rows; head: y of rank 0's row. */
void svg_actions(const SvgCurve *c, double head);

#endif
