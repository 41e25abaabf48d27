# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# llama_settings(CHECKPOINT DEVICES CONTEXT OUTPUT): writes the header OUTPUT with a type `llama::settings`, the sizes
# that CHECKPOINT/config.json says. CONTEXT is the number of tokens that the cache has room for; 0: as many as the model
# was made for, but not more than 2,048.
function(llama_settings checkpoint devices context output)
  set(config "${checkpoint}/config.json")
  if(NOT EXISTS "${config}")
    message(FATAL_ERROR "examples/llama: there is no ${config}: LLAMA_CHECKPOINT must be the folder of a Hugging Face "
                        "checkpoint")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${config}")
  file(READ "${config}" text)
  function(value result key)  # and, for a key that may be missing or null, a default
    string(JSON found ERROR_VARIABLE missing GET "${text}" "${key}")
    if(missing OR found STREQUAL "")
      if(ARGC LESS 3)
        message(FATAL_ERROR "examples/llama: ${config} has no \"${key}\"")
      endif()
      set(found "${ARGV2}")
    endif()
    set(${result} "${found}" PARENT_SCOPE)
  endfunction()

  value(kind model_type)
  value(vocabulary vocab_size)
  if(kind STREQUAL "gpt2")
    value(width n_embd)
    value(layers n_layer)
    value(heads n_head)
    set(kv_heads "${heads}")
    math(EXPR head_dim "${width} / ${heads}")
    math(EXPR hidden "4 * ${width}")
    value(hidden n_inner "${hidden}")
    value(positions n_positions)
    value(epsilon layer_norm_epsilon 1e-5)
    set(tied true)
  elseif(kind STREQUAL "llama")
    value(width hidden_size)
    value(layers num_hidden_layers)
    value(heads num_attention_heads)
    value(kv_heads num_key_value_heads "${heads}")
    math(EXPR head_dim "${width} / ${heads}")
    value(head_dim head_dim "${head_dim}")
    value(hidden intermediate_size)
    value(positions max_position_embeddings)
    value(epsilon rms_norm_eps 1e-6)
    value(tied tie_word_embeddings false)
    string(REGEX REPLACE "^(ON|TRUE)$" "true" tied "${tied}")
    string(REGEX REPLACE "^(OFF|FALSE)$" "false" tied "${tied}")
  else()
    message(FATAL_ERROR "examples/llama: ${config} is of a \"${kind}\", expected gpt2 or llama")
  endif()
  if(context EQUAL 0)
    set(context 2048)
  endif()
  if(context GREATER positions)
    set(context "${positions}")
  endif()
  file(CONFIGURE OUTPUT "${output}" @ONLY CONTENT "// Made from @config@.
#pragma once

#include <model.hpp>

namespace llama {

struct settings {
  static constexpr family kind = family::@kind@;
  static constexpr int devices = @devices@;
  static constexpr int vocabulary = @vocabulary@;
  static constexpr int width = @width@;
  static constexpr int layers = @layers@;
  static constexpr int heads = @heads@;
  static constexpr int kv_heads = @kv_heads@;
  static constexpr int head_dim = @head_dim@;
  static constexpr int hidden = @hidden@;
  static constexpr int positions = @positions@;
  static constexpr int context = @context@;
  static constexpr double epsilon = @epsilon@;
  static constexpr bool tied = @tied@;
};

}  // namespace llama
")
endfunction()
