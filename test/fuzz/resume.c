/* SPDX-License-Identifier: MIT
 * Fuzz target of the reader of checkpoints. A run writes one; an input is a byte whose lowest bit
 * says whether checksums and lengths are put right again, and edits of four bytes: which file and
 * how, where (two bytes), and a byte. pr_resume refuses the result with a message or reads it. If
 * the sums were left, what it reads are the weights that were written. Aborts otherwise.
 *
 * Build with -fsanitize=fuzzer. */
#define _GNU_SOURCE /* memmem */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../run/tiny_model.h"
#include "checkpoint.h"
#include "driver.h"

enum { NSTAGE = 2, LATEST = NSTAGE * CK_PARTS, MANIFEST, NFILE, MOST = 4096, END = 4 + 16 + 1 };

typedef struct File {
  char path[128];
  char bytes[MOST];
  size_t n;
} File;

static const char text[] =
    "schedule two() { ranks 1  pipe net stages 2 mbs 2 place s -> 0\n"
    "  order r { F[stage 0](0) F[stage 1](0) B[stage 1](0) B[stage 0](0) F[stage 0](1) F[stage 1](1) B[stage 1](1) B[stage 0](1) U } }\n";
static char dir[64] = "/tmp/fuzz-resume.XXXXXX";
static File written[NFILE];
static char weight[NSTAGE][MOST];
static const PipeProgram *program;
static PrModel model;

static void must(bool ok) {
  if (!ok)
    abort();
}

static void remove_files(void) {
  for (int i = 0; i < NFILE; i++)
    unlink(written[i].path);
  strcpy(strrchr(written[MANIFEST].path, '/'), "/model.safetensors.index.json");
  unlink(written[MANIFEST].path);
  *strrchr(written[MANIFEST].path, '/') = 0;
  rmdir(written[MANIFEST].path);
  strcat(dir, "/lock");
  unlink(dir);
  *strrchr(dir, '/') = 0;
  rmdir(dir);
}

static void copy_weights(PrRun *run, char to[NSTAGE][MOST]) {
  for (uint32_t s = 0; s < NSTAGE; s++)
    must(pr_copy_weight(run, s, to[s]) == PR_OK);
}

static void read_file(File *f, const char *folder, const char *name) {
  snprintf(f->path, sizeof f->path, "%.60s/%.40s", folder, name);
  FILE *in = fopen(f->path, "rb");
  must(in != NULL);
  f->n = fread(f->bytes, 1, MOST, in);
  must(f->n > 0 && f->n < MOST / 2);
  fclose(in);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  static Arena arena = {0};
  static Diag diag;
  static Options opt = {
      .input = "two.pipe", .text = text, .text_len = sizeof text - 1, .emit = EMIT_NONE};
  static Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  must(compile_only(&s));
  program = s.prog;
  model = tiny_model(tiny_new(NSTAGE, 0));
  PrRun *run = NULL;
  must(mkdtemp(dir) && !pr_open(&run, program, &model, NULL) && !pr_steps(run, 1) &&
       !pr_checkpoint(run, dir, 1));
  copy_weights(run, weight);
  pr_close(run);
  char folder[128];
  read_file(&written[LATEST], dir, "latest");
  snprintf(folder, sizeof folder, "%s/%.*s", dir, (int)written[LATEST].n - 1,
           written[LATEST].bytes);
  read_file(&written[MANIFEST], folder, "manifest");
  for (int i = 0; i < LATEST; i++) {
    char name[CK_NAME];
    ck_file_name(name, (uint32_t)i / CK_PARTS, i % CK_PARTS);
    read_file(&written[i], folder, name);
  }
  atexit(remove_files);
  return 0;
}

static void edit(File *f, int how, size_t at, char value) {
  at = f->n ? at % f->n : 0;
  if (how == 0 && f->n) {
    f->bytes[at] = value;
  } else if (how == 1 && f->n < MOST) {
    memmove(f->bytes + at + 1, f->bytes + at, f->n++ - at);
    f->bytes[at] = value;
  } else if (how == 2 && f->n) {
    memmove(f->bytes + at, f->bytes + at + 1, --f->n - at);
  } else if (how == 3) {
    f->n = at;
  }
}

/* What the manifest says of a file. */
static void put_right(const File *f, File *manifest, int file) {
  uint64_t n = 0;
  char name[CK_NAME], key[CK_NAME + 4], line[CK_NAME + 80];
  memcpy(&n, f->bytes, f->n < sizeof n ? f->n : sizeof n);
  n = f->n < sizeof n ? f->n : n < f->n - sizeof n ? n + sizeof n : f->n; /* of the head */
  ck_file_name(name, (uint32_t)file / CK_PARTS, file % CK_PARTS);
  snprintf(key, sizeof key, "\n%s ", name);
  char *at = memmem(manifest->bytes, manifest->n, key, strlen(key));
  char *end = at ? memchr(at + 1, '\n', (size_t)(manifest->bytes + manifest->n - at - 1)) : NULL;
  int len = snprintf(line, sizeof line, "%s%zu %016" PRIx64, key, f->n, pr_checksum(f->bytes, n));
  if (!end || manifest->n + (size_t)len > MOST)
    return;
  memmove(at + len, end, (size_t)(manifest->bytes + manifest->n - end));
  manifest->n += (size_t)(at + len - end);
  memcpy(at, line, (size_t)len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static File f[NFILE];
  const bool right = size > 0 && (data[0] & 1);
  memcpy(f, written, sizeof f);
  for (size_t i = 1; i + 4 <= size; i += 4)
    edit(&f[data[i] % NFILE], data[i] / NFILE % 4, (size_t)(data[i + 1] + 256 * data[i + 2]),
         (char)data[i + 3]);
  for (int i = 0; right && i < LATEST; i++)
    put_right(&f[i], &f[MANIFEST], i);
  if (right && f[MANIFEST].n > END) {
    char line[END + 1], *end = f[MANIFEST].bytes + f[MANIFEST].n - END;
    snprintf(line, sizeof line, "end %016" PRIx64 "\n",
             pr_checksum(f[MANIFEST].bytes, f[MANIFEST].n - END));
    memcpy(end, line, END);
  }
  for (int i = 0; i < NFILE; i++) {
    FILE *out = fopen(f[i].path, "wb");
    must(out && fwrite(f[i].bytes, 1, f[i].n, out) == f[i].n && fclose(out) == 0);
  }
  PrRun *run;
  uint64_t step;
  static char got[NSTAGE][MOST];
  must(!pr_open(&run, program, &model, NULL));
  PrStatus st = pr_resume(run, dir, &step);
  must(st ? *pr_error(run) != 0 : !*pr_error(run));
  if (!st && !right && step > 0) {
    copy_weights(run, got);
    must(memcmp(got, weight, sizeof got) == 0);
  }
  pr_close(run);
  return 0;
}
