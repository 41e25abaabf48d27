# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Times are never the same; losses are, whatever the plan, and a checkpoint of one plan continues under another.
file(MAKE_DIRECTORY "${SCRATCH}")

include("${CMAKE_CURRENT_LIST_DIR}/../expect.cmake")

set(losses "step 1  loss 2[.]898.*step 4  loss 2[.]742")
expect(0 "on 1 devices.*${losses}.*not learned from the loss is 2[.]7" --model reversal --ranks 1 --steps 4)
expect(0 "on 2 devices.*encoder1.*executed.*${losses}.*a step takes" --model reversal --ranks 2 --steps 4
       --svg "${SCRATCH}/step.svg")
file(READ "${SCRATCH}/step.svg" chart)
if(NOT chart MATCHES "^<svg .*planned: makespan.*measured: makespan.*</svg>\n+$")
  message(FATAL_ERROR "the chart does not show the planned and the measured step")
endif()

expect(0 "wrote" --model reversal --ranks 2 --steps 3 --checkpoint "${SCRATCH}/state.safetensors")
expect(0 "resumed after step 3.*step 4  loss 2[.]742" --model reversal --ranks 3 --steps 1
       --resume "${SCRATCH}/state.safetensors")

# Divided over two stages, two replicas or the two devices that share each layer: the same losses.
set(losses "step 1  loss ([0-9]+[.][0-9][0-9]).*step 3  loss ([0-9]+[.][0-9][0-9])")
execute_process(COMMAND "${PROGRAM}" --ranks 2 --steps 3 OUTPUT_VARIABLE apart COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${PROGRAM}" --ranks 4 --share 2 --steps 3 OUTPUT_VARIABLE shared COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "${losses}" found "${apart}")
set(first ${CMAKE_MATCH_1})
set(third ${CMAKE_MATCH_2})
if(NOT shared MATCHES "GPT of 4 blocks.*step 1  loss ${first}.*step 3  loss ${third}")
  message(FATAL_ERROR "devices that share layers find other losses than ${first} and ${third}:\n${apart}${shared}")
endif()
# Stages on meshes of their own, whose weights are tied across them.
expect(0 "on ranks 0, 1, which share each layer by 2 [|].*step 1  loss ${first}.*step 3  loss ${third}" --ranks 3
       --stages 2,1 --steps 3)
expect(0 "meshes as is best for each stage: .*step 1  loss ${first}.*step 3  loss ${third}" --ranks 3 --share 0 --steps 3)

expect(0 "--svg FILE" --help)
expect(2 "^pipeline: --model: there is no model \"mlp\"; there are gpt and reversal; pipeline --help lists the options\n$" --model mlp)
expect(2 "^pipeline: --ranks: \"0\" is no whole number from 1 to 64; " --ranks 0)
expect(2 "^pipeline: --share: 2 devices can share the layers of --model gpt only: those of reversal" --model reversal --share 2)
expect(2 "^pipeline: The following argument was not expected: --colour; " --colour)
