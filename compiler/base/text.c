/* SPDX-License-Identifier: MIT
 * Makes the texts of messages and reports: ops, bytes, times, near names. */
#include <inttypes.h>
#include <string.h>

#include "base.h"
#include "habits.h"

const char *op_text(Sched *s, uint32_t op) {
  char buf[PIPE_OP_TEXT];
  const Op *o = &s->orders->op[op];
  int n = o->kind == PIPE_SIDE
              ? pipe_side_text(buf, s->sides->decl[o->site - s->sides->site0]->name, o->stage,
                               o->mb, s->model->slices)
              : pipe_unit_text(buf, (PipeOp)o->kind, o->stage, o->mb, s->model->slices);
  return arena_strndup(s->arena, buf, (size_t)n);
}

const char *bytes_text(Sched *s, uint64_t bytes) {
  static const char *const unit[2][6] = {{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"},
                                         {"kB", "MB", "GB", "TB", "PB", "EB"}};
  uint32_t by = s->opt->decimal ? 1000 : 1024;
  if (bytes < by)
    return arena_printf(s->arena, "%" PRIu64 " B", bytes);
  double v = (double)bytes / by;
  int u = 0;
  while (v >= by && u < 5)
    v /= by, u++;
  return arena_printf(s->arena, "%.1f %s", v, unit[s->opt->decimal][u]);
}

const char *escaped(Sched *s, EscapeFor to, const char *text) {
  size_t room = strlen(text) * (ESCAPE_ROOM - 1) + 1;
  char *out = arena_alloc(s->arena, room);
  escape_text(out, room, to, text);
  return out;
}

const char *printable(Sched *s, const char *text) { return escaped(s, ESCAPE_TERMINAL, text); }

const char *time_text(Sched *s, uint64_t t) {
  if (!s->model->timed)
    return arena_printf(s->arena, "%" PRIu64, t);
  static const struct {
    uint64_t ns;
    const char *unit;
  } unit[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}};
  for (int i = 0; i < 3; i++)
    if (t >= unit[i].ns)
      return arena_printf(s->arena, "%.3f %s", (double)t / (double)unit[i].ns, unit[i].unit);
  return arena_printf(s->arena, "%" PRIu64 " ns", t);
}

const char *copy_text(Sched *s, const Copy *c) {
  char buf[PIPE_OP_TEXT];
  int n = pipe_unit_text(buf, (PipeOp)c->kind, c->stage, c->mb, s->model->slices);
  return arena_strndup(s->arena, buf, (size_t)n);
}

const char *first_sentence(Sched *s, const char *text) {
  enum { MOST = 100 };
  size_t n = 0;
  char *out = arena_strndup(s->arena, text, strlen(text));
  for (; out[n] && !(out[n] == '\n' && out[n + 1] == '\n'); n++) {
    out[n] = out[n] == '\n' ? ' ' : out[n];
    if (out[n] == '.' && n > 0 && !strchr(". ", out[n - 1]) && strchr(" \n", out[n + 1]))
      break;
  }
  out[n] = 0;
  if (n <= MOST)
    return out;
  for (n = MOST; out[n] != ' ';)
    n--;
  return arena_printf(s->arena, "%.*s ...", (int)n, out);
}

const char *name_meant(const char *name, const char *(*nth)(int i)) {
  const char *best = NULL, *d;
  unsigned least = ~0u;
  for (int i = 0; (d = nth(i)); i++) {
    if (!*d)
      continue;
    unsigned most = (unsigned)strlen(d) / 3, n = name_distance(name, d);
    if (n > most && strlen(name) >= 3 && strstr(d, name))
      n = most;
    if (n <= most && n < least)
      least = n, best = d;
  }
  return best;
}

bool is_default_model(const ChannelModel *m) {
  return m->channels == CHANNELS_RANK && m->buffer == 0;
}

bool draws(const Options *o) {
  return !o->check_only && !o->critical_path && !o->dump_after &&
         (o->show || o->emit == EMIT_SVG || o->emit == EMIT_HTML);
}

uint32_t *op_row(Sched *s, uint8_t kind, size_t cell) {
  return kind == PIPE_F   ? &s->orders->at_f[cell]
         : kind == PIPE_W ? &s->orders->at_w[cell]
         : kind == PIPE_R ? &s->orders->at_r[cell]
                          : &s->orders->at_b[cell];
}

uint32_t add_site(Sched *s, Orders *orders, Span at) {
  if (orders->nsite == orders->capsite)
    vec_grow(s->arena, (void **)&orders->site, &orders->capsite, sizeof *orders->site);
  orders->site[orders->nsite] = at;
  return orders->nsite++;
}

void add_copy(Sched *s, Orders *orders, Copy copy) {
  if (orders->ncopy == orders->capcopy)
    vec_grow(s->arena, (void **)&orders->copy, &orders->capcopy, sizeof *orders->copy);
  orders->copy[orders->ncopy++] = copy;
}

bool read_quantity(const char *text, QuantityOf of, uint64_t *value) {
  static const struct {
    const char *unit;
    QuantityOf of;
    double by;
  } unit[] = {{"", OF_BYTES, 1},          {"B", OF_BYTES, 1},
              {"kB", OF_BYTES, 1e3},      {"MB", OF_BYTES, 1e6},
              {"GB", OF_BYTES, 1e9},      {"TB", OF_BYTES, 1e12},
              {"KiB", OF_BYTES, 1 << 10}, {"MiB", OF_BYTES, 1 << 20},
              {"GiB", OF_BYTES, 1 << 30}, {"TiB", OF_BYTES, 1ll << 40},
              {"", OF_TIME, 1},           {"ns", OF_TIME, 1},
              {"us", OF_TIME, 1e3},       {"ms", OF_TIME, 1e6},
              {"s", OF_TIME, 1e9},        {"", OF_FLOPS, 1},
              {"G", OF_FLOPS, 1e9},       {"T", OF_FLOPS, 1e12},
              {"P", OF_FLOPS, 1e15}};
  const size_t digits = strspn(text, "0123456789.");
  char *end;
  const double v = strtod(text, &end);
  if (digits == 0 || end != text + digits)
    return false;
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (unit[i].of == of && strcmp(end, unit[i].unit) == 0 && v * unit[i].by < 9e18) {
      *value = (uint64_t)(v * unit[i].by);
      return true;
    }
  return false;
}
