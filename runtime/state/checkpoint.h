/* SPDX-License-Identifier: MIT
 * Checkpoints; not installed.
 *
 *   checkpoint.c       writing: pr_checkpoint; which stay: prune
 *   checkpoint_load.c  reading: pr_resume, pr_load_weights
 *   checkpoint_file.c  which tensors and files there are
 *   checkpoint_watch.c its deadline
 *   safetensors.c      the header of a file, on top of json.c
 *
 * A folder of checkpoints has
 *
 *   latest             the name of the newest complete one and a newline; if it is not there, that
 *                      is looked for
 *   lock               held by the run that writes
 *   step-40.2/         after 40 steps, by the second run that wrote into the folder
 *     manifest         text: what it is of, and length and checksum of the header of each file
 *     stage-0.safetensors        the weights of a stage of the model
 *     stage-0.state.safetensors  what else it keeps: optimizer state, states of formulas, gradients
 *     model.safetensors.index.json  in which file each weight is: for other programs
 *   step-50.2.partial/ one that was being written when the run ended
 *
 * The headers have the checksums of the tensors. Checksums are XXH3 with 64 bits. A folder gets its
 * name, and `latest` changes, by a rename after everything in it has been written and
 * synchronized. */
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

enum { CK_VERSION = 2, CK_NAME = 64, CK_PATH = PATH_MAX };

/* A stage has a file of each. */
typedef enum CkPart { CK_WEIGHTS, CK_STATE, CK_PARTS } CkPart;
void ck_file_name(char to[CK_NAME], uint32_t stage, CkPart part);

typedef struct CkList {
  StTensor *t;
  uint32_t n, room;
} CkList;

/* Appends the tensors of a part of a row of the stage table. PR_E_ARG: the model lists other than
 * its buffers. */
PrStatus ck_list(PrRun *run, uint32_t row, CkPart part, CkList *list);

/* A tensor in a file. */
typedef struct CkHave {
  StTensor t;
  CkPart part;
  uint32_t file; /* of CkFiles */
  bool wanted;   /* this run has it, too */
} CkHave;

typedef struct CkFile {
  char *path;     /* owned */
  uint64_t front; /* where its data begins */
  StSeal seal;
} CkFile;

/* Files whose headers have been read, and their tensors. All zero: none. */
typedef struct CkFiles {
  CkFile *file;
  CkHave *have; /* ck_sort: by part and key */
  uint32_t nfile, nhave;
} CkFiles;
bool ck_add(CkFiles *f, const char *path, CkPart part, const StSeal *seal, char why[ST_WHY]);
const CkHave *ck_sort(CkFiles *f); /* one of two that have the same name; NULL: there is none */
CkHave *ck_find(const CkFiles *f, CkPart part, const char *key); /* NULL: there is none */
void ck_free(CkFiles *f);

/* "step-40.2": *step and *attempt; false: another name. */
bool ck_parse_name(const char *name, uint64_t *step, uint64_t *attempt, bool *partial);

/* A folder of that name. */
typedef struct CkFound {
  uint64_t step, attempt;
  bool partial;
} CkFound;

/* The checkpoints in dir, newest first; the caller frees *found, also if this fails. */
PrStatus ck_look_through(PrRun *run, const char *dir, CkFound **found, uint32_t *n);

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
