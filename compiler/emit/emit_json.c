/* SPDX-License-Identifier: MIT
 * Writes the results of the compiler as JSON; lang/spec.md 9 documents the form. Requires prog and
 * the predicted starts. The bytes are deterministic. Cost: linear. */
#include "emit.h"
#include "base.h"
#include "critical.h"
#include "emit_formulas.h"
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

static void key(Text *t, const char *name) {
  text_room(t);
  text_char(t, '"');
  text_lit(t, name);
  text_lit(t, "\":");
}

static void number(Text *t, const char *name, uint64_t v, char after) {
  key(t, name);
  text_u64(t, v);
  text_char(t, after);
}

static void number_or_skip(Text *t, const char *name, uint32_t v) {
  if (v != NONE)
    number(t, name, v, ',');
}

static void string(Text *t, const char *name, const char *v, char after) {
  key(t, name);
  text_quoted(t, ESCAPE_JSON, v);
  text_char(t, after);
}

static void item(Text *t, bool more, uint64_t v) {
  text_room(t);
  text_lit(t, more ? "," : "[");
  text_u64(t, v);
}

static void begin(Text *t) {
  text_room(t);
  text_char(t, '{');
}

/* Writes part / all to six decimals; 0 if all is 0. */
static void share(Sched *s, Text *t, const char *name, double part, double all, char after) {
  key(t, name);
  text_lit(t, arena_printf(s->arena, "%.6f%c", all > 0 ? part / all : 0, after));
}

static void op_string(const PipeProgram *p, Text *t, const PipeInstr *in, char after) {
  key(t, "op");
  text_char(t, '"');
  if (p->edge || pipe_is_side(in->op)) {
    char text[PIPE_OP_TEXT];
    pipe_instr_text(text, pipe_graph(p), in);
    text_lit(t, text);
  } else {
    text_u64(t, in->stage);
    text_lit(t, pipe_op_info[in->op].text);
    if (in->mb != NONE)
      text_op_unit(t, in->op, in->mb, p->slices);
  }
  text_char(t, '"');
  text_char(t, after);
}

/* Writes the slot, or for several tensors the list of slots, that an instruction reads or
 * writes. */
static void slots_json(const PipeProgram *p, Text *t, const PipeRank *k, const PipeInstr *in,
                       bool input) {
  const PipeStage *st = &p->stage[in->stage];
  uint32_t n = pipe_fields(st, in->op, input), first = input ? in->in : in->out;
  if (n < 2 || first == NONE) {
    number_or_skip(t, input ? "in" : "out", first);
    return;
  }
  key(t, input ? "ins" : "outs");
  for (uint32_t i = 0; i < n; i++)
    item(t, i > 0, k->list[first + i]);
  text_lit(t, "],");
}

static void edges_json(const PipeProgram *p, Text *t) {
  if (!p->edge)
    return;
  key(t, "edges"), text_lit(t, "[\n");
  for (uint32_t i = 0; i < p->nedge; i++) {
    begin(t);
    number(t, "from", p->edge[i].from, ',');
    number(t, "to", p->edge[i].to, ',');
    number(t, "skip", p->edge[i].skip, ',');
    number(t, "send", p->edge[i].send[0], ',');
    number(t, "send_back", p->edge[i].send[1], '}');
    text_lit(t, i + 1 < p->nedge ? ",\n" : "\n");
  }
  text_lit(t, "],\n");
  key(t, "rows"), text_lit(t, "[\n");
  for (uint32_t m = 0; m < p->nmodel; m++) {
    for (uint32_t mb = 0; mb < p->nmb; mb++)
      item(t, mb > 0, p->row[(size_t)m * p->nmb + mb]);
    text_lit(t, m + 1 < p->nmodel ? "],\n" : "]\n");
  }
  text_lit(t, "],\n");
}

static void links_json(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (p->nshare == 0)
    return;
  key(t, "links"), text_lit(t, "[\n");
  for (uint32_t k = 0; k < p->nlink; k++) {
    bool first = true;
    begin(t);
    number(t, "link", k, ',');
    number(t, "busy", s->times->link_busy[k], ',');
    key(t, "pairs"), text_char(t, '[');
    for (uint32_t i = 0; i < p->nshare; i++)
      if (p->share[i].link == k) {
        text_room(t);
        text_lit(t, first ? "" : ",");
        item(t, false, p->share[i].from), item(t, true, p->share[i].to), text_char(t, ']');
        first = false;
      }
    text_lit(t, k + 1 < p->nlink ? "]},\n" : "]}\n");
  }
  text_lit(t, "],\n");
  number(t, "link_wait", s->times->link_wait, ',');
  text_char(t, '\n');
}

