/* SPDX-License-Identifier: MIT
 * See safetensors.h. */
#include "safetensors.h"
#include "checksum.h"
#include "escape.h"
#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little-endian");

#define SUM "xxh3:" /* prefix of the name of the tensor */

static const struct {
  char name[8];
  uint32_t bytes;
} dtypes[] = {[PR_U8] = {"U8", 1},           [PR_BOOL] = {"BOOL", 1},       [PR_I8] = {"I8", 1},
              [PR_F8_E4M3] = {"F8_E4M3", 1}, [PR_F8_E5M2] = {"F8_E5M2", 1}, [PR_I16] = {"I16", 2},
              [PR_U16] = {"U16", 2},         [PR_F16] = {"F16", 2},         [PR_BF16] = {"BF16", 2},
              [PR_I32] = {"I32", 4},         [PR_U32] = {"U32", 4},         [PR_F32] = {"F32", 4},
              [PR_I64] = {"I64", 8},         [PR_U64] = {"U64", 8},         [PR_F64] = {"F64", 8},
              [PR_C64] = {"C64", 8}};
enum { NDTYPE = sizeof dtypes / sizeof *dtypes };

uint64_t st_bytes(PrDtype dtype, uint32_t ndim, const uint64_t *shape) {
  if ((unsigned)dtype >= NDTYPE || ndim > PR_DIMS)
    return UINT64_MAX;
  uint64_t n = dtypes[dtype].bytes;
  for (uint32_t i = 0; i < ndim; i++) {
    if (shape[i] && n > (UINT64_MAX - 1) / shape[i])
      return UINT64_MAX;
    n *= shape[i];
  }
  return n;
}

