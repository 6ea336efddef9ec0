/* SPDX-License-Identifier: MIT
 * Refers to an engine, HEADER and ENGINE, and exits 0 if the library has the version of the headers. */
#include HEADER

int main(void) {
  PrOptions options = {.engine = &ENGINE};
  return !options.engine || pr_version() != PIPE_VERSION;
}
