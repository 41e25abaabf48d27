// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/tensor_spec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::detail {

/// The reference implementation refuses longer headers; so do we, before allocating memory for one.
inline constexpr std::int64_t safetensors_header_limit = 100'000'000;

/// "F32, F64 or BOOL": all the types there are.
[[nodiscard]] inline std::string wire_names() {
  std::string text;
  for (int n = 0; n < dtype_count; ++n) {
    text += n == 0 ? "" : n + 1 == dtype_count ? " or " : ", ";
    text += dtype_table[n].wire_name;
  }
  return text;
}

/// "F32 [3, 4]": how tensors appear in errors.
[[nodiscard]] inline std::string describe(const io::tensor_spec& spec) {
  std::string text(facts_of(spec.type).wire_name);
  text += " [";
  for (std::size_t d = 0; d < spec.shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(spec.shape[d]);
  return text + "]";
}

/// Bytes that a tensor occupies; nothing when a dimension is negative or the product exceeds 63 bits.
[[nodiscard]] inline std::optional<std::int64_t> bytes_of(const io::tensor_spec& spec) {
  // If one dimension is 0 the others count too, as in the reference implementation: strides are products of them.
  std::int64_t bytes = size_of(spec.type);
  bool empty = false;
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0)
      empty = true;
    else if (bytes > std::numeric_limits<std::int64_t>::max() / extent)
      return std::nullopt;
    else
      bytes *= extent;
  }
  return empty ? 0 : bytes;
}

/// True for well-formed UTF-8: no stray or missing continuation, overlong form, surrogate or value above U+10FFFF.
[[nodiscard]] inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    if (length == 0 || text.size() - i < length) return false;
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      // Only the second byte decides about overlong forms, surrogates and the upper limit.
      const unsigned low = k == 1 && lead == 0xe0 ? 0xa0U : k == 1 && lead == 0xf0 ? 0x90U : 0x80U;
      const unsigned high = k == 1 && lead == 0xed ? 0x9fU : k == 1 && lead == 0xf4 ? 0x8fU : 0xbfU;
      if (next < low || next > high) return false;
    }
    i += length;
  }
  return true;
}

/// The contents of a safetensors header.
struct safetensors_header {
  std::vector<io::tensor_info> tensors;  // in the order of their data
  io::metadata_map metadata;
};

/// Reads the JSON that a safetensors header is, and nothing beyond it: an unknown key, a duplicate key, a negative or
/// fractional number, a byte that is not UTF-8 are errors that name the byte.
class safetensors_header_parser {
 public:
  safetensors_header_parser(const std::filesystem::path& path, std::string_view text)
      : path_(path), text_(text), json_(text, make_error{&path}) {}

  /// @pre text is the whole header. Errors: `io::checkpoint_error`.
  [[nodiscard]] safetensors_header parse() {
    if (!is_utf8(text_)) json_.fail("bytes that are not UTF-8", "a header in UTF-8");
    if (text_.empty() || text_.front() != '{') json_.fail("no '{'", "'{' as the header's first byte");
    safetensors_header header;
    bool has_metadata = false;
    json_.object([&](std::string name) {
      if (name != "__metadata__") {
        header.tensors.push_back(tensor(std::move(name)));
        return;
      }
      if (has_metadata) json_.fail("a second \"__metadata__\"", "at most one");
      has_metadata = true;
      json_.object([&](const std::string& key) {
        std::string value = json_.string();
        if (!header.metadata.emplace(key, std::move(value)).second)
          json_.fail("metadata key " + json_string(key) + " twice", "distinct keys");
      });
    });
    if (!json_.at_end()) json_.fail("text after the closing '}'", "spaces only");
    return header;
  }

 private:
  struct make_error {
    const std::filesystem::path* path;
    [[nodiscard]] io::checkpoint_error operator()(const json_place& at, const std::string& found,
                                                  const std::string& expected) const {
      return {*path, found + " at byte " + std::to_string(at.byte) + " of the header", expected,
              "the file is damaged or not safetensors: use another copy"};
    }
  };

  [[nodiscard]] io::tensor_info tensor(std::string name) {
    io::tensor_info info;
    info.name = std::move(name);
    bool has_type = false;
    bool has_shape = false;
    bool has_offsets = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) json_.fail(json_string(key) + " twice in tensor " + json_string(info.name), "each key once");
      seen = true;
    };
    json_.object([&](const std::string& key) {
      if (key == "dtype") {
        once(has_type, key);
        info.type = type_of(json_.string(), info.name);
      } else if (key == "shape") {
        once(has_shape, key);
        info.shape = numbers();
      } else if (key == "data_offsets") {
        once(has_offsets, key);
        const std::vector<std::int64_t> offsets = numbers();
        if (offsets.size() != 2) json_.fail(std::to_string(offsets.size()) + " data_offsets", "[begin, end]");
        info.begin = offsets[0];
        info.end = offsets[1];
      } else {
        json_.fail("key " + json_string(key) + " in tensor " + json_string(info.name), "dtype, shape and data_offsets");
      }
    });
    if (!has_type || !has_shape || !has_offsets)
      json_.fail("tensor " + json_string(info.name) + " without " +
                     (!has_type    ? "dtype"
                      : !has_shape ? "shape"
                                   : "data_offsets"),
                 "dtype, shape and data_offsets");
    return info;
  }

  [[nodiscard]] dtype type_of(const std::string& name, const std::string& tensor_name) const {
    for (const dtype_facts& row : dtype_table)
      if (row.wire_name == name) return row.type;
    throw io::checkpoint_error(path_, "tensor " + json_string(tensor_name) + " of type " + json_string(name),
                               wire_names(), "convert that tensor, or remove it from the file");
  }

  [[nodiscard]] std::vector<std::int64_t> numbers() {
    std::vector<std::int64_t> values;
    json_.array([&](std::size_t) { values.push_back(json_.size()); });
    return values;
  }

  const std::filesystem::path& path_;
  std::string_view text_;
  json_reader<make_error> json_;
};