void st_form(const StTensor *t, char to[ST_FORM]) {
  size_t n = (size_t)snprintf(to, ST_FORM, "%s [", dtypes[t->dtype].name);
  for (uint32_t i = 0; i < t->ndim; i++)
    n += (size_t)snprintf(to + n, ST_FORM - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
  snprintf(to + n, ST_FORM - n, "]");
}

/* ---- writing --------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b) {
  return strcmp(((const StTensor *)a)->key, ((const StTensor *)b)->key);
}

static int by_size(const void *a, const void *b) {
  const uint32_t x = dtypes[((const StTensor *)a)->dtype].bytes,
                 y = dtypes[((const StTensor *)b)->dtype].bytes;
  return x != y ? (x < y) - (x > y) : by_key(a, b);
}

void st_place(StTensor *t, uint32_t n) {
  uint64_t at = 0;
  if (n > 0)
    qsort(t, n, sizeof *t, by_size);
  for (uint32_t i = 0; i < n; at += t[i++].bytes)
    t[i].at = at;
}

static void put_string(FILE *f, const char *before, const char *text) {
  fputc('"', f);
  fputs(before, f);
  escape_put(f, ESCAPE_JSON, text);
  fputc('"', f);
}

static void put_tensor(FILE *f, const StTensor *t) {
  fputc(',', f);
  put_string(f, "", t->key);
  fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[t->dtype].name);
  for (uint32_t i = 0; i < t->ndim; i++)
    fprintf(f, "%s%" PRIu64, i ? "," : "", t->shape[i]);
  fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->at, t->at + t->bytes);
}

char *st_write(const StTensor *t, uint32_t n, const char *const about[], size_t *bytes) {
  char *head = NULL;
  uint64_t length = 0;
  FILE *f = open_memstream(&head, bytes);
  if (!f)
    return NULL;
  fwrite(&length, sizeof length, 1, f);
  fputs("{\"__metadata__\":{\"format\":\"pt\"", f); /* loaders of hubs require it */
  for (uint32_t i = 0; about[i]; i++) {
    fputc(i % 2 ? ':' : ',', f);
    put_string(f, "", about[i]);
  }
  for (uint32_t i = 0; i < n; i++) {
    fputc(',', f);
    put_string(f, SUM, t[i].key);
    fprintf(f, ":\"%016" PRIx64 "\"", t[i].sum);
  }
  fputc('}', f);
  for (uint32_t i = 0; i < n; i++)
    put_tensor(f, &t[i]);
  fputc('}', f);
  for (long at = ftell(f); at % ST_ALIGN; at++)
    fputc(' ', f);
  const bool bad = ferror(f);
  if (fclose(f) || bad) {
    free(head);
    return NULL;
  }
  length = *bytes - sizeof length;
  memcpy(head, &length, sizeof length);
  return head;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the description of a tensor: the value of its member. */
static void read_tensor(Json *j, StTensor *t) {
  enum { DTYPE, SHAPE, OFFSETS, NAMES };
  static const char *const names[] = {"dtype", "shape", "data_offsets"};
  char name[16], dtype[16], form[ST_FORM];
  unsigned seen = 0;
  uint64_t end = 0;
  pr_json_expect(j, '{');
  for (uint32_t i = 0; pr_json_more(j, '}', i); i++) {
    uint32_t which = 0, d = 0;
    pr_json_key(j, name, sizeof name);
    while (which < NAMES && strcmp(name, names[which]))
      which++;
    if (which == NAMES || seen >> which & 1)
      pr_json_fail(j, "'%.100s' has '%s'%s", t->key, name,
                   which == NAMES ? ", which is not of the format" : " twice");
    seen |= 1u << which;
    if (which == DTYPE) {
      pr_json_string(j, dtype, sizeof dtype);
      while (d < NDTYPE && strcmp(dtype, dtypes[d].name))
        d++;
      if (d == NDTYPE)
        pr_json_fail(j, "'%.100s' is of dtype '%s', which is not known here", t->key, dtype);
      t->dtype = (PrDtype)d;
    } else if (which == SHAPE) {
      pr_json_expect(j, '[');
      for (; pr_json_more(j, ']', t->ndim); t->ndim++) {
        if (t->ndim == PR_DIMS) {
          pr_json_fail(j, "'%.100s' has more than %d dimensions", t->key, PR_DIMS);
          break;
        }
        t->shape[t->ndim] = pr_json_number(j);
      }
    } else if (which == OFFSETS) {
      pr_json_expect(j, '[');
      t->at = pr_json_number(j);
      pr_json_expect(j, ',');
      end = pr_json_number(j);
      pr_json_expect(j, ']');
    }
  }
  if (seen != (1u << NAMES) - 1)
    pr_json_fail(j, "'%.100s' lacks dtype, shape or data_offsets", t->key);
  if (j->bad)
    return;
  t->bytes = st_bytes(t->dtype, t->ndim, t->shape);
  st_form(t, form);
  if (t->bytes == UINT64_MAX || end < t->at || end - t->at != t->bytes)
    pr_json_fail(j, "'%.100s' is %.200s: not the bytes %" PRIu64 " to %" PRIu64, t->key, form,
                 t->at, end);
}

/* Reads the value of __metadata__. head: its tensors, by name, get their checksums; NULL: only skip
 * it. */
static void read_metadata(Json *j, StHead *head) {
  char text[17], *end;
  StTensor key, *t;
  char name[sizeof SUM - 1 + sizeof key.key];
  pr_json_expect(j, '{');
  for (uint32_t i = 0; pr_json_more(j, '}', i); i++) {
    pr_json_key(j, name, sizeof name);
    const size_t n = pr_json_string(j, text, sizeof text);
    if (!head || strncmp(name, SUM, strlen(SUM)))
      continue;
    snprintf(key.key, sizeof key.key, "%s", name + strlen(SUM));
    t = head->n ? bsearch(&key, head->t, head->n, sizeof key, by_key) : NULL;
    if (!t)
      continue;
    t->sum = strtoull(text, &end, 16);
    if (n != 16 || *end || t->has_sum)
      pr_json_fail(j, "the checksum of '%.100s' is not 16 digits, or is there twice", t->key);
    t->has_sum = true;
  }
}

static int by_place(const void *a, const void *b) {
  const StTensor *x = a, *y = b;
  return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                        : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

#define WHY(...) (snprintf(why, ST_WHY, __VA_ARGS__), false)

/* Checks that each byte of the data belongs to exactly one tensor and that names are distinct.
 * Sorts the tensors by name. */
static bool check_all(StHead *head, uint64_t data, char *why) {
  StTensor *t = head->t;
  uint64_t end = 0;
  if (head->n > 0)
    qsort(t, head->n, sizeof *t, by_place);
  for (uint32_t i = 0; i < head->n; end += t[i++].bytes)
    if (t[i].at != end)
      return WHY("'%.100s' begins at byte %" PRIu64 " of the data, the one before ends at %" PRIu64,
                 t[i].key, t[i].at, end);
  if (end != data)
    return WHY("%s: %" PRIu64 " bytes of data of %" PRIu64, data < end ? "cut short" : "too long",
               data, end);
  if (head->n > 0)
    qsort(t, head->n, sizeof *t, by_key);
  for (uint32_t i = 1; i < head->n; i++)
    if (!strcmp(t[i - 1].key, t[i].key))
      return WHY("two tensors '%.100s'", t[i].key);
  return true;
}

bool st_parse(const char *text, size_t n, uint64_t data, StHead *head, char why[ST_WHY]) {
  Json j = {.begin = text, .at = text, .end = text + n, .why = why}, metadata = {0};
  uint32_t room = 0;
  memset(head, 0, sizeof *head);
  if (n == 0 || *text != '{') /* the format allows no blanks before it */
    pr_json_fail(&j, "expected '{'");
  pr_json_expect(&j, '{');
  for (uint32_t i = 0; pr_json_more(&j, '}', i); i++) {
    StTensor t = {.ndim = 0};
    const size_t length = pr_json_key(&j, t.key, sizeof t.key);
    if (!strcmp(t.key, "__metadata__")) {
      if (metadata.at)
        pr_json_fail(&j, "__metadata__ twice");
      metadata = j;
      read_metadata(&j, NULL);
      continue;
    }
    if (length >= sizeof t.key)
      pr_json_fail(&j, "a name of %zu bytes; tensors of a model have at most %zu", length,
                   sizeof t.key - 1);
    read_tensor(&j, &t);
    if (!j.bad && head->n == room) {
      StTensor *more = realloc(head->t, (size_t)(room = 2 * room + 16) * sizeof *more);
      if (more)
        head->t = more;
      else
        pr_json_fail(&j, "no memory for %u tensors", room);
    }
    if (!j.bad)
      head->t[head->n++] = t;
  }
  pr_json_end(&j);
  bool ok = !j.bad && check_all(head, data, why);
  if (ok && metadata.at) {
    read_metadata(&metadata, head);
    ok = !metadata.bad;
  }
  if (!ok) {
    free(head->t);
    memset(head, 0, sizeof *head);
  }
  return ok;
}

static bool read_from(FILE *in, const StSeal *seal, StHead *head, char **text, char *why) {
  struct stat is;
  uint64_t n;
  if (fstat(fileno(in), &is))
    return WHY("%s", strerror(errno));
  const StSeal own = {.bytes = (uint64_t)is.st_size};
  if (seal && own.bytes != seal->bytes)
    return WHY("%s: %" PRIu64 " bytes of %" PRIu64,
               own.bytes < seal->bytes ? "cut short" : "too long", own.bytes, seal->bytes);
  if (fread(&n, sizeof n, 1, in) != 1)
    return WHY("%s", ferror(in) ? strerror(errno) : "no safetensors: less than 8 bytes");
  if (n > ST_MOST || n > own.bytes - sizeof n)
    return WHY("no safetensors: a header of %" PRIu64 " bytes, in a file of %" PRIu64
               "; the most is %d",
               n, own.bytes, ST_MOST);
  if (!(*text = malloc(sizeof n + n)))
    return WHY("no memory for a header of %" PRIu64 " bytes", n);
  memcpy(*text, &n, sizeof n);
  if (fread(*text + sizeof n, 1, n, in) != n)
    return WHY("cannot be read");
  const uint64_t sum = pr_checksum(*text, sizeof n + n);
  if (seal && sum != seal->sum)
    return WHY("its header is not the one that the manifest lists");
  if (!st_parse(*text + sizeof n, n, own.bytes - sizeof n - n, head, why))
    return false;
  head->bytes = sizeof n + n;
  head->seal = (StSeal){own.bytes, sum};
  return true;
}

const char *st_open(const char *path, FILE **in) {
  struct stat is;
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  *in = NULL;
  if (fd >= 0 && !fstat(fd, &is) && !S_ISREG(is.st_mode)) {
    close(fd);
    errno = S_ISDIR(is.st_mode) ? EISDIR : EINVAL;
    return errno == EISDIR ? strerror(EISDIR) : "it is no regular file";
  }
  if (fd >= 0 && !(*in = fdopen(fd, "rb")))
    close(fd);
  return *in ? NULL : strerror(errno);
}

bool st_read(const char *path, const StSeal *seal, StHead *head, char why[ST_WHY]) {
  FILE *in;
  char *text = NULL;
  const char *closed = st_open(path, &in);
  const bool ok = closed ? WHY("%s", closed) : read_from(in, seal, head, &text, why);
  free(text);
  if (in)
    fclose(in);
  return ok;
}

int st_parse_index(const char *text, size_t n, int (*add)(void *arg, const char *file), void *arg,
                   char why[ST_WHY]) {
  Json j = {.begin = text, .at = text, .end = text + n, .why = why};
  char name[256];
  int done = 0;
  pr_json_expect(&j, '{');
  for (uint32_t i = 0; pr_json_more(&j, '}', i); i++) {
    pr_json_key(&j, name, sizeof name);
    if (strcmp(name, "weight_map")) {
      pr_json_skip(&j);
      continue;
    }
    pr_json_expect(&j, '{');
    for (uint32_t k = 0; !done && pr_json_more(&j, '}', k); k++) {
      pr_json_key(&j, NULL, 0);
      const size_t length = pr_json_string(&j, name, sizeof name);
      if (length >= sizeof name || strchr(name, '/'))
        pr_json_fail(&j, "the file '%s' is not beside the index", name);
      if (!j.bad)
        done = add(arg, name);
    }
    if (done)
      return done;
  }
  pr_json_end(&j);
  return j.bad ? -1 : 0;
}
