/* SPDX-License-Identifier: MIT
 * What a model is trained on (cluster.c). */
#ifndef PIPEC_CLUSTER_H
#define PIPEC_CLUSTER_H

#include "pipec.h"

enum { MOST_LEVELS = 8, MOST_CLUSTER = 1024 /* ranks; search.c takes ranks^2 */ };

/* `count` groups of the level below, or ranks, that reach each other over one kind of link. */
typedef struct Level {
  uint32_t count, ranks;       /* ranks: of one group of this level */
  uint64_t latency, bandwidth; /* ns, bytes a second */
  bool shared;                 /* all that leaves a group of the level below passes one link */
} Level;

typedef struct Cluster {
  Level level[MOST_LEVELS]; /* the innermost first */
  uint32_t nlevel, nrank;
  uint64_t memory; /* bytes of a rank; 0: unknown */
  uint64_t host;   /* bytes a second from a rank to host memory, and back; 0: there is none */
  double *speed;   /* [nrank] 1: as measured in the profile */
} Cluster;

bool cluster_read(Sched *s, const char *path, Cluster *c); /* false: reported */
/* The cluster whose ranks are each `width` neighbours of c; width divides its innermost level. Each
 * neighbour sends a message of its own when their rank sends one; the slowest sets the speed. */
Cluster cluster_joined(Sched *s, const Cluster *c, uint32_t width);
/* The level over which ranks a and b reach each other. */
const Level *level_between(const Cluster *c, uint32_t a, uint32_t b);
/* Time of a message of so many bytes, rounded up. */
uint64_t message_time(const Level *l, uint64_t bytes);

#endif
