/* SPDX-License-Identifier: MIT
 * The warning [slow-links]: the emitted program takes much longer than on an idle network, where no
 * transfer waits for another. The help is the first that applies: another lowering is shorter
 * (tried), one stream is full, or how to see the waits. Programs with copies get no warning,
 * because copies can make them longer, too. Cost: linear in transfers. */
#include "again.h"
#include "base.h"
#include "graph.h"
#include "lower.h"
#include "names.h"
#include "orders.h"
#include "prove.h"

/* The stream with the most transfer time: of a rank, or with CHANNELS of a pair of ranks. */
typedef struct Busy {
  uint64_t time;
  uint32_t from, to; /* to: NONE for a rank */
} Busy;

static void add_busy(Busy *b, uint64_t time, uint32_t from, uint32_t to, Busy *most) {
  *b = (Busy){b->time + time, from, to};
  *most = b->time > most->time ? *b : *most;
}

static Busy busiest(Sched *s) {
  const bool channels = s->lowered->lowering == PIPE_CHANNELS;
  const Model *m = s->model; /* channel numbers include sums and side ops */
  size_t n = m->nrank + (channels ? 2 * (size_t)nlinks(s) + m->nmodel + m->ntie : 0);
  Busy *at = NEW_ARRAY(s->arena, Busy, n), most = {0, NONE, NONE};
  for (uint32_t i = 0; i < s->ideal->nxfer; i++) {
    const Xfer *x = &s->lowered->xfer[i];
    if (!xfer_moves(x))
      continue;
    uint32_t a = op_rank(s, x->from), b = op_rank(s, x->to);
    const uint64_t time = transfer_time(s, x);
    const bool forward = s->orders->op[x->from].kind == PIPE_F;
    if (channels) { /* all links of a pair, pipe and kind have one number */
      add_busy(&at[channel_of_link(s, xfer_link(s, x), forward)], time, a, b, &most);
    } else {
      add_busy(&at[a], time, a, NONE, &most);
      add_busy(&at[b], time, b, NONE, &most);
    }
  }
  return most;
}

/* Does `other` save more than 5 %? */
static bool much_less(uint64_t other, uint64_t makespan) {
  return other > 0 && (double)other * 1.05 < (double)makespan;
}

static void help(Sched *s, uint64_t makespan) {
  const struct LoweringChoice *c = &s->lowered->choice;
  const uint64_t other = c->open ? 0 : makespan_by(s, LOWERING_AUTO);
  const Busy most = busiest(s);
  if (s->lowered->lowering == PIPE_GLOBAL && much_less(c->other, makespan))
    diag_help(s->diag, "'--lowering=channels' takes %s, with up to %u communicators on a rank",
              time_text(s, c->other), c->communicators);
  else if (much_less(other, makespan))
    diag_help(s->diag, "'--lowering=auto' takes %s", time_text(s, other));
  else if ((double)most.time < 0.7 * (double)makespan)
    diag_help(s->diag, "'--critical-path' shows which transfers the step waits for");
  else if (most.to == NONE)
    diag_help(s->diag,
              "rank %u spends %s on transfers: use fewer stages per rank or smaller tensors",
              most.from, time_text(s, most.time));
  else
    diag_help(s->diag,
              "rank %u spends %s on sends to rank %u: use fewer stages per rank or smaller tensors",
              most.from, time_text(s, most.time), most.to);
}

void warn_slow_links(Sched *s) {
  const uint64_t makespan = s->times->makespan, ideal = s->ideal->time.makespan;
  if ((double)makespan <= 1.1 * (double)ideal || s->orders->ncopy > 0 || s->sides->ncomm > 0 ||
      !transfers_take_time(s))
    return;
  diag_warn(
      s->diag, DIAG_SLOW_LINKS, s->orders->lowering_at,
      "transfers wait for each other: the step takes %s, %.0f %% more than %s on an idle network",
      time_text(s, makespan), 100 * ((double)makespan / (double)ideal - 1), time_text(s, ideal));
  help(s, makespan);
}
