/* SPDX-License-Identifier: MIT
 * Writes the looped program as one C file (runtime/include/pipe_loop.h). Requires make_looped. Each
 * class of values has the tables that emit_c prints, with the rows of one turn, and what varies. */
#include <inttypes.h>

#include "emit.h"
#include "emit_formulas.h"
#include "looped.h"
#include "text.h"

static void number(Text *t, int64_t v, char after) {
  text_room(t);
  if (v < 0)
    text_char(t, '-');
  text_u64(t, (uint64_t)(v < 0 ? -v : v));
  text_char(t, after);
}

static void none_or(Text *t, uint32_t v, char after) {
  if (v == PIPE_NONE)
    text_lit(t, "N");
  else
    text_u64(t, v);
  text_char(t, after);
}

static void linear(Text *t, PipeLinear l) {
  text_char(t, '{');
  number(t, l.at, ',');
  number(t, l.by, '}');
}

/* The segments of a table and what varies in them. */
static void tables(Sched *s, Text *t, const PipeRolled *r, const char *name) {
  uint32_t nvary = 0;
  if (r->nsegment == 0)
    return;
  text_table(t, "PipeSegment", arena_printf(s->arena, "%s_segment", name));
  for (uint32_t i = 0; i < r->nsegment; i++) {
    const PipeSegment *g = &r->segment[i];
    text_room(t);
    text_lit(t, "\n  {");
    text_u64(t, g->row0), text_char(t, ',');
    text_u64(t, g->nrow), text_lit(t, ", ");
    text_u64(t, g->vary0), text_char(t, ',');
    text_u64(t, g->nvary), text_lit(t, ", ");
    number(t, g->turns, ',');
    number(t, g->by_n, '}');
    text_char(t, ',');
    nvary = g->vary0 + g->nvary;
  }
  text_lit(t, "\n};\n");
  if (nvary == 0)
    return;
  text_table(t, "PipeVary", arena_printf(s->arena, "%s_vary", name));
  for (uint32_t i = 0; i < nvary; i++) {
    const PipeVary *v = &r->vary[i];
    text_room(t);
    text_lit(t, i % 4 ? " {" : "\n  {");
    text_u64(t, v->row), text_char(t, ',');
    text_u64(t, v->word), text_char(t, ',');
    number(t, v->by_turn, ',');
    number(t, v->by_n, ',');
    none_or(t, v->cycle, ',');
    none_or(t, v->pool, '}');
    text_char(t, ',');
  }
  text_lit(t, "\n};\n");
}

/* A PipeRolled. */
static void rolled(Sched *s, Text *t, const PipeRolled *r, const char *name) {
  uint32_t n = r->nsegment;
  bool vary = n && r->segment[n - 1].vary0 + r->segment[n - 1].nvary > 0;
  text_string(t, n ? arena_printf(s->arena, "{%s%s_segment, ", t->prefix, name) : "{0, ");
  text_string(t, vary ? arena_printf(s->arena, "%s%s_vary, ", t->prefix, name) : "0, ");
  text_u64(t, n);
  text_lit(t, ",0}");
}

enum { INSTR, LIST, SYNC, POOL, NTABLES };

static const PipeRolled *table_of(const PipeLoopRank *k, int i) {
  return i == INSTR ? &k->instr : i == LIST ? &k->list : i == SYNC ? &k->sync : &k->pool;
}

static const char *table_name(Sched *s, uint32_t r, int i) {
  static const char *const name[NTABLES] = {"rank", "list", "sync", "pool"};
  return arena_printf(s->arena, "%s%u", name[i], r);
}

