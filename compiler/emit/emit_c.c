/* SPDX-License-Identifier: MIT
 * Writes the program as one C file of constant tables. Requires prog. The same program gives the
 * same bytes: no times, addresses or directories. Includes only the installed header, whose ABI it
 * asserts. Cost: linear; the inner loop writes numbers without printf. */
#include <inttypes.h>

#include "emit.h"
#include "names.h"
#include "base.h"
#include "emit_formulas.h"
#include "emit_rows.h"
#include "looped.h"
#include "text.h"

static void field(Text *t, uint32_t v, char after) {
  if (v == PIPE_NONE)
    text_char(t, 'N');
  else
    text_u64(t, v);
  text_char(t, after);
}

static void instr(Text *t, PipeGraph g, const PipeInstr *in) {
  const char *name = pipe_op_info[in->op].text;
  text_room(t);
  text_lit(t, "  {PIPE_");
  text_lit(t, name);
  text_char(t, ',');
  field(t, in->phase, ',');
  field(t, in->group, ',');
  text_char(t, ' ');
  field(t, in->stage, ',');
  field(t, in->mb, ',');
  field(t, in->peer, ',');
  text_char(t, ' ');
  field(t, in->act, ',');
  field(t, in->gout, ',');
  field(t, in->keep, ',');
  field(t, in->in, ',');
  field(t, in->out, ',');
  text_char(t, ' ');
  field(t, in->wait, ',');
  field(t, in->wait_copy, ',');
  field(t, in->site, '}');
  text_lit(t, ", /* ");
  if (g.row || pipe_is_side(in->op)) { /* (a looped program has edges, but no rows) */
    char text[PIPE_OP_TEXT];
    pipe_instr_text(text, g, in);
    text_lit(t, text);
  } else {
    text_u64(t, in->stage);
    text_lit(t, name);
    if (in->mb != PIPE_NONE)
      text_op_unit(t, in->op, in->mb, g.slices);
  }
  text_lit(t, " */\n");
}

/* The tables of PipeGraph and the slots of ops with several tensors, if there are any. */
static void graph_tables(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (!p->edge)
    return;
  text_string(t, "\n/* from to out in skip 0, time of its transfers */\n");
  text_table(t, "PipeEdge", "edge");
  text_lit(t, "\n");
  for (uint32_t i = 0; i < p->nedge; i++) {
    const PipeEdge *g = &p->edge[i];
    text_string(t,
                arena_printf(s->arena, "  {%u, %u, %u, %u, %u, 0, {%" PRIu64 ", %" PRIu64 "}},\n",
                             g->from, g->to, g->out, g->in, g->skip, g->send[0], g->send[1]));
  }
  if (p->nedge == 0)
    text_string(t, "  {0, 0, 0, 0, 0, 0, {0, 0}},\n");
  text_string(t, "};\n");
  if (!p->row)
    return;
  text_string(t, "\n/* by stage of the model, then microbatch */\n");
  text_table(t, "uint32_t", "row");
  for (size_t i = 0; i < (size_t)p->nmodel * p->nmb; i++) {
    text_room(t);
    text_lit(t, i % p->nmb ? " " : "\n  ");
    field(t, p->row[i], ',');
  }
  text_string(t, "\n};\n");
}

static void u64s(Text *t, const uint64_t *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i)
      text_char(t, ',');
    text_u64(t, v[i]);
  }
}

static void unit_table(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (!p->unit_time)
    return;
  text_string(t, "\n/* F B I W R OFF LOAD FB of each slice, or each unit, by stage */\n");
  text_table(t, "uint64_t", "unit_time");
  text_lit(t, "\n");
  for (size_t i = 0; i < (size_t)p->nstage * p->nunit_time; i++) {
    text_room(t);
    text_lit(t, "  ");
    u64s(t, &p->unit_time[PIPE_UNIT_TIMES * i], PIPE_UNIT_TIMES);
    text_lit(t, ",\n");
  }
  text_string(t, "};\n");
}

