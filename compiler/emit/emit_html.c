/* SPDX-License-Identifier: MIT
 * Writes the predicted timeline as one interactive HTML page. The page needs no other file and no
 * network: it contains the template html/page.html with style and script, and as data the JSON form
 * of each input (--emit=json) and the texts. Requires prog; compiles the inputs after the first.
 * Cost: linear.
 *
 * The JSON form is packed, because keys are most of its bytes: an object is [value, ..., n] with
 * the keys shapes[n], a list is [value, ..., -1]. data.js unpacks it. The data has no bare '<', so
 * no text of a user can end the script element around it, and all bytes are UTF-8. */
#include <string.h>

#include "base.h"
#include "emit.h"
#include "equal_work.h"
#include "svg.h"

/* embedded files of html/ */
extern const char page_html[], page_css[], data_js[], draw_js[], page_js[];

typedef struct Pack {
  Arena *arena;
  FILE *f;
  const char *at;          /* in the JSON text of emit_json, which is well-formed */
  VEC(const char *) shape; /* [shape] the keys of an object, quoted, with commas */
} Pack;

/* Writes n bytes as part of a JSON string. escaped: they are JSON already; only '<' is replaced. */
static void put_text(FILE *f, const char *text, size_t n, bool escaped) {
  char out[ESCAPE_ROOM];
  for (size_t took = 1; n > 0; text += took, n -= took) {
    took = escaped ? 1 : escape_one(ESCAPE_JSON, text, n, out);
    if (*text == '<')
      fputs("\\u003c", f);
    else
      escaped ? (void)fputc(*text, f) : (void)fputs(out, f);
  }
}

static char next(Pack *p) {
  while (*p->at == ' ' || *p->at == '\n')
    p->at++;
  return *p->at;
}

/* Copies the string at p->at, quotes included, and moves p->at behind it. */
static const char *string(Pack *p, size_t *n) {
  const char *from = p->at++;
  while (*p->at != '"')
    p->at += *p->at == '\\' ? 2 : 1;
  *n = (size_t)(++p->at - from);
  return from;
}

static int shape(Pack *p, const char *keys) {
  for (uint32_t i = 0; i < p->shape.n; i++)
    if (strcmp(p->shape.at[i], keys) == 0)
      return (int)i;
  *vec_push(p->arena, &p->shape) = arena_strndup(p->arena, keys, strlen(keys));
  return (int)p->shape.n - 1;
}

/* Packs the value at p->at. */
static void pack(Pack *p) {
  char keys[1024], open = next(p);
  size_t n, nkeys = 0;
  if (open == '"') {
    const char *text = string(p, &n);
    fputc('"', p->f);
    put_text(p->f, text + 1, n - 2, true);
    fputc('"', p->f);
    return;
  }
  if (open != '{' && open != '[') {
    n = strcspn(p->at, ",]} \n");
    fwrite(p->at, 1, n, p->f);
    p->at += n;
    return;
  }
  fputc('[', p->f);
  p->at++;
  for (char c; (c = next(p)) != '}' && c != ']';) {
    if (c == ',') {
      p->at++;
      continue;
    }
    if (open == '{') {
      const char *key = string(p, &n);
      BUG_IF(nkeys + n + 2 > sizeof keys);
      if (nkeys)
        keys[nkeys++] = ',';
      memcpy(keys + nkeys, key, n);
      nkeys += n;
      next(p), p->at++; /* the ':' */
    }
    pack(p);
    fputc(',', p->f);
  }
  p->at++;
  keys[nkeys] = 0;
  fprintf(p->f, "%d]", open == '{' ? shape(p, keys) : -1);
}

/* Writes the data of one input. scale: factor of its times in the picture. */
static void put_panel(Sched *s, double scale, FILE *f) {
  GuardText *json = guard_text();
  emit_json(s, json->f);
  guard_text_done(json);
  Pack p = {.arena = s->arena, .f = f, .at = json->text};
  fprintf(f, "{\"scale\":%.17g,\"form\":", scale);
  pack(&p);
  guard_text_end(json);
  fputs(",\"shapes\":[", f);
  for (uint32_t i = 0; i < p.shape.n; i++)
    fprintf(f, "%s[%s]", i ? "," : "", p.shape.at[i]);
  fputs("],\"sources\":[", f);
  /* files keep the numbers that sites use */
  for (uint32_t i = 0, done = 0; i < s->prog->nsite; i++)
    if (s->prog->site[i].file == done) {
      const Source *source = &s->diag->source[s->orders->site[i].file];
      fputs(done++ ? ",\"" : "\"", f);
      put_text(f, source->text, source->len, false);
      fputc('"', f);
    }
  fputs("]}", f);
}

