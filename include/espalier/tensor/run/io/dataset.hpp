// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/permutation.hpp>
#include <espalier/tensor/run/io/row_file.hpp>

#include <boost/hana/define_struct.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::io {

/// One tensor of a batch: the array to fill, as `runner::argument` makes it, and the file with its rows.
template <class Tensor> struct column {
  static_assert(Tensor::rank > 0, "a batch's first dimension counts its rows: a scalar has none");
  column(sharded_array<Tensor> like, row_file from) : array(std::move(like)), file(std::move(from)) {}
  sharded_array<Tensor> array;
  row_file file;
};

/// Which rows of its files a dataset draws, and in which order.
struct dataset_options {
  std::int64_t seed = 0;
  /// false: in the order of the file, the same in each epoch.
  bool shuffle = true;
  /// The first row, and how many follow; -1: all. For rows that are held out.
  std::int64_t first_row = 0;
  std::int64_t rows = -1;
  /// Read the next batch while the caller works with the last.
  bool read_ahead = true;
};

/// The position of a dataset: the batch that `next` returns next.
struct dataset_place {
  std::int64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< of the epoch
  friend bool operator==(const dataset_place&, const dataset_place&) = default;
};

/// A `dataset_place` as leaves of a tree, to be saved with a model's: three numbers, whole on each device.
///
///     template <class Leaf> struct saved {
///       BOOST_HANA_DEFINE_STRUCT(saved, (model::state<Leaf>, model), (ep::io::place_leaves<Leaf>, data));
///     };
template <class Leaf> struct place_leaves {
  BOOST_HANA_DEFINE_STRUCT(place_leaves, (leaf<Leaf, i64<>>, seed), (leaf<Leaf, i64<>>, epoch),
                           (leaf<Leaf, i64<>>, batch));
};

/// The leaves that hold a place. Not collective.
[[nodiscard]] inline place_leaves<arrays> leaves_of(const world& where, const dataset_place& place = {}) {
  const auto leaf_with = [&](std::int64_t value) {
    sharded_array<i64<>> array(where, sharding::whole(0));
    array.for_each([=](std::int64_t& element, std::int64_t) { element = value; });
    return array;
  };
  return {leaf_with(place.seed), leaf_with(place.epoch), leaf_with(place.batch)};
}
/// The place that leaves hold.
[[nodiscard]] inline dataset_place place_in(const place_leaves<arrays>& leaves) {
  return {*leaves.seed.data(0), *leaves.epoch.data(0), *leaves.batch.data(0)};
}

