/* SPDX-License-Identifier: MIT
 * Reads a cluster (lang/spec.md 9.5), strictly: an unknown key, a wrong unit or a wrong number is
 * an error. A quantity is a whole number of ns, bytes, or bytes a second, or a text with a unit. */
#include <math.h>
#include <string.h>

#include "base.h"
#include "cluster.h"
#include "json_text.h"

typedef struct Reader {
  Sched *s;
  const char *path;
} Reader;

static bool bad(const Reader *r, const char *what) {
  diag_error(r->s->diag, DIAG_CLUSTER, NO_SPAN, "%s: %s", r->path, what);
  return false;
}

/* An entry that is missing, or has a wrong type or value. */
static bool expected(const Reader *r, const char *key, const char *where, const char *what) {
  return bad(r, arena_printf(r->s->arena, "\"%s\"%s is %s", key, where, what));
}

/* Refuses keys that are not in `known` (json_unknown_key). */
static bool only_keys(const Reader *r, json_t *v, const char *known, const char *where) {
  const char *key = json_unknown_key(v, known);
  return !key || bad(r, arena_printf(r->s->arena, "unknown key '%s'%s; the keys are%.*s", key,
                                     where, (int)strlen(known) - 1, known));
}

static bool read_level(const Reader *r, json_t *v, uint32_t k, Cluster *c) {
  Level *l = &c->level[k];
  const char *where = arena_printf(r->s->arena, " of level %u", k);
  json_t *count = json_object_get(v, "count"), *shared = json_object_get(v, "shared");
  if (!json_is_object(v))
    return bad(r, arena_printf(r->s->arena, "level %u is not an object", k));
  if (!only_keys(r, v, " count latency bandwidth shared ", where))
    return false;
  if (!json_is_integer(count) || json_integer_value(count) < 1 ||
      json_integer_value(count) > MOST_CLUSTER / (json_int_t)c->nrank)
    return expected(
        r, "count", where,
        "not a number of ranks, or of groups of the level before; all ranks are at most 1024");
  if (!json_quantity(json_object_get(v, "bandwidth"), OF_BYTES, &l->bandwidth) || l->bandwidth == 0)
    return expected(r, "bandwidth", where, "not bytes a second, such as \"25GB\"");
  if (json_object_get(v, "latency") &&
      !json_quantity(json_object_get(v, "latency"), OF_TIME, &l->latency))
    return expected(r, "latency", where, "not a time, such as \"10us\"");
  if (shared && !json_is_boolean(shared))
    return expected(r, "shared", where, "neither true nor false");
  l->count = (uint32_t)json_integer_value(count);
  l->shared = json_is_true(shared);
  l->ranks = c->nrank *= l->count;
  return true;
}

static bool read_speed(const Reader *r, json_t *list, Cluster *c) {
  c->speed = NEW_ARRAY(r->s->arena, double, c->nrank);
  for (uint32_t k = 0; k < c->nrank; k++) {
    json_t *v = json_array_get(list, k);
    c->speed[k] = list ? json_number_value(v) : 1;
    if (!(c->speed[k] >= 1e-3 && c->speed[k] <= 1e3) || json_array_size(list) > c->nrank)
      return expected(
          r, "speed", "",
          arena_printf(r->s->arena, "not a list of %u numbers from 0.001 to 1000", c->nrank));
  }
  return true;
}

static bool read_all(const Reader *r, json_t *root, Cluster *c) {
  json_t *version = json_object_get(root, "pipe_cluster"),
         *levels = json_object_get(root, "levels"), *memory = json_object_get(root, "memory"),
         *host = json_object_get(root, "host");
  if (!json_is_integer(version) || json_integer_value(version) != 1)
    return bad(r, "not a cluster: it has no \"pipe_cluster\": 1");
  if (!only_keys(r, root, " pipe_cluster levels memory host speed ", ""))
    return false;
  c->nlevel = (uint32_t)json_array_size(levels);
  if (c->nlevel == 0 || c->nlevel > MOST_LEVELS)
    return expected(r, "levels", "",
                    arena_printf(r->s->arena, "not a list of 1 to %d levels", MOST_LEVELS));
  c->nrank = 1;
  for (uint32_t k = 0; k < c->nlevel; k++)
    if (!read_level(r, json_array_get(levels, k), k, c))
      return false;
  if (memory && (!json_quantity(memory, OF_BYTES, &c->memory) || c->memory == 0))
    return expected(r, "memory", "", "not the bytes of a rank, such as \"80GiB\"");
  if (host && (!json_quantity(host, OF_BYTES, &c->host) || c->host == 0))
    return expected(r, "host", "", "not bytes a second, such as \"25GB\"");
  return read_speed(r, json_object_get(root, "speed"), c);
}

bool cluster_read(Sched *s, const char *path, Cluster *c) {
  const Reader r = {s, path};
  uint32_t len;
  const char *text = file_read(s, path, NO_SPAN, &len);
  *c = (Cluster){0};
  if (!text)
    return false;
  json_t *root = json_parse(s, DIAG_CLUSTER, diag_source(s->diag, path, text, len), text, len);
  bool ok = root && read_all(&r, root, c);
  json_drop(root);
  return ok;
}

Cluster cluster_joined(Sched *s, const Cluster *c, uint32_t width) {
  Cluster joined = *c;
  joined.level[0].count /= width;
  joined.nrank /= width;
  for (uint32_t k = 0; k < c->nlevel; k++) {
    Level *l = &joined.level[k];
    l->ranks /= width;
    if (l->shared && k > 0) /* at level 0 each has a link of its own */
      l->bandwidth = l->bandwidth > width ? l->bandwidth / width : 1;
  }
  joined.speed = NEW_ARRAY(s->arena, double, joined.nrank);
  for (uint32_t r = 0; r < c->nrank; r++) {
    double *speed = &joined.speed[r / width];
    *speed = r % width == 0 || c->speed[r] < *speed ? c->speed[r] : *speed;
  }
  return joined;
}

const Level *level_between(const Cluster *c, uint32_t a, uint32_t b) {
  const Level *l = c->level;
  while (a / l->ranks != b / l->ranks)
    l++;
  return l;
}

uint64_t message_time(const Level *l, uint64_t bytes) {
  return l->latency + (uint64_t)ceil((double)bytes * 1e9 / (double)l->bandwidth);
}
