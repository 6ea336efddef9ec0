/* SPDX-License-Identifier: MIT
 * launch_test: what pr_launch makes of the environment, in one line. */
#include <stdio.h>

#include "pipe_launch.h"

int main(void) {
  PrLaunch l;
  char why[200];
  if (pr_launch(&l, why)) {
    printf("refused: %s\n", why);
    return 1;
  }
  printf("%s: rank %u of %u", *l.family ? l.family : "alone", l.rank, l.size);
  if (l.local_rank != PIPE_NONE)
    printf(", %u on the host", l.local_rank);
  printf("%s%s", *l.store ? ", store " : "", l.store);
  if (l.spare)
    printf(" or %u ports after it", l.spare);
  printf("%s%s\n", *l.key ? ", key " : "", l.key);
  return 0;
}
