/* SPDX-License-Identifier: MIT
 * Planted mistakes. A compiler built with -DPIPE_PLANT leaves out the part of a proof that
 * pipe_plant names, and the tests must notice each (test/check/planted.test; machine.c has its
 * own). Other builds have none of this. */
#ifndef PIPEC_PLANT_H
#define PIPEC_PLANT_H

enum Plant {
  PLANT_DEPS_COMPLETE,   /* check_deps: an op is missing */
  PLANT_DEPS_ORDER,      /*   F after B, I after W */
  PLANT_DEPS_UPDATE,     /*   a gradient is lost */
  PLANT_DEPS_SLICES,     /*   slices out of order */
  PLANT_DEPS_RECOMPUTE,  /*   R out of order */
  PLANT_ORDER_DATA,      /* order: a tensor that is waited for */
  PLANT_ORDER_CIRCLE,    /*   what a rank of the circle waits for */
  PLANT_MATCH_NUMBER,    /* check_match: the number on the pair */
  PLANT_MATCH_CHANNEL,   /*   the channel */
  PLANT_DEADLOCK_STUCK,  /* check_deadlock: the machine stops */
  PLANT_SLOT_FREE,       /* slots: a slot is in use */
  PLANT_STREAMS_COVERED, /* check_streams: a dependence without event */
  PLANT_STREAMS_SLOTS,   /*   a slot that is used too early */
  PLANT_STREAMS_REUSED,  /*   an event of another record */
  PLANT_STREAMS_NEEDED,  /*   an event too many */
  PLANT_STREAMS_GROUPED, /*   an event in the middle of a group */
  PLANT_VERSION_MADE,    /* versions: a version that does not exist yet */
  PLANT_VERSION_KEPT,    /* version_slots: one that has been overwritten */
  PLANT_STALENESS,       /* versions: a gradient that is late */
  PLANT_COPIES,          /* offload: a stash that is away when it is needed */
  PLANT_MEMORY_LIMIT,    /* check_memory: more than the limit */
  PLANT_MEMORY_IN,       /*   receive slots are not counted */
  PLANT_USER_CHECK,      /* check_user: a check that does not hold */
  PLANT_OVER_LIMIT,      /*   a limit that is not kept */
  PLANT_LISTS_RECV,      /* transfers: a RECV below its op, or none */
  PLANT_LISTS_SEND,      /*   a SEND above its op, or none */
  PLANT_LISTS_ONCE,      /*   a transfer twice */
  PLANT_LISTS_ABOVE,     /* check_channels, of lists: a transfer waits for the op above it */
  PLANT_LISTS_READS,     /*   an op waits for its RECV */
  PLANT_LISTS_WAIT,      /*   `wait` waits */
  PLANT_COMMUNICATOR     /*   sums over the same ranks share a communicator */
};
#ifdef PIPE_PLANT
extern int pipe_plant; /* an enum Plant; whoever builds defines it */
#define PLANTED(what) (pipe_plant == PLANT_##what)
#else
#define PLANTED(what) false
#endif

#endif
