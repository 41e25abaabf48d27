// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace espalier::comm {

template <Communicator Kind> class communicator_as;

/// A communicator whose kind is known at run time only: what it does takes far longer than a virtual call, and what is
/// written for it is compiled once for all kinds.
class any_communicator {
 public:
  any_communicator() = default;
  any_communicator(const any_communicator&) = delete;
  any_communicator& operator=(const any_communicator&) = delete;
  virtual ~any_communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void prepare(const transfer& moves) = 0;
  virtual void prepare(const transfer_group& group) = 0;
  virtual void exchange(const transfer& moves, const void* source, void* target) = 0;
  virtual void reduce_exchange(const transfer& moves, const void* source, void* target, const reducer& by) = 0;
  virtual void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count,
                          const reducer& by) = 0;
  virtual void barrier() = 0;
  virtual void broadcast(void* data, std::int64_t bytes, int root) = 0;
  [[nodiscard]] virtual std::span<const std::int64_t> counters() const = 0;
  virtual void reset_counters() = 0;
  virtual void set_context(const context* where) = 0;
  virtual void abort(const std::string& reason) = 0;

  /// The communicator itself, if it is of this kind; null otherwise.
  template <Communicator Kind> [[nodiscard]] Kind* as() {
    auto* const one = dynamic_cast<communicator_as<Kind>*>(this);
    return one == nullptr ? nullptr : &one->communicator();
  }
};

static_assert(Communicator<any_communicator>);

/// A communicator of one kind, which outlives this.
template <Communicator Kind> class communicator_as final : public any_communicator {
 public:
  explicit communicator_as(Kind& communicator) : communicator_(&communicator) {}
  [[nodiscard]] Kind& communicator() const { return *communicator_; }

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int size() const override { return communicator_->size(); }
  void prepare(const transfer& moves) override { communicator_->prepare(moves); }
  void prepare(const transfer_group& group) override { communicator_->prepare(group); }
  void exchange(const transfer& moves, const void* source, void* target) override {
    communicator_->exchange(moves, source, target);
  }
  void reduce_exchange(const transfer& moves, const void* source, void* target, const reducer& by) override {
    communicator_->reduce_exchange(moves, source, target, by);
  }
  void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count,
                  const reducer& by) override {
    communicator_->all_reduce(group, source, target, count, by);
  }
  void barrier() override { communicator_->barrier(); }
  void broadcast(void* data, std::int64_t bytes, int root) override { communicator_->broadcast(data, bytes, root); }
  [[nodiscard]] std::span<const std::int64_t> counters() const override { return communicator_->counters(); }
  void reset_counters() override { communicator_->reset_counters(); }
  void set_context(const context* where) override { communicator_->set_context(where); }
  void abort(const std::string& reason) override { communicator_->abort(reason); }

 private:
  Kind* communicator_;
};

}  // namespace espalier::comm
