/* SPDX-License-Identifier: MIT
 * Messages of the MPI engine: starting them, waiting for them, and what a rank does for others
 * while it waits: it answers copies to and from its guest slots, and looks at the clock. */
#include "engine_mpi.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Waiting and errors */

/* Between the looks i and i + 1. Who has looked often sleeps for longer, but the host of others'
 * stashes, who may ask at any time; not for long, since a large message takes many looks: MPI moves
 * it on in them alone. */
void mpi_back_off(const Mpi *m, uint32_t i) {
  enum { FIRST_NS = 2000, NEXT_NS = 100000, LAST_NS = 250000, SHORT = 48 };
  if (i < m->spin)
    return;
  i -= m->spin;
  uint64_t ns = i < SHORT ? (uint64_t)FIRST_NS << i / 8 : NEXT_NS;
  if (i >= SHORT && !m->nhosted)
    ns += UINT64_C(1000) * (i - SHORT);
  pr_nap(ns < LAST_NS ? ns : LAST_NS);
}

bool mpi_is_fine(Mpi *m, int code, const char *what) {
  if (code == MPI_SUCCESS)
    return true;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int len = 0;
  MPI_Error_string(code, text, &len);
  pr_fail(m->run, PR_E_LOST, "rank %u: %s: %s", m->run->here, what, text);
  return false;
}

/* Messages */

/* The type and count of a message of so many bytes. MPI counts in int. */
int mpi_type_of(const Mpi *m, uint64_t bytes, MPI_Datatype *type) {
  *type = MPI_BYTE;
  if (bytes <= INT_MAX)
    return (int)bytes;
  for (uint32_t i = 0; i < m->nbig; i++)
    if (m->big[i].bytes == bytes)
      *type = m->big[i].type;
  return 1;
}

bool mpi_start_send(Mpi *m, MpiKind kind, int number, const void *from, uint64_t bytes, uint32_t to,
                    MPI_Request *r) {
  MPI_Datatype type;
  int n = mpi_type_of(m, bytes, &type), tag = 4 * number + kind, try_code;
  if (m->synchronous)
    return TRY(m, MPI_Issend, (from, n, type, (int)to, tag, m->comm, r));
  return TRY(m, MPI_Isend, (from, n, type, (int)to, tag, m->comm, r));
}

bool mpi_start_recv(Mpi *m, MpiKind kind, int number, void *to, uint64_t bytes, uint32_t from,
                    MPI_Request *r) {
  MPI_Datatype type;
  int n = mpi_type_of(m, bytes, &type), tag = 4 * number + kind, try_code;
  return TRY(m, MPI_Irecv, (to, n, type, (int)from, tag, m->comm, r));
}

/* Answers what other ranks ask of guest slots. A copy to a slot is one message; one from it is
 * asked for by a message of no bytes. */
static bool serve(Mpi *m) {
  PrRun *run = m->run;
  int try_code;
  for (uint32_t i = 0; i < m->nhosted; i++) {
    Guest *g = &m->hosted[i];
    int done = 1;
    if (!TRY(m, MPI_Test, (&g->request, &done, MPI_STATUS_IGNORE)))
      return false;
    if (!done)
      continue;
    const PipeInstr *c = &g->copy[g->next];
    uint64_t bytes = run->stage[c->stage].size.act;
    void *slot = m->k->slot[c->away];
    if (c->op == PIPE_LOAD && !g->answering) {
      g->answering = true;
      if (!mpi_start_send(m, MPI_OF_COPY, 0, slot, bytes, g->rank, &g->request))
        return false;
      continue;
    }
    g->answering = false;
    g->next = g->next + 1 == g->n ? 0 : g->next + 1;
    c = &g->copy[g->next];
    bool off = c->op == PIPE_OFF;
    if (!mpi_start_recv(m, MPI_OF_COPY, 0, off ? m->k->slot[c->away] : NULL,
                        off ? run->stage[c->stage].size.act : 0, g->rank, &g->request))
      return false;
  }
  return true;
}

/* What the communicator does besides its stream: false if the run has failed. */
bool mpi_look_around(Mpi *m) {
  if (pr_failed(m->run))
    return false;
  mpi_watch_step(m);
  return serve(m);
}

bool mpi_finish(Mpi *m, MPI_Request *r, uint32_t n) {
  for (uint32_t i = 0;; i++) {
    int done = 0, try_code;
    if (!TRY(m, MPI_Testall, ((int)n, r, &done, MPI_STATUSES_IGNORE)))
      return false;
    if (done)
      return true;
    if (pr_failed(m->run))
      return false;
    mpi_back_off(m, i);
  }
}
