/* SPDX-License-Identifier: MIT
 * Planted faults. A compiler built with -DPIPE_PLANT leaves out the part of a proof that pipe_plant
 * names, and a test must notice each omission (test/check/planted.test; machine.c plants its own).
 * Other builds contain none of this. */
#ifndef PIPEC_PLANT_H
#define PIPEC_PLANT_H

enum Plant {
  PLANT_DEPS_COMPLETE,   /* check_deps: an op is missing */
  PLANT_DEPS_ORDER,      /*   F after B, I after W */
  PLANT_DEPS_UPDATE,     /*   a gradient is lost */
  PLANT_DEPS_SLICES,     /*   slices out of order */
  PLANT_DEPS_RECOMPUTE,  /*   R out of order */
  PLANT_ORDER_DATA,      /* order: a tensor that is not made yet */
  PLANT_ORDER_CYCLE,    /* the op that a rank of the wait cycle waits for */
  PLANT_MATCH_NUMBER,    /* check_match: the number on the pair */
  PLANT_MATCH_CHANNEL,   /*   the channel */
  PLANT_DEADLOCK_STUCK,  /* check_deadlock: a stream did not come to its end */
  PLANT_SLOT_FREE,       /* slots: a slot is in use */
  PLANT_VERSION_MADE,    /* versions: a version that is not made yet */
  PLANT_VERSION_KEPT,    /* version_slots: a version that was overwritten */
  PLANT_STALENESS,       /* versions: a late gradient */
  PLANT_COPIES,          /* offload: a stash that is in host memory when it is needed */
  PLANT_MEMORY_LIMIT,    /* check_memory: more than the limit */
  PLANT_MEMORY_IN,       /* receive slots are left out of the sum */
  PLANT_USER_CHECK,      /* check_user: a check that is false */
  PLANT_OVER_LIMIT,      /* a limit that is exceeded */
  PLANT_LISTS_RECV,      /* transfers: a RECV below its op, or none */
  PLANT_LISTS_SEND,      /*   a SEND above its op, or none */
  PLANT_LISTS_ONCE,      /*   a transfer twice */
  PLANT_LISTS_ABOVE,     /* check_channels, of lists: a transfer waits for the op above it */
  PLANT_LISTS_READS,     /*   an op waits for its RECV */
  PLANT_LISTS_WAIT,      /*   `wait` waits */
  PLANT_COMMUNICATOR     /*   sums over the same ranks share a communicator */
};
#ifdef PIPE_PLANT
extern int pipe_plant; /* an enum Plant; the program that links the compiler defines it */
#define PLANTED(what) (pipe_plant == PLANT_##what)
#else
#define PLANTED(what) false
#endif

#endif
