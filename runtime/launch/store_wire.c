/* SPDX-License-Identifier: MIT
 * Both sides of the store: sockets and whole messages. */
#include "escape.h"
#include "store.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Connects within two seconds, because some hosts of a list may be unreachable. */
static int try_address(const struct addrinfo *a, bool listens) {
  const int one = 1, zero = 0;
  const struct timeval limit = {2, 0}, none = {0, 0};
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
  if (fd < 0)
    return -1;
  bool bad;
  if (listens) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) /* [::] then accepts IPv4 too */
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    bad = bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1024);
  } else {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    bad = connect(fd, a->ai_addr, a->ai_addrlen);
    int why = errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    errno = why;
  }
  if (!bad)
    return fd;
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

static int try_host(const char *host, const char *port, bool listens, char *why) {
  struct addrinfo hint = {.ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_flags = listens ? AI_PASSIVE : 0},
                  *list;
  int err = getaddrinfo(host, port, &hint, &list), fd = -1;
  if (err) {
    snprintf(why, STORE_TEXT, "%.200s:%.20s: %s", host, port, gai_strerror(err));
    return -1;
  }
  for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
    fd = try_address(a, listens);
  if (fd < 0)
    snprintf(why, STORE_TEXT, "%.200s:%.20s: %s", host, port, strerror(errno));
  freeaddrinfo(list);
  return fd;
}

bool store_is_address(const char *addr, char *why) {
  const char *colon = strrchr(addr, ':'), *port = colon ? colon + 1 : "";
  size_t n = strspn(port, "0123456789");
  bool ok = colon && colon > addr && strlen(addr) < STORE_ADDR && n > 0 && n <= 5 && !port[n] &&
            strtoul(port, NULL, 10) <= 65535;
  if (!ok)
    snprintf(why, STORE_TEXT, "'%.200s' is not host:port", addr);
  return ok;
}

int store_socket(const char *addr, bool listens, char *why) {
  const char *colon = strrchr(addr, ':');
  int fd = -1;
  if (!store_is_address(addr, why))
    return -1;
  for (const char *at = addr; fd < 0 && at < colon;) {
    char host[STORE_ADDR];
    size_t n = strcspn(at, ",");
    n = at + n < colon ? n : (size_t)(colon - at);
    const bool ipv6 = n > 2 && at[0] == '[' && at[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(ipv6 ? n - 2 : n), at + ipv6);
    fd = try_host(host, colon + 1, listens, why);
    at += n + (at[n] == ',');
  }
  return fd;
}

bool store_make_key(char key[STORE_KEY], char *why) {
  unsigned char bits[16];
  if (getentropy(bits, sizeof bits)) {
    snprintf(why, STORE_TEXT, "no random key for the store: %s", strerror(errno));
    return false;
  }
  for (size_t i = 0; i < sizeof bits; i++)
    snprintf(key + 2 * i, 3, "%02x", bits[i]);
  return true;
}

bool store_is_key(const char *key, char *why) {
  if (!key || !*key)
    snprintf(why, STORE_TEXT,
             "the store needs a key: set PIPE_STORE_KEY to the same random text in all processes");
  return key && *key;
}

StoreHello store_hello(const char *key) {
  StoreHello h = {.version = STORE_VERSION};
  snprintf(h.key, sizeof h.key, "%s", key ? key : "");
  return h;
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

int store_connect(const char *addr, const char *key, char *why) {
  const struct timeval limit = {5, 0}, none = {0, 0};
  const StoreHello me = store_hello(key);
  StoreType type = STORE_NTYPES;
  char *text = NULL;
  uint32_t n;
  if (!store_is_key(key, why))
    return -2;
  int fd = store_socket(addr, false, why);
  if (fd < 0)
    return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  bool answers = store_send(fd, STORE_HELLO, &me, sizeof me, NULL, 0) &&
                 store_receive(fd, &type, &text, &n);
  if (!answers)
    snprintf(why, STORE_TEXT, "the store %.200s does not answer", addr);
  else if (type == STORE_REFUSED)
    escape_text(why, STORE_TEXT, ESCAPE_TERMINAL, text);
  else if (type != STORE_HELLO)
    snprintf(why, STORE_TEXT, "what answers at %.200s is no store", addr);
  free(text);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
  if (answers && type == STORE_HELLO)
    return fd;
  close(fd);
  return answers ? -2 : -1;
}
