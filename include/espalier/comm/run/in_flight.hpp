// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/run/mpi_runner.hpp>
#include <espalier/comm/run/polling_wait.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// An operation that has been started and is not over, and the messages it waits for.
struct pending_operation {
  collective kind = collective::broadcast;
  std::int64_t number = 0;  ///< operations started before it
  double seconds = 0;       ///< since it was started
  std::vector<pending_message> messages;
};

/// A line per message: "all_reduce 3, for 1.2 s: tree 1, chunk 3 of 16, from rank 2, 32768 bytes".
[[nodiscard]] inline std::string describe(const std::vector<pending_operation>& operations) {
  std::string text;
  for (const pending_operation& o : operations) {
    const std::string begin = std::string(name_of(o.kind)) + ' ' + std::to_string(o.number) + ", for " +
                              detail::seconds_text(std::chrono::duration<double>(o.seconds)) + " s: ";
    for (const pending_message& m : o.messages) text += begin + describe(m) + '\n';
    if (o.messages.empty()) text += begin + "nothing under way\n";
  }
  return text;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// A schedule, and runners for it: as many as were ever under way at the same time.
class runnable {
 public:
  runnable(schedule plan, MPI_Comm communicator, std::int64_t element_bytes, std::chrono::duration<double> deadline,
           bool oversubscribed)
      : plan_(std::move(plan)),
        communicator_(communicator),
        element_bytes_(element_bytes),
        deadline_(deadline),
        oversubscribed_(oversubscribed),
        blocking_(make()) {}

  /// The runner of blocking calls, of which there is one at a time.
  [[nodiscard]] mpi_schedule_runner& blocking() { return *blocking_; }
  [[nodiscard]] std::unique_ptr<mpi_schedule_runner> take() {
    if (idle_.empty()) return make();
    std::unique_ptr<mpi_schedule_runner> taken = std::move(idle_.back());
    idle_.pop_back();
    return taken;
  }
  void give_back(std::unique_ptr<mpi_schedule_runner> taken) { idle_.push_back(std::move(taken)); }

 private:
  [[nodiscard]] std::unique_ptr<mpi_schedule_runner> make() const {
    return std::make_unique<mpi_schedule_runner>(plan_, communicator_, element_bytes_, deadline_, oversubscribed_);
  }

  schedule plan_;
  MPI_Comm communicator_;
  std::int64_t element_bytes_;
  std::chrono::duration<double> deadline_;
  bool oversubscribed_;
  std::unique_ptr<mpi_schedule_runner> blocking_;
  std::vector<std::unique_ptr<mpi_schedule_runner>> idle_;
};

/// An operation under way.
struct operation_in_flight {
  std::shared_ptr<runnable> source;             // of the runner
  std::unique_ptr<mpi_schedule_runner> runner;  // none: it is over
  collective kind = collective::broadcast;
  std::int64_t number = 0;
  std::chrono::steady_clock::time_point begun{};
};

/// All operations under way on one communicator. A wait for one operation advances all of them: if a rank advanced only
/// one, two ranks that wait for different operations could wait for each other for ever.
class operations_in_flight {
 public:
  operations_in_flight(std::chrono::duration<double> deadline, bool oversubscribed)
      : deadline_(deadline), oversubscribed_(oversubscribed) {}

  [[nodiscard]] bool empty() const { return all_.empty(); }

  /// Called now and then in long waits; throws if the others can be seen not to come.
  void look_around(std::function<void()> look) { look_ = std::move(look); }

  std::shared_ptr<operation_in_flight> add(std::shared_ptr<runnable> way, std::unique_ptr<mpi_schedule_runner> begun,
                                           collective what) {
    auto made = std::make_shared<operation_in_flight>();
    *made = {std::move(way), std::move(begun), what, started_++, std::chrono::steady_clock::now()};
    all_.push_back(made);
    remove_finished();
    return made;
  }

  /// True after an error: no operation may be waited for, and memory that is being received into must stay.
  [[nodiscard]] bool broken() const { return broken_; }
  void fail() { broken_ = true; }

  /// One look at each. Returns whether anything moved.
  bool progress() {
    bool moved = false;
    guarded([&] { moved = look(); });
    return moved;
  }

  void wait(const operation_in_flight& wanted) {
    if (wanted.runner != nullptr) wait(*wanted.runner, [&] { return wanted.runner == nullptr; });
  }
  void wait_all() {
    while (!all_.empty()) {
      const std::shared_ptr<operation_in_flight> first = all_.front();
      wait(*first);
    }
  }
  /// A blocking operation beside those under way.
  void wait_beside(mpi_schedule_runner& own) {
    if (!own.finished()) wait(own, [&] { return own.finished(); });
  }

  [[nodiscard]] std::vector<pending_operation> pending() const {
    std::vector<pending_operation> list;
    const auto now = std::chrono::steady_clock::now();
    for (const std::shared_ptr<operation_in_flight>& f : all_) {
      const double seconds = std::chrono::duration<double>(now - f->begun).count();
      list.push_back({f->kind, f->number, seconds, f->runner->pending()});
    }
    return list;
  }

 private:
  template <class Body> void guarded(const Body& body) {
    if (broken_) throw comm_error("an earlier collective of this communicator failed");
    try {
      body();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  bool look() {
    bool moved = false;
    for (const std::shared_ptr<operation_in_flight>& f : all_) moved = f->runner->progress() || moved;
    if (moved) remove_finished();
    return moved;
  }

  template <class Over> void wait(mpi_schedule_runner& own, const Over& over) {
    guarded([&] { go_on_until(own, over); });
  }
  template <class Over> void go_on_until(mpi_schedule_runner& own, const Over& over) {
    polling_wait left(oversubscribed_, deadline_);
    while (!over()) {
      const bool mine = own.progress();
      if (mine) {
        left.moved();
        remove_finished();
      }
      (void)look();
      // Others may move for ever while this one does not.
      if (mine || over()) continue;
      if (left.exhausted()) expire(own);
      if (look_ && left.wonders()) look_();
    }
  }

  [[noreturn]] void expire(mpi_schedule_runner& own) const {
    std::string others;
    for (const pending_operation& o : pending()) {
      if (others.size() < 2000) others += describe(std::vector<pending_operation>{o});
    }
    try {
      own.expire();
    } catch (const comm_error& error) {
      if (others.empty()) throw;
      throw comm_error(std::string(error.what()) + "\n  under way on this rank:\n" + others);
    }
  }

  /// Takes those that are over out of the list.
  void remove_finished() {
    std::erase_if(all_, [](const std::shared_ptr<operation_in_flight>& f) {
      if (!f->runner->finished()) return false;
      f->source->give_back(std::move(f->runner));
      f->runner = nullptr;
      return true;
    });
  }

  std::chrono::duration<double> deadline_;
  bool oversubscribed_;
  bool broken_ = false;
  std::function<void()> look_;
  std::vector<std::shared_ptr<operation_in_flight>> all_;
  std::int64_t started_ = 0;
};

/// Message tags of operations under way. Those of blocking calls, of which each rank has one at a time, stand in the
/// lower half, at a place that follows from what the call is; those of others in the upper half, where operations count
/// up, in a part that follows from what they are. So two operations under way never share a tag, and messages of ranks
/// that make different calls do not meet: no rank takes the other's data for its own.
class tag_space {
 public:
  /// `most`: of them to use; 0: all there are.
  tag_space(MPI_Comm communicator, int most) {
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(communicator, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    end_ = found != 0 ? *bound : 32767;
    if (most > 0) end_ = std::min(end_, most);
    first_ = end_ / 2;
    // Parts no shorter than many operations need: when one is used up, all ranks meet.
    constexpr int least = 1 << 14;
    parts_ = std::clamp((end_ - first_) / least, 1, 1 << 10);
    length_ = (end_ - first_) / parts_;
  }

  /// Refuses a schedule that needs more than there are. Errors: `comm_error`.
  void require(int tags) const {
    if (tags <= first_) return;
    throw comm_error("a schedule needs " + std::to_string(tags) + " message tags, of which there are " +
                     std::to_string(first_));
  }
  /// Returns the first tag of a blocking call. `fingerprint`: of the call.
  [[nodiscard]] int of_blocking(int tags, std::uint64_t fingerprint) const {
    const int bits = std::max(6, static_cast<int>(std::bit_width(static_cast<unsigned>(tags))));
    const std::uint64_t places = static_cast<std::uint64_t>(first_) >> bits;
    if (places < 2) return 0;
    return static_cast<int>((fingerprint < places ? fingerprint : fingerprint % places) << bits);
  }
  /// Whether so many are left. If not, all operations have to be over on all ranks before `restart`.
  [[nodiscard]] bool has(int tags) const { return tags <= length_ - used_; }
  void restart() { used_ = 0; }
  [[nodiscard]] int take(int tags, std::uint64_t fingerprint) {
    const auto part = static_cast<int>(fingerprint % static_cast<std::uint64_t>(parts_));
    return first_ + part * length_ + std::exchange(used_, used_ + tags);
  }

 private:
  int first_ = 0;
  int end_ = 0;
  int parts_ = 1;
  int length_ = 0;  // of each part
  int used_ = 0;
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// An operation that was started: `collectives::start`. Its buffers belong to the operation until it is over. May be
/// moved and dropped; the operation is then finished with others, or with the `collectives`, which outlive it.
class started_collective {
 public:
  started_collective() = default;

  /// Takes everything under way further, without waiting. True: this one is over.
  [[nodiscard]] bool test() {
    if (!over()) all_->progress();
    return over();
  }
  /// Returns once the operation is over. Errors: `comm_error` after a wait without progress; then its `collectives` are
  /// unusable.
  void wait() {
    if (!over()) all_->wait(*of_);
  }
  [[nodiscard]] bool over() const { return of_ == nullptr || of_->runner == nullptr; }

 private:
  friend class collectives;
  started_collective(detail::operations_in_flight& all, std::shared_ptr<detail::operation_in_flight> of)
      : all_(&all), of_(std::move(of)) {}

  detail::operations_in_flight* all_ = nullptr;
  std::shared_ptr<detail::operation_in_flight> of_;
};

/// Waits until all are over, in whatever order.
inline void wait_all(std::vector<started_collective>& some) {
  for (started_collective& one : some) one.wait();
}

}  // namespace espalier::comm
