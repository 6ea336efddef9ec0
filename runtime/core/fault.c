/* SPDX-License-Identifier: MIT
 * Injects faults, for tests. The environment variable
 *
 *   PIPE_FAULT=<point>:<rank>:<step>[:crash|hang|slow=<ms>|drop|corrupt]
 *
 * plants one fault at an instruction of a rank in a step (counted from 0 over the whole training).
 * A point is an instruction in op notation (2F0, 1SEND_B3), or a kind (F, SEND_B): the first
 * instruction of this kind on the rank. The points SAVE and COMMIT belong to the checkpoint after
 * that many steps: SAVE while a file is half written, by a rank that writes files (of replicas, the
 * first); COMMIT before the checkpoint gets its name, by rank 0.
 *
 *   crash    the process ends as by kill -9, with all its ranks. The default
 *   hang     the instruction does not begin before the run has failed for another reason
 *   slow     the instruction begins this many ms late
 *   drop     SEND: the message is lost, and the sender does not notice
 *   corrupt  SEND: one bit arrives flipped. F, B, I with an output: one bit of it is flipped
 *
 * Without the variable the cost is one comparison per instruction. */
#include "run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static PrStatus refuse(PrRun *run, const char *text, const char *why) {
  return pr_fail(
      run, PR_E_ARG,
      "PIPE_FAULT=%s: %s; expected <point>:<rank>:<step>[:crash|hang|slow=<ms>|drop|corrupt]", text,
      why);
}

/* The first instruction of the rank that `point` names; PIPE_NONE: none. */
static uint32_t find(const PrRun *run, const char *point, uint32_t rank) {
  const PipeRank *t = run->rank[rank].t;
  for (uint32_t i = 0; i < t->ninstr; i++) {
    char text[PIPE_OP_TEXT];
    pipe_instr_text(text, pipe_graph(run->p), &t->instr[i]);
    if (!strcmp(point, text) || !strcmp(point, pipe_op_info[t->instr[i].op].text))
      return i;
  }
  return PIPE_NONE;
}

/* Reads digits, a number of at most `most`, that end at a NUL or a colon, where *end then
 * points. */
static bool read_number(const char *text, uint64_t most, uint64_t *to, const char **end) {
  uint64_t n = 0;
  const char *c = text;
  for (; *c >= '0' && *c <= '9'; c++) {
    const uint64_t digit = (uint64_t)(*c - '0');
    if (n > (most - digit) / 10)
      return false;
    n = 10 * n + digit;
  }
  *to = n;
  *end = c;
  return c > text && (!*c || *c == ':');
}

/* True if the rank writes a file of a checkpoint. */
static bool saves(const PrRun *run, uint32_t rank) {
  bool any = false;
  for (uint32_t s = 0; s < run->p->nmodel; s++)
    any = any || run->p->stage[s].rank == rank;
  return any;
}

static PrStatus read_action(PrRun *run, const char *all, const char *action) {
  static const char *const name[] = {"", "crash", "hang", "slow", "drop", "corrupt"};
  PrFault *f = &run->fault;
  const char *end;
  uint64_t ms;
  for (int i = PR_CRASH; i <= PR_CORRUPT; i++)
    if (!strcmp(action, name[i]))
      f->kind = (PrFaultKind)i;
  if (!strncmp(action, "slow=", 5)) {
    if (!read_number(action + 5, UINT32_MAX, &ms, &end) || *end)
      return refuse(run, all, "slow= needs milliseconds, 0 to 4294967295");
    f->kind = PR_SLOW;
    f->ms = (uint32_t)ms;
  } else if (f->kind == PR_NO_FAULT || f->kind == PR_SLOW) {
    return refuse(run, all, "no such action");
  }
  if (f->point != PR_AT_INSTRUCTION && f->kind >= PR_DROP)
    return refuse(run, all, "drop and corrupt need an instruction, not SAVE or COMMIT");
  if (f->point != PR_AT_INSTRUCTION || !pr_is_here(run, f->rank))
    return PR_OK;
  const PipeInstr *c = &run->rank[f->rank].t->instr[f->index];
  bool writes = c->out != PIPE_NONE && (c->op == PIPE_F || c->op == PIPE_B || c->op == PIPE_I);
  if (f->kind == PR_DROP && !pipe_is_send(c->op))
    return refuse(run, all, "only a SEND can be dropped");
  if (f->kind == PR_CORRUPT && !pipe_is_send(c->op) && !writes)
    return refuse(run, all, "corrupt needs an instruction that writes or sends a tensor");
  return PR_OK;
}

