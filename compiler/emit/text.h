/* SPDX-License-Identifier: MIT
 * A buffered writer of numbers and text for the emitters. */
#ifndef PIPE_TEXT_H
#define PIPE_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include "arena.h"
#include "escape.h"

typedef struct Text Text;
Text *text_open(Arena *arena, FILE *file, EscapeFor language);
void text_close(Text *text); /* writes what is left to the file, and does not close it */

/* Writes `form`, in which each of these characters stands for something else:
 *
 *   #   the next number
 *   ?   the next number; PIPE_NONE and PIPE_MANY are N and PIPE_MANY in C, and in JSON they leave
 *       out their member of an object, which may not be the first
 *   ~   the next number, which has a sign
 *   @   the next number in 16 hexadecimal digits
 *   $   the next text, TEXT(word), as a string of the language
 *   %   the next text as it is
 *   '   a double quote
 *
 * PUT(text, "{'from':#,'to':?,'op':$}", 1, PIPE_NONE, TEXT("F")) writes {"from":1,"op":"F"}. */
#define PUT(text, ...) PUT_VALUES(text, __VA_ARGS__, 0) /* so that there is a value in any case */
#define PUT_VALUES(text, form, ...) \
  text_form(text, form, (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8 - 1)
#define TEXT(word) (uint64_t)(uintptr_t)(word)
void text_form(Text *text, const char *form, const uint64_t *value, size_t n);
/* The same as PUT(text, ",'%':~", TEXT(name), v), but faster; name: at most 100 characters. */
void text_member(Text *text, const char *name, int64_t v);

#endif
