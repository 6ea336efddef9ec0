/* SPDX-License-Identifier: MIT
 * Writes the results of the compiler as JSON; lang/spec.md 9 documents the form. Requires prog and
 * the predicted starts. The bytes are deterministic. Cost: linear.
 *
 * The first member of an object comes with its '{', every other with the ',' before it. */
#include "emit.h"
#include "base.h"
#include "critical.h"
#include "emit_formulas.h"
#include "fields.h"
#include "limit.h"
#include "lower.h"
#include "stages.h"
#include "orders.h"
#include "pipe_sim.h"
#include "prove.h"
#include "text.h"
#include "timing.h"
#include "transfers.h"
#include "weights.h"

/* The side ops of a rank, which its instructions do not name. */
typedef struct Beside {
  /* [stream][place in it] 1 + row of Sides.turn; 0: no side op. NULL: the stream has none. */
  uint32_t *side[PIPE_NSTREAMS];
  uint32_t at[PIPE_NSTREAMS]; /* instructions of the stream so far */
} Beside;

typedef struct Json {
  Sched *s;
  const PipeProgram *program;
  Text *text;
  const Critical *critical;
  uint64_t **start, **end; /* [nrank][ninstr] */
  int columns;             /* of unit times */
  uint32_t rank;           /* whose instructions are written */
  Beside beside;           /* of that rank */
} Json;

/* Writes item i of a list. */
typedef void ItemWriter(Json *json, uint32_t i);

/* Writes a list with an item per line. */
static void list(Json *json, const char *name, uint32_t n, ItemWriter *write) {
  PUT(json->text, ",\n'%':[", TEXT(name));
  for (uint32_t i = 0; i < n; i++) {
    PUT(json->text, i ? ",\n" : "\n");
    write(json, i);
  }
  PUT(json->text, "\n]");
}

static void number(Text *text, uint32_t i, const char *name, uint64_t v) {
  PUT(text, i ? ",'%':#" : "{'%':#", TEXT(name), v);
}

/* Writes number i of a list on one line; "]" ends the list. */
static void item(Text *text, uint32_t i, uint64_t v) { PUT(text, i ? ",#" : "[#", v); }

/* Part / all to six decimals; 0 if all is 0. */
static uint64_t share(Sched *s, double part, double all) {
  return TEXT(arena_printf(s->arena, "%.6f", all > 0 ? part / all : 0));
}

/* Writes the text of an instruction; the usual ones without printf. */
static void op_string(const PipeProgram *program, Text *text, const char *before,
                      const PipeInstr *instr) {
  if (program->edge || instr->mb == NONE || pipe_is_side(instr->op)) {
    char name[PIPE_OP_TEXT];
    pipe_instr_text(name, pipe_graph(program), instr);
    PUT(text, "%'op':'%'", TEXT(before), TEXT(name));
  } else if (program->slices > 1) {
    PUT(text, "%'op':'#%#.#'", TEXT(before), instr->stage, TEXT(pipe_op_info[instr->op].text),
        instr->mb / program->slices, instr->mb % program->slices);
  } else {
    PUT(text, "%'op':'#%#'", TEXT(before), instr->stage, TEXT(pipe_op_info[instr->op].text),
        instr->mb);
  }
}

/* ---- tables of the program ---- */

static void edge_json(Json *json, uint32_t i) {
  const PipeEdge *edge = &json->program->edge[i];
  PUT(json->text, "{'from':#,'to':#,'skip':#,'send':#,'send_back':#}", edge->from, edge->to,
      edge->skip, edge->send[0], edge->send[1]);
}

static void row_json(Json *json, uint32_t m) {
  for (uint32_t mb = 0; mb < json->program->nmb; mb++)
    item(json->text, mb, json->program->row[(size_t)m * json->program->nmb + mb]);
  PUT(json->text, "]");
}

