/* SPDX-License-Identifier: MIT
 * Parses JSON with jansson. The guard owns each value until json_drop. */
#ifndef PIPEC_JSON_TEXT_H
#define PIPEC_JSON_TEXT_H

#include <jansson.h>

#include "base.h"

/* Parses a source of `len` bytes. NULL: reported as `name`. */
json_t *json_parse(Sched *s, DiagName name, uint32_t file, const char *text, uint32_t len);
/* json_loadb with its flags and error; ends the compile if memory is short. */
json_t *json_load_value(const char *text, size_t len, size_t flags, json_error_t *err);
void json_drop(json_t *value); /* NULL is fine */
/* The first key of an object that is not in `known`, which lists names between blanks: " F B ".
 * NULL: all keys are known. */
const char *json_unknown_key(json_t *object, const char *known);
/* Reads a whole number, or a text with a unit such as "25GB" or "10us". False: it is neither. */
bool json_quantity(json_t *v, QuantityOf of, uint64_t *value);

#endif
