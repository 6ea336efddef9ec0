# SPDX-License-Identifier: MIT
# pipe_rooms(folder [directory...]) reads folder/ROOMS: the rooms of a source folder, lowest first, one a line: its name,
# blanks, and what it decides. Sets
#
#   <folder>_INCLUDE    the directories of the rooms
#   <folder>_<room>     the .c files of a room ('/' in its name is '_')
#
# Each of these files sees the headers of its own room, of the rooms above it in the list, and of the directories given,
# and no others: an include that goes the other way does not compile.
function(pipe_rooms folder)
  set(list ${PROJECT_SOURCE_DIR}/${folder}/ROOMS)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} rooms REGEX "^[a-z]")
  list(TRANSFORM rooms REPLACE " .*" "")
  set(seen)
  foreach(room IN LISTS rooms)
    set(here ${PROJECT_SOURCE_DIR}/${folder}/${room})
    if(NOT IS_DIRECTORY ${here})
      message(FATAL_ERROR "${folder}/ROOMS: there is no folder '${room}'")
    endif()
    list(PREPEND seen ${here})
    file(GLOB files CONFIGURE_DEPENDS ${here}/*.c)
    set_source_files_properties(${files} PROPERTIES INCLUDE_DIRECTORIES "${seen};${ARGN}")
    string(REPLACE "/" "_" name ${room})
    set(${folder}_${name} ${files} PARENT_SCOPE)
  endforeach()
  set(${folder}_INCLUDE ${seen} PARENT_SCOPE)
endfunction()
