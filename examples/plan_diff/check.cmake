# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# What the program says of two plans, and how it refuses what is no plan.
file(MAKE_DIRECTORY "${SCRATCH}")

include("${CMAKE_CURRENT_LIST_DIR}/../expect.cmake")

set(before "${CMAKE_CURRENT_LIST_DIR}/../../tests/data/plans/mlp.plan")
file(READ "${before}" text)
# write(<name> <from> <to>...): the plan with some words replaced, as SCRATCH/NAME.
function(write name)
  set(changed "${text}")
  while(ARGN)
    list(POP_FRONT ARGN from to)
    string(REPLACE "${from}" "${to}" changed "${changed}")
  endwhile()
  file(WRITE "${SCRATCH}/${name}" "${changed}")
endfunction()

expect(0 "^no change\n$" diff "${before}" "${before}")
write(moved.plan "cpp:27" "cpp:37")
expect(0 "^1 collective is the same on another line\n$" diff "${before}" "${SCRATCH}/moved.plan")
write(larger.plan "1 x 32,768" "1 x 65,536" "memory 1,245,184" "memory 1,310,720" "131,072 between" "196,608 between")
expect(1 "^the all-reduce over model at plan_text.cpp:27 grew from 32,768 to 65,536 B\npeak memory grew from 1,245,184 to 1,310,720 B: values between from 131,072 to 196,608\n$"
       diff "${before}" "${SCRATCH}/larger.plan")
write(other.plan "program mlp" "program attention")
expect(2 "^espalier-plan: [^ ]*other.plan is the plan of \"attention\", and [^ ]*mlp.plan that of \"mlp\": plans of one program are compared\n$"
       diff "${before}" "${SCRATCH}/other.plan")
write(newer.plan "espalier plan 1" "espalier plan 7")
expect(2 "^espalier-plan: [^ ]*newer.plan is a plan of version 7, and this program reads version 1: [^\n]*\n$"
       diff "${SCRATCH}/newer.plan" "${before}")
expect(2 "^espalier-plan: [^ ]*check.cmake is no plan: its first line is \"# SPDX-FileCopyrightText: [^\n]*\n$"
       diff "${before}" "${CMAKE_CURRENT_LIST_FILE}")
expect(2 "^espalier-plan: [^ ]*missing.plan cannot be read: No such file or directory\n$"
       diff "${SCRATCH}/missing.plan" "${before}")
expect(2 "^espalier-plan: [^ ]* cannot be read: Is a directory\n$" diff "${SCRATCH}" "${before}")
expect(0 "^Usage: espalier-plan diff BEFORE AFTER\n" --help)
expect(2 "^espalier-plan: a command is missing; " )
expect(2 "^espalier-plan: there is no command \"show\"; " show "${before}")
expect(2 "^espalier-plan: diff takes two files, not 1; " diff "${before}")
if(EXISTS /dev/full)
  execute_process(COMMAND "${PROGRAM}" diff "${before}" "${before}" OUTPUT_FILE /dev/full ERROR_VARIABLE said
                  RESULT_VARIABLE code)
  if(NOT code EQUAL 2 OR NOT said MATCHES "^espalier-plan: what was printed cannot be written")
    message(FATAL_ERROR "espalier-plan >/dev/full ended with ${code}; it said:\n${said}")
  endif()
endif()
