/* SPDX-License-Identifier: MIT
 * Leaves the folders of checkpoints when a run closes. The rest of this room is not linked into a
 * program without checkpoints, because pr_close calls this function alone. */
#include "checkpoint.h"

#include <stdlib.h>
#include <unistd.h>

void ck_leave_folders(PrRun *run) {
  for (uint32_t i = 0; i < run->nck_lock; i++)
    close(run->ck_lock[i].file);
  for (uint32_t i = 0; i < run->nck_folder; i++)
    free(run->ck_folder[i].dir);
  free(run->ck_lock);
  free(run->ck_folder);
  run->ck_lock = NULL;
  run->ck_folder = NULL;
  run->nck_lock = run->nck_folder = 0;
}