static void link_json(Json *json, uint32_t k) {
  uint32_t n = 0;
  PUT(json->text, "{'link':#,'busy':#,'pairs':[", k, json->s->times->link_busy[k]);
  for (uint32_t i = 0; i < json->program->nshare; i++)
    if (json->program->share[i].link == k)
      PUT(json->text, n++ ? ",[#,#]" : "[#,#]", json->program->share[i].from,
          json->program->share[i].to);
  PUT(json->text, "]}");
}

static void channel_json(Json *json, uint32_t i) {
  const PipeChannel *channel = &json->program->channel[i];
  PUT(json->text, "{'channel':#,'pipe':?,'to':?,'from':#,'op':$}", i, channel->pipe, channel->to,
      channel->from, TEXT(pipe_op_info[channel->op].text));
}

static void side_json(Json *json, uint32_t k) {
  const Clause *decl = json->s->sides->decl[k];
  const PipeSide *row = &json->program->side[(size_t)k * json->program->nstage];
  PUT(json->text, "{'side':$,'stream':$", TEXT(decl->name),
      TEXT(pipe_stream_name[pipe_stream_of(decl->side->op)]));
  if (decl->side->gives)
    PUT(json->text, ",'gives':$", TEXT(decl->side->gives));
  PUT(json->text, ",'cost':");
  for (uint32_t st = 0; st < json->program->nstage; st++)
    item(json->text, st, row[st].time);
  PUT(json->text, "],'memory':");
  for (uint32_t st = 0; st < json->program->nstage; st++)
    item(json->text, st, row[st].bytes);
  PUT(json->text, "]}");
}

static void path_json(Json *json, uint32_t k) {
  const PathStep *step = &json->critical->path[k];
  const PipeInstr *instr = &json->program->rank[step->rank].instr[step->instr];
  const PipeSite *site = &json->program->site[instr->site];
  PUT(json->text, "{'rank':#", step->rank);
  op_string(json->program, json->text, ",", instr);
  PUT(json->text, ",'start':#,'end':#,'at':[#,#,#]}", step->start, step->end, site->file,
      site->line, site->col);
}

static void transfer_json(Json *json, uint32_t i) {
  Sched *s = json->s;
  const PipeStage *stage = s->model->stage;
  const Xfer *xfer = &s->lowered->xfer[i];
  if (xfer->to == XFER_SIDE) {
    const SideUse *use = &s->sides->use[xfer->from];
    PUT(json->text, "{'side':$,'on':#}", TEXT(side_text(s, use)), stage[use->stage].rank);
    return;
  }
  const Op *from = &s->orders->op[xfer->from];
  if (xfer->to == XFER_TIE) {
    uint32_t first = s->model->tie_row0[s->model->tie_of[from->stage]];
    PUT(json->text, "{'tie':#}", stage[s->model->tie_row[first]].model);
    return;
  }
  if (xfer_is_sum(xfer)) {
    PUT(json->text, "{'reduce':#}", stage[from->stage].model);
    return;
  }
  const Op *to = &s->orders->op[xfer->to];
  PUT(json->text, from->kind == PIPE_F ? "{'send':'#SEND_F#" : "{'send':'#SEND_B#", from->stage,
      from->mb / json->program->slices);
  if (json->program->slices > 1)
    PUT(json->text, ".#", from->mb % json->program->slices);
  if (op_outputs(s, from) > 1)
    PUT(json->text, ">#", to->stage);
  PUT(json->text, "','from':#,'to':#}", stage[from->stage].rank, stage[to->stage].rank);
}

/* ---- stages ---- */

/* The number of columns of unit times: F B I W; R if the program has one; OFF LOAD FB if they
 * differ by unit. */
static int unit_columns(const Sched *s) {
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    const PipeStage *stage = &s->model->stage[st];
    for (uint32_t u = 0; u < s->model->nunit_time && u < stage->nmb; u++) {
      const uint64_t *time = pipe_unit_times(sched_times(s), st, stage->mb0 + u);
      if (time[PIPE_UNIT_OFF] != stage->time[PIPE_OFF] ||
          time[PIPE_UNIT_LOAD] != stage->time[PIPE_LOAD] || time[PIPE_UNIT_FB] != stage->time_fb)
        return PIPE_UNIT_TIMES;
    }
  }
  return PIPE_R + has_op(s, PIPE_R);
}