static void class_tables(Sched *like, Text *t, const PipeLooped *l, const PipeLoopClass *c) {
  emit_c_tables(like, t, "program", false);
  text_string(
      t, "\n/* What varies: row word by_turn by_n cycle pool, of a segment: row0 nrow vary0 nvary "
         "turns by_n. */\n");
  tables(like, t, &c->stage, "stage");
  for (uint32_t r = 0; r < like->model->nrank; r++)
    for (int i = 0; i < NTABLES; i++)
      tables(like, t, table_of(&c->rank[r], i), table_name(like, r, i));
  text_table(t, "PipeLoopRank", "loop");
  for (uint32_t r = 0; r < like->model->nrank; r++) {
    const PipeLoopRank *k = &c->rank[r];
    text_lit(t, "\n  {");
    for (int i = 0; i < NTABLES; i++) {
      rolled(like, t, table_of(k, i), table_name(like, r, i));
      text_lit(t, ",\n   ");
    }
    const PipeLinear all[] = {k->nslot, k->inflight, k->nevent, k->bytes, k->host};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
      text_lit(t, i ? ", " : "");
      linear(t, all[i]);
    }
    text_lit(t, "},");
  }
  text_lit(t, "\n};\n");
  text_table(t, "PipeLinear", "param");
  for (uint32_t i = 0; i < l->nparam; i++) {
    text_lit(t, i ? ", " : "");
    linear(t, c->param[i]);
  }
  text_lit(t, "};\n");
  text_table(t, "uint32_t", "cycle");
  uint32_t n = 1; /* one past the last that is used; 0 would be no array */
  for (uint32_t r = 0; r < like->model->nrank; r++)
    for (int i = 0; i < NTABLES; i++) {
      const PipeRolled *k = table_of(&c->rank[r], i);
      uint32_t nvary = k->nsegment
                           ? k->segment[k->nsegment - 1].vary0 + k->segment[k->nsegment - 1].nvary
                           : 0;
      for (uint32_t j = 0; j < nvary; j++)
        if (k->vary[j].cycle != PIPE_NONE && k->vary[j].cycle + c->cycle[k->vary[j].cycle] >= n)
          n = k->vary[j].cycle + c->cycle[k->vary[j].cycle] + 1;
    }
  for (uint32_t i = 0; i < n; i++) {
    text_room(t);
    text_lit(t, i % 24 ? "" : "\n  ");
    text_u64(t, c->cycle ? c->cycle[i] : 1);
    text_char(t, ',');
  }
  text_lit(t, "\n};\n");
}

static void formulas(Sched *s, Text *t, const PipeLoopFormula *f, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++) {
    if (f[i].nterm == 0)
      continue;
    text_table(t, "PipeLoopTerm", arena_printf(s->arena, "%s%u", name, i));
    for (uint32_t k = 0; k < f[i].nterm; k++) {
      text_room(t);
      text_lit(t, k % 8 ? " {" : "\n  {");
      if (f[i].term[k].value == INT64_MIN)
        text_lit(t, "INT64_MIN,");
      else
        number(t, f[i].term[k].value, ',');
      text_u64(t, f[i].term[k].op);
      text_lit(t, ",0},");
    }
    text_lit(t, "\n};\n");
  }
  text_table(t, "PipeLoopFormula", name);
  for (uint32_t i = 0; i < n; i++) {
    text_string(t, f[i].nterm ? arena_printf(s->arena, "\n  {%s%u, ", name, i) : "\n  {0, ");
    text_u64(t, f[i].nterm);
    text_lit(t, ",0, ");
    text_quoted(t, ESCAPE_C, f[i].text);
    text_lit(t, "},");
  }
  text_lit(t, "\n};\n");
}

/* What the names of a class begin with. */
static const char *class_prefix(Sched *s, uint32_t i) {
  const PipeLooped *l = &s->looped->table;
  uint32_t nloop = l->nclass - s->looped->nshort;
  if (i >= nloop)
    return arena_printf(s->arena, "at%" PRId64 "_", l->cls[i].from);
  return nloop > 1 ? arena_printf(s->arena, "c%u_", i) : "loop_";
}

