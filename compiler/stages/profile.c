/* SPDX-License-Identifier: MIT
 * Reads measured costs from a JSON file (lang/spec.md 6), strictly, with jansson: an unknown or
 * duplicate key, a wrong type, a negative number or a wrong number of stages is an error at its
 * place in the file, as far as the library tells the place. Requires nstage; sets the fields of
 * every stage. */
#include <string.h>

#include "base.h"
#include "json_text.h"
#include "stages.h"
#include "layers.h"

static bool bad(Sched *s, Span at, const char *path, const char *what) {
  diag_error(s->diag, DIAG_PROFILE, at, "%s: %s", path, what);
  return false;
}

static bool stage_entry(Sched *s, Span at, const char *path, uint32_t st, json_t *entry,
                        bool seen[NKEYS]) {
  const char *key;
  json_t *v;
  if (!json_is_object(entry))
    return bad(s, at, path, arena_printf(s->arena, "stage %u is not an object", st));
  json_object_foreach(entry, key, v) {
    int k = 0;
    while (k < NKEYS && strcmp(key, cost_key[k]) != 0)
      k++;
    if (k == NKEYS)
      return bad(
          s, at, path,
          arena_printf(s->arena,
                       "stage %u has an unknown key '%s'; the keys are those of time and bytes", st,
                       key));
    if (!json_is_integer(v) || json_integer_value(v) < 0)
      return bad(
          s, at, path,
          arena_printf(s->arena, "'%s' of stage %u must be a whole number, 0 or more", key, st));
    uint32_t row = st; /* replicas cost the same */
    do
      *cost_field(&s->model->stage[row], (CostKey)k) = (uint64_t)json_integer_value(v);
    while ((row = s->model->stage[row].replica) != st);
    seen[k] = true;
  }
  return true;
}

/* A list of at least one rank. */
static bool rank_list(Sched *s, Span at, const char *path, json_t *list, const uint32_t **ranks,
                      uint32_t *n) {
  size_t most = json_is_array(list) ? json_array_size(list) : 0;
  uint32_t *to = NEW_ARRAY(s->arena, uint32_t, most + 1);
  for (*n = 0; *n < most; ++*n) {
    json_t *v = json_array_get(list, *n);
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) >= s->model->nrank)
      return bad(s, at, path,
                 arena_printf(s->arena, "the ranks of a link are numbers from 0 to %u",
                              s->model->nrank - 1));
    to[*n] = (uint32_t)json_integer_value(v);
  }
  *ranks = to;
  return *n > 0 || bad(s, at, path, "a link is {\"from\": [ranks], \"to\": [ranks]}");
}

/* The links that transfers share, in place of those of the schedule. */
static bool apply_links(Sched *s, Model *model, Span at, const char *path, json_t *list) {
  if (!list)
    return true;
  if (!json_is_array(list))
    return bad(s, at, path, "\"links\" is not a list");
  if (at.file != NO_FILE && s->model->nlink_clause > 0) {
    bad(s, at, path, "links are given by the profile and by the schedule: drop one of them");
    diag_note(s->diag, s->model->link_clause[0]->at, "also here");
    return false;
  }
  ProfileLink *link = NEW_ARRAY(s->arena, ProfileLink, json_array_size(list) + 1);
  uint32_t n = 0;
  for (; n < json_array_size(list); n++) {
    json_t *v = json_array_get(list, n);
    if (!rank_list(s, at, path, json_object_get(v, "from"), &link[n].from, &link[n].nfrom) ||
        !rank_list(s, at, path, json_object_get(v, "to"), &link[n].to, &link[n].nto))
      return false;
  }
  model->profile_link = link, model->nprofile_link = n;
  model->nlink_clause = 0;
  return true;
}

