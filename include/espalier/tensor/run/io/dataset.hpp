// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/permutation.hpp>
#include <espalier/tensor/run/io/row_file.hpp>

#include <boost/hana/define_struct.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
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
[[nodiscard]] place_leaves<arrays> leaves_of(const world& where, const dataset_place& place = {});
/// The place that leaves hold.
[[nodiscard]] dataset_place place_in(const place_leaves<arrays>& leaves);

}  // namespace espalier::io

namespace espalier::detail {

/// An array of a batch, and what reads its rows.
struct dataset_column {
  io::row_file file;
  row_reader read = nullptr;
  /// Two sets of arrays, which take turns.
  any_array* array[2]{};
};

/// All of a `dataset` but its types, compiled once.
class dataset_reader {
 public:
  /// Errors: those of `dataset`'s constructor.
  dataset_reader(world& where, const io::dataset_options& options, std::int64_t batch_rows,
                 std::vector<dataset_column> columns);
  dataset_reader(const dataset_reader&) = delete;
  dataset_reader& operator=(const dataset_reader&) = delete;
  ~dataset_reader();

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t batches() const { return rows_ / batch_rows_; }
  [[nodiscard]] const io::dataset_place& place() const { return place_; }
  /// Returns which of the two sets has the next batch.
  [[nodiscard]] std::size_t next();
  void seek(const io::dataset_place& to);

 private:
  void check_files();
  void check_column(const dataset_column& one) const;
  /// Asks for the batch at `place_` in a set that the caller has done with.
  void request(std::size_t set);
  /// Waits until the batch that was asked for is there, or has failed.
  void finish();
  void read_on_demand();
  /// Arrays that somebody else still holds are left to them.
  void renew_shared(std::size_t set);
  [[nodiscard]] io::dataset_place after(const io::dataset_place& place) const;
  void fill(std::size_t set, const io::dataset_place& place);
  void ask_for(std::size_t set, const io::dataset_place& place) const;
  void fill_one(const dataset_column& one, std::size_t set, const io::dataset_place& place) const;

  io::dataset_options options_;
  io::dataset_place place_;
  std::vector<dataset_column> columns_;
  std::int64_t batch_rows_;
  std::int64_t rows_ = 0;
  std::size_t current_ = 0;
  const world* where_;
  io::dataset_place asked_for_{0, -1, 0};  // of the system, by the filling thread
  std::exception_ptr failure_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool ends_ = false;
  std::size_t work_ = 0;
  io::dataset_place next_place_;
  std::thread reader_;
};

}  // namespace espalier::detail

namespace espalier::io {

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
      : buffers_{batch{columns.array...}, batch{columns.array...}},
        reader_(where, options, batch_rows, columns_of(std::index_sequence_for<Tensors...>{}, columns.file...)) {}
  dataset(const dataset&) = delete;
  dataset& operator=(const dataset&) = delete;
  ~dataset() = default;

  /// Rows that are drawn from, and batches in an epoch.
  [[nodiscard]] std::int64_t rows() const { return reader_.rows(); }
  [[nodiscard]] std::int64_t batches() const { return reader_.batches(); }
  /// The batch that `next` returns next.
  [[nodiscard]] const dataset_place& place() const { return reader_.place(); }

  /// The next batch; after an epoch's last the first of the next epoch. The arrays are filled anew after the next call,
  /// unless copies of their handles still exist: those keep their elements.
  const batch& next() { return buffers_[reader_.next()]; }

  /// Goes on from a place that `place` returned, of this dataset or of one with the same rows, on any mesh.
  /// Errors: `std::invalid_argument` for a batch that an epoch does not have.
  void seek(const dataset_place& to) { reader_.seek(to); }

 private:
  template <std::size_t... I, class... Files>
  [[nodiscard]] std::vector<detail::dataset_column> columns_of(std::index_sequence<I...> /*all*/,
                                                               const Files&... files) {
    return {detail::dataset_column{files,
                                   detail::reader_of_rows<storage_t<Tensors::type>>(),
                                   {&std::get<I>(buffers_[0]), &std::get<I>(buffers_[1])}}...};
  }

  std::array<batch, 2> buffers_;
  detail::dataset_reader reader_;
};

template <class... Tensors> dataset(world&, const dataset_options&, column<Tensors>...) -> dataset<Tensors...>;

}  // namespace espalier::io

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/dataset.ipp>
#endif