static void channels_json(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  key(t, "comm_channels"), text_lit(t, "[\n");
  for (uint32_t i = 0; i < p->nchannel; i++) {
    const PipeChannel *c = &p->channel[i];
    begin(t);
    number(t, "channel", i, ',');
    number_or_skip(t, "pipe", c->pipe);
    number_or_skip(t, "to", c->to);
    number(t, "from", c->from, ',');
    string(t, "op", pipe_op_info[c->op].text, '}');
    text_lit(t, i + 1 < p->nchannel ? ",\n" : "\n");
  }
  text_lit(t, "],\n");
}

static bool recomputes(const Sched *s) {
  uint32_t i = 0;
  while (i < s->orders->nop && s->orders->op[i].kind != PIPE_R)
    i++;
  return i < s->orders->nop;
}

/* The number of columns of unit times: F B I W; R if the program has one; OFF LOAD FB if they
 * differ by unit. */
static int unit_columns(const Sched *s) {
  for (uint32_t st = 0; st < s->model->nstage; st++)
    for (uint32_t u = 0; u < s->model->nunit_time; u++) {
      const uint64_t *time = pipe_unit_times(sched_times(s), st, s->model->stage[st].mb0 + u);
      if (u < s->model->stage[st].nmb &&
          (time[PIPE_UNIT_OFF] != s->model->stage[st].time[PIPE_OFF] ||
           time[PIPE_UNIT_LOAD] != s->model->stage[st].time[PIPE_LOAD] ||
           time[PIPE_UNIT_FB] != s->model->stage[st].time_fb))
        return PIPE_UNIT_TIMES;
    }
  return PIPE_R + recomputes(s);
}

static void unit_times_json(const Sched *s, Text *t, uint32_t st, int columns) {
  const PipeProgram *p = s->prog;
  bool by_slice = p->nunit_time == p->slices;
  text_char(t, ',');
  key(t, by_slice ? "slice_times" : "unit_times");
  for (uint32_t u = 0; u < (by_slice ? p->slices : p->stage[st].nmb); u++) {
    const uint64_t *time = pipe_unit_times(sched_times(s), st, p->stage[st].mb0 + u);
    text_lit(t, u ? "," : "[");
    for (int k = 0; k < columns; k++)
      item(t, k > 0, time[k]);
    text_char(t, ']');
  }
  text_char(t, ']');
}

static void sides_json(Sched *s, Text *t) {
  const PipeProgram *p = s->prog;
  if (p->nside == 0)
    return;
  key(t, "sides"), text_lit(t, "[\n");
  for (uint32_t k = 0; k < s->sides->ndecl; k++) {
    static const char *const stream[PIPE_NSTREAMS] = {"compute", "comm", "copy"};
    const Clause *decl = s->sides->decl[k];
    begin(t);
    string(t, "side", decl->name, ',');
    string(t, "stream", stream[pipe_op_info[decl->side->op].stream], ',');
    if (decl->side->gives)
      string(t, "gives", decl->side->gives, ',');
    for (int bytes = 0; bytes < 2; bytes++) {
      const PipeSide *row = &p->side[(size_t)k * p->nstage];
      key(t, bytes ? "memory" : "cost");
      for (uint32_t st = 0; st < p->nstage; st++)
        item(t, st > 0, bytes ? row[st].bytes : row[st].time);
      text_lit(t, bytes ? "]}" : "],");
    }
    text_lit(t, k + 1 < s->sides->ndecl ? ",\n" : "\n");
  }
  text_lit(t, "],\n");
}

static void place(Text *t, const PipeSite *at) {
  key(t, "at");
  item(t, false, at->file), item(t, true, at->line), item(t, true, at->col);
  text_char(t, ']');
}

static void path_json(Text *t, const PipeProgram *p, const Critical *c) {
  key(t, "critical_path"), text_lit(t, "[\n");
  for (uint32_t k = 0; k < c->npath; k++) {
    const PathStep *n = &c->path[k];
    const PipeInstr *in = &p->rank[n->rank].instr[n->instr];
    begin(t);
    number(t, "rank", n->rank, ',');
    op_string(p, t, in, ',');
    number(t, "start", n->start, ',');
    number(t, "end", n->end, ',');
    place(t, &p->site[in->site]);
    text_lit(t, k + 1 < c->npath ? "},\n" : "}\n");
  }
  text_lit(t, "],\n");
}

