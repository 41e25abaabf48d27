# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# What must not pass without a word: PROGRAM is run where it has to fail, with files in SCRATCH.
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")
set(common --text "${CMAKE_CURRENT_LIST_DIR}/../../docs/errors.md" --steps 2 --sample 0)

function(run result)
  execute_process(COMMAND "${PROGRAM}" ${common} ${ARGN} OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE code)
  set(${result} "${code}" PARENT_SCOPE)
  set(said "${said}" PARENT_SCOPE)
endfunction()
function(must_fail regex)
  run(code ${ARGN})
  if(code STREQUAL "0" OR NOT said MATCHES "${regex}")
    message(FATAL_ERROR "gpt ${ARGN} ended with ${code}, expected a failure and `${regex}`; it said:\n${said}")
  endif()
endfunction()

set(good "${SCRATCH}/good.safetensors")
run(code --stop 1 --checkpoint "${good}")
if(NOT code STREQUAL "0")
  message(FATAL_ERROR "gpt --stop 1 ended with ${code}:\n${said}")
endif()

# A step that is no number, and one that the optimizer knows better.
foreach(step x 2)
  set(edited "${SCRATCH}/edited_${step}.safetensors")
  execute_process(COMMAND sed "s/\"gpt.step\":\"1\"/\"gpt.step\":\"${step}\"/" "${good}" OUTPUT_FILE "${edited}")
  must_fail("gpt.step is \"${step}\"" --resume "${edited}")
endforeach()

# What the last step has spoilt is not written over what is there.
file(SHA256 "${good}" before)
must_fail("after step 2 the model is not finite" --resume "${good}" --rate 1e30 --checkpoint "${good}")
file(SHA256 "${good}" after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "a model that is not finite was written")
endif()

# A number that is none, in the middle of the file.
set(spoilt "${SCRATCH}/spoilt.safetensors")
file(COPY_FILE "${good}" "${spoilt}")
file(SIZE "${good}" bytes)
math(EXPR middle "${bytes} / 8")
execute_process(COMMAND printf "\\377\\377\\377\\377" COMMAND dd "of=${spoilt}" bs=4 seek=${middle} conv=notrunc
                ERROR_QUIET)
must_fail("the model in ${spoilt} is not finite: resume from a checkpoint" --resume "${spoilt}")
must_fail("cannot read the text ${SCRATCH}: Is a directory; give the path of a file" --text "${SCRATCH}")

if(EXISTS /dev/full)
  execute_process(COMMAND "${PROGRAM}" --help OUTPUT_FILE /dev/full ERROR_VARIABLE said RESULT_VARIABLE code)
  if(code STREQUAL "0" OR NOT said MATCHES "what was printed cannot be written")
    message(FATAL_ERROR "gpt --help >/dev/full ended with ${code}; it said:\n${said}")
  endif()
  must_fail("losses cannot be written to /dev/full" --losses /dev/full)
endif()
