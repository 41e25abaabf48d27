// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi.hpp>
#include <espalier/comm/run/collectives.hpp>
#include <espalier/comm/run/joint_plans.hpp>
#include <espalier/comm/run/transfer_call.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// All-reduces, reduce-scatters, all-gathers and all-to-alls of an `mpi_communicator`'s groups, each generated for the
/// group's part of the network.
///
/// All groups that ranks prepare together are taken to run together, as the groups of a mesh axis do: what they share
/// of the network is divided by a joint packing, made on rank 0. Groups whose members the network does not connect, and
/// permutations, are left to the communicator.
class network_engine : public collective_engine {
 public:
  /// @pre the network's ranks are the communicator's
  network_engine(const mpi_handle& everyone, network net, const collectives_options& options = {})
      : everyone_(everyone), net_(std::move(net)), options_(options), together_(everyone_, options.deadline, true) {
    if (net_.ranks != everyone_.size()) {
      throw std::invalid_argument("the topology has " + std::to_string(net_.ranks) + " ranks, but " +
                                  std::to_string(everyone_.size()) + " were started");
    }
  }

  void prepare(const transfer_group& group) override { (void)of(group).with(*this, collective::all_reduce); }

  void prepare(const transfer& moves) override {
    served_group& group = of(moves);
    const int notes = united(detail::notes_on(moves));
    const auto what = detail::collective_of_notes(notes);
    known_transfer& known = transfers_[&moves];
    known = {moves, std::nullopt};
    if (!what) return;
    (void)group.with(*this, *what);
    if (!group.connected) return;
    detail::plan_words sent;
    if (*what == collective::all_to_all) {
      for (const block& box : moves.outgoing) sent.push_back(box.elements());
      sent = detail::agreement(group.part, options_.deadline, true).from_all(sent, "for the sizes of an all-to-all");
    }
    known.prepared.emplace(moves, *what, std::move(sent));
  }

  std::optional<std::int64_t> all_reduce(const transfer_group& group, const void* source, void* target,
                                         std::int64_t count, const reducer& by, const context* where) override {
    served_group& served = of(group);
    if (!served.connected) return std::nullopt;
    collectives& all = *served.with(*this, collective::all_reduce);
    collective_call call = uniform_call(collective::all_reduce, all.size(), count);
    call.in_place = source == target;
    all.run(call, call.in_place ? nullptr : source, target, element_of(by), where);
    return sent_by(all, all_reduce_sent_bytes(count, size_of(by.type), all.size(), group.self));
  }

  std::optional<std::int64_t> exchange(const transfer& moves, const void* source, void* target,
                                       const context* where) override {
    element what = bytes_of_size(size_of(moves.type));
    what.type = detail::library_type(moves.type);
    return run(moves, source, target, false, what, where);
  }

  std::optional<std::int64_t> reduce_exchange(const transfer& moves, const void* source, void* target,
                                              const reducer& by, const context* where) override {
    return run(moves, source, target, true, element_of(by), where);
  }

 private:
  /// A group and all others that were prepared with it.
  struct served_group {
    std::vector<std::vector<int>> together;
    std::size_t own = 0;
    bool connected = false;
    MPI_Comm part{};
    /// The objects by collective. Where groups don't compete, one object serves all operations.
    std::map<collective, std::shared_ptr<collectives>> by_collective;

    served_group() = default;
    served_group(const served_group&) = delete;
    served_group& operator=(const served_group&) = delete;
    ~served_group() {
      int finalised = 0;
      MPI_Finalized(&finalised);
      if (connected && finalised == 0) MPI_Comm_free(&part);
    }

    [[nodiscard]] const std::vector<int>& members() const { return together[own]; }

    /// The first time collective over all ranks. Null if the group is not connected.
    collectives* with(network_engine& engine, collective what) {
      const auto found = by_collective.find(what);
      if (found != by_collective.end()) return found->second.get();
      std::shared_ptr<collectives>& made = by_collective[what];
      const auto shares = detail::shares_from(engine.together_.from_root(
          "for rank 0's plan", [&] { return detail::to_words(detail::shares_for(engine.net_, together, what)); }));
      if (!connected) return nullptr;
      if (shares) {
        network mine_alone = own_share(engine.net_, members(), shares->unit, shares->capacities.at(own));
        made = std::make_shared<collectives>(part, std::move(mine_alone), engine.options_);
        return made.get();
      }
      for (const auto& [other, same] : by_collective)
        if (same != nullptr) made = same;
      if (made == nullptr)
        made = std::make_shared<collectives>(part, restricted(engine.net_, members()), engine.options_);
      return made.get();
    }
  };

