/* SPDX-License-Identifier: MIT
 * Transfers and sums between ranks of this process, for the engines of threads. A directed pair of
 * ranks, or a channel, is the meeting place of two sides; the second side executes the transfer. If
 * a group has several transfers there, each is posted once the previous one is over. */
#ifndef PIPE_LOCAL_H
#define PIPE_LOCAL_H

#include "interpret.h"

/* Posts transfer i of the head of c. Returns the channel if the other side is there too: the caller
 * must then execute the transfer. NULL: the other side is missing, or an earlier transfer of the
 * group must come first. */
Chan *local_post(PrRun *run, CommRun *c, uint32_t i);

/* Callback: handles a channel whose two sides have posted. */
typedef void LocalMet(PrRun *run, Chan *ch, CommRun **todo);
/* Executes the transfer of such a channel. */
void local_transfer(PrRun *run, Chan *ch, LocalMet *met, CommRun **todo);

/* Registers a stream at its REDUCE or TIE. True: all streams have arrived, and the caller must
 * execute the sum. */
bool local_arrive(Coll *l);
/* Executes a sum for all its members. */
void local_sum(PrRun *run, Coll *l, CommRun **todo);

#endif
