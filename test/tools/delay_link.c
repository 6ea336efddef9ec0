/* SPDX-License-Identifier: MIT
 * A link between two network namespaces on which every packet takes longer, for kernels without tc
 * netem.
 *
 *   delay_link NS_A NS_B MS    a device veth0 in each, which the caller gives an address, and holds
 *                              packets between them for MS milliseconds; says "ready", and at
 *                              SIGTERM how many there were, and the least that one was held. Needs
 *                              /dev/net/tun and the right to enter namespaces. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET = 2048, HELD = 8192 };

typedef struct Packet {
  uint64_t come; /* ns */
  int to;
  ssize_t n;
  char data[PACKET];
} Packet;

static volatile sig_atomic_t over;
static void stop(int sig) {
  (void)sig;
  over = 1;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The other end of veth0 in the namespace. */
static int open_in(const char *name) {
  char path[256];
  struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  snprintf(path, sizeof path, "/run/netns/%s", name);
  strcpy(r.ifr_name, "veth0");
  int ns = open(path, O_RDONLY | O_CLOEXEC), tun = -1;
  if (ns < 0 || setns(ns, CLONE_NEWNET) || (tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK)) < 0 ||
      ioctl(tun, TUNSETIFF, &r)) {
    perror(name);
    exit(1);
  }
  close(ns);
  return tun;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  struct pollfd at[2] = {{open_in(argv[1]), POLLIN, 0}, {open_in(argv[2]), POLLIN, 0}};
  const uint64_t hold = strtoull(argv[3], NULL, 10) * 1000000u;
  Packet *held = calloc(HELD, sizeof *held); /* oldest first: all are held for the same time */
  uint64_t first = 0, next = 0, least = UINT64_MAX;
  struct sigaction a = {.sa_handler = stop};
  sigaction(SIGTERM, &a, NULL);
  if (!held)
    return 1;
  printf("ready\n");
  fflush(stdout);
  while (!over) {
    uint64_t now = now_ns();
    for (; first < next && now - held[first % HELD].come >= hold; first++) {
      Packet *p = &held[first % HELD];
      least = now - p->come < least ? now - p->come : least;
      if (write(p->to, p->data, (size_t)p->n) != p->n && errno != EIO) /* EIO: the device is down */
        return 1;
    }
    uint64_t left = first < next ? hold - (now - held[first % HELD].come) : UINT64_C(100000000);
    struct timespec wait = {0, (long)left};
    if (ppoll(at, 2, &wait, NULL) <= 0)
      continue;
    for (int i = 0; i < 2; i++) {
      Packet *p = &held[next % HELD];
      if (!(at[i].revents & POLLIN) || next - first == HELD ||
          (p->n = read(at[i].fd, p->data, PACKET)) <= 0)
        continue;
      p->come = now_ns();
      p->to = at[1 - i].fd;
      next++;
    }
  }
  printf("%llu packets, each held for %llu ms at least\n", (unsigned long long)first,
         first ? (unsigned long long)(least / 1000000u) : 0);
  return 0;
}