static void put_data(Sched *s, Sched *const *other, FILE *f) {
  static const struct {
    const char *text, *stream;
    int act, gout;
  } op[] = {
#define X(op, text, stream, act, gout, in, out) {text, #stream, act, gout},
#include "pipe_ops.def"
#undef X
  };
  char over[PIPE_OP_TEXT] = "";
  if (over_limit(s))
    pipe_instr_text(over, pipe_graph(s->prog), over_limit(s));
  fprintf(f, "{\"pipec_html\":1,\"limit\":%llu,\"over\":\"%s\",\"ops\":[",
          (unsigned long long)s->opt->memory_limit_bytes, over);
  for (int i = 0; i < PIPE_NOPS; i++) {
    const SvgLook *look = &svg_look[i];
    fprintf(
        f,
        "%s{\"op\":\"%s\",\"stream\":\"%s\",\"act\":%d,\"gout\":%d,\"name\":\"%s\",\"fill\":\"%s\",\"ink\":\"%s\"}",
        i ? "," : "", op[i].text, op[i].stream, op[i].act, op[i].gout,
        look->name ? look->name : "transfer", look->fill ? look->fill : "",
        look->ink ? look->ink : "");
  }
  fputs("],\n\"panels\":[", f);
  uint32_t n = s->opt->ncompare ? s->opt->ncompare : 1;
  ModelWork *work = NEW_ARRAY(s->arena, ModelWork, n);
  double *scale = NEW_ARRAY(s->arena, double, n);
  for (uint32_t k = 0; k < n; k++)
    work[k] = model_work(k ? other[k] : s);
  equal_work(work, n, n, scale);
  for (uint32_t k = 0; k < n; k++) {
    fputs(k ? ",\n" : "", f);
    put_panel(k ? other[k] : s, s->opt->own_units ? 1 : scale[k], f);
  }
  fputs("]}\n", f);
}

/* Compiles input k with the same options. NULL: reported. */
static Sched *compile_other(Sched *s, uint32_t k) {
  Sched *o = NEW(s->arena, Sched);
  Options *opt = NEW(s->arena, Options);
  Diag *diag = NEW(s->arena, Diag);
  diag_init(diag, s->arena, s->diag->out);
  diag->werror = s->diag->werror;
  *opt = *s->opt;
  opt->input = opt->compare[k];
  opt->time_passes = false;
  *o = (Sched){.arena = s->arena, .diag = diag, .opt = opt, .work = s->work, .again = s->again};
  if (!s->again(o) || diag->errors)
    return NULL;
  if (o->model->timed != s->model->timed) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN,
               "one time axis: the times of %s are %s, those of %s %s", s->opt->input,
               s->model->timed ? "ns" : "units", opt->input, o->model->timed ? "ns" : "units");
    return NULL;
  }
  /* note the files that were read, for --depfile and file_open */
  for (uint32_t i = 0; i < diag->nsource; i++)
    diag_source(s->diag, diag->source[i].path, diag->source[i].text, diag->source[i].len);
  return o;
}

bool emit_html(Sched *s) {
  static const struct {
    const char *mark, *text[4];
  } part[] = {{"%css%", {page_css}}, {"%data%", {NULL}}, {"%js%", {data_js, draw_js, page_js}}};
  Options *o = s->opt;
  Sched **other = NEW_ARRAY(s->arena, Sched *, o->ncompare);
  for (uint32_t k = 1; k < o->ncompare; k++)
    if (!(other[k] = compile_other(s, k)))
      return false;
  for (uint32_t i = 0; i < o->ndefine && o->ncompare; i++)
    if (!o->define[i].used) {
      diag_error(s->diag, DIAG_PARAM, NO_SPAN, "none of the schedules has a parameter '%s' (-D)",
                 o->define[i].name);
      return false;
    }
  OutFile out;
  if (!file_open(s, &out, o->output))
    return false;
  const char *at = page_html;
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    const char *mark = strstr(at, part[i].mark);
    BUG_IF(!mark);
    fwrite(at, 1, (size_t)(mark - at), out.f);
    at = mark + strlen(part[i].mark);
    if (!part[i].text[0])
      put_data(s, other, out.f);
    for (int k = 0; part[i].text[k]; k++)
      fputs(part[i].text[k], out.f);
  }
  fputs(at, out.f);
  return file_close(s, &out, true);
}
