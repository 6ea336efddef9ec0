/* SPDX-License-Identifier: MIT
 * verify.c against every table of a program: one number of one row is another one, drawn at random,
 * and it must find a mistake. Which numbers it leaves alone (labels, places in the text,
 * predictions) is said here, field by field; any other change that goes through is printed. So is a
 * crash: what verifies wrong tables does not rely on them. Another formula that is there,
 * formulas.py finds.
 *
 *   fields_test STDLIB_DIR TIMES [SEED]     prints the seed, and how many of each table */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "certify.h"
#include "driver.h"
#include "programs.h"

/* ---- what is compiled ---- */

/* And what those do not have: limits, slices, channels, groups of transfers. */
static const char *const more[] = {
    "schedule t_limits() { ranks 3 pipe n stages 3 mbs 6 place s -> s\n"
    "  order r { steady m { F(m) I(m - (2-r)) W(m - 2) } U }\n"
    "  limit 2*inflight(r) + held(r) <= 9 for r in 0..3 limit inflight(0) < 7 }\n",
    "schedule t_slices() { ranks 2 pipe n stages 2 mbs 3 slices 2 place s -> s\n"
    "  order r { do 6 { F } do m in 0..3 { B(m, 1) B(m, 0) } U } bytes { act = 64 boundary = 8 } }\n",
    "schedule t_channels() { ranks 3 pipe n stages 6 mbs 4 place s -> s % 3 transfers channels tie 0, 5\n"
    "  order r { do 4 { F[0] } do 4 { F[1] } do 4 { B[1] } do 4 { B[0] } U } }\n",
    "schedule t_moved() { ranks 2 pipe n stages 2 mbs 5 slices 2 place s -> s time { OFF = 1 }\n"
    "  bytes { act = 64 boundary = 8 } offload s, m when m < 3\n"
    "  order r { do 10 { F } do m in 0..5 { B(m, 1) B(m, 0) } U } }\n",
    "schedule t_sides() { ranks 2 pipe n stages 4 mbs 3 place s -> s % 2 transfers channels\n"
    "  side GET(s) on comm before first F { cost = 2 memory = 64 }\n"
    "  side PUT(s) on compute after last B gives GET { cost = 1 }\n"
    "  order r { do 3 { F[0] } do 3 { F[1] } do m in 0..3 { B[1](m) } do m in 0..3 { B[0](m) } U } }\n",
    "schedule t_local() { ranks 1 pipe n stages 3 mbs 3 place s -> 0 recompute s, m when s == 1\n"
    "  order r { do 3 { F[0] F[1] F[2] }\n"
    "    do m in 0..3 { R[1](m) I[2](m) I[1](m) I[0](m) W[0](m) W[1](m) W[2](m) } U } }\n",
    "0F0,0SEND_F0,0F1,0SEND_F1+0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0+1RECV_F1,1F1,1B1,1SEND_B1\n",
};

typedef struct File {
  const char *name;
  Define define[4];
  uint32_t n;
} File;
#define D(p, v) \
  { .name = p, .value = v, .n = 1 }
static const File files[] = {
    {"pipedream.pipe", {D("P", 3), D("M", 8)}, 2},
    {"pipedream_2bw.pipe", {D("P", 3), D("M", 12)}, 2},
    {"xpipe.pipe", {D("P", 3), D("M", 12), D("N", 2)}, 3},
    {"pipemare_t2.pipe", {D("P", 3), D("M", 12), D("N", 2)}, 3},
    {"msnag_adam.pipe", {D("P", 3), D("M", 8)}, 2},
    {"pipedream_rr.pipe", {{0}}, 0},
};
enum {
  NMORE = sizeof more / sizeof *more,
  NTEXTS = NPROGRAMS + NMORE,
  NFILES = sizeof files / sizeof *files
};

