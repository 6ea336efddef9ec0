/* SPDX-License-Identifier: MIT
 * See group.h. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int group_fork(uint32_t size, PrLaunch *at, int *status) {
  char why[1024];
  *status = 2;
  PrGroupServer *server = pr_group_serve(size, at, why);
  if (!server) {
    fprintf(stderr, "%s\n", why);
    return 0;
  }
  pid_t *process = calloc(size, sizeof *process);
  fflush(NULL);
  for (uint32_t r = 0; r < size; r++) {
    pid_t pid = process ? fork() : -1;
    if (pid < 0)
      return 0;
    process[r] = pid;
    if (pid == 0) {
      free(process);
      at->rank = at->local_rank = r;
      return 1;
    }
  }
  *status = 0;
  pid_t pid;
  for (int one; (pid = wait(&one)) > 0;) {
    int code = WIFSIGNALED(one) ? 128 + WTERMSIG(one) : WEXITSTATUS(one);
    *status = *status ? *status : code;
    for (uint32_t r = 0; r < size && code; r++)
      if (process[r] == pid)
        fprintf(stderr,
                WIFSIGNALED(one) ? "rank %u was killed by signal %d\n"
                                 : "rank %u ended with status %d\n",
                r, WIFSIGNALED(one) ? WTERMSIG(one) : code);
  }
  free(process);
  pr_group_serve_end(server);
  return 0;
}