static void unit_times_json(const Json *json, uint32_t st) {
  const PipeProgram *program = json->program;
  bool by_slice = program->nunit_time == program->slices;
  PUT(json->text, by_slice ? ",'slice_times':" : ",'unit_times':");
  for (uint32_t u = 0; u < (by_slice ? program->slices : program->stage[st].nmb); u++) {
    const uint64_t *time = pipe_unit_times(sched_times(json->s), st, program->stage[st].mb0 + u);
    PUT(json->text, u ? "," : "[");
    for (int k = 0; k < json->columns; k++)
      item(json->text, (uint32_t)k, time[k]);
    PUT(json->text, "]");
  }
  PUT(json->text, "]");
}

static void versions_json(const Json *json, uint32_t stage) {
  const Versions *versions = json->s->versions;
  uint32_t n = 0;
  PUT(json->text, ",'versions':#,'delay':#", versions->nversion[stage], versions->delay[stage]);
  if (versions->nstate == 0)
    return;
  PUT(json->text, ",'states':[");
  for (uint32_t k = 0; k < versions->nstate; k++)
    if (json->program->stage[stage].states >> k & 1)
      PUT(json->text, n++ ? ",$" : "$", TEXT(versions->state[k]));
  PUT(json->text, "]");
}

static void costs_json(const Json *json, PipeStage *stage) {
  const bool sized = json->program->sized;
  for (int k = 0; k < NKEYS; k++) {
    bool there = (k < NTIMEKEYS || sized) && (k != KEY_EDGE || json->program->edge) &&
                 (k != KEY_TIED || json->s->model->ntie) && (k != KEY_FB || stage->time_fb);
    if (there)
      PUT(json->text, ",'%':#", TEXT(cost_key[k]), *cost_field(stage, (CostKey)k));
    if (k == KEY_SEND && stage->time[PIPE_SEND_B] != stage->time[PIPE_SEND_F])
      PUT(json->text, ",'send_back':#", stage->time[PIPE_SEND_B]);
  }
  if (stage->tied != NONE && stage->time[PIPE_TIE] != stage->time[PIPE_REDUCE])
    PUT(json->text, ",'tie':#", stage->time[PIPE_TIE]);
}

static void stage_json(Json *json, uint32_t i) {
  const Model *model = json->s->model;
  PipeStage stage = json->program->stage[i];
  PUT(json->text, "{'stage':#,'rank':#,'chunk':#,'model':#,'mb0':#,'mbs':#", i, stage.rank,
      stage.chunk, stage.model, stage.mb0 / json->program->slices,
      stage.nmb / json->program->slices);
  if (json->s->versions->nversion)
    versions_json(json, i);
  if (stage.tied != NONE)
    PUT(json->text, ",'tied_with':#",
        json->program->stage[model->tie_row[model->tie_row0[model->tie_of[i]]]].model);
  costs_json(json, &stage);
  if (json->program->unit_time)
    unit_times_json(json, i);
  PUT(json->text, "}");
}

/* ---- instructions ---- */

static Beside find_beside(Sched *s, uint32_t r) {
  const Sides *sides = s->sides;
  Beside beside = {0};
  for (uint32_t i = sides->nuse ? sides->use0[r] : 0; sides->nuse && i < sides->use0[r + 1]; i++) {
    const SideUse *use = &sides->use[sides->turn[i].use];
    uint32_t **of = &beside.side[pipe_stream_of(use->kind)];
    if (!*of)
      *of = NEW_ARRAY(s->arena, uint32_t, s->prog->rank[r].ninstr);
    (*of)[s->lowered->side_pos[s->sides->turn[i].use] - 1] = i + 1;
  }
  return beside;
}

static void beside_json(Json *json, const PipeInstr *instr) {
  const Sides *sides = json->s->sides;
  uint32_t on = pipe_stream_of(instr->op), at = json->beside.at[on]++;
  if (!json->beside.side[on] || !json->beside.side[on][at])
    return;
  uint32_t i = json->beside.side[on][at] - 1;
  const SideUse *use = &sides->use[sides->turn[i].use];
  bool user = use->user != NONE && use->kind != PIPE_SIDE;
  PUT(json->text, ",'order':#,'before':?", i - sides->use0[json->rank],
      user ? use->user - json->s->orders->rank_op0[json->rank] : NONE);
}