void emit_looped(Sched *s, FILE *f) {
  const PipeLooped *l = &s->looped->table;
  Text *t = arena_alloc(s->arena, sizeof *t);
  t->f = f, t->n = 0, t->prefix = "";
  const char *name = l->param[l->open];
  text_string(t, arena_printf(s->arena,
                              "/* Generated by pipec " PIPEC_VERSION
                              " from schedule %s: for every %s of",
                              s->model->name, name));
  uint32_t nloop = l->nclass - s->looped->nshort;
  for (uint32_t i = 0; i < nloop; i++)
    text_string(t, arena_printf(s->arena, "%s %" PRId64 " + %" PRId64 " n", i ? "," : "",
                                l->cls[i].from, l->cls[i].step));
  text_string(t,
              l->nadmit ? " (n = 0, 1, 2, ...) that the schedule admits" : " (n = 0, 1, 2, ...)");
  for (uint32_t i = nloop; i < l->nclass; i++)
    text_string(
        t, arena_printf(s->arena, "%s %" PRId64, i > nloop ? "," : " and for", l->cls[i].from));
  if (*s->looped->lacks)
    text_string(t, arena_printf(s->arena, ", but not for%s", s->looped->lacks));
  if (s->looped->tried)
    text_string(t,
                arena_printf(s->arena, "; not proved, but tried up to %" PRId64, s->looped->tried));
  text_string(
      t, arena_printf(s->arena,
                      ". Do not edit.\n"
                      " * %u ranks. pipe_unroll makes the program of a value; see pipe_loop.h. */\n"
                      "#include <pipe_loop.h>\n\nPIPE_REQUIRE_ABI(%u);\n\n#define N PIPE_NONE\n",
                      s->model->nrank, PIPE_ABI));
  for (uint32_t i = 0; i < l->nclass; i++) {
    t->prefix = class_prefix(s, i);
    class_tables(s->looped->like[i], t, l, &l->cls[i]);
  }
  t->prefix = "";
  text_lit(t, "\n");
  text_table(t, "PipeLoopClass", "classes");
  for (uint32_t i = 0; i < l->nclass; i++) {
    const PipeLoopClass *c = &l->cls[i];
    const char *x = class_prefix(s, i);
    text_lit(t, "\n  {");
    number(t, c->from, ','), number(t, c->step, ',');
    text_string(t, arena_printf(s->arena, " &%sprogram, %sloop, ", x, x));
    t->prefix = x;
    rolled(s, t, &c->stage, "stage");
    t->prefix = "";
    text_string(t, arena_printf(s->arena, ", %scycle,\n   ", x));
    const PipeLinear all[] = {c->nmb, c->slots, c->makespan, c->ideal, c->busy};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
      linear(t, all[k]);
      text_lit(t, ", ");
    }
    text_string(t, arena_printf(s->arena, "%sparam},", x));
  }
  text_lit(t, "\n};\n");
  formulas(s, t, l->value, l->nparam, "param_value");
  if (l->nadmit) {
    text_lit(t, "\n/* What the schedule requires. */\n");
    formulas(s, t, l->admit, l->nadmit, "admit");
  }
  text_table(t, "char *const", "param_name");
  for (uint32_t i = 0; i < l->nparam; i++)
    text_string(t, arena_printf(s->arena, "%s\"%s\"", i ? ", " : "", l->param[i]));
  text_string(
      t,
      arena_printf(
          s->arena,
          "};\n\nconst PipeLooped %s = {\n  .magic = PIPE_LOOP_MAGIC, .abi = %u, .nclass = %u, "
          ".nparam = %u, .open = %u,\n  .cls = classes, .param = param_name, .value = param_value,%s\n};\n",
          s->opt->symbol ? s->opt->symbol : "pipe_program", PIPE_ABI, l->nclass, l->nparam, l->open,
          l->nadmit ? arena_printf(s->arena, "\n  .admit = admit, .nadmit = %u,", l->nadmit) : ""));
  text_flush(t);
}