static Sched *compiled(Arena *arena, uint32_t i, const char *stdlib) {
  Diag *diag = NEW(arena, Diag);
  Options *opt = NEW(arena, Options);
  Sched *s = NEW(arena, Sched);
  opt->stdlib = stdlib;
  if (i < NTEXTS) {
    opt->text = i < NPROGRAMS ? program_text[i] : more[i - NPROGRAMS];
    opt->input = *opt->text == '0' ? "t.csv" : "t.pipe";
    opt->text_len = strlen(opt->text);
  } else {
    const File *f = &files[i - NTEXTS];
    opt->input = arena_printf(arena, "%s/%s", stdlib, f->name);
    opt->define = NEW_ARRAY(arena, Define, 4);
    memcpy(opt->define, f->define, sizeof f->define);
    opt->ndefine = f->n;
  }
  *s = (Sched){.arena = arena, .diag = diag, .opt = opt};
  diag_init(diag, arena, stderr);
  if (!compile_only(s))
    exit(3);
  return s;
}

/* ---- its tables ---- */

typedef struct Field {
  const char *table, *name;
  size_t at;
  uint32_t bytes;
} Field;
#define FIELD(table, T, f) \
  { table, #f, offsetof(T, f), sizeof(((T *)0)->f) }
static const Field instr_field[] = {
    FIELD("instr", PipeInstr, phase), FIELD("instr", PipeInstr, site),

    FIELD("instr", PipeInstr, op),    FIELD("instr", PipeInstr, group),
    FIELD("instr", PipeInstr, stage), FIELD("instr", PipeInstr, mb),
    FIELD("instr", PipeInstr, peer),  FIELD("instr", PipeInstr, act),
    FIELD("instr", PipeInstr, gout),  FIELD("instr", PipeInstr, keep),
    FIELD("instr", PipeInstr, in),    FIELD("instr", PipeInstr, out),
    FIELD("instr", PipeInstr, waits), FIELD("instr", PipeInstr, nwait)};
static const Field pool_field[] = {FIELD("pool", PipePool, cls),   FIELD("pool", PipePool, first),
                                   FIELD("pool", PipePool, count), FIELD("pool", PipePool, bytes),
                                   FIELD("pool", PipePool, skip),  FIELD("pool", PipePool, stage)};
static const Field wait_field[] = {FIELD("wait", PipeWait, queue), FIELD("wait", PipeWait, count)};
static const Field weight_field[] = {
    FIELD("weights", PipeWeights, version), FIELD("weights", PipeWeights, slot),
    FIELD("weights", PipeWeights, out),     FIELD("weights", PipeWeights, guess),
    FIELD("weights", PipeWeights, formula), FIELD("weights", PipeWeights, behind),
    FIELD("weights", PipeWeights, ahead)};
static const Field rank_field[] = {
    FIELD("rank", PipeRank, ninstr), FIELD("rank", PipeRank, npool),
    FIELD("rank", PipeRank, nslot),  FIELD("rank", PipeRank, inflight),
    FIELD("rank", PipeRank, bytes),  FIELD("rank", PipeRank, host),
    FIELD("rank", PipeRank, nlist),  FIELD("rank", PipeRank, nwait)};
/* Not: sizes and times, which are given. */
static const Field stage_field[] = {
    FIELD("stage", PipeStage, rank),  FIELD("stage", PipeStage, chunk),
    FIELD("stage", PipeStage, prev),  FIELD("stage", PipeStage, next),
    FIELD("stage", PipeStage, model), FIELD("stage", PipeStage, replica),
    FIELD("stage", PipeStage, mb0),   FIELD("stage", PipeStage, nmb),
    FIELD("stage", PipeStage, nin),   FIELD("stage", PipeStage, nout),
    FIELD("stage", PipeStage, tied),  FIELD("stage", PipeStage, tie),
    FIELD("stage", PipeStage, states)};
static const Field edge_field[] = {FIELD("edge", PipeEdge, from), FIELD("edge", PipeEdge, to),
                                   FIELD("edge", PipeEdge, out), FIELD("edge", PipeEdge, in),
                                   FIELD("edge", PipeEdge, skip)};
static const Field channel_field[] = {
    FIELD("channel", PipeChannel, op), FIELD("channel", PipeChannel, from),
    FIELD("channel", PipeChannel, to), FIELD("channel", PipeChannel, pipe)};
static const Field side_field[] = {FIELD("side", PipeSide, op), FIELD("side", PipeSide, decl),
                                   FIELD("side", PipeSide, stage), FIELD("side", PipeSide, bytes)};
static const Field program_field[] = {
    FIELD("program", PipeProgram, magic),    FIELD("program", PipeProgram, abi),
    FIELD("program", PipeProgram, nrank),    FIELD("program", PipeProgram, nstage),
    FIELD("program", PipeProgram, nmb),      FIELD("program", PipeProgram, nmodel),
    FIELD("program", PipeProgram, sized),    FIELD("program", PipeProgram, forward),
    FIELD("program", PipeProgram, slices),   FIELD("program", PipeProgram, busy),
    FIELD("program", PipeProgram, nedge),    FIELD("program", PipeProgram, nside),
    FIELD("program", PipeProgram, lowering), FIELD("program", PipeProgram, nchannel)};
static const Field number_field[] = {{"number", "u32", 0, 4}};

typedef struct Table {
  void *row;
  uint32_t nrow;
  size_t size;
  const Field *field;
  uint32_t nfield, rank;
} Table;
typedef struct Tables {
  Table at[512];
  uint32_t n;
} Tables;

static void add(Tables *t, const void *row, uint32_t nrow, size_t size, const Field *field,
                size_t bytes, uint32_t rank) {
  if (nrow > 0 && row)
    t->at[t->n++] = (Table){
        (void *)(uintptr_t)row, nrow, size, field, (uint32_t)(bytes / sizeof *field), rank};
}
#define ADD(row, n, T, field, r) add(t, row, n, sizeof(T), field, sizeof field, r)

static void find_tables(const PipeProgram *p, Tables *t) {
  t->n = 0;
  ADD(p, 1, PipeProgram, program_field, NONE);
  ADD(p->stage, p->nstage, PipeStage, stage_field, NONE);
  ADD(p->rank, p->nrank, PipeRank, rank_field, NONE);
  ADD(p->edge, p->nedge, PipeEdge, edge_field, NONE);
  ADD(p->channel, p->nchannel, PipeChannel, channel_field, NONE);
  ADD(p->side, p->nside, PipeSide, side_field, NONE);
  ADD(p->row, p->row ? p->nmodel * p->nmb : 0, uint32_t, number_field, NONE);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    ADD(k->instr, k->ninstr, PipeInstr, instr_field, r);
    ADD(k->pool, k->npool, PipePool, pool_field, r);
    ADD(k->wait, k->nwait, PipeWait, wait_field, r);
    ADD(k->list, k->nlist, uint32_t, number_field, r);
    ADD(k->weights, k->ninstr, PipeWeights, weight_field, r);
  }
}

