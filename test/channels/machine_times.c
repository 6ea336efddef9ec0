/* SPDX-License-Identifier: MIT
 * machine_times, compared with times that were worked out by hand. */
#include "machine_program.h"

/* n SENDs meet n RECVs behind five computations, with room for one message. A SEND goes on once the
 * RECV of the one above it has begun at 5, the end of the computations, with the group that it is
 * in: by hand. */
static bool queued_times_agree(void) {
  enum { N = 3, COMPUTES = 5 };
  static const struct {
    uint32_t n, group, sends[N], recvs[N];
  } want[] = {{2, 0, {1, 6}, {6, 7}}, {2, 1, {1, 6}, {6, 6}}, {3, 2, {1, 6, 7}, {7, 7, 7}}};
  bool ok = true;
  for (uint32_t k = 0; k < sizeof want / sizeof *want; k++) {
    Arena arena = {0};
    MachineInstr send[N], recv[COMPUTES + N];
    for (uint32_t i = 0; i < COMPUTES; i++)
      recv[i] = program_instr(MACHINE_COMPUTE);
    for (uint32_t i = 0; i < want[k].n; i++) {
      send[i] = program_instr(MACHINE_SEND);
      recv[COMPUTES + i] = program_instr(MACHINE_RECV);
      send[i].peer = 1;
      send[i].tensor = recv[COMPUTES + i].tensor = i;
      recv[COMPUTES + i].need[0] = COMPUTES - 1;
      recv[COMPUTES + i].group = want[k].group > i ? want[k].group - i : 0;
    }
    const MachineList list[] = {{send, want[k].n}, {recv, COMPUTES + want[k].n}};
    uint32_t **end = machine_times(&arena, list, 2,
                                   (ChannelModel){.channels = CHANNELS_RANK, .buffer = 1});
    for (uint32_t i = 0; i < want[k].n; i++)
      if (end[0][i] != want[k].sends[i] || end[1][COMPUTES + i] != want[k].recvs[i]) {
        printf("%u sends, group of %u: transfer %u ends at %u and %u, by hand %u and %u\n",
               want[k].n, want[k].group + 1, i, end[0][i], end[1][COMPUTES + i], want[k].sends[i],
               want[k].recvs[i]);
        ok = false;
      }
    arena_free(&arena);
  }
  return ok;
}

/* With tags and room for one message: rank 0 computes once and sends 0, 1 and 2; rank 1 computes
 * five times, takes 2, computes, takes 0, computes, and takes 1. The first is in the buffer until
 * its RECV begins at 6, the second waits for that room, and the third for its own RECV. What needs
 * nothing begins at once. By hand. */
static bool tagged_times_agree(void) {
  static const uint32_t tensor[] = {9, 9, 9, 9, 9, 2, 9, 0, 9, 1}, /* of rank 1; 9: it computes */
      want[2][10] = {{1, 2, 7, 6}, {1, 2, 3, 4, 5, 6, 6, 7, 7, 8}};
  enum { SENDS = 3, N = 10 };
  MachineInstr send[1 + SENDS] = {program_instr(MACHINE_COMPUTE)}, recv[N];
  for (uint32_t i = 1; i <= SENDS; i++) {
    send[i] = program_instr(MACHINE_SEND);
    send[i].peer = 1, send[i].tensor = i - 1, send[i].need[0] = 0;
  }
  for (uint32_t i = 0, above = MACHINE_NONE; i < N; i++) {
    recv[i] = program_instr(tensor[i] == 9 ? MACHINE_COMPUTE : MACHINE_RECV);
    recv[i].tensor = tensor[i], recv[i].need[0] = tensor[i] == 9 ? MACHINE_NONE : above;
    above = tensor[i] == 9 ? i : above;
  }
  const MachineList list[] = {{send, 1 + SENDS}, {recv, N}};
  Arena arena = {0};
  uint32_t **end = machine_times(&arena, list, 2,
                                 (ChannelModel){.channels = CHANNELS_TAGGED, .buffer = 1});
  bool ok = true;
  for (uint32_t r = 0; r < 2; r++)
    for (uint32_t i = 0; i < list[r].n; i++)
      if (end[r][i] != want[r][i]) {
        printf("with tags: instruction %u of rank %u ends at %u, by hand %u\n", i, r, end[r][i],
               want[r][i]);
        ok = false;
      }
  arena_free(&arena);
  return ok;
}

bool program_times_agree(void) { return queued_times_agree() && tagged_times_agree(); }
