/* SPDX-License-Identifier: MIT
 * Fuzz target of who serves the store. An input is a byte of flags and what a connection sends:
 * messages of a type, a length and so many bytes, or raw bytes. Flags: 1: it shows the key; 2: and
 * joins as the only rank; 4: raw bytes. A stranger brings about no verdict and no news of a
 * process, and the server ends when it is told to. Aborts otherwise.
 *
 * Build with -fsanitize=fuzzer. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store.h"

static bool told; /* read once the server has ended */

static void on_verdict(void *arg, const StoreVerdict *v) {
  (void)arg, (void)v;
  told = true;
}
static void on_exit_of(void *arg, const StoreExit *e) {
  (void)arg, (void)e;
  told = true;
}

static void send_all(int fd, const uint8_t *data, size_t size, bool raw) {
  if (raw) {
    if (size)
      send(fd, data, size, MSG_NOSIGNAL);
    return;
  }
  for (size_t at = 0; at + 2 <= size;) {
    size_t rest = size - at - 2, n = data[at + 1] < rest ? data[at + 1] : rest;
    store_send(fd, (StoreType)data[at], data + at + 2, (uint32_t)n, NULL, 0);
    at += 2 + n;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char bound[STORE_ADDR], why[STORE_TEXT], key[STORE_KEY], drop[4096];
  const StoreServerHooks hooks = {.verdict = on_verdict, .exited = on_exit_of};
  const StoreJoin join = {.rank = 0, .size = 1, .hash = 1, .name = "fuzz"};
  if (size == 0)
    return 0;
  const bool known = data[0] & 1;
  told = false;
  StoreServer *s = store_make_key(key, why) ? store_serve("127.0.0.1:0", key, 1, &hooks, bound, why)
                                            : NULL;
  if (!s)
    abort();
  int fd = known ? store_connect(bound, key, why) : store_socket(bound, false, why);
  if (fd < 0)
    abort();
  if (known && (data[0] & 2))
    store_send(fd, STORE_JOIN, &join, sizeof join, NULL, 0);
  send_all(fd, data + 1, size - 1, data[0] & 4);
  shutdown(fd, SHUT_WR);
  while (recv(fd, drop, sizeof drop, 0) > 0)
    continue;
  close(fd);
  store_stop(s, 0);
  if (told && !known)
    abort();
  return 0;
}
