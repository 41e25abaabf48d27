// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/json.hpp>
#include <espalier/base/read_file.hpp>
#include <espalier/io.hpp>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace llama {

/// A value of a JSON file, read whole; asked for what it does not have, it throws `checkpoint_error`.
class json {
 public:
  using list = std::vector<json>;
  using object = std::map<std::string, json, std::less<>>;

  /// Reads a file. Errors: `checkpoint_error` if it cannot be read or is not JSON.
  [[nodiscard]] static json read(const std::filesystem::path& path) {
    const espalier::detail::file_text file = espalier::detail::read_file(path);
    if (!file.failure.empty()) {
      throw espalier::io::checkpoint_error(path, "a file that cannot be read (" + file.failure + ")",
                                           "a file of a Hugging Face checkpoint",
                                           "give the folder of a complete checkpoint");
    }
    const auto error = [&](const espalier::detail::json_place& at, const std::string& found,
                           const std::string& expected) {
      return espalier::io::checkpoint_error(
          path, found + " in line " + std::to_string(at.line) + ", column " + std::to_string(at.column), expected,
          "the file is damaged: use another copy");
    };
    espalier::detail::json_reader reader(file.text, error);
    json whole = value(reader, path);
    reader.finish();
    return whole;
  }

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  [[nodiscard]] bool is_list() const { return std::holds_alternative<list>(value_); }
  [[nodiscard]] bool is_string() const { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] const std::string& string() const { return as<std::string>("a string"); }
  [[nodiscard]] double number() const { return as<double>("a number"); }
  [[nodiscard]] int integer() const { return static_cast<int>(number()); }
  [[nodiscard]] bool boolean() const { return as<bool>("true or false"); }
  [[nodiscard]] const list& elements() const { return as<list>("a list"); }
  [[nodiscard]] const object& members() const { return as<object>("an object"); }

  /// A member; null if there is none, or if it is null.
  [[nodiscard]] const json* find(std::string_view key) const {
    const auto at = members().find(key);
    return at == members().end() || at->second.is_null() ? nullptr : &at->second;
  }
  [[nodiscard]] const json& at(std::string_view key) const {
    if (const json* found = find(key)) return *found;
    throw fail("no \"" + std::string(key) + '"', "one");
  }
  [[nodiscard]] std::string string_or(std::string_view key, const std::string& otherwise) const {
    const json* found = find(key);
    return found != nullptr ? found->string() : otherwise;
  }
  [[nodiscard]] double number_or(std::string_view key, double otherwise) const {
    const json* found = find(key);
    return found != nullptr ? found->number() : otherwise;
  }
  [[nodiscard]] bool boolean_or(std::string_view key, bool otherwise) const {
    const json* found = find(key);
    return found != nullptr ? found->boolean() : otherwise;
  }

  /// Returns the error to throw about this value.
  [[nodiscard]] espalier::io::checkpoint_error fail(const std::string& found, const std::string& expected) const {
    return {path_, found + (name_.empty() ? "" : " in " + name_), expected, "use a checkpoint of a supported model"};
  }

 private:
  template <class Reader> static json value(Reader& reader, const std::filesystem::path& path, std::string name = {}) {
    json made;
    made.path_ = path;
    made.name_ = std::move(name);
    switch (reader.peek()) {
      case '{': {
        object all;
        reader.object([&](const std::string& key) { all.insert_or_assign(key, value(reader, path, key)); });
        made.value_ = std::move(all);
        break;
      }
      case '[': {
        list all;
        reader.array([&](std::size_t) { all.push_back(value(reader, path, made.name_)); });
        made.value_ = std::move(all);
        break;
      }
      case '"': made.value_ = reader.string(); break;
      case 't':
      case 'f': made.value_ = reader.boolean(); break;
      case 'n':
        if (!reader.null()) reader.fail(reader.here(), "a value");
        break;
      default: made.value_ = reader.number("a value");
    }
    return made;
  }

  template <class T> const T& as(const char* expected) const {
    if (const T* found = std::get_if<T>(&value_)) return *found;
    throw fail("a value of another kind", expected);
  }

  std::filesystem::path path_;
  std::string name_;
  std::variant<std::nullptr_t, bool, double, std::string, list, object> value_;
};

}  // namespace llama
