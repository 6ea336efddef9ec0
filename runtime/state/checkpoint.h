/* SPDX-License-Identifier: MIT
 * Checkpoints; not installed.
 *
 *   checkpoint.c       writing: pr_checkpoint
 *   checkpoint_load.c  reading: pr_resume
 *   checkpoint_file.c  what both know of the files
 *   checkpoint_watch.c its deadline
 *
 * A folder of checkpoints has
 *
 *   latest             the name of the newest complete one and a newline; if it is not there, that
 *                      is looked for
 *   lock               held by the run that writes
 *   step-40.2/         after 40 steps, by the second run that wrote into the folder
 *     manifest         text: what it is of, and length and checksum of every other file
 *     stage-0 ...      one file per stage of the model
 *   step-50.2.partial/ one that was being written when the run ended
 *
 * A stage file is a CkHead, its CkRows and the tensors, each on a line of PR_LINE bytes, in the
 * byte order of the machine that wrote it. Checksums are XXH3 with 64 bits. A folder gets its name,
 * and `latest` changes, by a rename after everything in it has been written and synchronized. */
#ifndef PIPE_CHECKPOINT_H
#define PIPE_CHECKPOINT_H

#include <limits.h>
#include <sys/types.h>

#include "checksum.h"
#include "run.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

enum { CK_VERSION = 1, CK_KEY = 96, CK_NAME = 64, CK_PATH = PATH_MAX };
#define CK_MAGIC "PIPECKPT"

typedef struct CkHead {
  char magic[8];
  uint32_t version, ntensor;
  uint64_t step, bytes; /* of the file */
  uint32_t nmodel, stage;
  uint64_t sum; /* of this with 0 here, and the rows */
} CkHead;

typedef struct CkRow {
  char key[CK_KEY]; /* "tensor/weight", with zeros to the end */
  uint64_t at, bytes, sum;
} CkRow;

_Static_assert(sizeof(CkHead) == 48 && sizeof(CkRow) == CK_KEY + 24, "version 1 of the files");

/* A tensor of the model. */
typedef struct CkTensor {
  char key[CK_KEY];
  char *data; /* NULL: in another process */
  uint64_t bytes;
} CkTensor;

typedef struct CkList {
  CkTensor *t;
  uint32_t n, room;
} CkList;

/* Appends the tensors of a row of the stage table. PR_E_ARG: the model lists other than its
 * buffers. */
PrStatus ck_list(PrRun *run, uint32_t row, CkList *list);

/* What a row keeps from one step to the next: buffer i of it. False: there are only i. */
typedef struct CkBuffer {
  const char *name; /* "weight" */
  int of;           /* PrTensorOf, or -1: the model does not name what is in it */
  void *data;       /* NULL: in another process */
  uint64_t bytes;
} CkBuffer;
bool ck_buffer(const PrRun *run, uint32_t row, uint32_t i, CkBuffer *out);

/* "step-40.2": *step and *attempt; false: another name. */
bool ck_parse_name(const char *name, uint64_t *step, uint64_t *attempt, bool *partial);

/* A folder of that name. */
typedef struct CkFound {
  uint64_t step, attempt;
  bool partial;
} CkFound;

/* The checkpoints in dir, newest first; the caller frees *found, also if this fails. */
PrStatus ck_look_through(PrRun *run, const char *dir, CkFound **found, uint32_t *n);

/* Reads head and rows of a stage file, which the caller frees, and compares them with their
 * checksum and with the length of the file. NULL with why[CK_PATH] set. */
CkHead *ck_read_head(const char *path, CkRow **rows, char *why);

uint64_t ck_head_sum(const CkHead *head, const CkRow *rows);

/* A name of a folder that this run writes checkpoints to; the same in all processes. */
typedef struct CkFolder {
  char *dir;     /* owned */
  uint64_t step; /* of the last checkpoint of this run under that name; UINT64_MAX: none */
} CkFolder;

/* Such a folder itself, whatever it is called by, until the run is closed; in the process that
 * leads. */
typedef struct CkLock {
  int file; /* open: keeps other runs from it */
  dev_t device;
  ino_t inode;      /* of the file */
  uint64_t attempt; /* which run this is that writes there, from 1 */
  uint64_t step;    /* of the last checkpoint of this run; UINT64_MAX: none */
} CkLock;
void ck_leave_folders(PrRun *run); /* gives up the locks */

/* PrRun.ck_at: what this process does of a checkpoint. MEETING: it waits for others. */
enum {
  CK_AT_NONE,
  CK_AT_MEETING,
  CK_AT_BEGIN,
  CK_AT_COMMIT,
  CK_AT_READ,
  CK_AT_READ_MEETING,
  CK_AT_STAGE /* + the stage whose file it writes */
};
enum { CK_LOCK_S = 5 }; /* BEGIN waits so long for another run to leave the folder */

/* From now on the checkpoint has a deadline. */
typedef struct CkWatch {
  PrRun *run;
  pthread_t thread;
  pthread_mutex_t lock; /* of start, quit */
  pthread_cond_t changed;
  uint64_t start;
  bool on, quit;
} CkWatch;
PrStatus ck_watch(PrRun *run, CkWatch *w, uint32_t at);
void ck_watch_again(CkWatch *w); /* the time until here does not count */
void ck_watch_end(CkWatch *w);   /* also if ck_watch has failed */

#endif