PrStatus pr_fault_read(PrRun *run) {
  const char *all = getenv("PIPE_FAULT");
  PrFault *f = &run->fault;
  char point[PIPE_OP_TEXT], action[32] = "crash", why[128];
  const char *end;
  uint64_t rank;
  if (!all || !*all)
    return PR_OK;
  const size_t n = strcspn(all, ":");
  if (n == 0 || n >= sizeof point || !all[n] ||
      !read_number(all + n + 1, UINT32_MAX, &rank, &end) || !*end ||
      !read_number(end + 1, UINT64_MAX, &f->step, &end) ||
      (*end && strlen(end + 1) >= sizeof action))
    return refuse(run, all, "not understood");
  f->rank = (uint32_t)rank;
  snprintf(point, sizeof point, "%.*s", (int)n, all);
  if (*end)
    snprintf(action, sizeof action, "%s", end + 1);
  if (f->rank >= run->p->nrank) {
    snprintf(why, sizeof why, "there are %u ranks", run->p->nrank);
    return refuse(run, all, why);
  }
  f->point = !strcmp(point, "SAVE")     ? PR_AT_SAVE
             : !strcmp(point, "COMMIT") ? PR_AT_COMMIT
                                        : PR_AT_INSTRUCTION;
  if (f->point == PR_AT_INSTRUCTION && pr_is_here(run, f->rank) && /* else its process checks it */
      (f->index = find(run, point, f->rank)) == PIPE_NONE) {
    snprintf(why, sizeof why, "rank %u has no %s", f->rank, point);
    return refuse(run, all, why);
  }
  if (f->point == PR_AT_SAVE && !saves(run, f->rank)) {
    snprintf(why, sizeof why, "rank %u writes no file of a checkpoint", f->rank);
    return refuse(run, all, why);
  }
  if (f->point == PR_AT_COMMIT && f->rank > 0)
    return refuse(run, all, "only rank 0 has a COMMIT");
  return read_action(run, all, action);
}

/* Executes crash, hang and slow; the caller executes the other kinds. */
static PrFaultKind suffer(PrRun *run, uint32_t op) {
  const PrFault *f = &run->fault;
  switch (f->kind) {
  case PR_CRASH: raise(SIGKILL); break;
  case PR_HANG: /* a stream without a thread of its own just does not advance */
    while (pipe_stream_of(op) != PIPE_COMM && !pr_failed(run))
      nanosleep(&(struct timespec){0, 5000000}, NULL);
    break;
  case PR_SLOW:
    nanosleep(&(struct timespec){f->ms / 1000, (long)(f->ms % 1000) * 1000000}, NULL);
    break;
  default: break;
  }
  return f->kind;
}

PrFaultKind pr_fault_meet(PrRun *run, uint32_t rank, uint32_t index, uint64_t step) {
  bool here = pr_fault_is(run, run->fault.kind, rank, index, step);
  return here ? suffer(run, run->rank[rank].t->instr[index].op) : PR_NO_FAULT;
}

void pr_fault_meet_point(PrRun *run, PrFaultPoint point, uint32_t rank) {
  const PrFault *f = &run->fault;
  if (f->kind && f->point == point && f->rank == rank && f->step == pr_steps_done(run))
    suffer(run, PIPE_U);
}
