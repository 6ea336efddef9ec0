/* SPDX-License-Identifier: MIT
 * Preloaded: a file called latest is never opened, as on a file system that does not answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int open(const char *path, int flags, ...) {
  size_t n = strlen(path);
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  while (n >= 7 && strcmp(path + n - 7, "/latest") == 0)
    pause();
  return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