/// Refuses what the JSON cannot show: equal names, sizes that do not fit, data with overlaps, holes or another end.
inline void check_layout(const std::filesystem::path& path, safetensors_header& header, std::int64_t data_bytes) {
  const std::string remedy = "the file is damaged or incomplete: use another copy";
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twin != tensors.end())
    throw io::checkpoint_error(path, "tensor " + json_string(twin->name) + " twice", "distinct names", remedy);

  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t end = 0;
  for (const io::tensor_info& tensor : tensors) {
    const std::string what = "tensor " + json_string(tensor.name) + " = " + describe(tensor) + " at bytes [" +
                             std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + ")";
    const auto bytes = bytes_of(tensor);
    if (!bytes) throw io::checkpoint_error(path, what, "a size below 2^63 bytes", remedy);
    if (tensor.begin != end)
      throw io::checkpoint_error(path, what, "data from byte " + std::to_string(end) + " on, without overlap or hole",
                                 remedy);
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes)
      throw io::checkpoint_error(path, what, std::to_string(*bytes) + " bytes for that type and shape", remedy);
    end = tensor.end;
  }
  if (end != data_bytes)
    throw io::checkpoint_error(path, std::to_string(data_bytes) + " bytes of data",
                               std::to_string(end) + " bytes, as the header says", remedy);
}

/// The header text (length, JSON, padding) and the place of each tensor for a file with these contents.
struct safetensors_layout {
  std::string prefix;                    // the 8 length bytes and the header: the data begins after it
  std::vector<io::tensor_info> tensors;  // in the order of their data
  std::int64_t data_bytes = 0;
};

/// Depends on the set of specs only, not on their order, so that every rank computes the same.
[[nodiscard]] inline safetensors_layout lay_out(const std::filesystem::path& path, std::vector<io::tensor_spec> specs,
                                                const io::metadata_map& metadata) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    throw io::checkpoint_error(path, found, expected, "correct the list of tensors given to the writer");
  };
  // Wide elements first keeps every tensor aligned to its element; so does the reference implementation.
  std::sort(specs.begin(), specs.end(), [](const auto& a, const auto& b) {
    return std::pair(-size_of(a.type), std::string_view(a.name)) <
           std::pair(-size_of(b.type), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) refuse("tensor " + json_string(*twin) + " twice", "distinct names");

  safetensors_layout layout;
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value)) refuse("metadata that is not UTF-8", "UTF-8 text");
      json += json_string(key) + ':' + json_string(value) + ',';
    }
    json.back() = '}';
    json += ',';
  }
  for (auto& spec : specs) {
    if (spec.name == "__metadata__" || !is_utf8(spec.name))
      refuse("tensor name " + json_string(spec.name), "a name in UTF-8 other than __metadata__");
    const auto bytes = bytes_of(spec);
    if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max() / 2 - layout.data_bytes)
      refuse("tensor " + json_string(spec.name) + " = " + describe(spec),
             "no negative dimension, and below 2^62 bytes");
    io::tensor_info info;
    static_cast<io::tensor_spec&>(info) = std::move(spec);
    info.begin = layout.data_bytes;
    info.end = layout.data_bytes += *bytes;
    append_text(json, {json_string(info.name), ":{\"dtype\":\"", facts_of(info.type).wire_name, "\",\"shape\":["});
    for (std::size_t d = 0; d < info.shape.size(); ++d) append_text(json, {d == 0 ? "" : ",", info.shape[d]});
    append_text(json, {"],\"data_offsets\":[", info.begin, ",", info.end, "]},"});
    layout.tensors.push_back(std::move(info));
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > static_cast<std::size_t>(safetensors_header_limit))
    refuse("a header of " + std::to_string(json.size()) + " bytes", "at most 100,000,000 bytes");
  // In the size it has from the start: of a string that grows by single characters g++ 12 warns in optimised builds.
  layout.prefix.resize(8 + json.size());
  for (std::size_t n = 0; n < 8; ++n)
    layout.prefix[n] = static_cast<char>((static_cast<std::uint64_t>(json.size()) >> (8 * n)) & 0xffU);
  std::copy(json.begin(), json.end(), layout.prefix.begin() + 8);
  return layout;
}

}  // namespace espalier::detail
