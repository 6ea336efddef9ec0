/* SPDX-License-Identifier: MIT
 * Draws the bars over ops of one action (svg_action.h), as one path for the panel. Linear. */
#include "svg_action.h"

#include <stdbool.h>

#include "svg_text.h"

static bool begins_action(const PipeRank *k, uint32_t i) {
  return k->instr[i].group > 0 && (i == 0 || k->instr[i - 1].group == 0);
}

static bool has_actions(const PipeProgram *p) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      if (p->rank[r].instr[i].group > 0)
        return true;
  return false;
}

const char *svg_actions_said(const PipeProgram *p) {
  return has_actions(p) ? " Ops under a bar are one action." : "";
}

void svg_actions(const SvgCurve *c, double head) {
  if (!has_actions(c->p))
    return;
  svg_emit(c->out, "<path class=\"action\" d=\"");
  for (uint32_t r = 0; r < c->p->nrank; r++) {
    const PipeRank *k = &c->p->rank[r];
    for (uint32_t i = 0; i < k->ninstr; i++) {
      uint32_t last = i + k->instr[i].group;
      if (!begins_action(k, i) || last >= k->ninstr)
        continue;
      double a = (double)(c->track->start[r][i] - c->begin) * c->px,
             w = (double)(c->track->end[r][last] - c->track->start[r][i]) * c->px;
      if (w >= 3)
        svg_emit(c->out, "M~ ~h~", c->left + a + 0.5, head + r * c->pitch + 0.9, w - 1.7);
    }
  }
  svg_emit(c->out, "\"/>\n");
}
