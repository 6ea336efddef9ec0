/* SPDX-License-Identifier: MIT
 * losses WANT GOT LIMIT: the "loss STEP HEX" lines of two runs agree, each within LIMIT of itself.
 * */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096 };

static int read_losses(const char *path, double *x) {
  char line[256];
  int n = 0;
  FILE *f = fopen(path, "r");
  while (f && n < MOST && fgets(line, sizeof line, f))
    n += sscanf(line, "loss %*u %la", &x[n]) == 1;
  if (f)
    fclose(f);
  return n;
}

int main(int argc, char **argv) {
  static double want[MOST], got[MOST];
  if (argc != 4)
    return 2;
  int n = read_losses(argv[1], want), m = read_losses(argv[2], got), bad = n != m || m == 0;
  double worst = 0, limit = strtod(argv[3], NULL);
  for (int i = 0; i < n && i < m; i++) {
    double apart = fabs(want[i] - got[i]) / fabs(want[i]);
    bad |= !(apart <= limit);
    worst = apart > worst ? apart : worst;
  }
  printf("%d losses, %.1e apart\n", m, worst);
  return bad;
}
