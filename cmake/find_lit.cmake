# SPDX-License-Identifier: MIT
# Sets LIT and FILECHECK: from PATH, or from where Debian's packages llvm-NN-tools have them. The tests include this file;
# `cmake -P` of it tells by its status whether both are there.
file(GLOB places LIST_DIRECTORIES true /usr/lib/llvm-*/bin /usr/lib/llvm-*/build/utils/lit)
list(SORT places COMPARE NATURAL ORDER DESCENDING)
foreach(program LIT FILECHECK)
  if(${program} AND NOT EXISTS ${${program}}) # of a package that is gone
    unset(${program} CACHE)
  endif()
endforeach()
find_program(LIT NAMES lit llvm-lit lit.py HINTS ${places})
find_program(FILECHECK NAMES FileCheck HINTS ${places})
if(NOT LIT OR NOT FILECHECK)
  message(FATAL_ERROR "lit and FileCheck are needed (Debian package llvm-NN-tools; -DLIT=..., -DFILECHECK=...)")
endif()
