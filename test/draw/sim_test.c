/* SPDX-License-Identifier: MIT
 * Tests of the abstract machine (pipe_sim.h) on hand-made programs: the makespans of closed forms,
 * and how it says that it cannot go on. Exits 1 if a result is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "../run/expect.h"
#include "../run/make_program.h"
#include "pipe_sim.h"

static uint64_t makespan_of(const MakeSpec *s) {
  Made *m = make(s);
  Arena arena = {0};
  uint64_t **end, span = 0;
  EXPECT(pipe_predict(&arena, &m->p, &end, &span) != NULL);
  arena_free(&arena);
  free_made(m);
  return span;
}

int main(void) {
  for (uint32_t p = 1; p <= 8; p++)
    for (uint32_t mb = 1; mb <= 20; mb++) {
      MakeSpec s = {
          .nrank = p, .nmb = mb, .chunks = 1, .timed = 1, .time = {[PIPE_F] = 3, [PIPE_B] = 5}};
      EXPECT(makespan_of(&s) == (mb + p - 1) * 8);
      s.gpipe = 1;
      EXPECT(makespan_of(&s) == (mb + p - 1) * 8);
    }
  /* Interleaved: the bubble shrinks by the number of chunks (F and B per chunk). */
  for (uint32_t v = 2; v <= 4; v++) {
    MakeSpec s = {
        .nrank = 4, .nmb = 8, .chunks = v, .timed = 1, .time = {[PIPE_F] = 1, [PIPE_B] = 2}};
    EXPECT(makespan_of(&s) == 3 * (8 * v + 3));
  }
  /* A transfer takes its time, on both ranks at once: F, SEND_F, F, B, SEND_B, B. */
  MakeSpec s = {.nrank = 2,
                .nmb = 1,
                .chunks = 1,
                .timed = 1,
                .time = {[PIPE_F] = 1, [PIPE_B] = 2, [PIPE_SEND_F] = 10, [PIPE_SEND_B] = 20}};
  EXPECT(makespan_of(&s) == 1 + 10 + 1 + 2 + 20 + 2);

  /* Two pipes, one after the other: rank 0 has its last gradient at 9 and rank 1 at 11. The sum of
   * the upper stages takes both COMM streams from 9 to 109, that of the lower to 209; then
   * two updates. */
  s = (MakeSpec){.nrank = 2,
                 .nmb = 2,
                 .chunks = 1,
                 .replicas = 2,
                 .timed = 1,
                 .time = {[PIPE_F] = 1, [PIPE_B] = 2, [PIPE_REDUCE] = 100, [PIPE_U] = 7}};
  EXPECT(makespan_of(&s) == 2 * 100 + 9 + 2 * 7);

  const MakeSpec two = {.nrank = 2, .nmb = 2, .chunks = 1};
  const char *const crossed[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
                                 "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1U"};
  const char *const swapped[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
                                 "1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1B1 1SEND_B1 1U"};
  for (int i = 0; i < 2; i++) {
    Made *m = make_text(&two, i ? swapped : crossed);
    uint32_t index[2][2][9], n[2][2] = {{0}}, done[2][2], at = 9;
    for (uint32_t r = 0; r < 2; r++)
      for (uint32_t j = 0; j < 9; j++) {
        int comm = pipe_op_info[m->instr[r][j].op].comm;
        index[comm][r][n[comm][r]++] = j;
      }
    PipeStream st[2][2];
    for (int comm = 0; comm < 2; comm++)
      for (int r = 0; r < 2; r++)
        st[comm][r] = (PipeStream){m->instr[r], index[comm][r], n[comm][r]};
    const PipeWait *const wait[2] = {m->rank[0].wait, m->rank[1].wait};
    PipeSimIn in = {.nrank = 2, .compute = st[0], .comm = st[1], .stage = m->stage, .wait = wait};
    PipeSimOut out = {.compute_done = done[0], .comm_done = done[1]};
    PipeSimStatus status = pipe_sim(&in, &out, &at);
    uint64_t **end;
    Arena arena = {0};
    EXPECT(pipe_predict(&arena, &m->p, &end, NULL) == NULL);
    arena_free(&arena);
    printf("%s: %s, rank %u, compute %u %u, comm %u %u\n", i ? "swapped" : "crossed",
           status == PIPE_SIM_STUCK      ? "stuck"
           : status == PIPE_SIM_MISMATCH ? "mismatch"
                                         : "?",
           at, done[0][0], done[0][1], done[1][0], done[1][1]);
    free_made(m);
  }
  printf("makespans: %s\n", wrong ? "wrong" : "right");
  return wrong;
}