static void signed_number(Text *t, int64_t v) {
  if (v < 0)
    text_char(t, '-');
  text_u64(t, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

static void weights_json(Text *t, const PipeWeights *w) {
  if (w->version == NONE)
    return;
  number(t, "version", w->version, ',');
  number_or_skip(t, "weight", w->slot);
  number_or_skip(t, "into", w->out);
  number_or_skip(t, "guess", w->guess);
  number_or_skip(t, "formula", w->formula);
  key(t, "behind"), signed_number(t, w->behind);
  text_char(t, ',');
  number(t, "ahead", w->ahead, ',');
}

static void idle_json(Sched *s, Text *t, const uint64_t *idle) {
  key(t, "idle");
  text_char(t, '{');
  for (int i = 0; i < IDLE_NCAUSES; i++)
    if (idle_shown(s, i))
      number(t, idle_name[i], idle[i], i + 1 < IDLE_NCAUSES ? ',' : '}');
  text_char(t, ',');
}

/* Writes bytes by class, for programs with sizes. Classes from `guest` on appear only if
 * present. */
static void bytes_json(Text *t, const uint64_t v[PEAK_NREPORTED]) {
  key(t, "bytes");
  text_char(t, '{');
  for (int k = 0; k < PEAK_NREPORTED; k++)
    if (v[k] || k < PEAK_guest || k == PEAK_total)
      number(t, peak_class_name[k], v[k], k == PEAK_total ? '}' : ',');
  text_char(t, ',');
}

/* Writes idle time and memory of all ranks together. */
static void sums_json(Sched *s, Text *t, const Critical *c) {
  uint64_t idle[IDLE_NCAUSES] = {0}, bytes[PEAK_NREPORTED];
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (int i = 0; i < IDLE_NCAUSES; i++)
      idle[i] += c->idle[r][i];
  idle_json(s, t, idle);
  peak_sums(s, bytes);
  if (s->model->sized)
    bytes_json(t, bytes);
}

/* The side ops of a rank, which its instructions do not name. */
typedef struct Beside {
  /* [stream][place in it] 1 + row of Sides.turn; 0: no side op. NULL: the stream has none. */
  uint32_t *side[PIPE_NSTREAMS];
  uint32_t at[PIPE_NSTREAMS]; /* instructions of the stream so far */
} Beside;

static Beside find_beside(Sched *s, uint32_t r) {
  const PipeRank *k = &s->prog->rank[r];
  Beside b = {0};
  for (uint32_t i = s->sides->nuse ? s->sides->use0[r] : 0;
       s->sides->nuse && i < s->sides->use0[r + 1]; i++) {
    const SideUse *u = &s->sides->use[s->sides->turn[i].use];
    uint32_t **of = &b.side[pipe_op_info[u->kind].stream];
    if (!*of)
      *of = NEW_ARRAY(s->arena, uint32_t, k->ninstr);
    (*of)[s->lowered->side_pos[s->sides->turn[i].use] - 1] = i + 1;
  }
  return b;
}

static void beside_json(Sched *s, Text *t, uint32_t r, Beside *b, const PipeInstr *in) {
  uint32_t on = pipe_op_info[in->op].stream, at = b->at[on]++;
  if (!b->side[on] || !b->side[on][at])
    return;
  uint32_t i = b->side[on][at] - 1;
  const SideUse *u = &s->sides->use[s->sides->turn[i].use];
  number(t, "order", i - s->sides->use0[r], ',');
  if (u->user != NONE && u->kind != PIPE_SIDE)
    number(t, "before", u->user - s->orders->rank_op0[r], ',');
}

/* Writes the limits of a rank: for each count, a weight by chunk. */
static void limits_json(Sched *s, Text *t, uint32_t r) {
  uint32_t first, n = limits_of(s, r, &first),
                  nchunk = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  if (n == 0)
    return;
  key(t, "limits"), text_char(t, '[');
  for (uint32_t i = first; i < first + n; i++) {
    const Limit *l = &s->claims->row[i];
    text_lit(t, i > first ? ",\n{" : "{");
    for (int k = 0; k < NCOUNTS; k++) {
      const int64_t *weight = &l->weight[(size_t)k * nchunk];
      bool there = false;
      for (uint32_t c = 0; c < nchunk; c++)
        there |= weight[c] != 0;
      if (!there)
        continue;
      key(t, count_name[k]), text_char(t, '[');
      for (uint32_t c = 0; c < nchunk; c++) {
        text_room(t);
        text_lit(t, c ? "," : "");
        signed_number(t, weight[c]);
      }
      text_lit(t, "],");
    }
    key(t, "most"), signed_number(t, l->most), text_char(t, ',');
    key(t, "peak"), signed_number(t, l->peak), text_char(t, '}');
  }
  text_lit(t, "],\n");
}

static void rank_json(Sched *s, Text *t, uint32_t r, const Critical *c, const uint64_t *start,
                      const uint64_t *end) {
  const uint64_t *idle = c->idle[r], busy = c->busy[r];
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  const Peak *pk = &s->lowered->peak[r];
  text_lit(t, "{");
  number(t, "rank", r, ',');
  number(t, "busy", busy, ',');
  share(s, t, "utilisation", (double)busy, (double)s->times->makespan, ',');
  number(t, "messages", s->lowered->sent[r], ',');
  if (s->model->sized)
    number(t, "volume", s->lowered->sent_bytes[r], ',');
  if (k->group)
    number(t, "group_of_copies", k->group - 1, ',');
  number(t, "inflight", pk->inflight, ',');
  number(t, "held", pk->held, ',');
  number(t, "kept", pk->kept, ',');
  number(t, "host", pk->host, ',');
  if (s->model->sized)
    number(t, "host_bytes", pk->bytes[PEAK_host], ',');
  number(t, "guests", pk->guests, ',');
  number(t, "warmup_depth", pk->warmup, ',');
  number(t, "staleness", s->versions->staleness[r], ',');
  number(t, "discrepancy", s->versions->discrepancy[r], ',');
  number(t, "versions", pk->versions, ',');
  idle_json(s, t, idle);
  if (s->model->sized) {
    bytes_json(t, pk->bytes);
    if (pk->op != NONE)
      string(t, "peak_op", op_text(s, pk->op), ',');
  }
  key(t, "pools"), text_char(t, '[');
  for (uint32_t i = 0; i < k->npool; i++) {
    const PipePool *q = &k->pool[i];
    text_lit(t, i ? ",{" : "{");
    string(t, "class", pipe_class_name[q->cls], ',');
    number(t, "stage", q->stage, ',');
    number(t, "first", q->first, ',');
    number(t, "count", q->count, ',');
    if (p->edge)
      number(t, "skip", q->skip, ',');
    number(t, "bytes", q->bytes, '}');
  }
  text_lit(t, "],\n");
  limits_json(s, t, r);
  key(t, "instr"), text_lit(t, "[\n");
  Beside beside = find_beside(s, r);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    begin(t);
    op_string(p, t, in, ',');
    number(t, "stage", in->stage, ',');
    if (in->mb != NONE)
      number(t, "mb", in->mb / p->slices, ',');
    if (in->mb != NONE && p->slices > 1 && in->op != PIPE_U)
      number(t, "slice", in->mb % p->slices, ',');
    string(t, "phase", pipe_phase_name[in->phase], ',');
    if (in->group > 0)
      number(t, "group", in->group, ',');
    number(t, "start", start[i], ',');
    number(t, "end", end[i], ',');
    number_or_skip(t, "peer", in->peer);
    number_or_skip(t, "act", in->act);
    if (pipe_op_info[in->op].comm)
      number_or_skip(t, "channel", in->channel);
    else if (pipe_op_info[in->op].stream == PIPE_COPY)
      number_or_skip(t, "turn", in->turn);
    else
      number_or_skip(t, "gout", in->gout);
    if (pipe_is_side(in->op)) {
      number(t, "side", p->side[in->side].decl, ',');
      number_or_skip(t, "gives", in->given);
      number_or_skip(t, "takes", in->taken);
    } else {
      if (pipe_op_info[in->op].stream == PIPE_COPY)
        number_or_skip(t, "keep", in->away);
      else if (!pipe_op_info[in->op].comm)
        number_or_skip(t, "keep", in->keep);
      slots_json(p, t, k, in, true);
      slots_json(p, t, k, in, false);
    }
    if (k->weights)
      weights_json(t, &k->weights[i]);
    beside_json(s, t, r, &beside, in);
    number(t, "wait", in->wait, ',');
    if (in->wait_copy)
      number(t, "wait_copy", in->wait_copy, ',');
    place(t, &p->site[in->site]);
    text_lit(t, i + 1 < k->ninstr ? "},\n" : "}\n");
  }
  text_lit(t, "],\n");
  number(t, "events", k->nevent, ',');
  key(t, "sync"), text_char(t, '[');
  for (uint32_t i = 0; i < k->nsync; i++) {
    text_room(t);
    text_lit(t, i ? ",{" : "{");
    number_or_skip(t, "after", k->sync[i].after);
    number_or_skip(t, "before", k->sync[i].before < k->ninstr ? k->sync[i].before : NONE);
    number(t, "event", k->sync[i].event, '}');
  }
  text_lit(t, "]}");
}

static void states_json(Sched *s, Text *t, uint32_t stage) {
  bool first = true;
  key(t, "states"), text_char(t, '[');
  for (uint32_t j = 0; j < s->versions->nstate; j++)
    if (s->model->stage[stage].states >> j & 1) {
      text_lit(t, first ? "" : ",");
      text_quoted(t, ESCAPE_JSON, s->versions->state[j]);
      first = false;
    }
  text_lit(t, "],");
}

void emit_json(Sched *s, FILE *f) {
  const PipeProgram *p = s->prog;
  const Critical *c = critical(s);
  uint64_t **end, **start = program_times(s->arena, s->prog, &end);
  Text *t = arena_alloc(s->arena, sizeof *t);
  t->f = f, t->n = 0;
  text_lit(t, "{");
  number(t, "pipec_json", 1, ',');
  string(t, "schedule", p->name, ',');
  string(t, "params", p->params, ',');
  const char *lacks = profile_lacks(s);
  if (lacks)
    string(t, "profile_lacks", lacks, ',');
  key(t, "hash");
  text_string(t, arena_printf(s->arena, "\"%016llx\",\n", (unsigned long long)p->hash));
  number(t, "ranks", p->nrank, ',');
  number(t, "microbatches", p->nmb / p->slices, ',');
  number(t, "slices", p->slices, ',');
  number(t, "sized", p->sized, ',');
  number(t, "timed", p->timed, ',');
  number(t, "forward", p->forward, ',');
  number(t, "channel_slots", p->slots, ',');
  number(t, "makespan", p->makespan, ',');
  number(t, "span", s->times->span, ',');
  number(t, "ideal", p->ideal, ',');
  number(t, "busy", p->busy, ',');
  share(s, t, "utilisation", (double)p->busy, (double)p->makespan * p->nrank, ',');
  number(t, "messages", s->lowered->sent[s->model->nrank], ',');
  if (s->model->sized)
    number(t, "volume", s->lowered->sent_bytes[s->model->nrank], ',');
  sums_json(s, t, c);
  const Timing bound = program_bound(s);
  key(t, "bound"), text_char(t, '{');
  number(t, "makespan", bound.makespan, ',');
  number(t, "span", bound.span, '}'), text_char(t, ',');
  key(t, "gap"), text_char(t, '{');
  const Timing *least = &bound;
  share(s, t, "makespan", (double)(s->times->makespan - least->makespan), (double)least->makespan,
        ',');
  share(s, t, "span", (double)(s->times->span - least->span), (double)least->span, '}');
  text_char(t, ',');
  if (s->times->steady.per) {
    key(t, "steady"), text_char(t, '{');
    number(t, "time", s->times->steady.time, ',');
    number(t, "microbatches", s->times->steady.per, '}'), text_char(t, ',');
  }
  string(t, "send", send_text(s), ',');
  string(t, "lowering", s->orders->lists ? "own" : lowering_text(s->lowered->lowering), ',');
  key(t, "channels"), text_quoted(t, ESCAPE_JSON, model_text(s));
  if (s->opt->model.buffer > 0) {
    text_char(t, ','), key(t, "least_buffer"), text_char(t, '{');
    number(t, s->opt->model.in_bytes ? "bytes" : "messages", s->verdict->least_buffer, '}');
  }
  text_lit(t, ",\n");
  key(t, "files"), text_char(t, '[');
  for (uint32_t i = 0; i < p->nfile; i++) {
    text_lit(t, i ? "," : "");
    text_quoted(t, ESCAPE_JSON, p->file[i]);
  }
  text_lit(t, "],\n");
  int columns = unit_columns(s);
  key(t, "stages"), text_lit(t, "[\n");
  for (uint32_t i = 0; i < p->nstage; i++) {
    PipeStage st = p->stage[i];
    begin(t);
    number(t, "stage", i, ',');
    number(t, "rank", st.rank, ',');
    number(t, "chunk", st.chunk, ',');
    number(t, "model", st.model, ',');
    number(t, "mb0", st.mb0 / p->slices, ',');
    number(t, "mbs", st.nmb / p->slices, ',');
    if (s->versions->nversion) {
      number(t, "versions", s->versions->nversion[i], ',');
      number(t, "delay", s->versions->delay[i], ',');
      if (s->versions->nstate)
        states_json(s, t, i);
    }
    if (st.tied != NONE)
      number(t, "tied_with",
             p->stage[s->model->tie_row[s->model->tie_row0[s->model->tie_of[i]]]].model, ',');
    for (int k = 0; k < NKEYS; k++) {
      bool there = (k < NTIMEKEYS || s->model->sized) && (k != KEY_EDGE || p->edge) &&
                   (k != KEY_TIED || s->model->ntie) && (k != KEY_FB || st.time_fb);
      if (!there)
        continue;
      if (k > 0)
        text_char(t, ',');
      key(t, cost_key[k]);
      text_u64(t, *cost_field(&st, (CostKey)k));
      if (k == KEY_SEND && st.time[PIPE_SEND_B] != st.time[PIPE_SEND_F])
        text_char(t, ','), key(t, "send_back"), text_u64(t, st.time[PIPE_SEND_B]);
    }
    if (st.tied != NONE && st.time[PIPE_TIE] != st.time[PIPE_REDUCE])
      text_char(t, ','), key(t, "tie"), text_u64(t, st.time[PIPE_TIE]);
    if (p->unit_time)
      unit_times_json(s, t, i, columns);
    text_char(t, '}');
    text_lit(t, i + 1 < p->nstage ? ",\n" : "\n");
  }
  text_lit(t, "],\n");
  edges_json(p, t);
  links_json(s, t);
  if (p->nchannel)
    channels_json(s, t);
  emit_formulas_json(s, t);
  sides_json(s, t);
  path_json(t, p, c);
  key(t, "rank"), text_lit(t, "[\n");
  for (uint32_t r = 0; r < p->nrank; r++) {
    rank_json(s, t, r, c, start[r], end[r]);
    text_lit(t, r + 1 < p->nrank ? ",\n" : "\n");
  }
  text_lit(t, "],\n");
  key(t, "transfers"), text_lit(t, "[\n");
  for (uint32_t i = 0; i < s->ideal->nxfer; i++) {
    begin(t);
    const Xfer *x = &s->lowered->xfer[i];
    if (x->to == XFER_SIDE) {
      const SideUse *u = &s->sides->use[x->from];
      string(t, "side", side_text(s, u), ',');
      number(t, "on", s->model->stage[u->stage].rank, '}');
    } else if (x->to == XFER_TIE) {
      uint32_t stage = s->orders->op[x->from].stage,
               first = s->model->tie_row0[s->model->tie_of[stage]];
      number(t, "tie", s->model->stage[s->model->tie_row[first]].model, '}');
    } else if (xfer_is_sum(x)) {
      number(t, "reduce", s->model->stage[s->orders->op[x->from].stage].model, '}');
    } else {
      const Op *a = &s->orders->op[x->from], *b = &s->orders->op[x->to];
      key(t, "send");
      text_char(t, '"');
      text_u64(t, a->stage);
      text_lit(t, a->kind == PIPE_F ? "SEND_F" : "SEND_B");
      text_unit(t, a->mb, p->slices);
      if (op_outputs(s, a) > 1)
        text_char(t, '>'), text_u64(t, b->stage);
      text_lit(t, "\",");
      number(t, "from", s->model->stage[a->stage].rank, ',');
      number(t, "to", s->model->stage[b->stage].rank, '}');
    }
    text_lit(t, i + 1 < s->ideal->nxfer ? ",\n" : "\n");
  }
  text_lit(t, "]}\n");
  text_flush(t);
}
