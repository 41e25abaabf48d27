// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of dataset.hpp.
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/data_error.hpp>
#include <espalier/tensor/run/io/dataset.hpp>
#include <espalier/tensor/run/io/permutation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::io {

ESPALIER_INLINE place_leaves<arrays> leaves_of(const world& where, const dataset_place& place) {
  const auto leaf_with = [&](std::int64_t value) {
    sharded_array<i64<>> array(where, sharding::whole(0));
    array.for_each([=](std::int64_t& element, std::int64_t) { element = value; });
    return array;
  };
  return {leaf_with(place.seed), leaf_with(place.epoch), leaf_with(place.batch)};
}

ESPALIER_INLINE dataset_place place_in(const place_leaves<arrays>& leaves) {
  return {*leaves.seed.data(0), *leaves.epoch.data(0), *leaves.batch.data(0)};
}

}  // namespace espalier::io

namespace espalier::detail {

/// An array of its own, laid out as another one.
inline void make_like(any_array& array, const world& where, const any_array& like) {
  const axis_parts parts = like.parts();
  const sharding placement = like.placed().placement;
  expect_partial_sums();
  array_memory::make(array, where, parts, placement);
  array_memory::handle(array) = {};
}

ESPALIER_INLINE dataset_reader::dataset_reader(world& where, const io::dataset_options& options,
                                               std::int64_t batch_rows, std::vector<dataset_column> columns)
    : options_(options),
      place_{options.seed, 0, 0},
      columns_(std::move(columns)),
      batch_rows_(batch_rows),
      where_(&where) {
  together(where, [&] {
    check_files();
    for (const dataset_column& one : columns_) check_column(one);
  });
  for (const dataset_column& one : columns_) make_like(*one.array[1], where, *one.array[0]);
  if (options_.read_ahead) reader_ = std::thread([this] { read_on_demand(); });
  request(0);
}

ESPALIER_INLINE dataset_reader::~dataset_reader() {
  if (!reader_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

ESPALIER_INLINE std::size_t dataset_reader::next() {
  finish();
  if (failure_) std::rethrow_exception(failure_);
  const std::size_t filled = current_;
  place_ = after(place_);
  current_ = 1 - current_;
  request(current_);
  return filled;
}

ESPALIER_INLINE void dataset_reader::seek(const io::dataset_place& to) {
  if (to.epoch < 0 || to.batch < 0 || to.batch >= batches())
    throw std::invalid_argument("dataset: batch " + std::to_string(to.batch) + " of epoch " + std::to_string(to.epoch) +
                                " was asked for, and an epoch has " + std::to_string(batches()) +
                                " batches. Give a place of a dataset with as many rows and rows a batch.");
  finish();
  failure_ = nullptr;
  place_ = to;
  request(current_);
}

ESPALIER_INLINE void dataset_reader::check_files() {
  const io::row_file& first = columns_.front().file;
  for (const dataset_column& one : columns_) {
    const io::row_file& file = one.file;
    if (file.rows() != first.rows())
      throw io::data_error(file.path(),
                           "it has " + std::to_string(file.rows()) + " rows, and " + first.path().string() + " has " +
                               std::to_string(first.rows()),
                           "Give files with a row for each example");
  }
  const std::int64_t all = first.rows();
  rows_ = options_.rows < 0 ? all - options_.first_row : options_.rows;
  if (options_.first_row < 0 || rows_ < 0 || options_.first_row > all - rows_)
    throw io::data_error(first.path(),
                         "rows " + std::to_string(options_.first_row) + " to " +
                             std::to_string(options_.first_row + rows_ - 1) + " are asked for of " +
                             std::to_string(all),
                         "Correct first_row and rows");
  if (rows_ < batch_rows_)
    throw io::data_error(first.path(),
                         std::to_string(rows_) + " rows do not fill a batch of " + std::to_string(batch_rows_),
                         "Take a smaller batch, or more rows");
}

ESPALIER_INLINE void dataset_reader::check_column(const dataset_column& one) const {
  const any_array& array = *one.array[0];
  const extents& shape = array.shape();
  if (array.empty() || !array.lies_in(*where_))
    throw argument_error("dataset: the array for " + one.file.path().string() +
                         (array.empty() ? " is empty" : " is of another world") +
                         ". Give one that runner::argument made in the dataset's world.");
  const std::string wanted = to_string(mesh_shape{}, array.type(), shape, sharding::whole(shape.rank));
  const std::string has = "it holds " + rows_text(one.file.type(), one.file.shape());
  if (!one.file.accepts(array.type()))
    throw io::data_error(one.file.path(),
                         has + (one.file.is_scaled() ? ", scaled" : "") + ", which does not become " + wanted,
                         "Take a tensor of a type that holds its elements, or convert the file");
  // Equal extents, 1s left out; or all of a row in one dimension.
  std::vector<std::int64_t> row;
  std::vector<std::int64_t> tensor;
  for (std::size_t d = 1; d < one.file.shape().size(); ++d)
    if (one.file.shape()[d] != 1) row.push_back(one.file.shape()[d]);
  std::int64_t elements = 1;
  for (int d = 1; d < shape.rank; ++d) {
    if (shape[d] != 1) tensor.push_back(shape[d]);
    elements *= shape[d];
  }
  const bool is_flat = tensor.size() == 1 && elements == one.file.row_elements();
  if (row != tensor && !is_flat)
    throw io::data_error(
        one.file.path(), has + ", whose rows are not those of " + wanted,
        "Give the tensor the extents of a row after its first, or one extent with all elements of a row");
}

ESPALIER_INLINE void dataset_reader::request(std::size_t set) {
  renew_shared(set);
  if (!options_.read_ahead) {
    waiting_ = true;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = set;
    next_place_ = place_;
    waiting_ = true;
  }
  changed_.notify_all();
}

ESPALIER_INLINE void dataset_reader::finish() {
  if (!options_.read_ahead) {
    if (!std::exchange(waiting_, false) || failure_) return;
    try {
      fill(current_, place_);
    } catch (...) { failure_ = std::current_exception(); }
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !waiting_; });
}

ESPALIER_INLINE void dataset_reader::read_on_demand() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return waiting_ || ends_; });
    if (ends_) return;
    const std::size_t set = work_;
    const io::dataset_place place = next_place_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(set, place);
    } catch (...) { failure = std::current_exception(); }
    lock.lock();
    if (failure) failure_ = failure;
    waiting_ = false;
    changed_.notify_all();
  }
}

