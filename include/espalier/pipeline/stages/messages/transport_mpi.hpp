// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/mpi.hpp>
#include <espalier/comm/mpi_ranks.hpp>
#include <espalier/pipeline/stages/messages/host_places.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Ranks of MPI. All messages are on a duplicate of the communicator; only the thread that uses it calls MPI.
class mpi_transport final : public transport {
 public:
  /// Collective.
  explicit mpi_transport(MPI_Comm base, std::chrono::duration<double> deadline)
      : communicator_(comm::mpi_handle::duplicate_of(base)),
        deadline_(deadline),
        rank_(communicator_.rank()),
        size_(communicator_.size()),
        near_(comm::detail::ranks_of_this_host(communicator_)),
        seen_(rank_, size_),
        places_(static_cast<std::size_t>(size_)) {
    MPI_Comm_set_errhandler(communicator_, comm::detail::errors_return());
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    if (found != 0) last_tag_ = *bound;
    listen();
  }
  ~mpi_transport() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    MPI_Cancel(&listening_);
    MPI_Wait(&listening_, comm::detail::ignored_status());
    const bool unfinished = !requests_.empty() || !said_.empty();
    for (std::size_t k = 0; k < requests_.size(); ++k) {  // so that nothing comes into memory that is freed
      if (incoming_[k]) MPI_Cancel(&requests_[k]);
      MPI_Request_free(&requests_[k]);
    }
    for (note& one : said_) MPI_Request_free(&one.request);
    // Messages may still be under way: the communicator's number must not be given to another one.
    if (unfinished) {
      (void)new comm::mpi_handle(communicator_);    // NOLINT: leaked on purpose
      (void)new std::list<note>(std::move(said_));  // NOLINT
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::chrono::duration<double> deadline() const override { return deadline_; }
  void all_are_here() override { seen_.all_are_here(); }
  [[nodiscard]] bool one_clock() const override { return size_ == 1; }
  [[nodiscard]] int last_tag() const override { return last_tag_; }
  [[nodiscard]] std::int64_t ended() const override { return ended_; }

  [[nodiscard]] int send(int to, int tag, const void* data, std::int64_t bytes) override {
    const int logical = fresh();
    pieces(to, bytes, [&](std::int64_t done, int count) {
      MPI_Request* request = add(logical, false);
      check(MPI_Isend(static_cast<const std::byte*>(data) + done, count, comm::detail::bytes_type(), to, tag,
                      communicator_, request),
            "MPI_Isend");
    });
    return logical;
  }
  [[nodiscard]] int receive(int from, int tag, void* data, std::int64_t bytes) override {
    const int logical = fresh();
    pieces(from, bytes, [&](std::int64_t done, int count) {
      MPI_Request* request = add(logical, true);
      check(MPI_Irecv(static_cast<std::byte*>(data) + done, count, comm::detail::bytes_type(), from, tag, communicator_,
                      request),
            "MPI_Irecv");
    });
    return logical;
  }
  [[nodiscard]] bool finished(int request) override {
    if (open_[static_cast<std::size_t>(request)] > 0) return false;
    free_.push_back(request);
    ++ended_;
    return true;
  }

  void progress(bool idle) override {
    int count = 0;
    if (!requests_.empty())
      check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_places_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome");
    if (count == MPI_UNDEFINED) count = 0;
    if (count > 0) {
      std::sort(ended_places_.begin(), ended_places_.begin() + count);
      while (count > 0) remove(static_cast<std::size_t>(ended_places_[static_cast<std::size_t>(--count)]));
      idle_ = false;
    } else if (idle) {
      give_way();
    } else {
      idle_ = false;
    }
    hear();
    if (!failure_.empty()) throw comm::comm_error(failure_ + "\n  noticed by rank " + std::to_string(rank_));
  }

  void fail(const std::string& reason) override {
    for (int k = 0; k < size_; ++k)
      if (k != rank_) say(k, {note_kind::failure, 0, {}}, reason);
    // All notes should be sent before this rank ends.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!said_.empty() && std::chrono::steady_clock::now() < end) {
      tidy();
      std::this_thread::yield();
    }
  }
  void use_texts(const std::vector<std::string>& texts) override { texts_ = &texts; }
  void at(int text, bool waiting) override {
    place_ = text;
    waiting_ = waiting;
    seen_.set(text);
    if (texts_ == nullptr || waiting) return;
    const comm::context where{(*texts_)[static_cast<std::size_t>(text)].c_str(), "instruction", text + 1};
    comm::detail::last_words_of_this_rank.note(&where);
  }