/* The network between any two ranks, in place of that of the schedule. */
static bool apply_network(Sched *s, Span at, const char *path, json_t *root, uint64_t *const *link,
                          bool has[NENTRIES]) {
  static const struct {
    CostKey key;
    QuantityOf of;
    const char *is;
  } entry[] = {{KEY_LATENCY, OF_TIME, "a time, such as \"10us\""},
               {KEY_BANDWIDTH, OF_BYTES, "bytes a second, such as \"25GB\""}};
  for (int i = 0; i < 2; i++) {
    const CostKey k = entry[i].key;
    json_t *v = json_object_get(root, cost_key[k]);
    uint64_t value;
    if (!v)
      continue;
    if (!json_quantity(v, entry[i].of, &value) || (value == 0 && k == KEY_BANDWIDTH))
      return bad(s, at, path, arena_printf(s->arena, "\"%s\" is not %s", cost_key[k], entry[i].is));
    for (uint32_t st = 0; st < s->model->nstage; st++)
      link[k - NKEYS][st] = value;
    has[k] = true;
  }
  return true;
}

/* The times of copies to host memory and back, of the stashes of the stages. */
static bool apply_host(Sched *s, Span at, const char *path, json_t *root, bool has[NENTRIES]) {
  json_t *v = json_object_get(root, "host");
  uint64_t rate;
  if (!v)
    return true;
  if (!json_quantity(v, OF_BYTES, &rate) || rate == 0)
    return bad(s, at, path, "\"host\" is not bytes a second, such as \"25GB\"");
  if (!has[KEY_ACT])
    return bad(s, at, path, "\"host\" needs the bytes of stashes: \"act\"");
  if (has[KEY_OFF] || has[KEY_LOAD])
    return bad(s, at, path, "\"host\" conflicts with \"OFF\" and \"LOAD\": keep one of them");
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    const unsigned __int128 ns = (unsigned __int128)*cost_field(st, KEY_ACT) * 1000000000u;
    const unsigned __int128 time = (ns + rate - 1) / rate;
    *cost_field(st, KEY_OFF) = *cost_field(st, KEY_LOAD) =
        time < UINT64_MAX ? (uint64_t)time : UINT64_MAX;
  }
  has[KEY_OFF] = has[KEY_LOAD] = true;
  return true;
}

/* root: as of read_profile. */
static bool has_layers(json_t *root) {
  return !root || json_object_get(root, "layers") || json_object_get(root, "variants") ||
         json_object_get(root, "model");
}

/* False: this is no profile of our version, reported. */
static bool is_profile(Sched *s, Span at, const char *path, json_t *root) {
  json_t *version = json_object_get(root, "pipe_profile");
  if (!json_is_integer(version) && json_object_get(root, "traceEvents")) {
    bad(s, at, path, "this file is a trace (pr_write_trace, --emit=trace), not a profile");
    diag_help(s->diag, "pr_write_profile writes a profile of the same run");
    return false;
  }
  if (!json_is_integer(version)) {
    bad(s, at, path, "not a profile: \"pipe_profile\": 1 is missing");
    diag_help(s->diag, "pr_write_profile writes a profile of a run; lang/spec.md 6 has the form");
    return false;
  }
  if (json_integer_value(version) != 1)
    return bad(s, at, path,
               arena_printf(s->arena, "profile version %lld; this pipec reads version 1",
                            (long long)json_integer_value(version)));
  const char *known =
                 " pipe_profile stages layers variants model links latency bandwidth host measured ",
             *key = json_unknown_key(root, known);
  if (key)
    return bad(s, at, path,
               arena_printf(s->arena, "unknown key '%s'; the keys are%.*s", key,
                            (int)strlen(known) - 1, known));
  return !json_object_get(root, "stages") || !has_layers(root) ||
         bad(s, at, path,
             "\"stages\" conflicts with \"layers\", \"variants\" and \"model\": keep one of them");
}

static bool apply_stages(Sched *s, Span at, const char *path, json_t *stages, bool *has) {
  if (!json_is_array(stages))
    return bad(s, at, path, "a profile needs \"stages\", \"layers\", \"variants\" or \"model\"");
  if (json_array_size(stages) != s->model->nmodel) {
    bad(s, at, path,
        arena_printf(s->arena, "stages in the profile: %zu, in the schedule: %u",
                     json_array_size(stages), s->model->nmodel));
    diag_help(
        s->diag,
        "a profile of stages fits one cut of the model; a profile of layers (lang/spec.md 6) fits any number of stages");
    return false;
  }
  for (uint32_t st = 0; st < s->model->nmodel; st++) {
    bool seen[NKEYS] = {false};
    if (!stage_entry(s, at, path, st, json_array_get(stages, st), seen))
      return false;
    for (int k = 0; k < NKEYS; k++) {
      if (st > 0 && seen[k] != has[k])
        return bad(s, at, path,
                   arena_printf(s->arena, "'%s' is given for some stages, but not for stage %u",
                                cost_key[k], seen[k] ? 0 : st));
      has[k] = seen[k];
    }
  }
  return true;
}