/* Writes the fields that instruction i has. */
static void fields_json(const Json *json, const PipeRank *rank, uint32_t i) {
  const PipeInstr *instr = &rank->instr[i];
  const PipeWeights *weights = rank->weights && rank->weights[i].version != NONE ? &rank->weights[i]
                                                                                 : NULL;
  for (const Field *field = pipe_field; field->ops; field++) {
    if (!field_has(field, instr->op) || !field->json || (field->weights && !weights))
      continue;
    const int64_t v = field_get(field, instr, weights);
    const uint32_t n = field_slots(field, &json->program->stage[instr->stage], instr->op);
    if (v == NONE)
      continue;
    if (n < 2) {
      text_member(json->text, field->json,
                  field->kind == FIELD_DECL ? json->program->side[v].decl : v);
      continue;
    }
    PUT(json->text, ",'%s':", TEXT(field->json));
    for (uint32_t slot = 0; slot < n; slot++)
      item(json->text, slot, rank->list[v + slot]);
    PUT(json->text, "]");
  }
}

/* row ninstr: the end of the step. */
static void waits_json(const Json *json, const PipeRank *rank, uint32_t row) {
  const uint32_t first = pipe_wait0(rank, row), end = pipe_wait_end(rank, row);
  PUT(json->text, "'waits':[");
  for (uint32_t i = first; i < end; i++) {
    const PipeWait *wait = &rank->wait[i];
    const bool channel = wait->queue >= PIPE_NSTREAMS;
    PUT(json->text, i > first ? ",{" : "{");
    PUT(json->text, "'stream':$,", TEXT(pipe_stream_name[channel ? PIPE_COMM : wait->queue]));
    if (channel)
      PUT(json->text, "'channel':#,", wait->queue - PIPE_NSTREAMS);
    PUT(json->text, "'count':#}", wait->count);
  }
  PUT(json->text, "]");
}

static void instr_json(Json *json, uint32_t i) {
  const PipeProgram *program = json->program;
  const PipeRank *rank = &program->rank[json->rank];
  const PipeInstr *instr = &rank->instr[i];
  const PipeSite *site = &program->site[instr->site];
  op_string(program, json->text, "{", instr);
  text_member(json->text, "stage", instr->stage);
  if (instr->mb != NONE)
    text_member(json->text, "mb", instr->mb / program->slices);
  if (instr->mb != NONE && program->slices > 1 && instr->op != PIPE_U)
    text_member(json->text, "slice", instr->mb % program->slices);
  PUT(json->text, ",'phase':'%'", TEXT(pipe_phase_name[instr->phase]));
  if (instr->group > 0)
    text_member(json->text, "group", instr->group);
  text_member(json->text, "start", (int64_t)json->start[json->rank][i]);
  text_member(json->text, "end", (int64_t)json->end[json->rank][i]);
  fields_json(json, rank, i);
  beside_json(json, instr);
  if (instr->nwait > 0) {
    PUT(json->text, ",");
    waits_json(json, rank, i);
  }
  PUT(json->text, ",'at':[#,#,#]}", site->file, site->line, site->col);
}

/* ---- ranks ---- */

static void idle_json(const Json *json, const uint64_t *idle) {
  PUT(json->text, ",'idle':");
  for (uint32_t i = 0; i < IDLE_NCAUSES; i++)
    if (idle_shown(json->s, (int)i))
      number(json->text, i, idle_name[i], idle[i]);
  PUT(json->text, "}");
}

/* Writes bytes by class, for programs with sizes. Classes from `guest` on appear only if
 * present. */
static void bytes_json(Text *text, const uint64_t v[PEAK_NREPORTED]) {
  PUT(text, ",'bytes':");
  for (uint32_t k = 0; k < PEAK_NREPORTED; k++)
    if (v[k] || k < PEAK_guest || k == PEAK_total)
      number(text, k, peak_class_name[k], v[k]);
  PUT(text, "}");
}