  [[nodiscard]] std::vector<rank_place> ask(std::chrono::duration<double> patience) override {
    for (rank_place& one : places_) one = {};
    places_[static_cast<std::size_t>(rank_)] = {true, place_, waiting_, here()};
    for (int k = 0; k < size_; ++k)
      if (k != rank_) say(k, {note_kind::question, 0, {}}, "");
    const auto end = std::chrono::steady_clock::now() + patience;
    const auto silent = [&] {
      return std::any_of(places_.begin(), places_.end(), [](const rank_place& one) { return !one.known; });
    };
    while (silent() && std::chrono::steady_clock::now() < end) progress(true);
    for (int k = 0; k < size_; ++k)
      if (!places_[static_cast<std::size_t>(k)].known) places_[static_cast<std::size_t>(k)].number = seen_.of(k);
    return places_;
  }

 private:
  /// The notes that ranks send each other in addition to the pipeline's messages: where they are, and that they fail.
  enum class note_kind : int { question, answer, failure };
  struct note_text {
    note_kind kind = note_kind::question;
    int waiting = 0;
    std::array<char, 1016> text{};
  };
  struct note {
    note_text body;
    MPI_Request request{};
  };
  static constexpr int note_tag = 0;
  /// MPI counts bytes in an int.
  static constexpr std::int64_t largest_piece = std::int64_t{1} << 30;
  /// The most bytes of a piece that MPI sends to another host without asking first: Open MPI's limit is 64 KiB with its
  /// own header (btl_tcp_eager_limit).
  static constexpr std::int64_t unasked_piece = 48 << 10;
  static constexpr std::int64_t most_unasked_pieces = 64;

  /// Yields the processor after a turn of a wait in which nothing has come. The awaited rank may need it, even where
  /// ranks count as hosts of their own. A rank that only yields is scheduled again while others still compute, and
  /// takes a part of their time: all waits but the shortest become naps, each short against the wait so far.
  void give_way() {
    constexpr std::chrono::steady_clock::duration short_wait = std::chrono::microseconds(200);
    constexpr std::chrono::steady_clock::duration longest_nap = std::chrono::microseconds(200);
    const auto now = std::chrono::steady_clock::now();
    if (!idle_) idle_since_ = now;
    idle_ = true;
    const auto waited = now - idle_since_;
    if (waited > short_wait) {
      std::this_thread::sleep_for(std::min(waited / 16, longest_nap));
    } else {
      std::this_thread::yield();
    }
  }

  void check(int code, const char* routine) const { comm::detail::check_mpi(code, routine, rank_, nullptr); }

