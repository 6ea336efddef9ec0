/* SPDX-License-Identifier: MIT
 * Refers to the engine ENGINE of HEADER. Exits 0 if the library has the version of the headers. */
#include HEADER

int main(void) {
  PrOptions options = {.engine = &ENGINE};
  return !options.engine || pr_version() != PIPE_VERSION;
}