static void weights_of_chunks(Text *text, const char *name, const int64_t *weight, uint32_t n) {
  bool there = false;
  for (uint32_t c = 0; c < n; c++)
    there |= weight[c] != 0;
  if (!there)
    return;
  PUT(text, "'%':", TEXT(name));
  for (uint32_t c = 0; c < n; c++)
    PUT(text, c ? ",~" : "[~", (uint64_t)weight[c]);
  PUT(text, "],");
}

/* Writes the limits of a rank: for each count, a weight by chunk. */
static void limits_json(const Json *json, uint32_t r) {
  const uint32_t *stage0 = json->s->model->rank_stage0, nchunk = stage0[r + 1] - stage0[r];
  uint32_t first, n = limits_of(json->s, r, &first);
  if (n == 0)
    return;
  PUT(json->text, ",\n'limits':[");
  for (uint32_t i = 0; i < n; i++) {
    const Limit *limit = &json->s->claims->row[first + i];
    PUT(json->text, i ? ",\n{" : "{");
    for (uint32_t k = 0; k < NCOUNTS; k++)
      weights_of_chunks(json->text, count_name[k], &limit->weight[(size_t)k * nchunk], nchunk);
    PUT(json->text, "'most':~,'peak':~}", (uint64_t)limit->most, (uint64_t)limit->peak);
  }
  PUT(json->text, "]");
}

/* Writes what a rank does and needs, without its tables. */
static void summary_json(const Json *json, uint32_t r) {
  const Lowered *lowered = json->s->lowered;
  const Versions *versions = json->s->versions;
  const Peak *peak = &lowered->peak[r];
  const uint64_t busy = json->critical->busy[r];
  PUT(json->text, "{'rank':#,'busy':#,'utilisation':%,'messages':#", r, busy,
      share(json->s, (double)busy, (double)json->s->times->makespan), lowered->sent[r]);
  if (json->program->sized)
    PUT(json->text, ",'volume':#", lowered->sent_bytes[r]);
  PUT(json->text, ",'inflight':#,'held':#,'kept':#,'host':#", peak->inflight, peak->held,
      peak->kept, peak->host);
  if (json->program->sized)
    PUT(json->text, ",'host_bytes':#", peak->bytes[PEAK_host]);
  PUT(json->text, ",'guests':#,'warmup_depth':#,'staleness':#,'discrepancy':#,'versions':#",
      peak->guests, peak->warmup, versions->staleness[r], versions->discrepancy[r], peak->versions);
  idle_json(json, json->critical->idle[r]);
  if (json->program->sized)
    bytes_json(json->text, peak->bytes);
  if (json->program->sized && peak->op != NONE)
    PUT(json->text, ",'peak_op':$", TEXT(op_text(json->s, peak->op)));
}

static void rank_json(Json *json, uint32_t r) {
  const PipeRank *rank = &json->program->rank[r];
  json->rank = r;
  json->beside = find_beside(json->s, r);
  summary_json(json, r);
  PUT(json->text, ",'pools':[");
  for (uint32_t i = 0; i < rank->npool; i++) {
    const PipePool *pool = &rank->pool[i];
    PUT(json->text, i ? "," : "");
    PUT(json->text, "{'class':$,'stage':#,'first':#,'count':#,'skip':?,'bytes':#}",
        TEXT(pipe_class_name[pool->cls]), pool->stage, pool->first, pool->count,
        json->program->edge ? pool->skip : NONE, pool->bytes);
  }
  PUT(json->text, "]");
  limits_json(json, r);
  list(json, "instr", rank->ninstr, instr_json);
  PUT(json->text, ",\n");
  waits_json(json, rank, rank->ninstr);
  PUT(json->text, "}");
}

/* ---- the program ---- */

