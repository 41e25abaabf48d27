# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# PROGRAM, built for DATA/llama on 2 devices, generates text, and says what is wrong with what it cannot read.
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")

function(run)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE complained RESULT_VARIABLE code)
  set(said "${said}" PARENT_SCOPE)
  set(complained "${complained}" PARENT_SCOPE)
  set(code "${code}" PARENT_SCOPE)
endfunction()
function(must_say regex)
  run(${ARGN})
  if(NOT code STREQUAL "0" OR NOT said MATCHES "${regex}")
    message(FATAL_ERROR "llama ${ARGN} ended with ${code}, expected `${regex}`; it said:\n${said}${complained}")
  endif()
endfunction()
function(must_fail regex)
  run(${ARGN})
  if(code STREQUAL "0" OR NOT complained MATCHES "${regex}")
    message(FATAL_ERROR "llama ${ARGN} ended with ${code}, expected a failure and `${regex}`; it said:\n${complained}")
  endif()
endfunction()

must_say("Usage: llama .*--tokens N .32. *Tokens to generate" --help)
must_say("generated 5 tokens, [0-9.]+ .*tokens/s" "${DATA}/llama" --prompt "The wall" --tokens 5 --ignore-end)
must_fail("checkpoint: Directory does not exist" "${SCRATCH}/nowhere")
must_fail("--tokens: .few. is no whole number from 0" "${DATA}/llama" --tokens few)
must_fail("the cache has room for 64" "${DATA}/llama" --tokens 100)
must_fail("GPT-2 instead of Llama, heads 4 instead of 8, .*build for it with examples/llama/run" "${DATA}/gpt2" --tokens 1)

# A file of the index that is missing, and one that is short of its end.
file(COPY "${DATA}/llama" DESTINATION "${SCRATCH}")
file(GLOB shards "${SCRATCH}/llama/model-*.safetensors")
list(GET shards 1 shard)
file(RENAME "${shard}" "${SCRATCH}/kept")
get_filename_component(name "${shard}" NAME)
must_fail("${name}" "${SCRATCH}/llama" --tokens 1)
execute_process(COMMAND head -c 2000 "${SCRATCH}/kept" OUTPUT_FILE "${shard}")
must_fail("${name}" "${SCRATCH}/llama" --tokens 1)

# Logits that are not the model's are not taken for them.
file(RENAME "${SCRATCH}/kept" "${shard}")
run("${SCRATCH}/llama" --compare "${DATA}/gpt2/expected.safetensors")
if(code STREQUAL "0" OR NOT said MATCHES "DIFFER")
  message(FATAL_ERROR "llama --compare takes another model's logits for its own:\n${said}${complained}")
endif()
