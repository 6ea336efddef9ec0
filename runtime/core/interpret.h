/* SPDX-License-Identifier: MIT
 * The interpreter of rows, for engines whose ranks are carried out by the host: threads, the seeded
 * one and processes. It knows the order of a rank's streams and what each instruction waits for.
 * What moves a tensor is the engine's (PrEngine.begin). Devices have queues of their own, which
 * wait for one another there: they are given all of a step at once (transport/cuda).
 *
 * Whose thread runs what:
 *   COMPUTE  the rank's own, by pr_run_step
 *   COPY     of a rank that has some, a thread of its own, the copier: copies run beside compute
 *   COMM     nobody's. A stream, or each of its channels, is a cursor that somebody owns: whoever
 *            makes its head possible carries it on (pr_advance). The owner is, in turn,
 *     - the rank's thread, from the start of a step;
 *     - nobody, while the head waits for the rank's compute: CommRun.wait holds the count it waits
 *       for, and the thread that reaches the count takes the stream by clearing it; wait_copy
 *       is the same of copies;
 *     - the engine, from `begin` until it has called pr_over for all of the head: then whoever did
 *       so last;
 *     - the rank's thread again, which sees the last completion of the step in CommRun.done.
 *
 * So a transfer begins as soon as it can, even while all ranks are in callbacks, and no lock is
 * held. The fields "owned" in CommRun follow the stream; each hand-over is an atomic
 * read-modify-write or a store of CommRun.done.
 *
 * A thread that must wait tells so in sleep_on, looks again, and sleeps on its own semaphore; who
 * makes the awaited count clears sleep_on and wakes that thread alone. (Store, then load, on both
 * sides, sequentially consistent: one of the two sees the other.)
 *
 * PrRun.live counts the threads that are awake. It is raised by the waker, before the wake-up, so
 * it is 0 exactly when nothing can ever happen again: a stall is known at once, without a timeout,
 * to the last thread to lie down, which then may look at everything. An engine of processes counts
 * a thread that never lies down: what another process does is not known here. */
#ifndef PIPE_INTERPRET_H
#define PIPE_INTERPRET_H

#include "run.h"

/* Carries out the next step of rank k, whose thread this is; stops where it is once the run has
 * failed. */
void pr_run_step(PrRun *run, RankRun *k);

/* Its parts, for an engine without threads: the COMM streams begin `step`; n more instructions of
 * COMPUTE are done, one more of COPY. */
void pr_begin_step(PrRun *run, RankRun *k, uint64_t step);
void pr_did_compute(PrRun *run, RankRun *k, uint32_t n);
void pr_did_copy(PrRun *run, RankRun *k);

/* Number i of stream c, which has begun, is over. If that completes the head and c has more in this
 * step, c is put on the list `todo`; else it may not be touched again. */
void pr_over(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
/* It is as good as over, which blame is to know: pr_over will be called of all of its group. */
void pr_note_over(CommRun *c, uint32_t i);

/* Carries on the streams of a list, which the caller owns, and those that become free to go on. */
void pr_advance(PrRun *run, CommRun *todo);

/* Opens what a rank waits with, and starts its copier, if it has COPY, and its thread, if `main` is
 * not NULL. spin: there is a core for each thread. Closing joins them: PrRun.quit is set. */
PrStatus pr_open_threads(PrRun *run, RankRun *k, bool spin, void *(*main)(void *));
void pr_close_threads(RankRun *k);
/* Lets the copier carry out the steps up to PrRun.target. */
void pr_start_copier(RankRun *k);

/* The thread has done its steps, and sleeps until its semaphore is posted. */
void pr_rest(PrRun *run, sem_t *sem);

/* Until PrRun.released is `steps`, or the run has failed; and telling k of it. */
void pr_wait_released(PrRun *run, RankRun *k, uint64_t steps);
void pr_tell_released(PrRun *run, RankRun *k, uint64_t steps);

/* The run has failed: nobody sleeps on. */
void pr_wake_all(PrRun *run);

#endif
