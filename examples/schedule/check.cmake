# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# What the program says and writes beside what expected.txt holds, and how it refuses what it cannot do.
file(MAKE_DIRECTORY "${SCRATCH}")

include("${CMAKE_CURRENT_LIST_DIR}/../expect.cmake")

expect(0 "\"makespan\": 103, \"span\": 103, \"bubble\": 7, .*\"peak\": .8, 8, 8, 8, 8, 8, 8, 8."
       --schedule zb_h1 --stages 8 --micro-batches 32 --F 1 --B 1 --W 1 --json)
expect(0 "\"makespan\": 33, .*\"peak\": .4, 3, 2, 1." --schedule 1f1b_PA --stages 4 --micro-batches 8 --json)
expect(0 "\"chunks\": 2, .*\"bubble\": 2.5," --schedule v_half --stages 4 --micro-batches 16 --json)
expect(0 "\"bubble\": 1.5," --schedule "dualpipe_v(no F&B overlap)" --stages 4 --micro-batches 8 --json)
expect(0 "--memory-limit K" --help)
expect(2 "^schedule: there is no schedule \"zb\"; there are gpipe, [^\n]*\n$" --schedule zb)
expect(2 "^schedule: --stages: \"four\" is no whole number from 1 to 100000; schedule --help lists the options\n$" --stages four)
expect(2 "^schedule: --F: \"-1\" is no number of at least 0" --F -1)
expect(2 "^schedule: --svg: 1 required FILE missing" --schedule 1f1b --svg)
expect(2 "^schedule: zb_v has 2 stages per rank, not 3\n$" --schedule zb_v --chunks 3)
expect(2 "^schedule: gpipe holds 8 bytes on rank 0, the limit is 4: use auto" --schedule gpipe --memory-limit 4)
expect(2 "^schedule: rank 0 may hold 0.5 bytes, too few" --schedule auto --memory-limit 0.5)
expect(2 "^schedule: 10000000000 forwards are more than" --stages 100000 --micro-batches 100000)
expect(2 "^schedule: The following argument was not expected: --colour" --colour)

expect(2 "^schedule: --json requires --schedule" --json)
expect(2 "^schedule: --beside requires --svg" --schedule 1f1b --beside zb_v)

expect(0 "makespan" --schedule 1f1b --beside zb_v --svg "${SCRATCH}/chart.svg" --trace "${SCRATCH}/trace.json")
if(EXISTS /dev/full)
  execute_process(COMMAND "${PROGRAM}" --schedule 1f1b OUTPUT_FILE /dev/full ERROR_VARIABLE said RESULT_VARIABLE code)
  if(NOT code EQUAL 1 OR NOT said MATCHES "^schedule: what was printed cannot be written")
    message(FATAL_ERROR "schedule >/dev/full ended with ${code}; it said:\n${said}")
  endif()
endif()
file(READ "${SCRATCH}/chart.svg" chart)
if(NOT chart MATCHES "^<svg .*1f1b: makespan 33, .*zb_v: makespan 25.5, .*</svg>\n$")
  message(FATAL_ERROR "the chart does not show both schedules")
endif()
file(READ "${SCRATCH}/trace.json" trace)
string(JSON name ERROR_VARIABLE error GET "${trace}" traceEvents 0 args name)
if(error OR NOT name MATCHES "^1f1b")
  message(FATAL_ERROR "the trace begins with ${name}: ${error}")
endif()
expect(1 "the picture cannot be written there" --schedule 1f1b --svg "${SCRATCH}/missing/chart.svg")
