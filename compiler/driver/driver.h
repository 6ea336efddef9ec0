/* SPDX-License-Identifier: MIT
 * The door of driver/: the pass list, options, and the commands --compare, --list, --fmt, --man. */
#ifndef PIPEC_DRIVER_H
#define PIPEC_DRIVER_H

#include "pipec.h"

/* ---- driver.c: the pass list ---- */
bool compile(Sched *s);
bool compile_only(Sched *s);  /* the same without output, for tests, fuzzers and benches */
bool compare(Sched *s);       /* compare.c: of opt->compare; needs no pass, s stays empty */
bool every_value(Sched *s);   /* every.c: of opt->every; the same */
bool is_pass(const char *name);
const char *pass_names(Sched *s);
/* ---- library.c: requires opt->stdlib ---- */
/* The path that argument `name` means (lang/spec.md 9.5). */
const char *library_find(Sched *s, const char *name);
/* Prints a line for each schedule of the library. False: reported. */
bool library_list(Sched *s, FILE *f);
/* ---- format_files.c: --fmt of opt->format. Prints; replaces with opt->format_write; compares with
 * opt->check_only. False: reported ---- */
bool format_files(Sched *s);

#endif