/* Writes idle time and memory of all ranks together. */
static void sums_json(const Json *json) {
  uint64_t idle[IDLE_NCAUSES] = {0}, bytes[PEAK_NREPORTED];
  for (uint32_t r = 0; r < json->program->nrank; r++)
    for (int i = 0; i < IDLE_NCAUSES; i++)
      idle[i] += json->critical->idle[r][i];
  idle_json(json, idle);
  peak_sums(json->s, bytes);
  if (json->program->sized)
    bytes_json(json->text, bytes);
}

static void predictions_json(const Json *json) {
  const PipeProgram *program = json->program;
  const Times *times = json->s->times;
  const Timing bound = program_bound(json->s);
  PUT(json->text, ",'makespan':#,'span':#,'ideal':#,'busy':#,'utilisation':%,'messages':#",
      program->makespan, times->span, program->ideal, program->busy,
      share(json->s, (double)program->busy, (double)program->makespan * program->nrank),
      json->s->lowered->sent[program->nrank]);
  if (program->sized)
    PUT(json->text, ",'volume':#", json->s->lowered->sent_bytes[program->nrank]);
  sums_json(json);
  PUT(json->text, ",'bound':{'makespan':#,'span':#},'gap':{'makespan':%,'span':%}", bound.makespan,
      bound.span,
      share(json->s, (double)(times->makespan - bound.makespan), (double)bound.makespan),
      share(json->s, (double)(times->span - bound.span), (double)bound.span));
  if (times->steady.per)
    PUT(json->text, ",'steady':{'time':#,'microbatches':#}", times->steady.time, times->steady.per);
}

static void head_json(const Json *json) {
  const PipeProgram *program = json->program;
  Sched *s = json->s;
  const char *lacks = profile_lacks(s);
  PUT(json->text, "{'pipec_json':2,'schedule':$,'params':$", TEXT(program->name),
      TEXT(program->params));
  if (lacks)
    PUT(json->text, ",'profile_lacks':$", TEXT(lacks));
  PUT(json->text, ",'hash':'@',\n'ranks':#,'microbatches':#,'slices':#", program->hash,
      program->nrank, program->nmb / program->slices, program->slices);
  PUT(json->text, ",'sized':#,'timed':#,'forward':#,'channel_slots':#", program->sized,
      program->timed, program->forward, program->slots);
  predictions_json(json);
  PUT(json->text, ",'send':$,'lowering':$,'channels':$", TEXT(send_text(s)),
      TEXT(s->orders->lists ? "own" : lowering_text(s->lowered->lowering)), TEXT(model_text(s)));
  if (s->opt->model.buffer > 0)
    PUT(json->text, ",'least_buffer':{'%':#}", TEXT(s->opt->model.in_bytes ? "bytes" : "messages"),
        s->verdict->least_buffer);
  PUT(json->text, ",\n'files':[");
  for (uint32_t i = 0; i < program->nfile; i++)
    PUT(json->text, i ? ",$" : "$", TEXT(program->file[i]));
  PUT(json->text, "]");
}

void emit_json(Sched *s, FILE *file) {
  const PipeProgram *program = s->prog;
  Json json = {.s = s, .program = program, .critical = critical(s), .columns = unit_columns(s)};
  json.start = program_times(s->arena, s->prog, &json.end);
  json.text = text_open(s->arena, file, ESCAPE_JSON);
  head_json(&json);
  list(&json, "stages", program->nstage, stage_json);
  if (program->edge) {
    list(&json, "edges", program->nedge, edge_json);
    list(&json, "rows", program->nmodel, row_json);
  }
  if (program->nshare) {
    list(&json, "links", program->nlink, link_json);
    PUT(json.text, ",\n'link_wait':#", s->times->link_wait);
  }
  if (program->nchannel)
    list(&json, "comm_channels", program->nchannel, channel_json);
  emit_formulas_json(s, json.text);
  if (program->nside)
    list(&json, "sides", s->sides->ndecl, side_json);
  list(&json, "critical_path", json.critical->npath, path_json);
  list(&json, "rank", program->nrank, rank_json);
  list(&json, "transfers", s->ideal->nxfer, transfer_json);
  PUT(json.text, "}\n");
  text_close(json.text);
}
