// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi_handle.hpp>
#include <espalier/comm/mpi_requests.hpp>
#include <espalier/comm/termination.hpp>
#include <espalier/detail/light_std/function_ref.hpp>
#include <espalier/detail/light_std/place_in.hpp>
#include <espalier/detail/light_std/plain_vector.hpp>
#include <espalier/shape/collective.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace espalier::comm {

/// What may be tuned. Every rank must be given the same values.
struct mpi_options {
  /// The longest wait without progress.
  std::chrono::duration<double> deadline = default_deadline();
  /// Bytes of one message of a reduction: small enough that it is reduced out of the cache.
  std::int64_t piece_bytes = std::int64_t{256} << 10;
  /// Pieces of a reduction in flight, 1 to 4.
  int window = 2;
  /// All-reduces between two ranks up to this size swap whole buffers: half the latency, the same bytes.
  std::int64_t direct_bytes = std::int64_t{256} << 10;
  /// Bytes of one message otherwise. MPI 3 counts are `int`.
  std::int64_t message_bytes = std::int64_t{1} << 30;
};

/// Another way to carry out collectives: comm/run/engine.hpp has one that is made for the network. It costs ten seconds
/// to compile, so a program that wants it says so.
///
/// Each returns the bytes that this rank sent; nothing if the engine does not serve it, which all members of the group
/// find alike.
class collective_engine {
 public:
  collective_engine() = default;
  collective_engine(const collective_engine&) = delete;
  collective_engine& operator=(const collective_engine&) = delete;
  virtual ~collective_engine() = default;

  /// Before the first all-reduce of a group, and before each transfer's first use, where it stays. Collective over all
  /// ranks: they prepare the same operations, each for its own group, in the same order.
  virtual void prepare(const transfer_group& group) = 0;
  virtual void prepare(const transfer& moves) = 0;
  virtual std::optional<std::int64_t> all_reduce(const transfer_group& group, const void* source, void* target,
                                                 std::int64_t count, const reducer& by, const context* where) = 0;
  virtual std::optional<std::int64_t> exchange(const transfer& moves, const void* source, void* target,
                                               const context* where) = 0;
  virtual std::optional<std::int64_t> reduce_exchange(const transfer& moves, const void* source, void* target,
                                                      const reducer& by, const context* where) = 0;
};

