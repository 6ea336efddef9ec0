/* SPDX-License-Identifier: MIT
 * PipeProgram.hash covers all tables except files, lines and columns. It includes the tables of a
 * rank by their own hash: a process that has written out one rank can thus check that these and all
 * other tables are the ones that were proved. */
#include "pipe_rows.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pipe_rank_hash(const PipeRank *k) {
  XXH3_state_t state, *h = &state;
  XXH3_INITSTATE(h);
  XXH3_64bits_reset(h);
  const uint64_t size[] = {k->ninstr, k->npool, k->nslot, k->inflight, k->bytes, k->host};
  XXH3_64bits_update(h, size, sizeof size);
  XXH3_64bits_update(h, k->instr, k->ninstr * sizeof *k->instr);
  XXH3_64bits_update(h, k->pool, k->npool * sizeof *k->pool);
  XXH3_64bits_update(h, k->list, k->nlist * sizeof *k->list);
  XXH3_64bits_update(h, k->weights, k->weights ? k->ninstr * sizeof *k->weights : 0);
  XXH3_64bits_update(h, k->wait, k->nwait * sizeof *k->wait);
  return XXH3_64bits_digest(h);
}

uint64_t pipe_program_hash(const PipeProgram *p) {
  XXH3_state_t state, *h = &state;
  XXH3_INITSTATE(h);
  XXH3_64bits_reset(h);
  const uint64_t head[] = {p->abi,   p->nrank,   p->nstage, p->nmb,      p->nmodel,
                           p->sized, p->timed,   p->slots,  p->makespan, p->ideal,
                           p->busy,  p->forward, p->slices, p->lowering};
  XXH3_64bits_update(h, head, sizeof head);
  XXH3_64bits_update(h, p->name, strlen(p->name) + 1);
  XXH3_64bits_update(h, p->params, strlen(p->params) + 1);
  XXH3_64bits_update(h, p->stage, p->nstage * sizeof *p->stage);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    const uint64_t hash = k->rows ? k->hash : pipe_rank_hash(k);
    XXH3_64bits_update(h, &hash, sizeof hash);
  }
  XXH3_64bits_update(h, p->edge, p->nedge * sizeof *p->edge);
  XXH3_64bits_update(h, p->share, p->nshare * sizeof *p->share);
  XXH3_64bits_update(h, p->channel, p->nchannel * sizeof *p->channel);
  XXH3_64bits_update(h, p->unit_time, (size_t)8 * PIPE_UNIT_TIMES * p->nstage * p->nunit_time);
  for (uint32_t i = 0; i < p->nside; i++) {
    const PipeSide *k = &p->side[i];
    const uint64_t of[] = {k->op, k->decl, k->stage, k->time, k->bytes};
    XXH3_64bits_update(h, of, sizeof of);
    XXH3_64bits_update(h, k->name, strlen(k->name) + 1);
  }
  XXH3_64bits_update(h, p->row, p->row ? (size_t)p->nmodel * p->nmb * sizeof *p->row : 0);
  for (uint32_t i = 0; i < p->nformula; i++)
    XXH3_64bits_update(h, p->formula[i].term, p->formula[i].n * sizeof *p->formula[i].term);
  XXH3_64bits_update(h, p->rule, p->nrule * sizeof *p->rule);
  XXH3_64bits_update(h, p->then, p->nthen * sizeof *p->then);
  return XXH3_64bits_digest(h);
}