  /// A transfer as it was when it was prepared.
  struct known_transfer {
    transfer moves;
    std::optional<detail::transfer_call> prepared;

    [[nodiscard]] bool is(const transfer& other) const {
      return moves.members == other.members && moves.type == other.type && moves.outgoing == other.outgoing &&
             moves.incoming == other.incoming;
    }
  };

  std::optional<std::int64_t> run(const transfer& moves, const void* source, void* target, bool reduces,
                                  const element& what, const context* where) {
    const auto found = transfers_.find(&moves);
    if (found == transfers_.end() || !found->second.is(moves)) {
      throw comm_error("a transfer was used that had not been prepared, or was copied since" + detail::during(where) +
                       "\n  prepare it where it stays");
    }
    std::optional<detail::transfer_call>& prepared = found->second.prepared;
    if (!prepared || (prepared->kind() == collective::reduce_scatter) != reduces ||
        total_elements(prepared->call) == 0) {
      return std::nullopt;
    }
    collectives& all = *of(moves).with(*this, prepared->kind());
    const void* const input = prepared->gather_input(moves.type, source);
    all.run(prepared->call, input, prepared->output(moves.type, target), what, where);
    prepared->scatter_output(moves.type, target);
    return sent_by(all, sent_bytes(moves));
  }

  /// The library's own collectives say nothing of what they send: counted as the least it can be.
  static std::int64_t sent_by(const collectives& all, std::int64_t least) {
    return all.last_sent_bytes() >= 0 ? all.last_sent_bytes() : least;
  }

  /// The first time collective over all ranks.
  served_group& of(const transfer_group& group) {
    std::unique_ptr<served_group>& found = groups_[group.members];
    if (found != nullptr) return *found;
    auto made = std::make_unique<served_group>();
    made->together = detail::all_groups(together_, group);
    const auto at = std::find(made->together.begin(), made->together.end(), group.members);
    if (at == made->together.end()) throw comm_error("a rank was given another group than the group's first rank");
    made->own = static_cast<std::size_t>(at - made->together.begin());
    if (is_connected(restricted(net_, group.members))) {
      MPI_Group whole{};
      MPI_Group chosen{};
      MPI_Comm_group(everyone_, &whole);
      MPI_Group_incl(whole, static_cast<int>(group.members.size()), group.members.data(), &chosen);
      // All members prepare their groups in the same order, so one tag serves.
      detail::check_mpi(MPI_Comm_create_group(everyone_, chosen, 0, &made->part), "MPI_Comm_create_group",
                        everyone_.rank(), nullptr);
      MPI_Group_free(&chosen);
      MPI_Group_free(&whole);
      made->connected = true;
    }
    found = std::move(made);
    return *found;
  }

  /// The notes of all ranks.
  [[nodiscard]] int united(int mine) {
    int all = 0;
    for (const std::int64_t one : together_.from_all({mine}, "for a transfer's kind")) all |= static_cast<int>(one);
    return all;
  }

  mpi_handle everyone_;
  network net_;
  collectives_options options_;
  detail::agreement together_;
  std::map<std::vector<int>, std::unique_ptr<served_group>> groups_;
  std::map<const transfer*, known_transfer> transfers_;
};

/// Gives a communicator collectives made for this network. Every rank calls it, before it prepares any group; from then
/// on preparing is collective over all ranks.
/// @param options  the deadline is the communicator's own
inline void use_network(mpi_communicator& ranks, network net, collectives_options options = {}) {
  options.deadline = ranks.options().deadline;
  ranks.use(std::make_unique<network_engine>(ranks.base(), std::move(net), options));
}

/// The same for a machine whose ranks are the communicator's.
inline void use_topology(mpi_communicator& ranks, const topology& machine, const collectives_options& options = {}) {
  use_network(ranks, network_of(machine), options);
}

}  // namespace espalier::comm
