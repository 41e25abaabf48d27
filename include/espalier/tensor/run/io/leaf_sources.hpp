// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/json.hpp>
#include <espalier/tensor/run/io/convert.hpp>
#include <espalier/tensor/run/io/load_options.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::detail {

/// Whether `name` is `member` or lies in it: `body.up` lies in `body`, and in "".
[[nodiscard]] inline bool lies_in_member(std::string_view name, std::string_view member) {
  if (member.empty() || name == member) return true;
  return name.size() > member.size() && name.substr(0, member.size()) == member && name[member.size()] == '.';
}

/// The lists of a `load_options`, with a note of which of their names have been met.
class named_members {
 public:
  explicit named_members(const std::vector<std::string>& names) : names_(&names), met_(names.size(), false) {}
  /// Whether one of them is `name` or holds it. All that do are noted.
  [[nodiscard]] bool meets(std::string_view name) {
    bool any = false;
    for (std::size_t i = 0; i < names_->size(); ++i) {
      if (!lies_in_member(name, (*names_)[i])) continue;
      met_[i] = true;
      any = true;
    }
    return any;
  }
  [[nodiscard]] bool empty() const { return names_->empty(); }
  /// The first that no name has met; null if there is none.
  [[nodiscard]] const std::string* stranger() const {
    for (std::size_t i = 0; i < names_->size(); ++i)
      if (!met_[i]) return &(*names_)[i];
    return nullptr;
  }

 private:
  const std::vector<std::string>* names_;
  std::vector<bool> met_;
};

/// The name in the file of a leaf, by `subtree` and `rename`.
class names_in_file {
 public:
  explicit names_in_file(const io::load_options& options) : options_(&options), met_(options.rename.size(), false) {}

  [[nodiscard]] std::string of(std::string_view leaf) {
    std::size_t best = options_->rename.size();
    for (std::size_t i = 0; i < options_->rename.size(); ++i) {
      const std::string& from = options_->rename[i].first;
      if (!lies_in_member(leaf, from)) continue;
      met_[i] = true;
      if (best == options_->rename.size() || from.size() > options_->rename[best].first.size()) best = i;
    }
    std::string name(leaf);
    if (best != options_->rename.size()) {
      const auto& [from, to] = options_->rename[best];
      std::string_view rest = leaf.substr(from.size());
      if (!rest.empty() && rest.front() == '.') rest.remove_prefix(1);
      name = joined_members(to, rest);
    }
    return joined_members(options_->subtree, name);
  }
  [[nodiscard]] const std::string* stranger() const {
    for (std::size_t i = 0; i < met_.size(); ++i)
      if (!met_[i]) return &options_->rename[i].first;
    return nullptr;
  }

 private:
  [[nodiscard]] static std::string joined_members(std::string_view outer, std::string_view inner) {
    std::string name(outer);
    if (!outer.empty() && !inner.empty()) name += '.';
    return name.append(inner);
  }

  const io::load_options* options_;
  std::vector<bool> met_;
};

/// Returns the tensor that fills each leaf; null for a leaf that keeps its values. A leaf may also be filled by a
/// tensor of the type in `declared` (io/sixteen_bit_moments.hpp). The result depends only on the file's header, the
/// specs and the options, so that all ranks find the same.
///
/// Errors: `io::checkpoint_error` that lists all that does not fit, or names the name in `options` that nothing has.
[[nodiscard]] inline std::vector<const io::tensor_info*> sources_of_leaves(const io::safetensors_reader& reader,
                                                                           std::span<const io::tensor_spec> leaves,
                                                                           std::span<const dtype> declared,
                                                                           const io::load_options& options) {
  const auto refuse_name = [&](const char* list, const std::string* name, const char* has) {
    if (name == nullptr) return;
    throw io::checkpoint_error(reader.path(), std::string(list) + " names " + json_string(*name) + ", but " + has,
                               "the name of a leaf, or of a member that holds leaves",
                               "correct the name, or take it out of " + std::string(list));
  };
  named_members only(options.only);
  named_members keep(options.keep);
  named_members ignore(options.ignore);
  names_in_file in_file(options);
  std::vector<const io::tensor_info*> sources;
  std::vector<std::string_view> used;
  std::vector<std::string> kept;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> different;
  for (const io::tensor_spec& leaf : leaves) {
    const std::string name = in_file.of(leaf.name);
    const std::string quoted =
        json_string(leaf.name) + (name == leaf.name ? "" : " (in the file " + json_string(name) + ")");
    const bool asked = only.meets(leaf.name) || only.empty();
    if (keep.meets(leaf.name) || !asked) {
      kept.push_back(name);
      sources.push_back(nullptr);
      continue;
    }
    const io::tensor_info* const info = reader.find(name);
    sources.push_back(info);
    if (info == nullptr) {
      missing.push_back(quoted + ": the model has " + describe(leaf));
      continue;
    }
    used.push_back(info->name);
    const dtype other = declared[sources.size() - 1];
    if (info->shape == leaf.shape && (info->type == leaf.type || info->type == other)) continue;
    const bool can = info->shape == leaf.shape && converts(info->type, leaf.type);
    if (can && options.convert) continue;
    different.push_back(quoted + ": the file has " + describe(*info) + ", the model " + describe(leaf) +
                        (can ? " (.convert = true converts it)" : ""));
  }
  // The members that `only` names, by their names in the file.
  std::vector<std::string> asked_of_file;
  for (const std::string& name : options.only) asked_of_file.push_back(in_file.of(name));
  for (const io::tensor_info& info : reader.tensors()) {
    const bool ignored = ignore.meets(info.name);
    if (std::find(used.begin(), used.end(), info.name) != used.end()) continue;
    if (ignored || !lies_in_member(info.name, options.subtree)) continue;
    if (std::find(kept.begin(), kept.end(), info.name) != kept.end()) continue;
    if (!asked_of_file.empty() && std::none_of(asked_of_file.begin(), asked_of_file.end(),
                                               [&](const auto& member) { return lies_in_member(info.name, member); }))
      continue;
    unexpected.push_back(json_string(info.name) + ": the file has " + describe(info));
  }
  refuse_name("only", only.stranger(), "no leaf of the model is called so or lies in it");
  refuse_name("keep", keep.stranger(), "no leaf of the model is called so or lies in it");
  refuse_name("rename", in_file.stranger(), "no leaf of the model is called so or lies in it");
  refuse_name("ignore", ignore.stranger(), "no tensor of the file is called so or lies in it");
  if (missing.empty() && unexpected.empty() && different.empty()) return sources;
  throw io::checkpoint_error(
      reader.path(),
      "a checkpoint of another model" +
          list_of_differences(std::move(missing), std::move(unexpected), std::move(different)),
      "a tensor for each leaf that is asked for, and a leaf for each tensor",
      "name what stays as it is in keep, what the file has beyond the model in ignore, other names in rename");
}

}  // namespace espalier::detail
