# SPDX-License-Identifier: MIT
# Renames each hidden symbol of the static libraries that `cmake --install` has written, to pipe.NAME.
# A static library has no hidden symbols for the linker: a program with a function `compare` of its
# own would replace that of the library, in silence. No C program has a name with a dot. Libraries
# that use each other get the same names. Takes READELF and OBJCOPY.
set(archives ${CMAKE_INSTALL_MANIFEST_FILES})
list(FILTER archives INCLUDE REGEX "\\.a$")
list(TRANSFORM archives PREPEND "$ENV{DESTDIR}")
execute_process(COMMAND ${READELF} -sW ${archives} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "GLOBAL HIDDEN +[0-9]+ [A-Za-z0-9_]+\n" hidden "${symbols}")
list(TRANSFORM hidden REPLACE "^.* ([A-Za-z0-9_]+)\n" "\\1 pipe.\\1")
list(REMOVE_DUPLICATES hidden)
list(JOIN hidden "\n" map)
file(WRITE ${MAP} "${map}\n")
foreach(archive IN LISTS archives)
  execute_process(COMMAND ${OBJCOPY} --redefine-syms=${MAP} ${archive} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
