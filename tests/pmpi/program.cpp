// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A program that knows MPI only: it checks every collective that the shim serves, on the whole world and on halves of
// it in reverse order, and what becomes of mistakes. Exit code 1 if something is wrong.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

int wrong = 0;

void check(bool right, const char* what, int rank, int count) {
  if (right) return;
  ++wrong;
  std::printf("rank %d, %d elements: %s is wrong\n", rank, count, what);
}

/// (a b; 0 1) matrices modulo a prime: associative, and the order matters.
void multiply(void* in, void* inout, int* count, MPI_Datatype*) {
  constexpr long prime = 1009;
  const long* left = static_cast<const long*>(in);
  long* right = static_cast<long*>(inout);
  for (int i = 0; i < *count; ++i, left += 2, right += 2) {
    const long a = left[0] * right[0] % prime;
    right[1] = (left[0] * right[1] + left[1]) % prime;
    right[0] = a;
  }
}

class checks {
 public:
  checks(MPI_Comm communicator, int count, int root) : comm_(communicator), count_(count) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    root_ = root % size_;
    for (int i = 0; i < count_; ++i) mine_.push_back(value(rank_, i));
    for (int k = 0; k < size_; ++k) {
      for (int i = 0; i < count_; ++i) all_.push_back(value(k, i));
    }
  }

  void run() {
    reductions();
    data_movement();
    blocks();
    matrices();
    layouts();
    pairs();
  }

 private:
  static double value(int rank, int i) { return rank + i % 5; }
  [[nodiscard]] double sum(int i) const { return size_ * (size_ - 1) / 2.0 + size_ * (i % 5); }
  void expect(bool right, const char* what) const { check(right, what, rank_, count_); }
  template <class F> [[nodiscard]] bool each(const std::vector<double>& found, const F& expected) const {
    for (int i = 0; i < count_; ++i) {
      if (found[static_cast<std::size_t>(i)] != expected(i)) return false;
    }
    return true;
  }

  void reductions() {
    std::vector<double> to(mine_.size());
    MPI_Allreduce(mine_.data(), to.data(), count_, MPI_DOUBLE, MPI_SUM, comm_);
    expect(each(to, [&](int i) { return sum(i); }), "Allreduce");
    to = mine_;
    MPI_Allreduce(MPI_IN_PLACE, to.data(), count_, MPI_DOUBLE, MPI_MAX, comm_);
    expect(each(to, [&](int i) { return value(size_ - 1, i); }), "Allreduce in place");
    to = mine_;
    if (rank_ == root_) {
      MPI_Reduce(MPI_IN_PLACE, to.data(), count_, MPI_DOUBLE, MPI_SUM, root_, comm_);
      expect(each(to, [&](int i) { return sum(i); }), "Reduce");
    } else {
      MPI_Reduce(to.data(), nullptr, count_, MPI_DOUBLE, MPI_SUM, root_, comm_);
      expect(to == mine_, "Reduce's input");
    }
  }

  void data_movement() {
    std::vector<double> to = mine_;
    MPI_Bcast(to.data(), count_, MPI_DOUBLE, root_, comm_);
    expect(each(to, [&](int i) { return value(root_, i); }), "Bcast");
    std::vector<double> gathered(all_.size());
    MPI_Allgather(mine_.data(), count_, MPI_DOUBLE, gathered.data(), count_, MPI_DOUBLE, comm_);
    expect(gathered == all_, "Allgather");
    gathered.assign(all_.size(), 0);
    MPI_Gather(mine_.data(), count_, MPI_DOUBLE, gathered.data(), count_, MPI_DOUBLE, root_, comm_);
    if (rank_ == root_) expect(gathered == all_, "Gather");
    std::vector<double> part(mine_.size());
    MPI_Scatter(all_.data(), count_, MPI_DOUBLE, part.data(), count_, MPI_DOUBLE, root_, comm_);
    expect(part == mine_, "Scatter");
  }

  void blocks() {
    std::vector<double> from(all_.size());
    std::vector<double> expected(all_.size());
    for (int k = 0; k < size_; ++k) {
      for (int i = 0; i < count_; ++i) {
        from[static_cast<std::size_t>(k * count_ + i)] = 100.0 * rank_ + k;
        expected[static_cast<std::size_t>(k * count_ + i)] = 100.0 * k + rank_;
      }
    }
    std::vector<double> to(all_.size());
    MPI_Alltoall(from.data(), count_, MPI_DOUBLE, to.data(), count_, MPI_DOUBLE, comm_);
    expect(to == expected, "Alltoall");
    std::vector<double> part(mine_.size());
    const auto total = [&](int) { return 100.0 * (size_ * (size_ - 1) / 2.0) + size_ * rank_; };
    MPI_Reduce_scatter_block(from.data(), part.data(), count_, MPI_DOUBLE, MPI_SUM, comm_);
    expect(each(part, total), "Reduce_scatter_block");
    // Unequal blocks: rank k has k elements more or less than its neighbour.
    std::vector<int> counts;
    std::vector<int> offsets;
    int length = 0;
    for (int k = 0; k < size_; ++k) {
      offsets.push_back(length);
      counts.push_back(count_ > 0 ? count_ - k % 2 : k % 2);
      length += counts.back();
    }
    std::vector<double> ones(static_cast<std::size_t>(length), 1.0);
    std::vector<double> own(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]));
    MPI_Reduce_scatter(ones.data(), own.data(), counts.data(), MPI_DOUBLE, MPI_SUM, comm_);
    expect(own == std::vector<double>(own.size(), size_), "Reduce_scatter");
    std::vector<double> joined(ones.size(), 0);
    MPI_Allgatherv(own.data(), static_cast<int>(own.size()), MPI_DOUBLE, joined.data(), counts.data(), offsets.data(),
                   MPI_DOUBLE, comm_);
    expect(joined == std::vector<double>(ones.size(), size_), "Allgatherv");
  }

  void matrices() {
    MPI_Datatype pair{};
    MPI_Type_contiguous(2, MPI_LONG, &pair);
    MPI_Type_commit(&pair);
    MPI_Op product{};
    MPI_Op_create(&multiply, 0, &product);
    const auto of = [&](int rank) {
      std::vector<long> numbers;
      for (int i = 0; i < 2 * count_; ++i) numbers.push_back((rank * 7 + i) % 11 + 1);
      return numbers;
    };
    std::vector<long> expected = of(size_ - 1);
    for (int k = size_ - 2; k >= 0; --k) multiply(of(k).data(), expected.data(), &count_, &pair);
    const std::vector<long> from = of(rank_);
    std::vector<long> to(from.size());
    MPI_Allreduce(from.data(), to.data(), count_, pair, product, comm_);
    expect(to == expected, "Allreduce of matrices");
    MPI_Op_free(&product);
    MPI_Type_free(&pair);
  }

  /// Elements with gaps at the root alone, and displacements that differ between ranks: the bytes are the same.
  void layouts() {
    MPI_Datatype spaced{};
    MPI_Type_vector(1, 1, 2, MPI_DOUBLE, &spaced);
    MPI_Datatype every_other{};
    MPI_Type_create_resized(spaced, 0, 2 * sizeof(double), &every_other);
    MPI_Type_commit(&every_other);
    const auto spread = [](const std::vector<double>& dense) {
      std::vector<double> wide(2 * dense.size(), -1);
      for (std::size_t i = 0; i < dense.size(); ++i) wide[2 * i] = dense[i];
      return wide;
    };
    const bool at_root = rank_ == root_;
    std::vector<double> data = at_root ? spread(mine_) : mine_;
    MPI_Bcast(data.data(), count_, at_root ? every_other : MPI_DOUBLE, root_, comm_);
    std::vector<double> sent(mine_.size());
    for (int i = 0; i < count_; ++i) sent[static_cast<std::size_t>(i)] = value(root_, i);
    expect(data == (at_root ? spread(sent) : sent), "Bcast of elements with gaps");

    std::vector<double> wide = spread(std::vector<double>(all_.size(), 0));
    MPI_Gather(mine_.data(), count_, MPI_DOUBLE, wide.data(), count_, every_other, root_, comm_);
    if (at_root) expect(wide == spread(all_), "Gather into elements with gaps");
    std::vector<double> part(mine_.size());
    const std::vector<double> source = spread(all_);
    MPI_Scatter(source.data(), count_, every_other, part.data(), count_, MPI_DOUBLE, root_, comm_);
    expect(part == mine_, "Scatter from elements with gaps");
    if (at_root) {
      wide = spread(all_);
      MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, wide.data(), count_, every_other, root_, comm_);
      expect(wide == spread(all_), "Gather in place");
      MPI_Scatter(source.data(), count_, every_other, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root_, comm_);
    } else {
      MPI_Gather(mine_.data(), count_, MPI_DOUBLE, nullptr, 0, MPI_DATATYPE_NULL, root_, comm_);
      MPI_Scatter(nullptr, 0, MPI_DATATYPE_NULL, part.data(), count_, MPI_DOUBLE, root_, comm_);
      expect(part == mine_, "Scatter in place at the root");
    }

    // Every rank puts the blocks in an order of its own, with one element between them.
    const std::vector<int> counts(static_cast<std::size_t>(size_), count_);
    std::vector<int> offsets;
    std::vector<double> expected(static_cast<std::size_t>(size_ * (count_ + 1)), -1);
    for (int k = 0; k < size_; ++k) {
      offsets.push_back((k + rank_) % size_ * (count_ + 1));
      for (int i = 0; i < count_; ++i) expected[static_cast<std::size_t>(offsets.back() + i)] = value(k, i);
    }
    std::vector<double> joined(expected.size(), -1);
    MPI_Allgatherv(mine_.data(), count_, MPI_DOUBLE, joined.data(), counts.data(), offsets.data(), MPI_DOUBLE, comm_);
    expect(joined == expected, "Allgatherv in another order");
    MPI_Type_free(&every_other);
    MPI_Type_free(&spaced);
  }

  /// MPI's pairs have gaps; and a reduction in place leaves what follows the own block.
  void pairs() {
    struct pair {
      double first;
      int second;
    };
    std::vector<pair> from(mine_.size());
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = {mine_[i] * (rank_ % 2 == 0 ? 1 : -1), rank_};
    std::vector<pair> to(from.size());
    MPI_Allreduce(from.data(), to.data(), count_, MPI_DOUBLE_INT, MPI_MAXLOC, comm_);
    bool right = true;
    const int best = (size_ - 1) / 2 * 2;
    for (int i = 0; i < count_; ++i) {
      const pair& found = to[static_cast<std::size_t>(i)];
      // Where the best value is 0, an odd rank's -0 may stand for it.
      right = right && found.first == value(best, i) && (found.first == 0 || found.second == best);
    }
    expect(right, "Allreduce of the largest and its place");

    std::vector<double> buffer(all_.size(), rank_);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer.data(), count_, MPI_DOUBLE, MPI_SUM, comm_);
    std::vector<double> expected(all_.size(), rank_);
    std::fill_n(expected.begin(), count_, size_ * (size_ - 1) / 2.0);
    expect(buffer == expected, "Reduce_scatter_block in place");
  }

  MPI_Comm comm_;
  int count_;
  int root_ = 0;
  int rank_ = 0;
  int size_ = 1;
  std::vector<double> mine_;
  std::vector<double> all_;
};

/// A program that wants to hear of its mistakes does, and can go on.
void mistakes(int rank) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> data(10, 1);
  std::vector<float> to(10, 0);
  const int count = rank == 0 ? 7 : 10;
  check(MPI_Bcast(data.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD) != MPI_SUCCESS, "Bcast of unequal counts", rank,
        10);
  check(MPI_Allreduce(data.data(), to.data(), 10, MPI_FLOAT, MPI_LXOR, MPI_COMM_WORLD) != MPI_SUCCESS,
        "Allreduce of floats by logical operations", rank, 10);
  if (rank == 0) {
    check(MPI_Reduce(data.data(), data.data(), 10, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD) != MPI_SUCCESS,
          "Reduce onto its input", rank, 10);
  }
  check(MPI_Allreduce(MPI_IN_PLACE, data.data(), 10, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS && data[9] == 1,
        "Allreduce after mistakes", rank, 10);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half{};
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  for (MPI_Comm communicator : {MPI_COMM_WORLD, half}) {
    for (int round = 0; round < 6; ++round) {
      for (const int count : {0, 1, 3, 1000, 50000}) checks(communicator, count, round + count).run();
    }
  }
  MPI_Comm_free(&half);
  mistakes(rank);
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d results are wrong\n", all);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