/// Batches of rows from files, on the devices that a program wants them on.
///
/// Row r of a batch's tensors comes from one row of each file. Each epoch goes through the rows in another order, which
/// follows from seed and epoch alone (`permutation`): the batches are the same on every mesh and number of ranks. Rows
/// that do not fill a last batch are left out of that epoch. Each process reads what its devices hold.
///
///     ep::io::dataset batches(world, {.seed = 3}, ep::io::column(train.argument<1>(), ep::io::npy("images.npy")),
///                             ep::io::column(train.argument<2>(), ep::io::idx("labels.idx").within(0, 9)));
///     const auto& [x, y] = batches.next();
///     state = train(state, x, y);
///
/// While the caller works with a batch, a thread reads the next one. Errors: `io::data_error`, on all ranks if files
/// and tensors do not fit (from the constructor; under MPI `error_on_all_ranks`), on the rank that reads a bad row from
/// the call of `next` that would return it, and from each call after that.
template <class... Tensors> class dataset {
  static_assert(sizeof...(Tensors) > 0, "a dataset has at least one column");
  static constexpr std::int64_t batch_rows = std::get<0>(std::tuple{Tensors::shape[0]...});
  static_assert(((Tensors::shape[0] == batch_rows) && ...),
                "the tensors of a batch have different first extents: give them as many rows each");

 public:
  using batch = std::tuple<sharded_array<Tensors>...>;

  /// Collective.
  dataset(world& where, const dataset_options& options, column<Tensors>... columns)
      : options_(options), place_{options.seed, 0, 0}, files_{columns.file...} {
    together(where, [&] {
      check_files();
      (check_column(where, columns), ...);
    });
    buffers_[0] = batch{columns.array...};
    buffers_[1] = batch{fresh(where, columns.array)...};
    where_ = &where;
    if (options_.read_ahead) reader_ = std::thread([this] { read_on_demand(); });
    request(0);
  }
  dataset(const dataset&) = delete;
  dataset& operator=(const dataset&) = delete;
  ~dataset() {
    if (!reader_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    reader_.join();
  }

  /// Rows that are drawn from, and batches in an epoch.
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t batches() const { return rows_ / batch_rows; }
  /// The batch that `next` returns next.
  [[nodiscard]] const dataset_place& place() const { return place_; }

  /// The next batch; after an epoch's last the first of the next epoch. The arrays are filled anew after the next call,
  /// unless copies of their handles still exist: those keep their elements.
  const batch& next() {
    finish();
    if (failure_) std::rethrow_exception(failure_);
    const batch& result = buffers_[current_];
    place_ = after(place_);
    current_ = 1 - current_;
    request(current_);
    return result;
  }

  /// Goes on from a place that `place` returned, of this dataset or of one with the same rows, on any mesh.
  /// Errors: `std::invalid_argument` for a batch that an epoch does not have.
  void seek(const dataset_place& to) {
    if (to.epoch < 0 || to.batch < 0 || to.batch >= batches())
      throw std::invalid_argument("dataset: batch " + std::to_string(to.batch) + " of epoch " +
                                  std::to_string(to.epoch) + " was asked for, and an epoch has " +
                                  std::to_string(batches()) +
                                  " batches. Give a place of a dataset with as many rows and rows a batch.");
    finish();
    failure_ = nullptr;
    place_ = to;
    request(current_);
  }

 private:
  template <class Tensor>
  [[nodiscard]] static sharded_array<Tensor> fresh(const world& where, const sharded_array<Tensor>& like) {
    return sharded_array<Tensor>(where, like.parts(), like.placed().placement);
  }

  void check_files() {
    const row_file& first = files_[0];
    for (const row_file& file : files_) {
      if (file.rows() != first.rows())
        throw data_error(file.path(),
                         "it has " + std::to_string(file.rows()) + " rows, and " + first.path().string() + " has " +
                             std::to_string(first.rows()),
                         "Give files with a row for each example");
    }
    const std::int64_t all = first.rows();
    rows_ = options_.rows < 0 ? all - options_.first_row : options_.rows;
    if (options_.first_row < 0 || rows_ < 0 || options_.first_row > all - rows_)
      throw data_error(first.path(),
                       "rows " + std::to_string(options_.first_row) + " to " +
                           std::to_string(options_.first_row + rows_ - 1) + " are asked for of " + std::to_string(all),
                       "Correct first_row and rows");
    if (rows_ < batch_rows)
      throw data_error(first.path(),
                       std::to_string(rows_) + " rows do not fill a batch of " + std::to_string(batch_rows),
                       "Take a smaller batch, or more rows");
  }

  template <class Tensor> static void check_column(const world& where, const column<Tensor>& one) {
    if (one.array.empty() || !one.array.lies_in(where))
      throw argument_error("dataset: the array for " + one.file.path().string() +
                           (one.array.empty() ? " is empty" : " is of another world") +
                           ". Give one that runner::argument made in the dataset's world.");
    const std::string wanted = to_string(mesh_shape{}, Tensor::type, Tensor::shape, sharding::whole(Tensor::rank));
    const std::string has = "it holds " + detail::rows_text(one.file.type(), one.file.shape());
    if (!one.file.accepts(Tensor::type))
      throw data_error(one.file.path(),
                       has + (one.file.is_scaled() ? ", scaled" : "") + ", which does not become " + wanted,
                       "Take a tensor of a type that holds its elements, or convert the file");
    // Equal extents, 1s left out; or all of a row in one dimension.
    std::vector<std::int64_t> row;
    std::vector<std::int64_t> tensor;
    for (std::size_t d = 1; d < one.file.shape().size(); ++d)
      if (one.file.shape()[d] != 1) row.push_back(one.file.shape()[d]);
    std::int64_t elements = 1;
    for (int d = 1; d < Tensor::rank; ++d) {
      if (Tensor::shape[d] != 1) tensor.push_back(Tensor::shape[d]);
      elements *= Tensor::shape[d];
    }
    const bool is_flat = tensor.size() == 1 && elements == one.file.row_elements();
    if (row != tensor && !is_flat)
      throw data_error(
          one.file.path(), has + ", whose rows are not those of " + wanted,
          "Give the tensor the extents of a row after its first, or one extent with all elements of a row");
  }

  /// Asks for the batch at `place_` in a buffer that the caller has done with.
  void request(std::size_t buffer) {
    renew_shared(buffers_[buffer]);
    if (!options_.read_ahead) {
      waiting_ = true;
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      work_ = buffer;
      next_place_ = place_;
      waiting_ = true;
    }
    changed_.notify_all();
  }

  /// Waits until the batch that was asked for is there, or has failed.
  void finish() {
    if (!options_.read_ahead) {
      if (!std::exchange(waiting_, false) || failure_) return;
      try {
        fill(buffers_[current_], place_);
      } catch (...) { failure_ = std::current_exception(); }
      return;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !waiting_; });
  }

  void read_on_demand() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return waiting_ || ends_; });
      if (ends_) return;
      const std::size_t buffer = work_;
      const dataset_place place = next_place_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        fill(buffers_[buffer], place);
      } catch (...) { failure = std::current_exception(); }
      lock.lock();
      if (failure) failure_ = failure;
      waiting_ = false;
      changed_.notify_all();
    }
  }

  /// Arrays that somebody else still holds are left to them.
  void renew_shared(batch& arrays) {
    std::apply(
        [&](auto&... array) {
          const auto renew = [&](auto& one) {
            for (const shared_buffer& shard : detail::array_memory::shards(one)) {
              if (!shard.is_shared()) continue;
              one = fresh(*where_, one);
              return;
            }
          };
          (renew(array), ...);
        },
        arrays);
  }

  [[nodiscard]] dataset_place after(const dataset_place& place) const {
    return place.batch + 1 < batches() ? dataset_place{place.seed, place.epoch, place.batch + 1}
                                       : dataset_place{place.seed, place.epoch + 1, 0};
  }

  /// The row of the files that is row `r` of a batch.
  [[nodiscard]] auto rows_at(const dataset_place& place) const {
    return [this, first = place.batch * batch_rows, order = permutation(rows_, place.seed, place.epoch)](
               std::int64_t r) { return options_.first_row + (options_.shuffle ? order(first + r) : first + r); };
  }

  void fill(batch& arrays, const dataset_place& place) {
    constexpr auto all = std::index_sequence_for<Tensors...>{};
    if (place != asked_for_) ask_for_all(arrays, rows_at(place), all);
    // The disk reads the batch after this one while this one is copied, and the program does not wait for it meanwhile.
    asked_for_ = after(place);
    ask_for_all(arrays, rows_at(asked_for_), all);
    fill_all(arrays, rows_at(place), all);
  }
  template <class RowAt, std::size_t... I>
  void ask_for_all(const batch& arrays, const RowAt& row_at, std::index_sequence<I...>) const {
    const auto ask_for = [&](const any_array& array, const row_file& file) {
      for (int k = 0; k < array.local_count(); ++k) {
        const interval held = array.held(k, 0);
        for (std::int64_t r = held.start; r < held.start + held.size; ++r) file.will_need(row_at(r));
      }
    };
    (ask_for(std::get<I>(arrays), files_[I]), ...);
  }
  template <class RowAt, std::size_t... I>
  void fill_all(batch& arrays, const RowAt& row_at, std::index_sequence<I...>) const {
    (fill_one(std::get<I>(arrays), files_[I], row_at), ...);
  }

  template <class Tensor, class RowAt>
  static void fill_one(const sharded_array<Tensor>& array, const row_file& file, const RowAt& row_at) {
    const std::int64_t elements = file.row_elements();
    std::vector<std::int64_t> rows(static_cast<std::size_t>(batch_rows), -1);
    for (int k = 0; k < array.local_count(); ++k) {
      const interval held = array.held(k, 0);
      for (std::int64_t r = held.start; r < held.start + held.size; ++r) {
        std::int64_t& row = rows[static_cast<std::size_t>(r)];
        if (row < 0) row = row_at(r);
      }
    }
    for (int k = 0; k < array.local_count(); ++k) {
      for (detail::shard_rows run(array, k); run.any; run.next()) {
        auto* target = array.data(k) + run.at;
        std::int64_t flat = run.flat;
        for (std::int64_t left = run.length; left > 0;) {
          const std::int64_t first = flat % elements;
          const std::int64_t count = std::min(left, elements - first);
          file.read(rows[static_cast<std::size_t>(flat / elements)], first, count, target);
          flat += count;
          target += count;
          left -= count;
        }
      }
    }
  }

  dataset_options options_;
  dataset_place place_;
  std::array<row_file, sizeof...(Tensors)> files_;
  std::int64_t rows_ = 0;
  std::array<batch, 2> buffers_;
  std::size_t current_ = 0;
  const world* where_ = nullptr;
  dataset_place asked_for_{0, -1, 0};  // of the system, by the filling thread
  std::exception_ptr failure_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool ends_ = false;
  std::size_t work_ = 0;
  dataset_place next_place_;
  std::thread reader_;
};

template <class... Tensors> dataset(world&, const dataset_options&, column<Tensors>...) -> dataset<Tensors...>;

}  // namespace espalier::io