  /// Both ends cut a message alike. To another host it goes in pieces that wait in the network's buffers while both
  /// ranks compute. For a message in one piece MPI would ask the receiver, which looks between two layers, and then
  /// hear of the answer between two layers of the sender: in a pipeline over TCP that takes longer than the bytes.
  template <class Visit> void pieces(int other, std::int64_t bytes, Visit visit) const {
    const bool unasked = !near_[static_cast<std::size_t>(other)] && bytes <= most_unasked_pieces * unasked_piece;
    const std::int64_t piece = unasked ? unasked_piece : largest_piece;
    for (std::int64_t done = 0; done < bytes; done += piece)
      visit(done, static_cast<int>(std::min(piece, bytes - done)));
  }
  [[nodiscard]] int fresh() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(open_.size()));
      open_.push_back(0);
    }
    const int logical = free_.back();
    free_.pop_back();
    open_[static_cast<std::size_t>(logical)] = 0;
    return logical;
  }
  [[nodiscard]] MPI_Request* add(int logical, bool incoming) {
    requests_.push_back(comm::detail::no_request());
    logical_.push_back(logical);
    incoming_.push_back(incoming);
    ended_places_.push_back(0);
    ++open_[static_cast<std::size_t>(logical)];
    return &requests_.back();
  }
  void remove(std::size_t place) {
    --open_[static_cast<std::size_t>(logical_[place])];
    requests_[place] = requests_.back();
    logical_[place] = logical_.back();
    incoming_[place] = incoming_.back();
    requests_.pop_back();
    logical_.pop_back();
    incoming_.pop_back();
    ended_places_.pop_back();
  }

  [[nodiscard]] std::string here() const {
    return texts_ == nullptr || place_ < 0 ? "nothing that it named" : (*texts_)[static_cast<std::size_t>(place_)];
  }
  void listen() {
    check(MPI_Irecv(&heard_, static_cast<int>(sizeof heard_), comm::detail::bytes_type(), MPI_ANY_SOURCE, note_tag,
                    communicator_, &listening_),
          "MPI_Irecv");
  }
  void say(int to, const note_text& body, const std::string& text) {
    note& one = said_.emplace_back();
    one.body = body;
    std::memcpy(one.body.text.data(), text.data(), std::min(text.size(), one.body.text.size() - 1));
    check(MPI_Isend(&one.body, static_cast<int>(sizeof one.body), comm::detail::bytes_type(), to, note_tag,
                    communicator_, &one.request),
          "MPI_Isend");
  }
  void tidy() {
    for (auto at = said_.begin(); at != said_.end();) {
      int done = 0;
      check(MPI_Test(&at->request, &done, comm::detail::ignored_status()), "MPI_Test");
      at = done != 0 ? said_.erase(at) : std::next(at);
    }
  }
  void hear() {
    if (!said_.empty()) tidy();
    int done = 0;
    MPI_Status status{};
    check(MPI_Test(&listening_, &done, &status), "MPI_Test");
    if (done == 0) return;
    const note_text body = heard_;
    listen();
    const std::string text(body.text.data());
    switch (body.kind) {
      case note_kind::question: say(status.MPI_SOURCE, {note_kind::answer, waiting_ ? 1 : 0, {}}, here()); break;
      case note_kind::answer:
        places_[static_cast<std::size_t>(status.MPI_SOURCE)] = {true, -1, body.waiting != 0, text};
        break;
      case note_kind::failure: failure_ = text; break;
    }
  }

  comm::mpi_handle communicator_;
  std::chrono::duration<double> deadline_;
  int rank_;
  int size_;
  std::vector<bool> near_;  // by rank: on this one's host
  int last_tag_ = 32767;
  // The requests of MPI that have not ended, and to which of ours each belongs.
  std::vector<MPI_Request> requests_;
  std::vector<int> logical_, ended_places_;
  std::vector<char> incoming_;
  std::vector<int> open_, free_;  // by request of ours: parts that have not ended; numbers that are free
  std::int64_t ended_ = 0;
  bool idle_ = false;  // in a wait in which nothing has come yet
  std::chrono::steady_clock::time_point idle_since_;
  const std::vector<std::string>* texts_ = nullptr;
  int place_ = -1;
  bool waiting_ = false;
  host_places seen_;
  std::vector<rank_place> places_;
  std::string failure_;
  MPI_Request listening_{};
  note_text heard_;
  std::list<note> said_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The messages of a pipeline whose ranks are those of MPI. Collective.
[[nodiscard]] inline std::unique_ptr<transport> make_transport(comm::mpi_communicator& ranks) {
  return std::make_unique<detail::mpi_transport>(ranks.base(), ranks.options().deadline);
}

}  // namespace espalier::pipeline
