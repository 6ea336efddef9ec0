/* SPDX-License-Identifier: MIT
 * The interpreter of rows, for engines whose ranks run on the host: threads and processes. It
 * knows the order of each stream of a rank and what each instruction waits for. The engine moves
 * tensors (PrEngine.begin). Devices have queues that wait for one another, so the CUDA engine
 * issues a whole step at once instead (transport/cuda).
 *
 * Which thread runs a stream:
 *   COMPUTE  the rank's thread, in pr_run_step
 *   COPY     the copier, a thread of each rank that has COPY instructions: copies overlap compute
 *   COMM     no thread of its own. A stream, or each of its channels, is a cursor with an owner.
 *            The thread that makes its head possible advances it (pr_advance). The owner is, in
 *            turn,
 *     - the rank's thread, from the start of a step;
 *     - nobody, while the head waits for another queue: CommRun.awaits is the key of the count. The
 *       thread that reaches the count clears CommRun.awaits and thereby owns the stream;
 *     - the engine, from `begin` until it has called pr_over for all of the head; then the thread
 *       that made the last of these calls;
 *     - the rank's thread again, once CommRun.done shows that the step is complete.
 *
 * So a transfer begins as soon as it can, even while all ranks are in callbacks, and no thread
 * holds a lock. The fields marked "owned" in CommRun belong to the owner. Each hand-over is an
 * atomic read-modify-write or a store of CommRun.done.
 *
 * A thread meets one wait after the other. If it must wait, it stores the key of the count in
 * sleep_on, looks once more, and sleeps on its semaphore. The thread that makes the awaited count
 * clears sleep_on and wakes only that thread.
 * Both sides store and then load, sequentially consistent, so one of the two sees the other.
 *
 * PrRun.live counts the threads that are awake. The waker raises it before the wake-up, so it is 0
 * exactly when nothing can happen any more. The last thread to lie down thus detects a stall
 * without a timeout, and may read everything. An engine of processes counts one thread that never
 * lies down, because this process does not know what the others do. */
#ifndef PIPE_INTERPRET_H
#define PIPE_INTERPRET_H

#include "run.h"

/* Runs the next step of rank k on the rank's thread. Returns early if the run fails. */
void pr_run_step(PrRun *run, RankRun *k);

/* The parts of a step, for an engine without threads: the COMM streams begin `step`; n more
 * instructions of COMPUTE are done; one more of COPY is done. */
void pr_begin_step(PrRun *run, RankRun *k, uint64_t step);
void pr_did_compute(PrRun *run, RankRun *k, uint32_t n);
void pr_did_copy(PrRun *run, RankRun *k);

/* Completes number i of stream c, which has begun. If this completes the head and c has more in
 * this step, adds c to the list `todo`; else the caller may not touch c again. */
void pr_over(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
/* Tells blame.c that number i has arrived. pr_over follows, for the whole group at once. */
void pr_note_over(CommRun *c, uint32_t i);

/* Advances the streams of a list, which the caller owns, and those that this unblocks. */
void pr_advance(PrRun *run, CommRun *todo);

/* Opens the semaphores of rank k; starts its copier if it has COPY, and its thread if `main` is not
 * NULL. spin: there is a core for each thread. Closing joins both; PrRun.quit is set before. */
PrStatus pr_open_threads(PrRun *run, RankRun *k, bool spin, void *(*main)(void *));
void pr_close_threads(RankRun *k);
/* Lets the copier run the steps up to PrRun.target. */
void pr_start_copier(RankRun *k);

/* The calling thread has done its steps: sleeps until `sem` is posted. */
void pr_rest(PrRun *run, sem_t *sem);

/* Waits until PrRun.released is `steps` or the run fails; wakes k if it waits for `steps`. */
void pr_wait_released(PrRun *run, RankRun *k, uint64_t steps);
void pr_tell_released(PrRun *run, RankRun *k, uint64_t steps);

/* Wakes all threads of a run that has failed. */
void pr_wake_all(PrRun *run);

#endif