/* Row i of a table with so many a line: numbers, and `op` before them unless it is PIPE_NOPS. */
static void short_row(Text *t, uint32_t i, uint32_t a_line, int op, const uint32_t v[3]) {
  text_room(t);
  text_lit(t, i % a_line ? " {" : "\n  {");
  if (op < PIPE_NOPS)
    text_lit(t, "PIPE_"), text_lit(t, pipe_op_info[op].text), text_char(t, ',');
  for (int k = 0; k < 3; k++)
    field(t, v[k], k < 2 ? ',' : '}');
  text_char(t, ',');
}

static void share_table(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (p->nshare == 0)
    return;
  text_string(t, "\n/* from to link: ranks whose transfers pass a shared link */\n");
  text_table(t, "PipeShare", "share");
  for (uint32_t i = 0; i < p->nshare; i++) {
    const PipeShare *h = &p->share[i];
    short_row(t, i, 8, PIPE_NOPS, (const uint32_t[]){h->from, h->to, h->link});
  }
  text_string(t, "\n};\n");
}

static void channel_table(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (p->nchannel == 0)
    return;
  text_string(t, "\n/* op from to pipe: channels of COMM, each a stream of its own */\n");
  text_table(t, "PipeChannel", "channel");
  for (uint32_t i = 0; i < p->nchannel; i++) {
    const PipeChannel *c = &p->channel[i];
    short_row(t, i, 4, c->op, (const uint32_t[]){c->from, c->to, c->pipe});
  }
  text_string(t, "\n};\n");
}

static void weights(Sched *s, Text *t, uint32_t r) {
  const PipeRank *k = &s->prog->rank[r];
  if (!k->weights)
    return;
  text_table(t, "PipeWeights", arena_printf(s->arena, "weights%u", r));
  text_lit(t, "\n");
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeWeights *w = &k->weights[i];
    text_room(t);
    text_lit(t, "  {");
    field(t, w->version, ',');
    field(t, w->slot, ',');
    field(t, w->out, ',');
    field(t, w->guess, ',');
    field(t, w->formula, ',');
    if (w->behind < 0)
      text_char(t, '-');
    text_u64(t, (uint64_t)(w->behind < 0 ? -(int64_t)w->behind : w->behind));
    text_char(t, ',');
    field(t, w->ahead, ',');
    text_lit(t, "0},\n");
  }
  text_string(t, "};\n");
}

static void side_table(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (p->nside == 0)
    return;
  text_string(t, "\n/* name op decl stage time bytes */\n");
  text_table(t, "PipeSide", "side");
  text_lit(t, "\n");
  for (uint32_t i = 0; i < p->nside; i++) {
    const PipeSide *k = &p->side[i];
    text_string(
        t, arena_printf(s->arena, "  {\"%s\", PIPE_%s, %u, %u, 0, %" PRIu64 ", %" PRIu64 "},\n",
                        k->name, pipe_op_info[k->op].text, k->decl, k->stage, k->time, k->bytes));
  }
  text_string(t, "};\n");
}

static void slot_list(Sched *s, Text *t, uint32_t r) {
  const PipeRank *k = &s->prog->rank[r];
  if (k->nlist == 0)
    return;
  text_table(t, "uint32_t", arena_printf(s->arena, "list%u", r));
  for (uint32_t i = 0; i < k->nlist; i++) {
    text_room(t);
    text_lit(t, i % 16 ? " " : "\n  ");
    field(t, k->list[i], ',');
  }
  text_string(t, "\n};\n");
}

static void syncs(Sched *s, Text *t, uint32_t r) {
  const PipeRank *k = &s->prog->rank[r];
  if (k->nsync == 0)
    return;
  text_table(t, "PipeSync", arena_printf(s->arena, "sync%u", r));
  for (uint32_t i = 0; i < k->nsync; i++) {
    const PipeSync *y = &k->sync[i];
    short_row(t, i, 8, PIPE_NOPS, (const uint32_t[]){y->after, y->before, y->event});
  }
  text_string(t, "\n};\n");
}

