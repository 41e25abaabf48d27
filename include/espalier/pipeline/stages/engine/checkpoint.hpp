// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/layers/tensor_shard.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// All tensors of a model, in the order of its layers: of parameters, and of the optimizer's state.
[[nodiscard]] inline std::vector<io::tensor_spec> checkpoint_tensors(const layer_model& model) {
  std::vector<io::tensor_spec> specs;
  for (int l = 0; l < model.layers(); ++l)
    for (const auto* list : {&model.facts(l).parameters, &model.facts(l).state})
      for (const tensor_facts& one : *list) specs.push_back({one.name, one.type, whole_shape(one)});
  return specs;
}

/// `visit(tensor, the shard of it that is here, its memory)` for what this rank is the first to have, or for all that
/// it has.
template <class Visit> void visit_tensors(engine& pipe, bool first_only, const Visit& visit) {
  const mesh_shape mesh = pipe.model().replica_mesh(pipe.plan().mesh_of_rank(pipe.rank()));
  const int device = pipe.plan().device_of(pipe.rank());
  for (parameter_block& block : pipe.store().blocks()) {
    if (first_only && !block.is_saved_here) continue;
    const auto visit_all = [&](const std::vector<tensor_facts>& tensors, std::byte* memory) {
      for (const tensor_facts& one : tensors) {
        const tensor_shard shard = shard_of_tensor(mesh, one, device);
        if (!shard.is_empty() && (shard.is_first || !first_only)) visit(one, shard, memory + one.offset);
      }
    };
    visit_all(pipe.store().facts(block.owner).parameters, block.parameters.data());
    visit_all(pipe.store().facts(block.owner).state, block.state.data());
  }
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Writes parameters and optimizer's state as a safetensors file, tensors by the names of the layers' facts: nothing in
/// it depends on the plan. All ranks call it between steps, and see one file system.
/// Errors: `io::checkpoint_error`; an older file of that name then stays.
inline void save(engine& pipe, const std::filesystem::path& path) {
  const std::vector<io::tensor_spec> specs = detail::checkpoint_tensors(pipe.model());
  const io::metadata_map metadata{{"step", std::to_string(pipe.steps_done())}};
  detail::conversation talk = pipe.talk();
  // All ranks hear of an error of one rank: none waits for a file that never comes.
  const auto together = [&](const auto& body) {
    std::string mine;
    try {
      body();
    } catch (const std::exception& error) { mine = error.what(); }
    std::string verdict;
    std::size_t rank = 0;
    for (const std::vector<std::int64_t>& letters : talk.gather(std::vector<std::int64_t>(mine.begin(), mine.end()))) {
      if (!letters.empty() && verdict.empty()) {
        verdict = "rank " + std::to_string(rank) + ": ";
        for (const std::int64_t letter : letters) verdict += static_cast<char>(letter);
      }
      ++rank;
    }
    talk.agree<std::runtime_error>(verdict);
  };
  std::unique_ptr<io::safetensors_writer> file;
  const auto open = [&](io::writer_role role) {
    file = std::make_unique<io::safetensors_writer>(path, specs, metadata, role);
  };
  together([&] {
    if (pipe.rank() == 0) open(io::writer_role::create);
  });
  together([&] {
    if (pipe.rank() != 0) open(io::writer_role::attach);
    detail::visit_tensors(pipe, true,
                          [&](const tensor_facts& one, const detail::tensor_shard& shard, const std::byte* memory) {
                            file->write_box(one.name, shard.starts, shard.sizes, memory, shard.strides);
                          });
    file->flush();
  });
  std::int64_t written = 0;
  for (const std::vector<std::int64_t>& theirs : talk.gather({file->bytes_written()})) written += theirs.front();
  together([&] {
    if (pipe.rank() == 0) file->commit(written);
  });
}

/// Reads a file of `save`, whatever plan it was written under. All ranks call it, before the first step or between two.
/// Errors: `io::checkpoint_error` where the file is of another model, before anything is changed.
inline void load(engine& pipe, const std::filesystem::path& path) {
  const io::safetensors_reader file(path);
  const std::vector<io::tensor_spec> specs = detail::checkpoint_tensors(pipe.model());
  io::check_matches(file, specs);
  std::int64_t steps = 0;
  const auto number = file.metadata().find("step");
  if (number != file.metadata().end())
    (void)std::from_chars(number->second.data(), number->second.data() + number->second.size(), steps);
  detail::visit_tensors(pipe, false,
                        [&](const tensor_facts& one, const detail::tensor_shard& shard, std::byte* memory) {
                          file.read_box(one.name, shard.starts, shard.sizes, memory, shard.strides);
                        });
  pipe.set_steps_done(steps);
  pipe.talk().barrier();
}

}  // namespace espalier::pipeline