/// A device that is an MPI rank.
///
/// Everything is non-blocking point-to-point on ONE duplicate of the given communicator, whatever the group. A
/// sub-communicator per group would have to be created collectively, in one order on all ranks, by blocking calls that
/// no deadline can guard; and the only thing it would give, a private tag space, is had by numbering the operations of
/// each pair of ranks. Groups may so be as many as there are axis subsets, and cost nothing.
///
/// Only the thread that uses it calls MPI (`MPI_THREAD_FUNNELED` is enough). Constructing it is collective.
class mpi_communicator {
 public:
  explicit mpi_communicator(MPI_Comm base = detail::all_ranks(), mpi_options options = {})
      : options_(options),
        communicator_(duplicate(base)),
        requests_(detail::has_more_ranks_than_processors(communicator_), options.deadline),
        rank_(communicator_.rank()),
        size_(communicator_.size()),
        operations_(static_cast<std::size_t>(communicator_.size()), 0) {
    MPI_Comm_set_errhandler(communicator_, detail::errors_return());
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    if (found != 0) label_mask_ = *bound >= everything ? everything : *bound >= names_only ? names_only : plain;
    options_.window = std::clamp(options_.window, 1, max_window);
    world_.members.resize(static_cast<std::size_t>(size_));
    for (int k = 0; k < size_; ++k) world_.members[static_cast<std::size_t>(k)] = k;
    world_.self = rank_;
    requests_.reserve(static_cast<std::size_t>(2 * size_));
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;

  ~mpi_communicator() {
    // After an error, messages may still be under way: were the communicator freed, its number could be given to a new
    // one, which would receive them. Kept until the process ends.
    if (broken_) (void)new mpi_handle(communicator_);  // NOLINT: leaked on purpose
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  void prepare(const transfer& moves) {
    detail::require_consistent(moves, rank_, size_);
    if (engine_ != nullptr && moves.members.size() > 1) engine_->prepare(moves);
    reserve(moves);
    (void)incoming_staging_.reserve(staging_bytes(moves, moves.incoming, &detail::contiguous_target));
    (void)outgoing_staging_.reserve(staging_bytes(moves, moves.outgoing, &detail::contiguous_source));
    std::size_t messages = 0;
    for (const block& box : moves.incoming) messages += message_count(box.elements() * size_of(moves.type));
    for (const block& box : moves.outgoing) messages += message_count(box.elements() * size_of(moves.type));
    requests_.reserve(messages);
  }
  /// From now on collectives of groups of two and more go through `engine`. Every rank does this, before it prepares
  /// any group.
  void use(std::unique_ptr<collective_engine> engine) { engine_ = std::move(engine); }
  [[nodiscard]] const mpi_handle& base() const { return communicator_; }
  [[nodiscard]] const mpi_options& options() const { return options_; }

  void prepare(const transfer_group& group) {
    detail::require_consistent(group, rank_, size_);
    if (engine_ != nullptr && group.members.size() > 1) engine_->prepare(group);
    reserve(group);
  }

  void exchange(const transfer& moves, const void* source, void* target) {
    begin<collective::exchange>(moves.type);
    if (engine_ != nullptr && moves.members.size() > 1) {
      if (const auto sent = engine_->exchange(moves, source, target, where_)) {
        counters_.add(moves.channel, *sent);
        return;
      }
    }
    guarded(moves, [&] {
      post_receives(moves, static_cast<std::byte*>(target));
      post_sends(moves, static_cast<const std::byte*>(source));
      const block& own = moves.incoming[static_cast<std::size_t>(moves.self)];
      copy_block(moves.type, target, source, own);  // while the others' boxes travel
      drain([&](std::size_t place) { unpack_arrived(moves, target, place); });
    });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void reduce_exchange(const transfer& moves, const void* source, void* target, const reducer& by) {
    begin<collective::reduce_exchange>(moves.type, by.kind);
    detail::require_reducible(moves, by, where_);
    if (engine_ != nullptr && moves.members.size() > 1) {
      if (const auto sent = engine_->reduce_exchange(moves, source, target, by, where_)) {
        counters_.add(moves.channel, *sent);
        return;
      }
    }
    guarded(moves, [&] {
      run_pipeline({&moves, &moves, by, static_cast<const std::byte*>(source), static_cast<std::byte*>(target), 0});
    });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count,
                  const reducer& by) {
    begin<collective::all_reduce>(by.type, by.kind, count);
    detail::require_reducible(by, where_);
    if (engine_ != nullptr && group.members.size() > 1 && count > 0) {
      if (const auto sent = engine_->all_reduce(group, source, target, count, by, where_)) {
        counters_.add(group.channel, *sent);
        return;
      }
    }
    const reduce_job job{&group, nullptr, by, static_cast<const std::byte*>(source), static_cast<std::byte*>(target),
                         count};
    guarded(group, [&] {
      if (group.members.size() == 2 && count * size_of(by.type) <= options_.direct_bytes) {
        swap_and_reduce(job);
      } else {
        run_pipeline(job);
      }
    });
    counters_.add(group.channel,
                  all_reduce_sent_bytes(count, size_of(by.type), static_cast<int>(group.members.size()), group.self));
  }

  /// Every rank tells every other one that it is here: more messages than a tree, but an expired wait then knows
  /// exactly who is missing. Not for inner loops on many ranks.
  void barrier() {
    begin<collective::barrier>();
    guarded(world_, [&] {
      for (int k = 0; k < size_; ++k) {
        if (k != rank_) receive(requests_.append(), nullptr, 0, k, tag(k, 0, 0));
      }
      for (int k = 0; k < size_; ++k) {
        if (k != rank_) send(requests_.append(), nullptr, 0, k, tag(k, 0, 0));
      }
      drain([](std::size_t) {});
    });
  }

  /// `bytes` bytes at `data`, from rank `root` to all; sent by the root itself to each.
  void broadcast(void* data, std::int64_t bytes, int root) {
    begin<collective::broadcast>(dtype::f32, reduction::sum, bytes * size_ + root);
    guarded(world_, [&] {
      std::byte* memory = static_cast<std::byte*>(data);
      if (rank_ != root) {
        receive_messages(memory, bytes, root);
      } else {
        for (int k = 0; k < size_; ++k) {
          if (k != rank_) send_messages(memory, bytes, k);
        }
      }
      drain([](std::size_t) {});
    });
  }

  [[nodiscard]] std::span<const std::int64_t> counters() const { return counters_.view(); }
  void reset_counters() { counters_.reset(); }

  void set_context(const context* where) {
    where_ = where;
    detail::last_words_of_this_rank.note(where);
  }

  /// Writes one message to stderr and ends all ranks with a non-zero code. Does not return.
  [[noreturn]] void abort(const std::string& reason) {
    const bool says_where = reason.find("instruction: ") != std::string::npos;
    const std::string text = detail::joined({"espalier: rank ", rank_, " of ", size_, " stopped: ", reason,
                                             detail::during(says_where ? nullptr : where_), "\n"});
    // One write: the lines of several ranks stay whole.
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    MPI_Abort(detail::all_ranks(), 1);
    std::abort();
  }

 private:
  static constexpr int max_window = 4;

  /// What ranks say that they are in, in the tags of their messages: so those of different collectives never meet. The
  /// lower 15 bits are all that MPI guarantees; above them stand, where tags are longer, the name, type and operation,
  /// and 8 bits that follow from the count. Their names' places here are in the label.
  static constexpr collective spoken[]{collective::exchange, collective::reduce_exchange, collective::all_reduce,
                                       collective::barrier, collective::broadcast};
  static constexpr int kinds_spoken = static_cast<int>(std::size(spoken));
  static constexpr int reductions = static_cast<int>(reduction::min) + 1;
  static_assert(kinds_spoken * dtype_count * reductions <= 256, "name, type and operation have 8 bits");
  static constexpr int label_at = 15;
  static constexpr int plain = (1 << label_at) - 1;
  static constexpr int names_only = (1 << 23) - 1;
  static constexpr int everything = 0x7FFFFFFF;

  template <collective What>
  void begin(dtype type = dtype::f32, reduction kind = reduction::sum, std::int64_t count = 0) {
    constexpr auto place = std::find(std::begin(spoken), std::end(spoken), What) - std::begin(spoken);
    static_assert(place < kinds_spoken, "a kind of collective that no label says");
    operation_ = name_of(What);
    const int names =
        (static_cast<int>(place) * dtype_count + static_cast<int>(type)) * reductions + static_cast<int>(kind);
    const auto sized = static_cast<std::uint64_t>(count) * 0x9E3779B97F4A7C15U >> 56U;
    label_ = (names | static_cast<int>(sized) << 8) << label_at & label_mask_;
  }
  /// "all_reduce of f32, max"
  static std::string describe_label(int tag) {
    const int names = tag >> label_at & 255;
    const int place = names / (reductions * dtype_count);
    if (place >= kinds_spoken) return "another collective";
    const collective what = spoken[place];
    const bool combines = what == collective::reduce_exchange || what == collective::all_reduce;
    std::string text = name_of(what);
    if (combines || what == collective::exchange) {
      detail::append_text(text, {" of ", name_of(static_cast<dtype>(names / reductions % dtype_count))});
    }
    if (combines) detail::append_text(text, {", ", name_of(static_cast<reduction>(names % reductions))});
    return text;
  }

  /// Whether a rank that is waited for has sent something of another collective in the place of this one.
  void look_for_other_calls() {
    if (label_mask_ == plain) return;
    for (const int rank : requests_.missing()) {
      int found = 0;
      MPI_Status status{};
      check(MPI_Iprobe(rank, MPI_ANY_TAG, communicator_, &found, &status), "MPI_Iprobe");
      constexpr int number = plain & ~7;
      const int mine = tag(rank, 0, 0);
      if (found == 0 || (status.MPI_TAG & number) != (mine & number) ||
          status.MPI_TAG >> label_at == mine >> label_at) {
        continue;
      }
      const std::string here = describe_label(mine);
      const std::string there = describe_label(status.MPI_TAG);
      throw comm_error(detail::joined(
          {"rank ", rank_, " and rank ", rank, " are in different collectives: rank ", rank, " is in ", there,
           ", rank ", rank_, " in ", here, here == there ? " of another count or root" : "", detail::during(where_),
           "\n  all ranks must call the same collectives in the same order, with the same counts, roots, ",
           "types and operations"}));
    }
  }
  static constexpr std::int64_t staging_alignment = 64;

  /// A reduction in pieces; an all-reduce when `moves` is null.
  struct reduce_job {
    const transfer_group* group;
    const transfer* moves;
    reducer by;
    const std::byte* source;
    std::byte* target;
    std::int64_t count;

    [[nodiscard]] int members() const { return static_cast<int>(group->members.size()); }
    [[nodiscard]] bool gathers() const { return moves == nullptr; }
    /// What member k reduces: source side in this rank's source.
    [[nodiscard]] block share_of(int k) const {
      if (moves != nullptr) return moves->outgoing[static_cast<std::size_t>(k)];
      const element_range range = owned_range(count, members(), k);
      return contiguous_block(range.size(), range.begin, range.begin);
    }
    /// What this rank reduces: source side in its source, target side in its target.
    [[nodiscard]] block own() const {
      return moves != nullptr ? moves->incoming[static_cast<std::size_t>(moves->self)] : share_of(group->self);
    }
  };

  /// One piece of everybody's share on its way.
  struct pipeline_slot {
    std::int64_t piece = 0;
    int contributions = 0;  // still to arrive before this rank's piece can be reduced
    int open = 0;           // requests that have not ended
  };

  enum stage : int { contribution_in, contribution_out, result_in, result_out };

  struct staged_box {
    std::byte* memory = nullptr;  // null: received in place
    int messages = 0;             // still to arrive
  };

  static mpi_handle duplicate(MPI_Comm base) {
    if (!detail::mpi_has_begun()) {
      throw comm_error("MPI is not initialised: construct a boost::mpi::environment, or call MPI_Init, first");
    }
    return mpi_handle::duplicate_of(base);
  }

  void reserve(const transfer_group& group) {
    counters_.reserve(group.channel);
    const auto members = static_cast<std::int64_t>(group.members.size());
    (void)incoming_staging_.reserve(std::max(options_.window * members * options_.piece_bytes, options_.direct_bytes));
    (void)outgoing_staging_.reserve(options_.window * members * options_.piece_bytes);
    requests_.reserve(static_cast<std::size_t>(options_.window * 4 * members));
    parts_.reserve(group.members.size());
    staged_.reserve(group.members.size());
  }

  void check(int code, const char* routine) const { detail::check_mpi(code, routine, rank_, where_); }

  /// Runs one operation of `group`; afterwards its pairs of ranks count one operation more, whoever sent anything.
  void guarded(const transfer_group& group, espalier::detail::function_ref<void()> operation) {
    begin_operation();
    try {
      operation();
    } catch (...) {
      broken_ = true;
      requests_.abandon();
      throw;
    }
    count_operation(group);
  }
  void begin_operation() {
    if (broken_) {
      throw comm_error(detail::joined(
          {"rank ", rank_, ": an earlier operation of this communicator failed", detail::during(where_)}));
    }
    requests_.reset(0);
  }
  void count_operation(const transfer_group& group) {
    for (const int member : group.members) ++operations_[static_cast<std::size_t>(member)];
  }

  void drain(espalier::detail::function_ref<void(std::size_t)> finished) {
    const auto result = requests_.drain(
        finished, [this](int code) { check(code, "MPI_Testsome"); }, [this] { look_for_other_calls(); });
    if (result == detail::request_table::outcome::all_done) return;
    throw comm_error(detail::expired_text(rank_, operation_, requests_.deadline(), requests_.missing(), where_));
  }

  /// Tells consecutive operations of a pair, the two directions of an all-reduce, and the slots of its window apart,
  /// and says what the operation is.
  [[nodiscard]] int tag(int rank, int phase, int slot) const {
    return label_ | ((operations_[static_cast<std::size_t>(rank)] % 4096) * 8 + phase * 4 + slot);
  }

  void send(std::size_t place, const void* data, std::int64_t bytes, int rank, int label) {
    MPI_Request* request = requests_.start(place, rank, false);
    check(MPI_Isend(data, static_cast<int>(bytes), detail::bytes_type(), rank, label, communicator_, request),
          "MPI_Isend");
  }

  void receive(std::size_t place, void* data, std::int64_t bytes, int rank, int label) {
    MPI_Request* request = requests_.start(place, rank, true);
    check(MPI_Irecv(data, static_cast<int>(bytes), detail::bytes_type(), rank, label, communicator_, request),
          "MPI_Irecv");
  }

  // ---- exchange -------------------------------------------------------------------------------------------------

  [[nodiscard]] std::size_t message_count(std::int64_t bytes) const {
    return static_cast<std::size_t>((bytes + options_.message_bytes - 1) / options_.message_bytes);
  }

  void send_messages(const std::byte* data, std::int64_t bytes, int rank) {
    for (std::int64_t done = 0; done < bytes; done += options_.message_bytes) {
      send(requests_.append(), data + done, std::min(options_.message_bytes, bytes - done), rank, tag(rank, 0, 0));
    }
  }

  void receive_messages(std::byte* data, std::int64_t bytes, int rank) {
    for (std::int64_t done = 0; done < bytes; done += options_.message_bytes) {
      receive(requests_.append(), data + done, std::min(options_.message_bytes, bytes - done), rank, tag(rank, 0, 0));
    }
  }

  static std::int64_t aligned(std::int64_t bytes) {
    return (bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
  }

  template <class Start>
  static std::int64_t staging_bytes(const transfer& moves, const std::vector<block>& boxes, Start start) {
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < boxes.size(); ++k) {
      const block& box = boxes[k];
      const bool staged = k != static_cast<std::size_t>(moves.self) && start(box, 0, box.elements()) < 0;
      if (staged) bytes += aligned(box.elements() * size_of(moves.type));
    }
    return bytes;
  }

  /// Members other than this one, starting behind it, so that not everybody sends to the same rank first.
  template <class Visit> static void for_each_peer(const transfer_group& group, Visit visit) {
    const int members = static_cast<int>(group.members.size());
    for (int step = 1; step < members; ++step) {
      const auto k = static_cast<std::size_t>((group.self + step) % members);
      visit(k, group.members[k]);
    }
  }

  void post_receives(const transfer& moves, std::byte* target) {
    const std::int64_t element = size_of(moves.type);
    std::byte* staging = incoming_staging_.reserve(staging_bytes(moves, moves.incoming, &detail::contiguous_target));
    staged_.assign(moves.members.size(), {});
    for_each_peer(moves, [&](std::size_t k, int rank) {
      const block& box = moves.incoming[k];
      const std::int64_t bytes = box.elements() * element;
      const std::int64_t start = detail::contiguous_target(box, 0, box.elements());
      staged_[k].messages = static_cast<int>(message_count(bytes));
      if (start >= 0) {
        receive_messages(target + start * element, bytes, rank);
        return;
      }
      staged_[k].memory = staging;
      receive_messages(staging, bytes, rank);
      staging += aligned(bytes);
    });
  }

  void post_sends(const transfer& moves, const std::byte* source) {
    const std::int64_t element = size_of(moves.type);
    std::byte* staging = outgoing_staging_.reserve(staging_bytes(moves, moves.outgoing, &detail::contiguous_source));
    for_each_peer(moves, [&](std::size_t k, int rank) {
      const block& box = moves.outgoing[k];
      const std::int64_t bytes = box.elements() * element;
      const std::int64_t start = detail::contiguous_source(box, 0, box.elements());
      if (start >= 0) {
        send_messages(source + start * element, bytes, rank);
        return;
      }
      pack(moves.type, staging, source, box);
      send_messages(staging, bytes, rank);
      staging += aligned(bytes);
    });
  }

  void unpack_arrived(const transfer& moves, void* target, std::size_t place) {
    const detail::request_table::entry& ended = requests_.at(place);
    if (!ended.incoming) return;
    const auto k = static_cast<std::size_t>(espalier::detail::place_in(moves.members, ended.rank));
    staged_box& box = staged_[k];
    if (--box.messages == 0 && box.memory != nullptr) unpack(moves.type, target, box.memory, moves.incoming[k]);
  }

  // ---- reductions -----------------------------------------------------------------------------------------------

  [[nodiscard]] std::int64_t piece_elements(const reduce_job& job) const {
    return std::max<std::int64_t>(options_.piece_bytes / size_of(job.by.type), 1);
  }

  /// Elements of a share in piece `piece`.
  [[nodiscard]] std::int64_t piece_length(const reduce_job& job, std::int64_t elements, std::int64_t piece) const {
    const std::int64_t most = piece_elements(job);
    return std::clamp<std::int64_t>(elements - piece * most, 0, most);
  }

  [[nodiscard]] std::byte* slot_memory(std::byte* staging, const reduce_job& job, int slot, int k) const {
    return staging + (std::int64_t{slot} * job.members() + k) * piece_elements(job) * size_of(job.by.type);
  }

  [[nodiscard]] static std::size_t place_of(const reduce_job& job, int slot, stage what, int k) {
    return static_cast<std::size_t>((slot * 4 + what) * job.members() + k);
  }

  [[nodiscard]] std::int64_t piece_count(const reduce_job& job) const {
    std::int64_t longest = job.own().elements();
    for (int k = 0; k < job.members(); ++k) longest = std::max(longest, job.share_of(k).elements());
    return (longest + piece_elements(job) - 1) / piece_elements(job);
  }

  /// Reduce-scatter, and for an all-reduce all-gather, of one piece of every share after the other, `window` at a time:
  /// while one is reduced the next arrives, and what was reduced is sent on while it is in the cache.
  void run_pipeline(const reduce_job& job) {
    const std::int64_t pieces = piece_count(job);
    const std::int64_t slots = std::min<std::int64_t>(options_.window, pieces);
    const std::int64_t staging = slots * job.members() * piece_elements(job) * size_of(job.by.type);
    (void)incoming_staging_.reserve(staging);
    (void)outgoing_staging_.reserve(staging);
    requests_.reset(static_cast<std::size_t>(slots * 4 * job.members()));
    for (int slot = 0; slot < slots; ++slot) start_piece(job, slot, slot, pieces);
    drain([&](std::size_t place) { advance(job, place, pieces); });
  }

  /// Starts piece `piece` in a slot; goes on to the slot's next pieces when this one needs no message.
  void start_piece(const reduce_job& job, int slot, std::int64_t piece, std::int64_t pieces) {
    for (; piece < pieces; piece += options_.window) {
      pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
      state = {piece, 0, 0};
      receive_contributions(job, slot);
      send_contributions(job, slot);
      if (state.contributions == 0) reduce_piece(job, slot);
      if (state.open > 0) return;
    }
  }

  void receive_contributions(const reduce_job& job, int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const std::int64_t length = piece_length(job, job.own().elements(), state.piece);
    if (length == 0) return;
    std::byte* staging = incoming_staging_.reserve(0);
    for_each_peer(*job.group, [&](std::size_t k, int rank) {
      const int member = static_cast<int>(k);
      receive(place_of(job, slot, contribution_in, member), slot_memory(staging, job, slot, member),
              length * size_of(job.by.type), rank, tag(rank, 0, slot));
      ++state.contributions;
      ++state.open;
    });
  }

  void send_contributions(const reduce_job& job, int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const std::int64_t element = size_of(job.by.type);
    const std::int64_t first = state.piece * piece_elements(job);
    for_each_peer(*job.group, [&](std::size_t k, int rank) {
      const int member = static_cast<int>(k);
      const block share = job.share_of(member);
      const std::int64_t length = piece_length(job, share.elements(), state.piece);
      if (length == 0) return;
      const std::int64_t start = detail::contiguous_source(share, first, length);
      const std::byte* data = job.source + start * element;
      if (start < 0) {
        std::byte* packed = slot_memory(outgoing_staging_.reserve(0), job, slot, member);
        detail::pack_range(job.by.type, packed, job.source, share, first, length);
        data = packed;
      }
      send(place_of(job, slot, contribution_out, member), data, length * element, rank, tag(rank, 0, slot));
      ++state.open;
    });
  }

  void reduce_piece(const reduce_job& job, int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const block own = job.own();
    const std::int64_t element = size_of(job.by.type);
    const std::int64_t first = state.piece * piece_elements(job);
    const std::int64_t length = piece_length(job, own.elements(), state.piece);
    if (length == 0) return;
    parts_.resize(job.group->members.size());
    std::byte* staging = incoming_staging_.reserve(0);
    for (int k = 0; k < job.members(); ++k) {
      parts_[static_cast<std::size_t>(k)] = {slot_memory(staging, job, slot, k), nullptr};
    }
    parts_[static_cast<std::size_t>(job.group->self)] = {job.source, &own};
    detail::reduce_range(job.by, job.target, own, first, length, parts_.data(), job.members());
    if (!job.gathers()) return;
    const std::byte* result = job.target + (own.target_offset + first) * element;
    for_each_peer(*job.group, [&](std::size_t k, int rank) {
      const std::size_t place = place_of(job, slot, result_out, static_cast<int>(k));
      send(place, result, length * element, rank, tag(rank, 1, slot));
      ++state.open;
    });
  }

  /// Member k has this rank's contribution to its piece: its result can come, into the same place of the target. Not
  /// asked for earlier: in place, that memory was still being sent.
  void receive_result(const reduce_job& job, int slot, int k) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const block share = job.share_of(k);
    const std::int64_t length = piece_length(job, share.elements(), state.piece);
    const std::int64_t first = share.target_offset + state.piece * piece_elements(job);
    const int rank = job.group->members[static_cast<std::size_t>(k)];
    receive(place_of(job, slot, result_in, k), job.target + first * size_of(job.by.type), length * size_of(job.by.type),
            rank, tag(rank, 1, slot));
    ++state.open;
  }

  void advance(const reduce_job& job, std::size_t place, std::int64_t pieces) {
    const int k = static_cast<int>(place) % job.members();
    const int slot = static_cast<int>(place) / job.members() / 4;
    const auto what = static_cast<stage>(static_cast<int>(place) / job.members() % 4);
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    if (what == contribution_in && --state.contributions == 0) reduce_piece(job, slot);
    if (what == contribution_out && job.gathers()) receive_result(job, slot, k);
    if (--state.open == 0) start_piece(job, slot, state.piece + options_.window, pieces);
  }

  /// Two ranks, few bytes: each gets all of the other's values and reduces everything, in the same order.
  void swap_and_reduce(const reduce_job& job) {
    const int peer = 1 - job.group->self;
    const int rank = job.group->members[static_cast<std::size_t>(peer)];
    const std::int64_t bytes = job.count * size_of(job.by.type);
    std::byte* staging = incoming_staging_.reserve(bytes);
    if (bytes > 0) {
      receive(requests_.append(), staging, bytes, rank, tag(rank, 0, 0));
      send(requests_.append(), job.source, bytes, rank, tag(rank, 0, 0));
    }
    drain([](std::size_t) {});
    std::array<contribution, 2> parts;
    parts[static_cast<std::size_t>(peer)] = {staging, nullptr};
    parts[static_cast<std::size_t>(job.group->self)] = {job.source, nullptr};
    detail::reduce_range(job.by, job.target, contiguous_block(job.count), 0, job.count, parts.data(), 2);
  }

  mpi_options options_;
  mpi_handle communicator_;
  detail::request_table requests_;
  int rank_;
  int size_;
  std::vector<int> operations_;  // per rank: operations in which both took part
  transfer_group world_;
  const char* operation_ = "";
  int label_ = 0;
  int label_mask_ = plain;
  const context* where_ = nullptr;
  bool broken_ = false;
  detail::staging_buffer incoming_staging_;
  detail::staging_buffer outgoing_staging_;
  espalier::detail::plain_vector<staged_box> staged_;
  espalier::detail::plain_vector<contribution> parts_;
  std::array<pipeline_slot, max_window> slots_;
  detail::byte_counters counters_;
  std::unique_ptr<collective_engine> engine_;
};

static_assert(Communicator<mpi_communicator>);

}  // namespace espalier::comm