static void head(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  text_string(
      t,
      arena_printf(
          s->arena,
          "/* Generated by pipec " PIPEC_VERSION " from schedule %s%s%s. Do not edit.\n"
          " * %u ranks, %u stages, %u microbatches. Predicted makespan %" PRIu64
          "%s, proved: complete, in order,\n"
          " * deadlock-free (rendezvous, untagged, one comm stream per %s), matched. Rows: pipe_rows.h. */\n"
          "#define PIPE_ROWS\n#include <pipe_rows.h>\n\nPIPE_REQUIRE_ABI(%u);\n\n#define N PIPE_NONE\n",
          escaped(s, ESCAPE_C, p->name), *p->params ? ", " : "", escaped(s, ESCAPE_C, p->params),
          p->nrank, p->nstage, p->nmb / p->slices, p->makespan, p->timed ? " ns" : " units",
          p->lowering == PIPE_CHANNELS ? "channel" : "rank", PIPE_ABI));
}

/* The list of a rank, instruction by instruction. */
static void instrs(Sched *s, Text *t, uint32_t r) {
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  int phase = -1;
  text_table(t, "PipeInstr", arena_printf(s->arena, "rank%u", r));
  text_lit(t, "\n");
  for (uint32_t i = 0; i < k->ninstr; i++) {
    if (pipe_op_info[k->instr[i].op].stream == PIPE_COMPUTE && k->instr[i].phase != phase) {
      phase = k->instr[i].phase;
      text_room(t);
      text_lit(t, "  /* ");
      text_lit(t, pipe_phase_name[phase]);
      text_lit(t, " */\n");
    }
    instr(t, pipe_graph(p), &k->instr[i]);
  }
  text_lit(t, "};\n");
}

static bool same_bytes(const void *a, const void *b, size_t n) {
  return n == 0 || (a && b && memcmp(a, b, n) == 0);
}

/* The list of a rank as rows, which are written out again and compared. */
static void rows(Sched *s, Text *t, RowMaker *maker, PipeRank *rank, uint32_t r) {
  const PipeRank *k = &s->prog->rank[r];
  RankRows rows = make_rows(maker, r);
  PipeProgram p = *s->prog;
  PipeRank back;
  char why[PIPE_EXPAND_TEXT] = "";
  rank[r] = *k;
  rank[r].rows = rows.word, rank[r].nrows = rows.n, rank[r].weighted = k->weights != NULL;
  rank[r].hash = pipe_rank_hash(k);
  p.rank = rank;
  bool ok = pipe_expand_rank(&p, r, &back, why);
  if (!ok)
    fprintf(stderr, "pipec: %s\n", why);
  BUG_IF(!ok);
  BUG_IF(!same_bytes(back.instr, k->instr, k->ninstr * sizeof *k->instr));
  BUG_IF(!same_bytes(back.list, k->list, k->nlist * sizeof *k->list));
  BUG_IF(!same_bytes(back.sync, k->sync, k->nsync * sizeof *k->sync));
  BUG_IF(k->weights && !same_bytes(back.weights, k->weights, k->ninstr * sizeof *k->weights));
  free((void *)(uintptr_t)back.instr);
  text_table(t, "uint32_t", arena_printf(s->arena, "rank%u", r));
  emit_rows(t, &rows);
  text_lit(t, "};\n");
}