/* ---- one change ---- */

static uint64_t seed;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

static uint64_t get(const void *at, uint32_t bytes) {
  uint64_t v = 0;
  memcpy(&v, at, bytes); /* little-endian: as everywhere that this runs */
  return v;
}

typedef struct Change {
  const Table *table;
  const Field *field;
  uint32_t row;
  void *at;
  uint64_t was, is;
} Change;

static Change a_change(const Tables *t) {
  Change c = {.table = &t->at[draw(t->n)]};
  c.field = &c.table->field[draw(c.table->nfield)];
  c.row = draw(c.table->nrow);
  char *base = c.table->row;
  uint32_t bytes = c.field->bytes;
  c.at = base + c.row * c.table->size + c.field->at;
  c.was = get(c.at, bytes);
  uint64_t all = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * bytes) - 1;
  switch (draw(6)) {
  case 0: c.is = c.was - 1; break;
  case 1: c.is = c.was ^ 1; break;
  case 2: c.is = 0; break;
  case 3: c.is = all; break;
  case 4: c.is = get(base + draw(c.table->nrow) * c.table->size + c.field->at, bytes); break;
  default: c.is = c.was + 1;
  }
  c.is &= all;
  return c;
}

/* Of `in` or `out` of a row that has a list there: the other list has the same slots. */
static bool is_same_list(const Sched *s, const Change *c, const PipeInstr *in) {
  const PipeRank *rank = &s->prog->rank[c->table->rank];
  const PipeStage *stage = &s->prog->stage[in->stage];
  const bool input = c->field->at == offsetof(PipeInstr, in);
  const uint64_t n = input == (in->op == PIPE_F) ? stage->nin : stage->nout;
  return (input || c->field->at == offsetof(PipeInstr, out)) && n > 1 && c->is + n <= rank->nlist &&
         c->was + n <= rank->nlist &&
         memcmp(rank->list + c->is, rank->list + c->was, n * sizeof *rank->list) == 0;
}

