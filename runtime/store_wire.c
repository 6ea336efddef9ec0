/* SPDX-License-Identifier: MIT
 * What both sides of the store need: sockets and whole messages. */
#include "store.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int store_socket(const char *addr, bool listens, char *why) {
  char host[STORE_ADDR];
  const char *colon = strrchr(addr, ':');
  if (!colon || colon == addr || (size_t)(colon - addr) >= sizeof host || !colon[1]) {
    snprintf(why, STORE_TEXT, "'%.200s' is not host:port", addr);
    return -1;
  }
  snprintf(host, sizeof host, "%.*s", (int)(colon - addr), addr);
  struct addrinfo hint = {.ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_flags = listens ? AI_PASSIVE : 0},
                  *list;
  int err = getaddrinfo(host, colon + 1, &hint, &list), fd = -1, one = 1;
  if (err) {
    snprintf(why, STORE_TEXT, "%.200s: %s", addr, gai_strerror(err));
    return -1;
  }
  for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0)
      continue;
    if (listens)
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    else
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int bad = listens ? bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1024)
                      : connect(fd, a->ai_addr, a->ai_addrlen);
    if (bad) {
      err = errno;
      close(fd);
      errno = err;
      fd = -1;
    }
  }
  if (fd < 0)
    snprintf(why, STORE_TEXT, "%.200s: %s", addr, strerror(errno));
  freeaddrinfo(list);
  return fd;
}

static bool write_all(int fd, const void *data, size_t n) {
  const char *at = data;
  while (n > 0) {
    ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    n -= (size_t)done;
  }
  return true;
}

static bool read_all(int fd, void *data, size_t n) {
  char *at = data;
  while (n > 0) {
    ssize_t done = recv(fd, at, n, 0);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    n -= (size_t)done;
  }
  return true;
}

bool store_send(int fd, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb) {
  StoreHead head = {STORE_MAGIC, (uint32_t)type, na + nb, 0};
  return write_all(fd, &head, sizeof head) && write_all(fd, a, na) && write_all(fd, b, nb);
}

bool store_receive(int fd, StoreType *type, char **payload, uint32_t *bytes) {
  StoreHead head;
  *payload = NULL;
  if (!read_all(fd, &head, sizeof head) || head.magic != STORE_MAGIC || head.type >= STORE_NTYPES ||
      head.bytes > STORE_MOST)
    return false;
  *type = (StoreType)head.type;
  *bytes = head.bytes;
  *payload = malloc((size_t)head.bytes + 1);
  if (!*payload || !read_all(fd, *payload, head.bytes)) {
    free(*payload);
    *payload = NULL;
    return false;
  }
  (*payload)[head.bytes] = 0;
  return true;
}
