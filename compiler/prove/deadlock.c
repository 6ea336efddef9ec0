/* SPDX-License-Identifier: MIT
 * Proves that the program completes. Model: that of settle.c. Requires settle: the timed machine
 * has played the streams as they are. The machine has no choice, so the program completes if and
 * only if each stream came to its end, and if and only if the happens-before graph is acyclic.
 *
 * No text makes this proof fail: a stuck program is a mistake of settle or comm. Cost: linear in
 * ranks. It plays nothing itself, because a play is a tenth of a compile. */
#include "graph.h"
#include "plant.h"
#include "prove.h"

/* Ends the compile if only `done` of the n instructions of a stream were carried out. */
static void check_over(const Sched *s, uint32_t rank, const PipeInstr *stream, uint32_t n,
                       uint32_t done) {
  char text[PIPE_OP_TEXT];
  if (done == n || PLANTED(DEADLOCK_STUCK))
    return;
  pipe_instr_text(text, sched_graph(s), &stream[done]);
  guard_fail(GUARD_BUG, "rank %u cannot go on at %s", rank, text);
}

bool check_deadlock(const Sched *s) {
  const Times *times = s->times;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const Streams *streams = &s->lowered->stream[r];
    check_over(s, r, streams->compute, streams->ncompute, times->compute_done[r]);
    check_over(s, r, streams->comm, streams->ncomm, times->comm_done[r]);
    if (streams->ncopy)
      check_over(s, r, streams->copy, streams->ncopy, times->copy_done[r]);
  }
  return true;
}
