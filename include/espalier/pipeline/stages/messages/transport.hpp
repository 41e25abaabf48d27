// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The place of a rank in a step, for errors.
struct rank_place {
  bool known = false;    ///< false: it did not answer
  int number = -1;       ///< of its text where it was last seen, where only that is known
  bool waiting = false;  ///< for another rank; otherwise it computes
  std::string text;      ///< "F of stage 1 (layers 2 to 3), micro-batch 4, layer 2 (dense)"
};

/// Messages between the ranks of a pipeline, which other collectives never meet. Sends and receives are started and
/// looked at later; none blocks. A message goes to the receive of its sender and tag; several of one tag keep their
/// order. One object per rank, used by one thread.
class transport {
 public:
  /// Tags below this one are the transport's own.
  static constexpr int first_tag = 4;

  transport() = default;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  virtual ~transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The longest wait without any progress.
  [[nodiscard]] virtual std::chrono::duration<double> deadline() const = 0;

  /// Each returns a request. Memory must stay until it is `finished`. @pre to != rank()
  [[nodiscard]] virtual int send(int to, int tag, const void* data, std::int64_t bytes) = 0;
  [[nodiscard]] virtual int receive(int from, int tag, void* data, std::int64_t bytes) = 0;
  /// True once; the request's number may then be given to another one.
  [[nodiscard]] virtual bool finished(int request) = 0;
  /// Moves what can be moved. `idle`: the caller has nothing else to do, and the processor may be left to others.
  /// Errors: `comm_error` with the reason where another rank has failed.
  virtual void progress(bool idle) = 0;
  /// Requests that have ended so far: grows with any progress.
  [[nodiscard]] virtual std::int64_t ended() const = 0;

  /// This rank cannot go on: the others' `progress` throws. `reason` names this rank.
  virtual void fail(const std::string& reason) = 0;
  /// Every rank has made its own.
  virtual void all_are_here() {}
  /// True where the clocks of all ranks are one.
  [[nodiscard]] virtual bool one_clock() const = 0;
  /// The highest tag there is.
  [[nodiscard]] virtual int last_tag() const = 0;
  /// Says where this rank is: number `text` of the texts in use, which stay until the program ends.
  virtual void use_texts(const std::vector<std::string>& texts) = 0;
  virtual void at(int text, bool waiting) = 0;
  /// Asks all ranks where they are, and waits for at most `patience`.
  [[nodiscard]] virtual std::vector<rank_place> ask(std::chrono::duration<double> patience) = 0;
};

}  // namespace espalier::pipeline
