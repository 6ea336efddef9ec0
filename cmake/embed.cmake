# SPDX-License-Identifier: MIT
# cmake -D IN=file.md -D OUT=file.c -D NAME=file_md -P embed.cmake
# Writes file.c: the bytes of IN and a NUL as `const char NAME[]`.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
