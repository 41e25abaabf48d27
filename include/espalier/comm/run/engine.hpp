// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi.hpp>
#include <espalier/comm/run/collectives.hpp>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace espalier::comm {

/// All-reduces of an `mpi_communicator`'s groups, each generated for the group's part of the network.
class network_engine : public all_reduce_engine {
 public:
  /// @pre the network's ranks are the communicator's
  network_engine(const boost::mpi::communicator& everyone, network net, const collectives_options& options = {})
      : everyone_(everyone), net_(std::move(net)), options_(options) {
    if (net_.ranks != everyone_.size()) {
      throw std::invalid_argument("the topology has " + std::to_string(net_.ranks) + " ranks, but " +
                                  std::to_string(everyone_.size()) + " were started");
    }
  }

  void prepare(const transfer_group& group) override { (void)of(group); }

  std::int64_t all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count, dtype type,
                          reduction kind, const context* where) override {
    collectives& all = of(group);
    collective_call call = uniform_call(operation::all_reduce, all.size(), count);
    call.in_place = source == target;
    all.run(call, call.in_place ? nullptr : source, target, element_of(type, kind), where);
    // The library's own says nothing of what it sends: counted as the least it can be.
    if (all.last_sent_bytes() >= 0) return all.last_sent_bytes();
    return all_reduce_sent_bytes(count, size_of(type), all.size(), group.self);
  }

 private:
  collectives& of(const transfer_group& group) {
    std::unique_ptr<collectives>& found = groups_[group.members];
    if (found == nullptr) {
      MPI_Group whole{};
      MPI_Group chosen{};
      MPI_Comm part{};
      MPI_Comm_group(everyone_, &whole);
      MPI_Group_incl(whole, static_cast<int>(group.members.size()), group.members.data(), &chosen);
      // All members prepare their groups in the same order, so one tag serves.
      detail::check_mpi(MPI_Comm_create_group(everyone_, chosen, 0, &part), "MPI_Comm_create_group", everyone_.rank(),
                        nullptr);
      found = std::make_unique<collectives>(part, restricted(net_, group.members), options_);
      MPI_Comm_free(&part);
      MPI_Group_free(&chosen);
      MPI_Group_free(&whole);
    }
    return *found;
  }

  boost::mpi::communicator everyone_;
  network net_;
  collectives_options options_;
  std::map<std::vector<int>, std::unique_ptr<collectives>> groups_;
};

/// Gives a communicator collectives made for this machine.
inline void use_topology(mpi_communicator& ranks, const topology& machine) {
  collectives_options options;
  options.deadline = ranks.options().deadline;
  ranks.use(std::make_unique<network_engine>(ranks.base(), network_of(machine), options));
}

}  // namespace espalier::comm
