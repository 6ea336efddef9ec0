/* SPDX-License-Identifier: MIT
 * Checkpoints; not installed.
 *
 *   checkpoint.c       writing: pr_checkpoint; removing old ones
 *   checkpoint_load.c  reading: pr_resume, pr_load_weights
 *   checkpoint_file.c  the tensors and files of a checkpoint
 *   checkpoint_watch.c its deadline
 *   checkpoint_leave.c what pr_close calls
 *   safetensors.c      the header of a file, on top of json.c
 *
 * A folder of checkpoints contains
 *
 *   latest             name of the newest complete checkpoint and a newline; without this file the
 *                      newest complete checkpoint is searched
 *   lock               held by the run that writes
 *   step-40.2/         after 40 steps, by the second run that wrote to the folder
 *     manifest         text: identity, updates so far of each stage, and length and header checksum
 *                      of each file
 *     stage-0.safetensors        the weights of a stage of the model
 *     stage-0.state.safetensors  its other data: optimizer state, states of formulas, gradients
 *     model.safetensors.index.json  the file of each weight, for other programs
 *   step-50.2.partial/ a checkpoint that was being written when the run ended
 *
 * The headers contain checksums of the tensors; all checksums are XXH3 with 64 bits. A folder gets
 * its final name, and `latest` changes, by a rename after everything in it has been written and
 * synced. */
#ifndef PIPE_CHECKPOINT_H
#define PIPE_CHECKPOINT_H

#include <limits.h>
#include <sys/types.h>

#include "checksum.h"
#include "run.h"
#include "safetensors.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

enum { CK_VERSION = 3, CK_NAME = 64, CK_PATH = PATH_MAX };

/* A stage has one file per part. */
typedef enum CkPart { CK_WEIGHTS, CK_STATE, CK_PARTS } CkPart;
void ck_file_name(char to[CK_NAME], uint32_t stage, CkPart part);

typedef struct CkList {
  StTensor *t;
  uint32_t n, room;
} CkList;

/* Appends the tensors of a part of a row of the stage table. PR_E_ARG: the tensors that the model
 * lists do not cover its buffers. */
PrStatus ck_list(PrRun *run, uint32_t row, CkPart part, CkList *list);

/* Sets StageRun.nupdate and .left of rows of other processes, if they are not set. */
PrStatus ck_see_rows(PrRun *run);

/* A tensor in a file. */
typedef struct CkHave {
  StTensor t;
  CkPart part;
  uint32_t file; /* row of CkFiles.file */
  bool wanted;   /* this run has the tensor too */
} CkHave;

typedef struct CkFile {
  char *path;     /* owned */
  uint64_t front; /* bytes before its data */
  StSeal seal;
} CkFile;

/* Files whose headers have been read, and their tensors. All zero: empty. */
typedef struct CkFiles {
  CkFile *file;
  CkHave *have; /* after ck_sort: by part and key */
  uint32_t nfile, nhave;
} CkFiles;
bool ck_add(CkFiles *f, const char *path, CkPart part, const StSeal *seal, char why[ST_WHY]);
const CkHave *ck_sort(CkFiles *f); /* returns one of two tensors with equal names, or NULL */
CkHave *ck_find(const CkFiles *f, CkPart part, const char *key); /* NULL: not found */
void ck_free(CkFiles *f);

/* Parses "step-40.2" (or with ".partial") into *step, *attempt and *partial. False: another
 * name. */
bool ck_parse_name(const char *name, uint64_t *step, uint64_t *attempt, bool *partial);

/* A folder with such a name. */
typedef struct CkFound {
  uint64_t step, attempt;
  bool partial;
} CkFound;

/* Lists the checkpoints in dir, newest first. The caller frees *found, also after a failure. */
PrStatus ck_look_through(PrRun *run, const char *dir, CkFound **found, uint32_t *n);

/* A path that this run writes checkpoints to; the same in all processes. */
typedef struct CkFolder {
  char *dir;     /* owned */
  uint64_t step; /* last checkpoint of this run under this path; UINT64_MAX: none */
} CkFolder;

/* A folder that this run writes to, identified by its lock file, whatever its path; held until
 * pr_close by the process that leads. */
typedef struct CkLock {
  int file; /* open lock file: keeps other runs out */
  dev_t device;
  ino_t inode;      /* of the lock file */
  uint64_t attempt; /* number of this run among those that wrote to the folder, from 1 */
  uint64_t step;    /* last checkpoint of this run; UINT64_MAX: none */
} CkLock;
void ck_leave_folders(PrRun *run); /* releases the locks */

/* PrRun.ck_at: the part of a checkpoint that this process is in. MEETING: it waits for other
 * ranks. */
enum {
  CK_AT_NONE,
  CK_AT_MEETING,
  CK_AT_BEGIN,
  CK_AT_COMMIT,
  CK_AT_READ,
  CK_AT_READ_MEETING,
  CK_AT_STAGE /* + the stage whose file it is writing */
};
enum { CK_LOCK_S = 5 }; /* seconds that BEGIN waits for another run to leave the folder */

/* The deadline of a checkpoint: begins with ck_watch, ends with ck_watch_end. */
typedef struct CkWatch {
  PrRun *run;
  pthread_t thread;
  pthread_mutex_t lock; /* of start, quit */
  pthread_cond_t changed;
  uint64_t start;
  bool on, quit;
} CkWatch;
PrStatus ck_watch(PrRun *run, CkWatch *w, uint32_t at);
void ck_watch_again(CkWatch *w); /* restarts the time */
void ck_watch_end(CkWatch *w);   /* also after ck_watch has failed */

#endif