void emit_c_tables(Sched *s, Text *t, const char *symbol, bool as_rows) {
  const PipeProgram *p = s->prog;
  const char *x = t->prefix;
  Arena own = {.oom = s->arena->oom};
  RowMaker *maker = as_rows ? open_rows(&own, p) : NULL;
  PipeRank *rank = NEW_ARRAY(&own, PipeRank, p->nrank);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    text_lit(t, "\n");
    if (as_rows)
      rows(s, t, maker, rank, r);
    else
      instrs(s, t, r);
    text_table(t, "PipePool", arena_printf(s->arena, "pool%u", r));
    text_lit(t, "\n");
    for (uint32_t i = 0; i < k->npool; i++) {
      const PipePool *q = &k->pool[i];
#define X(cls, name) "PIPE_" #cls,
      static const char *const cls[PIPE_NCLASSES] = {PIPE_CLASSES(X)};
#undef X
      text_string(t, arena_printf(s->arena, "  {%s, %u, %u, %u, %" PRIu64 ", %u, 0},\n",
                                  cls[q->cls], q->stage, q->first, q->count, q->bytes, q->skip));
    }
    text_string(t, "};\n");
    if (as_rows)
      continue;
    slot_list(s, t, r);
    weights(s, t, r);
    syncs(s, t, r);
  }
  text_lit(t, "\n");
  text_table(t, "PipeRank", "rank");
  text_lit(t, "\n");
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    if (as_rows) {
      text_string(t, arena_printf(
                         s->arena,
                         "  {0, pool%u, %u, %u, %u, %u, %" PRIu64 ", %" PRIu64
                         ", 0, %u, %u, 0, %u, %u, 0, rank%u, sizeof rank%u / 4, %u, 0x%016" PRIx64
                         "u},\n",
                         r, k->ninstr, k->npool, k->nslot, k->inflight, k->bytes, k->host, k->nlist,
                         k->nevent, k->nsync, k->group, r, r, k->weights != NULL, rank[r].hash));
      continue;
    }
    text_string(
        t, arena_printf(s->arena, "  {%srank%u, %spool%u, %u, %u, %u, %u, %" PRIu64 ", %" PRIu64, x,
                        r, x, r, k->ninstr, k->npool, k->nslot, k->inflight, k->bytes, k->host));
    text_string(t, k->nlist ? arena_printf(s->arena, ", %slist%u, %u", x, r, k->nlist) : ", 0, 0");
    text_string(t, k->nsync ? arena_printf(s->arena, ", %u, %ssync%u, %u, %u", k->nevent, x, r,
                                           k->nsync, k->group)
                            : arena_printf(s->arena, ", 0, 0, 0, %u", k->group));
    text_string(t, k->weights ? arena_printf(s->arena, ", %sweights%u, 0, 0, 0, 0},\n", x, r)
                              : ", 0, 0, 0, 0, 0},\n");
  }
  arena_free(&own);
  text_string(
      t,
      "};\n\n/* rank chunk prev next model replica mb0 nmb nin nout tied tie, act gout boundary edge tied weight grad\n * opt work bytes, time per op, time_fb,\n * states 0 */\n");
  text_table(t, "PipeStage", "stage");
  text_lit(t, "\n");
  for (uint32_t i = 0; i < p->nstage; i++) {
    const PipeStage *st = &p->stage[i];
    text_room(t);
    text_lit(t, "  {");
    field(t, st->rank, ',');
    field(t, st->chunk, ',');
    for (int down = 0; down < 2; down++) {
      uint32_t other = down ? st->next : st->prev;
      if (other == PIPE_MANY)
        text_lit(t, "PIPE_MANY,");
      else
        field(t, other, ',');
    }
    field(t, st->model, ',');
    field(t, st->replica, ',');
    field(t, st->mb0, ',');
    field(t, st->nmb, ',');
    field(t, st->nin, ',');
    field(t, st->nout, ',');
    field(t, st->tied, ',');
    field(t, st->tie, ',');
    text_char(t, ' ');
    u64s(t,
         (const uint64_t[]){st->act_bytes, st->gout_bytes, st->boundary_bytes, st->edge_bytes,
                            st->tied_bytes, st->weight_bytes, st->grad_bytes, st->opt_bytes,
                            st->work_bytes},
         9);
    text_lit(t, ", {");
    u64s(t, st->time, PIPE_NOPS);
    text_lit(t, "}, ");
    text_u64(t, st->time_fb);
    text_char(t, ',');
    text_u64(t, st->states);
    text_lit(t, ",0},\n");
  }
  text_string(t, "};\n");
  graph_tables(s, t);
  emit_formulas_c(s, t);
  side_table(s, t);
  unit_table(s, t);
  share_table(s, t);
  channel_table(s, t);
  text_lit(t, "\n");
  text_table(t, "PipeSite", "site");
  text_lit(t, "\n");
  for (uint32_t i = 0; i < p->nsite; i++) {
    text_room(t);
    text_lit(t, "  {");
    field(t, p->site[i].file, ',');
    field(t, p->site[i].line, ',');
    field(t, p->site[i].col, '}');
    text_lit(t, ",\n");
  }
  text_lit(t, "};\n");
  text_table(t, "char *const", "file");
  for (uint32_t i = 0; i < p->nfile; i++) {
    text_string(t, i ? ", " : "");
    text_quoted(t, ESCAPE_C, p->file[i]);
  }
  text_string(
      t,
      arena_printf(
          s->arena,
          "};\n\n%s %s%s = {\n  .magic = PIPE_MAGIC, .abi = %u, .hash = 0x%016" PRIx64
          "u,\n  .name = \"%s\", .params = \"%s\",\n"
          "  .nrank = %u, .nstage = %u, .nmb = %u, .nsite = %u, .nfile = %u, .nmodel = %u,\n"
          "  .sized = %u, .timed = %u, .slices = %u, .forward = %u, .slots = %u,\n  .makespan = %" PRIu64
          "u, .ideal = %" PRIu64 "u, .busy = %" PRIu64 "u,\n"
          "  .rank = %srank, .stage = %sstage, .site = %ssite, .file = %sfile,\n%s%s%s};\n",
          *x ? "static const PipeProgram" : "const PipeProgram", x, symbol, PIPE_ABI, p->hash,
          escaped(s, ESCAPE_C, p->name), escaped(s, ESCAPE_C, p->params), p->nrank, p->nstage,
          p->nmb, p->nsite, p->nfile, p->nmodel, p->sized, p->timed, p->slices, p->forward,
          p->slots, p->makespan, p->ideal, p->busy, x, x, x, x,
          p->edge ? arena_printf(s->arena, "  .edge = %sedge, .row = %s%s, .nedge = %u,\n", x,
                                 p->row ? x : "", p->row ? "row" : "0", p->nedge)
                  : "",
          p->nchannel
              ? arena_printf(s->arena,
                             "  .lowering = %u, .channel = %schannel, .nchannel = %u, /* %s */\n",
                             p->lowering, x, p->nchannel, lowering_text(p->lowering))
          : p->lowering ? arena_printf(s->arena, "  .lowering = %u, /* %s */\n", p->lowering,
                                       lowering_text(p->lowering))
                        : "",
          arena_printf(
              s->arena, "%s%s%s%s", formula_fields(s, x),
              arena_printf(
                  s->arena, "%s%s",
                  p->unit_time
                      ? arena_printf(s->arena, "  .unit_time = %sunit_time, .nunit_time = %u,\n", x,
                                     p->nunit_time)
                      : "",
                  p->nshare
                      ? arena_printf(s->arena, "  .share = %sshare, .nshare = %u, .nlink = %u,\n",
                                     x, p->nshare, p->nlink)
                      : ""),
              p->side ? arena_printf(s->arena, "  .nside = %u, .side = %sside,\n", p->nside, x)
                      : "",
              p->ngroup ? arena_printf(s->arena, "  .ngroup = %u,\n", p->ngroup) : "")));
}

void emit_c(Sched *s, FILE *f) {
  Text *t = arena_alloc(s->arena, sizeof *t);
  t->f = f, t->n = 0, t->prefix = "";
  head(s, t);
  emit_c_tables(s, t, s->opt->symbol ? s->opt->symbol : "pipe_program", true);
  text_flush(t);
}