/* The row that wait `at` belongs to; ninstr: the end of the step. */
static uint32_t owner_of(const PipeRank *rank, uint32_t at) {
  uint32_t row = 0;
  while (at >= pipe_wait_end(rank, row))
    row++;
  return row;
}

/* Of a row: its last wait belongs to the end of the step, or the other way around. Both wait on
 * COMPUTE if the row is the last one and on COMPUTE. */
static bool is_fine_nwait(const Sched *s, const Change *c) {
  const PipeRank *rank = &s->prog->rank[c->table->rank];
  return c->row + 1 == rank->ninstr && c->is > c->was && c->is <= rank->nwait &&
         pipe_stream_of(rank->instr[c->row].op) == PIPE_COMPUTE;
}

/* True if row `target` is over once row `row` is: by queues and waits, found by a search. Rows here
 * are 1 + row; 0 is the start of the step. */
static bool is_over_with(const PipeRank *rank, const PipeQueues *queues, const PipeProgram *p,
                         uint32_t row, uint32_t target) {
  static bool known[4096];
  memset(known, 0, sizeof known);
  known[row] = known[0] = true;
  for (uint32_t at = row; at > target; at--) { /* rows wait for rows above them */
    if (!known[at])
      continue;
    const PipeInstr *in = &rank->instr[at - 1];
    for (uint32_t w = in->waits; w < in->waits + in->nwait; w++)
      known[pipe_after(queues, rank->wait[w])] = true;
    for (uint32_t above = at - 1; above > 0; above--)
      if (pipe_queue(p->lowering, &rank->instr[above - 1]) == pipe_queue(p->lowering, in)) {
        known[above] = true;
        break;
      }
  }
  return known[target];
}

/* The wait is for a row above its own that is over no earlier than the one it was for. */
static bool is_later(const PipeProgram *p, const PipeRank *rank, PipeWait was, PipeWait is,
                     uint32_t owner) {
  PipeQueues queues = pipe_queues(p, rank);
  bool later = false;
  if (is.queue < PIPE_NSTREAMS + p->nchannel &&
      is.count <= queues.first[is.queue + 1] - queues.first[is.queue]) {
    const uint32_t after = pipe_after(&queues, is);
    later = after <= owner && is_over_with(rank, &queues, p, after, pipe_after(&queues, was));
  }
  free(queues.first);
  return later;
}

/* Of a wait. What only the text asks for is compared with the text as far as it says; no slot is
 * touched too early without the rest. */
static bool is_fine_wait(const Sched *s, const Change *c) {
  const PipeRank *rank = &s->prog->rank[c->table->rank];
  const uint32_t row = owner_of(rank, c->row);
  const PipeWait was = rank->wait[c->row];
  PipeWait is = was;
  memcpy((char *)&is + c->field->at, &c->is, c->field->bytes);
  if (is_later(s->prog, rank, was, is, row))
    return true;
  if (row == rank->ninstr)
    return false;
  const PipeInstr *in = &rank->instr[row];
  if (in->op == PIPE_LOAD && was.queue == PIPE_COMPUTE)
    return true; /* it may stand further up, where its slot is free */
  if (in->op == PIPE_F && was.queue == PIPE_COPY)
    return true; /* stashes that leave are in flight until they have left */
  if (in->op == PIPE_SIDE_COMM && was.queue == PIPE_COMPUTE)
    return true; /* before its op, where its buffer is free */
  return s->orders->lists && pipe_op_info[in->op].comm; /* a list says where it is posted */
}

/* Changes that make another program that is right, that nothing follows from, or that only the text
 * tells apart. */