/* The file as a source, as the depfile lists it, and as JSON; NULL: it is a text of layers. False:
 * reported. */
static bool read_profile(Sched *s, const char *path, Span at, uint32_t *file, json_t **root) {
  if (s->opt->closed && at.file != NO_FILE) /* a text names no files */
    return bad(s, at, path, "profiles cannot be read here");
  const char *found = at.file == NO_FILE ? path : file_find(s, path, s->diag->source[at.file].path);
  uint32_t len;
  const char *text = file_read(s, found ? found : path, at, &len);
  if (!text)
    return false;
  *root = NULL;
  *file = diag_source(s->diag, found ? found : path, text, len);
  if (is_layer_text(text, len))
    return true;
  *root = json_parse(s, DIAG_PROFILE, *file, text, len);
  return *root && is_profile(s, at, path, *root);
}

/* False: there are more, reported. */
static bool has_one_variant(const Layers *l, json_t *root) {
  if (layer_variants(root) <= 1)
    return true;
  layers_refused(l, "it has several variants, and a schedule has the costs of one");
  diag_help(l->s->diag, "keep one of them in the profile; only --plan tries them all");
  return false;
}

bool profile_apply(Sched *s, Model *model, const char *path, Span at, uint64_t *const *link,
                   bool *has) {
  Layers l = {.s = s, .path = path, .at = at};
  json_t *root = NULL;
  bool now[NENTRIES] = {false};
  bool ok = read_profile(s, path, at, &l.file, &root) && has_one_variant(&l, root);
  if (ok && has_layers(root))
    ok = (root ? layers_of_json(&l, root, 0) : layers_of_text(&l)) && cut_layers(&l, model, now);
  else if (ok)
    ok = apply_stages(s, at, path, json_object_get(root, "stages"), now);
  ok = ok && (!root || (apply_network(s, at, path, root, link, now) &&
                        apply_host(s, at, path, root, now) &&
                        apply_links(s, model, at, path, json_object_get(root, "links"))));
  json_drop(root);
  for (int k = 0; ok && k < NENTRIES; k++) {
    has[k] |= now[k];
    model->timed |= now[k] && (k < NTIMEKEYS || k >= NKEYS);
  }
  return ok;
}

bool profile_check(Sched *s, const char *path) {
  Layers l = {.s = s, .path = path, .at = NO_SPAN};
  json_t *root = NULL;
  bool ok = read_profile(s, path, l.at, &l.file, &root) && has_one_variant(&l, root);
  if (ok && has_layers(root))
    ok = root ? layers_of_json(&l, root, 0) : layers_of_text(&l);
  json_drop(root);
  return ok;
}

bool layers_read(Sched *s, const char *path, Variants *v) {
  json_t *root = NULL;
  Layers l = {.s = s, .path = path, .at = NO_SPAN};
  bool ok = read_profile(s, path, l.at, &l.file, &root);
  const char *key = json_unknown_key(root, " pipe_profile layers variants model ");
  const size_t n = layer_variants(root);
  if (ok && key && has_layers(root))
    ok = bad(
        s, l.at, path,
        arena_printf(s->arena, "'%s' has no meaning for a plan, which needs only the layers", key));
  if (ok && !has_layers(root)) {
    bad(s, l.at, path, "a plan needs \"layers\", \"variants\" or \"model\", not \"stages\"");
    diag_help(s->diag, "a profile of stages fits one cut of the model (lang/spec.md 6)");
    ok = false;
  }
  if (ok && n > MOST_VARIANTS)
    ok = bad(
        s, l.at, path,
        arena_printf(s->arena, "it has %zu variants; a plan tries at most %d", n, MOST_VARIANTS));
  do {
    Layers *y = vec_push(s->arena, v);
    *y = l;
    ok = ok && (root ? layers_of_json(y, root, v->n - 1) : layers_of_text(y));
  } while (ok && v->n < n);
  json_drop(root);
  return ok;
}
