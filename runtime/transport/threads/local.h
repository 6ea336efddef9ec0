/* SPDX-License-Identifier: MIT
 * Transfers and sums between ranks that are all in this process, for the engines that have them. A
 * directed pair of ranks, or a channel, is a place where two sides meet: the second one carries the
 * transfer out. Of a group that has several transfers there, each is posted when the one before is
 * over. */
#ifndef PIPE_LOCAL_H
#define PIPE_LOCAL_H

#include "interpret.h"

/* Posts transfer number i of the head of c. The channel, if the other side is there, too: then the
 * transfer is the caller's. NULL: it is not, or comes after another one of its group. */
Chan *local_post(PrRun *run, CommRun *c, uint32_t i);

/* What to do with a channel whose two sides are there. */
typedef void LocalMet(PrRun *run, Chan *ch, CommRun **todo);
/* Carries out the transfer of such a channel. */
void local_transfer(PrRun *run, Chan *ch, LocalMet *met, CommRun **todo);

/* A stream has come to its REDUCE or TIE. True: all have, and the sum is the caller's. */
bool local_arrive(Coll *l);
/* Carries out a sum for all that take part. */
void local_sum(PrRun *run, Coll *l, CommRun **todo);

#endif
