# SPDX-License-Identifier: MIT
# pipe_schedule(target file.pipe|name [PARAMS P=4 M=8 ...] [SCHEDULE name] [SYMBOL name]
#               [PROFILE file.json] [INCLUDE dir ...] [OPTIONS option ...])
#
# Compiles file.pipe, or the schedule of the library with this name, with pipec when it, anything it imports, or the profile has changed, and adds
# the C text to the sources of `target`, which should link pipe::piperun. The program is then
#
#   extern const PipeProgram SYMBOL;      pipe_program when no SYMBOL is given
#
#   PARAMS    values of the schedule's parameters
#   SCHEDULE  which schedule of the file; the last by default
#   PROFILE   measured costs, relative to the current source directory
#   INCLUDE   directories in which imports are looked up
#   OPTIONS   further options of pipec
#
# Paths are relative to the current source directory. Several schedules in one target need distinct
# SYMBOLs.

# The paths in the depfile are absolute. Without this policy a project that asks for CMake before
# 3.20 has Ninja read them in the wrong way and compile every schedule in every build.
if(POLICY CMP0116)
  cmake_policy(SET CMP0116 NEW)
endif()

function(pipe_schedule target file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SCHEDULE;SYMBOL;PROFILE" "PARAMS;INCLUDE;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipe_schedule: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "pipe_schedule: no value after ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT arg_SYMBOL)
    set(arg_SYMBOL pipe_program)
  endif()
  set(source ${file})
  set(depends pipe::pipec)
  if(file MATCHES "[./]") # no name of the library
    get_filename_component(source ${file} ABSOLUTE)
    list(APPEND depends ${source})
  endif()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${target}_pipe/${arg_SYMBOL}.c)
  set(options --symbol=${arg_SYMBOL})
  foreach(param IN LISTS arg_PARAMS)
    list(APPEND options -D ${param})
  endforeach()
  foreach(dir IN LISTS arg_INCLUDE)
    get_filename_component(dir ${dir} ABSOLUTE)
    list(APPEND options -I ${dir})
  endforeach()
  if(arg_SCHEDULE)
    list(APPEND options --schedule=${arg_SCHEDULE})
  endif()
  if(arg_PROFILE)
    get_filename_component(profile ${arg_PROFILE} ABSOLUTE)
    list(APPEND options --profile=${profile})
    list(APPEND depends ${profile})
  endif()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${target}_pipe)
  add_custom_command(OUTPUT ${out}
    COMMAND pipe::pipec ${options} ${arg_OPTIONS} --depfile=${out}.d -o ${out} ${source}
    DEPENDS ${depends} DEPFILE ${out}.d
    COMMENT "Compiling schedule ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