ESPALIER_INLINE void dataset_reader::renew_shared(std::size_t set) {
  for (const dataset_column& one : columns_) {
    any_array& array = *one.array[set];
    const std::vector<shared_buffer>& shards = array_memory::shards(array);
    const bool is_shared =
        std::any_of(shards.begin(), shards.end(), [](const shared_buffer& shard) { return shard.is_shared(); });
    if (is_shared) make_like(array, *where_, array);
  }
}

ESPALIER_INLINE io::dataset_place dataset_reader::after(const io::dataset_place& place) const {
  return place.batch + 1 < batches() ? io::dataset_place{place.seed, place.epoch, place.batch + 1}
                                     : io::dataset_place{place.seed, place.epoch + 1, 0};
}

/// The rows of the files that are the rows of a batch.
class rows_of_batch {
 public:
  rows_of_batch(const io::dataset_options& options, std::int64_t rows, std::int64_t batch_rows,
                const io::dataset_place& place)
      : options_(options), first_(place.batch * batch_rows), order_(rows, place.seed, place.epoch) {}
  [[nodiscard]] std::int64_t operator()(std::int64_t row) const {
    return options_.first_row + (options_.shuffle ? order_(first_ + row) : first_ + row);
  }

 private:
  const io::dataset_options& options_;
  std::int64_t first_;
  io::permutation order_;
};

ESPALIER_INLINE void dataset_reader::fill(std::size_t set, const io::dataset_place& place) {
  if (place != asked_for_) ask_for(set, place);
  // The disk reads the batch after this one while this one is copied, and the program does not wait for it meanwhile.
  asked_for_ = after(place);
  ask_for(set, asked_for_);
  for (const dataset_column& one : columns_) fill_one(one, set, place);
}

ESPALIER_INLINE void dataset_reader::ask_for(std::size_t set, const io::dataset_place& place) const {
  const rows_of_batch row_at(options_, rows_, batch_rows_, place);
  for (const dataset_column& one : columns_) {
    const any_array& array = *one.array[set];
    for (int k = 0; k < array.local_count(); ++k) {
      const interval held = array.held(k, 0);
      for (std::int64_t r = held.start; r < held.start + held.size; ++r) one.file.will_need(row_at(r));
    }
  }
}

ESPALIER_INLINE void dataset_reader::fill_one(const dataset_column& one, std::size_t set,
                                              const io::dataset_place& place) const {
  const any_array& array = *one.array[set];
  array.require_unspent();
  const rows_of_batch row_at(options_, rows_, batch_rows_, place);
  const std::int64_t size = size_of(array.type());
  const std::int64_t elements = one.file.row_elements();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(batch_rows_), -1);
  for (int k = 0; k < array.local_count(); ++k) {
    const interval held = array.held(k, 0);
    for (std::int64_t r = held.start; r < held.start + held.size; ++r) {
      std::int64_t& row = rows[static_cast<std::size_t>(r)];
      if (row < 0) row = row_at(r);
    }
  }
  for (int k = 0; k < array.local_count(); ++k) {
    auto* const first_byte = static_cast<std::byte*>(array_memory::shards(array)[static_cast<std::size_t>(k)].data());
    for (shard_rows run(array, k); run.any; run.next()) {
      std::byte* target = first_byte + run.at * size;
      std::int64_t flat = run.flat;
      for (std::int64_t left = run.length; left > 0;) {
        const std::int64_t first = flat % elements;
        const std::int64_t count = std::min(left, elements - first);
        one.read(one.file, array.type(), rows[static_cast<std::size_t>(flat / elements)], first, count, target);
        flat += count;
        target += count * size;
        left -= count;
      }
    }
  }
}

}  // namespace espalier::detail