static bool is_fine(const Sched *s, const Change *c) {
  const char *base = (const char *)c->at - c->field->at;
  if (c->is == c->was)
    return true;
  if (c->table->field == instr_field) {
    const PipeInstr *in = (const PipeInstr *)base;
    if (c->field->at == offsetof(PipeInstr, phase) || c->field->at == offsetof(PipeInstr, site))
      return pipe_stream_of(in->op) != PIPE_COMPUTE; /* labels of what the text does not have */
    if (in->op >= PIPE_SEND_F && c->field->at == offsetof(PipeInstr, group))
      return true; /* transfers one after the other, if that completes */
    if (c->field->at == offsetof(PipeInstr, nwait))
      return is_fine_nwait(s, c);
    return is_same_list(s, c, in);
  }
  if (c->table->field == wait_field)
    return is_fine_wait(s, c);
  if (c->table->field == pool_field) { /* any stage is as good that has this size */
    const PipePool *q = (const PipePool *)base;
    bool one = q->cls == PIPE_OUT || q->cls == PIPE_IN || q->cls == PIPE_WEIGHT;
    return c->field->at == offsetof(PipePool, stage) && c->is < s->model->nstage && !one &&
           (s->model->sized || q->cls == PIPE_BUFFER);
  }
  if (c->table->field == weight_field && c->field->at == offsetof(PipeWeights, formula)) {
    const PipeWeights *weights = (const PipeWeights *)base;
    if (weights->out != NONE) /* another rule, or none */
      return c->is < s->prog->nrule || (c->is == NONE && weights->guess == NONE);
    return c->was != NONE && c->is < s->prog->nformula;
  }
  if (c->table->field == rank_field) /* the length of a table, which nothing else says */
    return c->field->at == offsetof(PipeRank, nwait) && c->is > c->was;
  if (c->table->field == stage_field) /* in no circle */
    return c->field->at == offsetof(PipeStage, tie) && ((const PipeStage *)base)->tied == NONE;
  return false;
}

static void verify(void *of) { verify_program(of); }

/* Of s with the change, or without: 'a' refused, 'o' went through, '?' crashed. */
static char outcome(Sched *s, const Change *c) {
  Guard guard;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    if (!freopen("/dev/null", "w", stderr))
      _exit(4);
    setrlimit(RLIMIT_CPU, &(struct rlimit){20, 20});
    if (c)
      memcpy(c->at, &c->is, c->field->bytes);
    _exit((int)guard_run(&guard, verify, s));
  }
  int status;
  if (pid < 0 || waitpid(pid, &status, 0) != pid ||
      (WIFEXITED(status) && WEXITSTATUS(status) > 2)) {
    fprintf(stderr, "fields_test: cannot run\n");
    exit(1);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) == GUARD_MEMORY)
    return '?';
  return WEXITSTATUS(status) == GUARD_BUG ? 'a' : 'o';
}

static void print_missed(const Sched *s, const Change *c, char outcome) {
  const PipeGraph graph = pipe_graph(s->prog);
  char text[PIPE_OP_TEXT] = "";
  if (c->table->field == instr_field)
    pipe_instr_text(text, graph, (const PipeInstr *)c->table->row + c->row);
  if (c->table->field == wait_field) {
    const PipeRank *rank = &s->prog->rank[c->table->rank];
    const uint32_t row = owner_of(rank, c->row);
    if (row < rank->ninstr)
      pipe_instr_text(text, graph, &rank->instr[row]);
  }
  printf("%s %s: %s.%s, row %u (%s) of rank %d, is %lld, not %lld\n",
         outcome == 'o' ? "not seen" : "crashed", s->model->name, c->field->table, c->field->name,
         c->row, text, (int)c->table->rank, (long long)c->is, (long long)c->was);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  uint32_t times = (uint32_t)atoi(argv[2]), missed = 0, planted = 0;
  seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  for (uint32_t i = 0; i < NTEXTS + NFILES; i++) {
    Arena arena = {0};
    Sched *s = compiled(&arena, i, argv[1]);
    static Tables t;
    find_tables(s->prog, &t);
    if (outcome(s, NULL) != 'o')
      printf("%s: verify refuses the good program\n", s->model->name), missed++;
    for (uint32_t k = 0; k < times; k++) {
      Change c = a_change(&t);
      if (is_fine(s, &c))
        continue;
      char o = outcome(s, &c);
      planted++;
      if (o == 'a')
        continue;
      missed++;
      print_missed(s, &c, o);
    }
    arena_free(&arena);
  }
  if (missed > 0)
    return 1;
  printf("fields: %u changes, all seen\n", planted);
  return 0;
}
